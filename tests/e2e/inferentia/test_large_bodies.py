"""The benchmark of large bodies runs, and its clients are not kept waiting: ten times less would still pass."""

from __future__ import annotations

import sys
from pathlib import Path

from neuron_journey import ROOT, run

LEAST_MB_PER_S = 100


def test_identity_model_takes_in_100_megabytes_per_second(tmp_path: Path) -> None:
    script = str(ROOT / "benchmarks/large_bodies.py")
    printed = run(tmp_path, [sys.executable, script, "--cases", "identity", "--rounds", "1", "--seconds", "1"])
    name, ours, peer, *_ = printed.splitlines()[1].split()
    assert (name, peer) == ("identity", "0")
    assert float(ours) >= LEAST_MB_PER_S
