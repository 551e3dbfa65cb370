"""What a language model's engine says of the time between two snapshots: where that of an answer goes, and tokens."""

from __future__ import annotations

from operator import sub
from typing import Final, NamedTuple

from trireme.observe.stats import ModelStats

ENGINE_COLUMNS: Final = ("engine_queue_us", "prefill_us", "decode_us", "first_token_us", "tokens_per_s")
"""Means of the answers that have ended, and the tokens of these; the rest of an answer's tokens are decoded behind the
first one, which the prefill makes."""


class EngineSnapshot(NamedTuple):
    """What the engine has measured of all answers until one moment."""

    at_s: float
    began_ns: int
    """When the copy that counts was made: another copy counts from zero."""
    answer_count: int
    queue_ns: int
    prefill_ns: int
    decode_ns: int
    first_token_ns: int
    token_count: int


def read_engine(stats: ModelStats, now_s: float) -> EngineSnapshot | None:
    """None for a model that measures nothing of the kind, or has not answered yet."""
    answers, first_token_ns = stats.measured("first_token")
    if not answers:
        return None
    tokens, decode_ns = stats.measured("output_token")
    queue_ns, prefill_ns = stats.measured("queue")[1], stats.measured("prefill")[1]
    return EngineSnapshot(
        now_s, stats.began_ns, answers, queue_ns, prefill_ns, decode_ns, first_token_ns, answers + tokens
    )


def engine_figures(before: EngineSnapshot | None, now: EngineSnapshot, passed_s: float) -> list[float]:
    """In the order of the columns; nothing but zeros where no answer has ended."""
    if before is None or before.began_ns != now.began_ns:
        before = EngineSnapshot(now.at_s, now.began_ns, 0, 0, 0, 0, 0, 0)
    answers, *sums, tokens = map(sub, now[2:], before[2:])
    if not answers or passed_s <= 0:
        return [0.0] * len(ENGINE_COLUMNS)
    return [*(ns / answers / 1000 for ns in sums), tokens / passed_s]
