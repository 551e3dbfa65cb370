"""Threads of numpy's matrix products: one inside, as many as before outside."""

from __future__ import annotations

import numpy as np
import pytest

from trireme.llm.executors.numpy import blas_threads


def test_products_take_one_thread_for_a_while() -> None:
    np.ones((8, 8)) @ np.ones((8, 8))
    calls = blas_threads._calls()
    if calls is None:
        pytest.skip("numpy has another library than OpenBLAS")
    count, set_to = calls
    before = count()
    set_to(2)
    try:
        with blas_threads.one_thread():
            assert count() == 1
        assert count() == 2
    finally:
        set_to(before)


def test_another_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas_threads, "_calls", lambda: None)
    with blas_threads.one_thread():
        assert (np.ones((2, 2)) @ np.ones((2, 2))).sum() == 8
