"""What the engine of a language model says of the time between two snapshots."""

from __future__ import annotations

from trireme.console.engine_figures import ENGINE_COLUMNS, engine_figures, read_engine
from trireme.observe.stats import ModelStats


def answer(stats: ModelStats, tokens: int) -> None:
    """One answer: a millisecond in the queue, two of prefill, three for each further token."""
    stats.record_measured(
        {
            "queue": (1, 1_000_000),
            "prefill": (1, 2_000_000),
            "first_token": (1, 3_000_000),
            "output_token": (tokens - 1, 3_000_000 * (tokens - 1)),
            "prompt_tokens": (7, 0),
        }
    )


def test_model_that_measures_nothing_has_no_snapshot() -> None:
    stats = ModelStats("m", 1)
    stats.record_measured({"tokenizing": (1, 5)})
    assert read_engine(stats, 1.0) is None


def test_means_of_the_answers_in_between_and_their_tokens() -> None:
    stats = ModelStats("m", 1)
    answer(stats, 100)
    before = read_engine(stats, 0.0)
    answer(stats, 11)
    answer(stats, 31)
    now = read_engine(stats, 10.0)
    assert now is not None
    found = dict(zip(ENGINE_COLUMNS, engine_figures(before, now, 10.0), strict=True))
    assert found == {
        "engine_queue_us": 1000,
        "prefill_us": 2000,
        "decode_us": 60_000,
        "first_token_us": 3000,
        "tokens_per_s": 4.2,
    }
    assert engine_figures(now, now, 10.0) == [0.0] * 5


def test_first_answers_count_from_zero_and_so_does_another_copy() -> None:
    old, new = ModelStats("m", 1, clock=lambda: 1), ModelStats("m", 1, clock=lambda: 2)
    for _ in range(5):
        answer(old, 21)
    answer(new, 21)
    before, now = read_engine(old, 0.0), read_engine(new, 10.0)
    assert now is not None
    assert engine_figures(before, now, 10.0) == engine_figures(None, now, 10.0)
    assert engine_figures(None, now, 10.0)[-1] == 2.1
