"""Many answers that follow different grammars, beside free ones, write what each of them writes alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from trireme.llm import Engine, SamplingParams
from trireme.llm.generation import TextOutput
from trireme.llm.grammar import mask_turns
from trireme.llm.options import SpeculationMode
from trireme.llm.request import FinishReason

TREE = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"v": {"enum": [1, 2]}, "c": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
            "required": ["v"],
            "additionalProperties": False,
        }
    },
    "$ref": "#/$defs/node",
}
ASKED: tuple[Callable[[Engine], Any], ...] = (
    lambda engine: engine.grammars.json_schema(TREE),
    lambda engine: None,
    lambda engine: engine.grammars.json_schema({"enum": [f"text {number}" for number in range(900)]}),
    lambda engine: engine.grammars.regex("(.*a){6}b|([a-z]{1,9}-){2,5}x"),
    lambda engine: None,
    lambda engine: engine.grammars.notation('start: e "!"\ne: e e | "a" | "b"'),
)
REQUESTS = 24


class Heard:
    """All outputs of one request, by its choices."""

    def __init__(self, leaves_behind: int = 0) -> None:
        """`leaves_behind` so many outputs, if any, the client leaves."""
        self.choices: dict[int, list[TextOutput]] = {}
        self.has_ended = threading.Event()
        self.cancel: Callable[[], None] = lambda: None
        self._left = leaves_behind

    def __call__(self, output: TextOutput) -> None:
        self.choices.setdefault(output.index, []).append(output)
        self._left -= 1
        if self._left == 0:
            self.cancel()
        if output.is_last:
            self.has_ended.set()

    @property
    def told(self) -> list[tuple[Any, ...]]:
        """Of each choice its text and tokens, their ranks, and why it has ended."""
        return [
            (
                "".join(one.text for one in outputs),
                [token for one in outputs for token in one.token_ids],
                [entry.rank for one in outputs for entry in one.logprobs],
                outputs[-1].finish_reason,
                outputs[-1].error,
            )
            for _, outputs in sorted(self.choices.items())
        ]


def ask(engine: Engine, number: int, leaves_behind: int = 0) -> Heard:
    params = SamplingParams(
        temperature=float(number % 4 > 0),
        seed=number,
        max_tokens=40,
        grammar=ASKED[number % len(ASKED)](engine),
        choices=8 if number % 8 == 3 else 1,
        logprobs=2 if number % 5 == 0 else None,
        stop=("e",) if number % 7 == 0 else (),
    )
    heard = Heard(leaves_behind)
    heard.cancel = engine.submit([5, 9, 5, 9, number + 3], params, heard).cancel
    return heard


@pytest.mark.parametrize(
    ("has_slow_ones", "speculation"), [(False, SpeculationMode.NGRAM), (True, SpeculationMode.OFF)]
)
def test_answers_are_those_of_requests_that_are_alone(
    start_random: Callable[..., Engine],
    monkeypatch: pytest.MonkeyPatch,
    has_slow_ones: bool,
    speculation: SpeculationMode,
) -> None:
    alone: list[list[tuple[Any, ...]]] = []
    engine = start_random()
    for number in range(REQUESTS):
        heard = ask(engine, number)
        assert heard.has_ended.wait(60)
        alone.append(heard.told)
    if has_slow_ones:
        monkeypatch.setattr(mask_turns, "QUICK_S", -1.0)
        monkeypatch.setattr(mask_turns, "_STEP_S", 1e-9)
    engine = start_random(blocks=60, max_sequences=8, speculation=speculation)
    leaving = {number: 3 for number in range(REQUESTS) if number % 9 == 4}
    together = [ask(engine, number, leaving.get(number, 0)) for number in range(REQUESTS)]
    assert all(heard.has_ended.wait(60) for heard in together)
    for number, heard in enumerate(together):
        if number not in leaving:
            assert heard.told == alone[number], number
    assert {told[3] for number in leaving for told in together[number].told} <= {*FinishReason} - {FinishReason.ERROR}
    stats = engine.core.stats()
    assert stats.preemptions > 0
    assert (stats.running, stats.waiting, stats.free_blocks) == (0, 0, stats.block_count)
