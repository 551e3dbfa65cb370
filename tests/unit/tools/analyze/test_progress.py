"""Where there is no terminal a person still sees that something goes on, and what."""

from __future__ import annotations

import re

import pytest
from waiting import until

from trireme.tools.analyze.options import OutputOptions
from trireme.tools.analyze.progress import Progress
from trireme.tools.perf.load.process import LoadState


def test_what_takes_long_is_told_again(capfd: pytest.CaptureFixture[str]) -> None:
    progress, told = Progress(OutputOptions(), silent_s=0.05), [""]

    def is_told(pattern: str) -> bool:
        told.append(capfd.readouterr().err)
        return re.search(pattern, "".join(told)) is not None

    with progress.repeating():
        progress.begin("starting the server")
        until(lambda: is_told(r"starting the server: \d+ s\n(.*\n)*.*starting the server: \d+ s\n"))
        progress.begin("m_config_0, concurrency 4")
        progress.show_state(LoadState(total=7, outstanding=4, cpu_s=0.0, error=None))
        until(lambda: is_told(r"m_config_0, concurrency 4: \d+ s, answered 7, under way 4\n"))


@pytest.mark.parametrize("options", [OutputOptions(verbosity=-1), OutputOptions(shows_progress=False)])
def test_who_wants_silence_has_it(options: OutputOptions) -> None:
    assert not Progress(options)._repeats
    assert Progress(OutputOptions())._repeats


@pytest.mark.parametrize("verbosity", [0, -1])
def test_what_became_of_it_is_told_to_whoever_wants_results_alone(
    capfd: pytest.CaptureFixture[str], verbosity: int
) -> None:
    progress = Progress(OutputOptions(verbosity=verbosity))
    progress.tell("on the way")
    progress.conclude("it holds")
    told = capfd.readouterr().err
    assert told.endswith("it holds\n")
    assert ("on the way" in told) == (verbosity == 0)
