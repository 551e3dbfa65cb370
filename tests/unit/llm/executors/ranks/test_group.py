"""Ranks that meet, and ranks that cannot."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from trireme.llm.executors.port import ExecutorError
from trireme.llm.executors.ranks import group
from trireme.llm.executors.ranks.division import Part
from trireme.llm.executors.ranks.group import RankGroup

CPU = torch.device("cpu")


def test_two_ranks_meet_and_add_up(tmp_path: Path) -> None:
    def join_and_add(rank: int) -> list[float]:
        joined = RankGroup(Part(rank, 2), str(tmp_path / "store"), CPU, 30)
        found: list[float] = joined.sum(torch.tensor([1.0 + rank, 10.0])).tolist()
        return found

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(join_and_add, range(2))) == [[3.0, 20.0]] * 2


def test_a_library_that_finds_no_way_to_the_others_fails_the_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Any) -> None:
        raise RuntimeError("Duplicate GPU detected")

    monkeypatch.setattr(group, "_gloo", lambda *_: SimpleNamespace(allreduce=refuse))
    with pytest.raises(ExecutorError, match="rank 1 of 2 does not reach the others by gloo: Duplicate GPU detected"):
        RankGroup(Part(1, 2), str(tmp_path / "store"), CPU, 30)
