"""What `--apply` makes of the numbers that a written configuration has, on a machine whose speed changes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trireme.tools.analyze.apply import apply_best
from trireme.tools.analyze.checkpoint import Findings
from trireme.tools.analyze.errors import Interrupted, MeasurementError
from trireme.tools.analyze.options import Constraint, Goals, ModelOptions
from trireme.tools.analyze.ranking import Ranking
from trireme.tools.analyze.report.subject import Subject
from trireme.tools.analyze.trial import Load, Measured, Result, Setting, Trial
from trireme.tools.client.errors import AnswerError

OWN = 'backend: "python"\nmax_batch_size: 4\n'
CONFIG = {"name": "m", "backend": "python", "max_batch_size": 4, "instance_group": [{"count": 1, "kind": "KIND_CPU"}]}
TRIAL = Trial((("m", Setting(2, 8)),), (Load("m", 16),))
QUICK = 50.0
"""A p99 in ms that keeps the bound."""
SLOW = 150.0

Numbers = tuple[float, float] | Exception
"""Inferences per second and p99, or why there are none."""


def result(numbers: tuple[float, float]) -> Result:
    metrics = {"perf_throughput": numbers[0], "perf_latency_p99": numbers[1]}
    return Result(TRIAL, (Measured("m", metrics),))


@dataclass
class Machine:
    """Session and control at once: the numbers that come, and what lay in the file when they were measured."""

    path: Path
    written: list[Numbers]
    searched: list[Numbers] = field(default_factory=list)
    seen: list[tuple[str, bool]] = field(default_factory=list)
    """How it was measured, and whether the file was the new one."""
    kept: list[str] = field(default_factory=list)
    put: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    loaded: list[bool] = field(default_factory=list)
    """Whether the file was the new one, at each load."""
    on_look: Callable[[], None] = lambda: None
    """Called when somebody measures."""

    def reload(self, model: str) -> None:
        self.loaded.append(self.path.read_text() != OWN)

    def measure_as_it_is(self, trial: Trial) -> Result:
        return self._next("written", self.written)

    def measure_as_searched(self, trial: Trial) -> Result:
        return self._next("searched", self.searched)

    def keep(self, models: list[str]) -> None:
        self.kept += models

    def put_back(self, models: list[str]) -> list[str]:
        self.put += models
        return self.problems

    def _next(self, how: str, coming: list[Numbers]) -> Result:
        self.seen.append((how, self.path.read_text() != OWN))
        self.on_look()
        numbers = coming.pop(0)
        if isinstance(numbers, Exception):
            raise numbers
        return result(numbers)


def apply(folder: Path, written: list[Numbers], searched: list[Numbers], **more: Any) -> tuple[int, Machine, str]:
    """For a configuration that had 100 inferences per second, with a p99 of 50 ms that is to stay below 100."""
    (folder / "m").mkdir()
    path = folder / "m/config.pbtxt"
    path.write_text(OWN)
    machine = Machine(path, written, searched, **more)
    findings = Findings(configs={"m": CONFIG})
    findings.add(result((100.0, QUICK)))
    ranking = Ranking([ModelOptions("m", Goals(constraints=(Constraint("perf_latency_p99", most=100.0),)))])
    subject = Subject(("m",), ("m",), findings, ranking, 2)
    told: list[str] = []
    options: Any = SimpleNamespace(repository=str(folder))
    both: Any = machine
    code = apply_best(options, [subject], both, both, told.append)
    return code, machine, "\n".join(told)


def test_what_reaches_nine_tenths_of_its_promise_is_kept_without_another_look(tmp_path: Path) -> None:
    code, machine, told = apply(tmp_path, [(91.0, QUICK)], [])
    assert code == 0
    assert machine.seen == [("written", True)]
    assert machine.kept == ["m"]
    assert machine.put == []
    assert told.endswith("measured again, it holds")
    assert "count: 2" in machine.path.read_text()


def test_on_a_machine_that_is_slower_now_it_is_compared_with_what_was_searched_beside_it(tmp_path: Path) -> None:
    code, machine, told = apply(tmp_path, [(47.0, QUICK)], [(50.0, QUICK)])
    assert code == 0
    assert machine.seen == [("written", True), ("searched", False)], "the search knew nothing of the new file"
    assert "the machine is slower than it was: 47.0 inferences per second as written, 50.0" in told
    assert "100.0 during the search" in told
    assert "count: 2" in machine.path.read_text()
    assert machine.loaded == [False, True, False, False, True], "what it was is loaded between what is the same"
    assert machine.kept == ["m"]


def test_what_is_slower_than_what_was_searched_at_the_same_time_is_taken_back(tmp_path: Path) -> None:
    code, machine, told = apply(tmp_path, [(40.0, QUICK)] * 3, [(60.0, QUICK), (98.0, QUICK), (55.0, QUICK)])
    assert code == 6
    assert [how for how, _ in machine.seen] == ["written", "searched"] * 3
    assert machine.path.read_text() == OWN
    assert machine.put == ["m"]
    assert machine.kept == []
    assert "did not hold: 40.0 inferences per second as written, 98.0 of what was searched" in told


def test_one_turn_that_holds_is_enough(tmp_path: Path) -> None:
    code, machine, _ = apply(tmp_path, [(40.0, QUICK), (95.0, QUICK)], [(90.0, QUICK)])
    assert code == 0
    assert len(machine.seen) == 3


@pytest.mark.parametrize(
    ("beside", "reason"),
    [(QUICK, "it did not keep the constraints;"), (SLOW, "constraints, and neither did what was searched;")],
    ids=["it alone", "both"],
)
def test_what_does_not_keep_the_constraints_is_taken_back(tmp_path: Path, beside: float, reason: str) -> None:
    code, machine, told = apply(tmp_path, [(100.0, SLOW)] * 3, [(100.0, beside)] * 3)
    assert code == 6
    assert reason in told
    assert machine.path.read_text() == OWN


def test_what_cannot_be_measured_as_written_is_taken_back(tmp_path: Path) -> None:
    code, machine, told = apply(tmp_path, [MeasurementError("requests fail")], [])
    assert code == 6
    assert "could not be measured: requests fail; " in told
    assert machine.path.read_text() == OWN
    assert machine.put == ["m"]


def test_an_interruption_takes_it_back(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        apply(tmp_path, [(40.0, QUICK)], [Interrupted()])
    assert (tmp_path / "m/config.pbtxt").read_text() == OWN


def test_a_model_that_cannot_be_put_back_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(AnswerError, match="no server answers\nanother process tries"):
        apply(tmp_path, [MeasurementError("the server is gone")], [], problems=["no server answers"])
    assert (tmp_path / "m/config.pbtxt").read_text() == OWN


def test_a_file_that_cannot_be_put_back_is_told_and_its_model_is_put_back_all_the_same(tmp_path: Path) -> None:
    put: list[str] = []
    told = (
        "m: the new configuration could not be measured: requests fail\n"
        f"'{tmp_path}/m/config.pbtxt' cannot be written: Is a directory\nanother process tries"
    )
    with pytest.raises(AnswerError, match=re.escape(told)):
        apply(tmp_path, [MeasurementError("requests fail")], [], put=put, on_look=in_the_way_of(tmp_path / "m"))
    assert put == ["m"]


def test_an_interruption_is_one_where_a_file_cannot_be_put_back_as_well(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        apply(tmp_path, [Interrupted()], [], on_look=in_the_way_of(tmp_path / "m"))


def in_the_way_of(folder: Path) -> Callable[[], None]:
    """Lets no file be written any more."""
    return lambda: (folder / ".config.pbtxt.part").mkdir()
