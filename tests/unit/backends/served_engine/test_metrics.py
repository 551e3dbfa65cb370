"""What is told of a single request: times, and counts that take no time."""

from __future__ import annotations

from trireme.backends.served_engine.metrics import EngineMetrics
from trireme.llm.generation import TextOutput, Usage
from trireme.llm.request import SequenceTimes


def told(times: SequenceTimes | None, choices: int = 1) -> dict[str, tuple[int, int]]:
    return EngineMetrics.durations(TextOutput(0, "", usage=Usage(20, 9, 16), times=times), choices)


def test_times_are_parted_at_the_first_step_and_the_first_token() -> None:
    second = 1_000_000_000
    assert told(SequenceTimes(1.0, 2.0, 4.0, 8.0)) == {
        "queue": (1, second),
        "prefill": (1, 2 * second),
        "first_token": (1, 3 * second),
        "output_token": (8, 4 * second),
        "prompt_tokens": (20, 0),
        "cached_tokens": (16, 0),
    }


def test_preemptions_and_guesses_are_told_where_there_were_any() -> None:
    found = told(SequenceTimes(1.0, 2.0, 4.0, 8.0, drafted=7, accepted=5, preemptions=2))
    assert found["preemption_count"] == (2, 0)
    assert (found["draft_tokens"], found["accepted_tokens"]) == ((7, 0), (5, 0))


def test_nothing_is_told_of_a_request_without_a_token() -> None:
    assert told(SequenceTimes(1.0, 2.0, 0.0, 0.0)) == {}
    assert told(None) == {}
