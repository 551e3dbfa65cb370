"""What a session remembers of trials that are measured more than once."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from trireme.tools.analyze.checkpoint import Checkpoint, Findings
from trireme.tools.analyze.errors import MeasurementError
from trireme.tools.analyze.options import Constraint, Goals, ModelOptions, OutputOptions
from trireme.tools.analyze.progress import Progress
from trireme.tools.analyze.ranking import Ranking
from trireme.tools.analyze.session import Session
from trireme.tools.analyze.trial import Load, Measured, Result, Setting, Trial
from trireme.tools.client.errors import ClientError, InputError, TimedOutError, UnreachableError

OWN = Trial((("m", Setting()),), (Load("m", 4),))
TRIAL = Trial((("m", Setting(2, 8)),), (Load("m", 4),))
RANK = Ranking([ModelOptions("m", Goals(constraints=(Constraint("perf_latency_p99", most=60.0),)))]).key


@dataclass
class Server:
    """Gives what it is told to, and takes any setting."""

    coming: list[tuple[float, float] | str | ClientError]
    """Throughput and p99, or why it cannot be measured."""
    used: list[Setting] = field(default_factory=list)

    is_gone: bool = False
    breaks: int = 0
    """So many times it is killed while it loads a configuration, and started again."""

    def forget(self) -> None:
        pass

    def wait_for_server(self) -> None:
        if self.is_gone:
            raise UnreachableError("no server answers")

    def use(self, model: str, setting: Setting, is_cpu_only: bool) -> None:
        self.used.append(setting)
        if self.breaks and not setting.is_default:
            self.breaks -= 1
            raise UnreachableError("the connection broke")

    def is_in_use(self, model: str, setting: Setting) -> bool:
        return True

    def run(self, trial: Trial, is_probe: bool) -> Result:
        next_one = self.coming.pop(0)
        if isinstance(next_one, str):
            raise MeasurementError(next_one)
        if isinstance(next_one, ClientError):
            raise next_one
        metrics = {"perf_throughput": next_one[0], "perf_latency_p99": next_one[1]}
        return Result(trial, (Measured("m", metrics),), 1.0, is_probe)


def session(
    folder: Path, *coming: tuple[float, float] | str | ClientError, is_gone: bool = False, breaks: int = 0
) -> Session:
    server: Any = Server(list(coming), is_gone=is_gone, breaks=breaks)
    progress = Progress(OutputOptions(verbosity=-1))
    return Session(server, server, Findings(), Checkpoint(str(folder)), progress, contextlib.nullcontext)


def throughput(result: Result | None) -> float:
    assert result is not None
    return result.measured[0].metrics["perf_throughput"]


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [((100.0, 50.0), (70.0, 50.0), 100.0), ((70.0, 50.0), (100.0, 50.0), 100.0), ((100.0, 90.0), (70.0, 50.0), 70.0)],
    ids=["slower", "faster", "slower within the bound"],
)
def test_of_a_trial_and_its_repetition_the_better_one_is_remembered(
    tmp_path: Path, first: tuple[float, float], second: tuple[float, float], kept: float
) -> None:
    found = session(tmp_path, first, second)
    found.measure(TRIAL)
    assert throughput(found.measure(TRIAL, again=RANK)) == kept
    assert throughput(found.measure(TRIAL)) == kept
    assert [throughput(one) for one in Checkpoint(str(tmp_path)).read().results] == [kept]
    assert found.count == 2


def test_a_repetition_that_fails_leaves_what_was_measured(tmp_path: Path) -> None:
    found = session(tmp_path, (100.0, 50.0), "no request was answered")
    found.measure(TRIAL)
    assert throughput(found.measure(TRIAL, again=RANK)) == 100.0
    assert found.failures == {}


def test_what_cannot_be_measured_is_not_tried_again(tmp_path: Path) -> None:
    found = session(tmp_path, "no request was answered")
    assert found.measure(TRIAL) is None
    assert found.measure(TRIAL, again=RANK) is None
    assert found.failures == {TRIAL: "no request was answered"}


@pytest.mark.parametrize("error", [InputError("the ensemble is not there"), TimedOutError("it took too long")])
def test_a_configuration_that_does_not_work_is_left_out(tmp_path: Path, error: ClientError) -> None:
    found = session(tmp_path, (100.0, 50.0), error)
    assert found.measure(OWN) is not None
    assert found.measure(TRIAL) is None
    assert found.failures == {TRIAL: str(error)}


def test_a_second_configuration_that_fails_like_the_first_ends_the_search(tmp_path: Path) -> None:
    found = session(tmp_path, "it is broken", "it is broken")
    assert found.measure(OWN) is None
    with pytest.raises(MeasurementError, match="in the same way with another configuration: it is broken"):
        found.measure(TRIAL)


@pytest.mark.parametrize(
    "coming", [("it is broken", "no memory"), ((100.0, 50.0), "it is broken", "it is broken")], ids=["other", "works"]
)
def test_failures_that_may_be_of_one_configuration_do_not(
    tmp_path: Path, coming: tuple[tuple[float, float] | str, ...]
) -> None:
    own = [Trial((("m", Setting()),), (Load("m", clients),)) for clients in (4, 8)]
    found = session(tmp_path, *coming)
    for trial in own[: len(coming) - 1]:
        found.measure(trial)
    assert found.measure(TRIAL) is None


@pytest.mark.parametrize("is_own", [True, False])
def test_what_cannot_be_sent_ends_the_search_as_long_as_nothing_could(tmp_path: Path, is_own: bool) -> None:
    with pytest.raises(InputError, match="which shape"):
        session(tmp_path, InputError("which shape?")).measure(OWN if is_own else TRIAL)


def test_a_server_that_does_not_come_back_ends_the_search(tmp_path: Path) -> None:
    with pytest.raises(UnreachableError, match="no server answers"):
        session(tmp_path, UnreachableError("it broke off"), is_gone=True).measure(TRIAL)


def test_a_server_that_is_started_again_while_it_loads_a_configuration_measures_it(tmp_path: Path) -> None:
    found = session(tmp_path, (100.0, 50.0), (120.0, 50.0), breaks=1)
    assert found.measure(OWN) is not None
    assert throughput(found.measure(TRIAL)) == 120.0
    assert found.failures == {}


def test_a_configuration_that_kills_the_server_each_time_is_left_out(tmp_path: Path) -> None:
    found = session(tmp_path, (100.0, 50.0), breaks=3)
    assert found.measure(OWN) is not None
    assert found.measure(TRIAL) is None
    assert found.failures == {TRIAL: "the connection broke"}


def test_a_setting_that_changes_nothing_is_the_models_own(tmp_path: Path) -> None:
    own = {"max_batch_size": 8, "dynamic_batching": {}, "instance_group": [{"name": "m_0", "count": 2}]}
    server: Any = Server([(100, 20), (200, 20)])
    progress, findings = Progress(OutputOptions(verbosity=-1)), Findings(configs={"m": own})
    tested = Session(server, server, findings, Checkpoint(str(tmp_path)), progress, contextlib.nullcontext)
    assert throughput(tested.measure(OWN)) == 100
    assert throughput(tested.measure(TRIAL)) == 100
    assert (tested.count, server.used) == (1, [Setting()])
    other = Trial((("m", Setting(2, 4)),), (Load("m", 4),))
    assert throughput(tested.measure(other)) == 200


def test_what_other_measurements_of_the_same_have_shown_is_kept(tmp_path: Path) -> None:
    server: Any = Server([(100, 20), (50, 20), (80, 20)])
    progress, findings = Progress(OutputOptions(verbosity=-1)), Findings()
    tested = Session(server, server, findings, Checkpoint(str(tmp_path)), progress, contextlib.nullcontext)
    tested.measure(TRIAL, is_probe=True)
    tested.measure(TRIAL)
    assert throughput(tested.measure(TRIAL, again=RANK)) == 80
    assert [(throughput(one), one.repeats) for one in findings.results] == [(80, (50, 100))]
    assert Checkpoint(str(tmp_path)).read().results == findings.results
    server.coming.append((70, 20))
    assert throughput(tested.measure(TRIAL, again=RANK)) == 80
    assert findings.results[0].repeats == (50, 100, 70)
