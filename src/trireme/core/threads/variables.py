"""The variables by which a process is told how many threads to compute with."""

from __future__ import annotations

from typing import Final

OPENMP: Final = "OMP_NUM_THREADS"
"""MKL and OpenBLAS look there too, behind variables of their own."""
MKL: Final = "MKL_NUM_THREADS"
OPENBLAS: Final = "OPENBLAS_NUM_THREADS"
THREAD_VARIABLES: Final = (OPENMP, MKL, OPENBLAS)
