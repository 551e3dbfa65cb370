"""Decides for whom tokens are drafted before a step is planned, and learns from what the step says of them."""

from __future__ import annotations

from collections.abc import Sequence as Items

from trireme.llm.executors.port import Executor, ExecutorError, WarmUp
from trireme.llm.options import EngineOptions, SpeculationMode
from trireme.llm.request import Sequence
from trireme.llm.speculation.draft_model import ModelDrafter
from trireme.llm.speculation.drafter import Drafter
from trireme.llm.speculation.ngram import NgramDrafter
from trireme.llm.speculation.pace import DraftPace
from trireme.llm.step_plan import Chunk

_MOST_ROWS = 256
"""Tokens of a step, drafts included, up to which it takes about as long as one without drafts on a GPU."""


def make_speculator(executor: Executor, options: EngineOptions, draft: Executor | None) -> Speculator | None:
    """None where nothing is guessed; raises ExecutorError where it cannot be."""
    if options.speculation is SpeculationMode.OFF:
        return None
    if not executor.takes_drafts:
        raise ExecutorError(
            "speculation needs a model whose keys and values are in the engine's blocks, and this one keeps its own: "
            "leave the parameter out"
        )
    if options.speculation is SpeculationMode.NGRAM:
        return Speculator(NgramDrafter(), options.speculation_tokens)
    if draft is None:
        raise ExecutorError("speculation with a draft model needs one: give its folder")
    return Speculator(ModelDrafter(draft, executor.spec.vocab_size), options.speculation_tokens)


class Speculator:
    """Owned by the engine's thread."""

    def __init__(self, drafter: Drafter, most: int) -> None:
        """`most` tokens are drafted at once."""
        self._drafter = drafter
        self._most = most
        self._paces: dict[Sequence, DraftPace] = {}

    @property
    def is_preparing(self) -> bool:
        """Whether the drafter makes something ready; may be asked by any thread."""
        return self._drafter.is_preparing

    def warm_ups(self) -> Items[WarmUp]:
        """What the drafter would otherwise make ready amid traffic."""
        return self._drafter.warm_ups()

    def prepare(self, running: Items[Sequence]) -> None:
        """Gives sequences their drafts for the step that is planned next; who has none under way waits for none."""
        share = _MOST_ROWS // max(1, len(running)) - 1
        wanted = []
        for sequence in running:
            sequence.drafts, sequence.awaits_drafts = (), False
            count = self._wanted(sequence, share)
            if count <= 0:
                continue
            if sequence.pending:
                sequence.awaits_drafts = self._drafter.would_draft(sequence)
            else:
                wanted.append((sequence, count))
        if wanted:
            for (sequence, count), drafts in zip(wanted, self._drafter.draft(wanted), strict=True):
                sequence.drafts = drafts[:count]

    def note(self, chunk: Chunk, accepted: int) -> None:
        """A step has verified a chunk's drafts; its sequence has the tokens that came of it."""
        sequence, drafted = chunk.sequence, len(chunk.drafts)
        sequence.drafted += drafted
        sequence.accepted += accepted
        self._pace_of(sequence).note(drafted, accepted, len(sequence.tokens), self._most)

    def forget(self, sequence: Sequence) -> None:
        """The sequence has ended."""
        self._paces.pop(sequence, None)
        self._drafter.forget(sequence)

    def close(self) -> None:
        """Gives the drafter's memory back."""
        self._paces.clear()
        self._drafter.close()

    def _wanted(self, sequence: Sequence, share: int) -> int:
        """How many tokens to draft once those under way are known: none before the first of the answer is under way."""
        if not sequence.params.speculates or sequence.peers or sequence.grammar is not None:
            return 0
        if sequence.size == sequence.prompt_size or sequence.computed < len(sequence.tokens) - 1:
            return 0
        room = sequence.max_size - sequence.size - 1
        return min(share, room, self._pace_of(sequence).allowed(sequence.size))

    def _pace_of(self, sequence: Sequence) -> DraftPace:
        return self._paces.setdefault(sequence, DraftPace(self._most))
