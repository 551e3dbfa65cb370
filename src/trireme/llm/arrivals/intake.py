"""What becomes of a request before it is scheduled: its checks, and the sequence that writes its answer."""

from __future__ import annotations

import hashlib
import itertools
import secrets
from array import array
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Items
from numbers import Integral

from trireme.llm.adapters.adapter import PlacedAdapter
from trireme.llm.models.spec import DecoderSpec
from trireme.llm.prefix_cache import BlockKeys
from trireme.llm.request import Listener, Sequence
from trireme.llm.sampling_params import LongPromptError, SamplingError, SamplingParams
from trireme.llm.step_plan import SchedulerLimits


class Intake:
    """Knows what the model takes and what the cache has room for; may be called from any thread."""

    def __init__(self, spec: DecoderSpec, limits: SchedulerLimits, clock: Callable[[], float]) -> None:
        self._spec = spec
        self._limits = limits
        self._clock = clock

    def sequence(
        self,
        sequence_id: int,
        tokens: list[int],
        params: SamplingParams,
        listener: Listener,
        *,
        priority: int,
        timeout_s: float | None,
        end_ids: Iterable[int],
        keys: BlockKeys | None,
        adapter: PlacedAdapter | None = None,
        request_id: int | None = None,
    ) -> Sequence:
        """A sequence that has the tokens for itself; raises SamplingError where the prompt can never be continued."""
        numbers = self._checked(tokens, params)
        if type(priority) is not int:
            raise SamplingError(f"'priority' is {priority!r}; it has to be a whole number, and the lowest comes first")
        if timeout_s is not None and not timeout_s >= 0:
            raise SamplingError(f"'timeout_s' is {timeout_s!r}; it has to be a number of seconds, 0 or more")
        now = self._clock()
        limit = min(self._spec.max_positions, self._room(len(tokens), params.beams))
        return Sequence(
            sequence_id,
            tokens,
            len(tokens),
            params,
            listener,
            self._keys(numbers, adapter.salt if adapter else b"") if keys is None else keys.copy(),
            limit if params.max_tokens is None else min(limit, len(tokens) + params.max_tokens),
            seed=_drawn_with(params.seed),
            priority=priority,
            deadline=None if timeout_s is None else now + timeout_s,
            end_ids=frozenset(params.stop_ids) | self._known_ends(params, end_ids),
            arrival=now,
            adapter=adapter,
            request_id=request_id,
            grammar=None if params.grammar is None else params.grammar.start(),
        )

    def keys_of(self, prompt: Items[int], salt: bytes = b"") -> BlockKeys:
        """What the prompt's blocks are called; raises SamplingError where the model does not have one of its ids."""
        return self._keys(self._checked_ids(prompt), salt)

    def _keys(self, numbers: array[int], salt: bytes) -> BlockKeys:
        """Made here, where the caller's thread does it, and not the engine's."""
        keys = BlockKeys(self._limits.block_size, salt)
        if self._limits.has_prefix_cache:
            keys.up_to(numbers, len(numbers) // self._limits.block_size)
        return keys

    def _checked(self, tokens: list[int], params: SamplingParams) -> array[int]:
        if not tokens:
            raise SamplingError("the prompt is empty: it has to have at least one token")
        limit = self._spec.max_positions
        if len(tokens) >= limit:
            raise LongPromptError(
                f"the prompt has {len(tokens)} tokens, and with an answer is longer than the model's context length: "
                f"the model takes {limit}; shorten it"
            )
        self._check_room(len(tokens), params.beams)
        self._checked_ids((*params.logit_bias, *params.stop_ids, *itertools.chain(*params.bad_words)))
        return self._checked_ids(tokens)

    def _check_room(self, prompt_size: int, beams: int) -> None:
        room = self._room(prompt_size, beams)
        if beams > self._limits.max_sequences:
            most = self._limits.max_sequences
            raise SamplingError(f"'num_beams' is {beams}, but {most} sequences can run at the same time")
        if prompt_size + 1 > room:
            what = f"the cache has room for {room} in all" if not beams else f"for {beams} beams the cache is too small"
            raise LongPromptError(
                f"the prompt has {prompt_size} tokens, but {what}: shorten it, or enlarge the cache "
                f"({self._limits.cache_setting})"
            )

    def _room(self, prompt_size: int, beams: int) -> int:
        """How many tokens a sequence can have; beams share no more than the prompt's full blocks for sure."""
        size, count = self._limits.block_size, self._limits.block_count
        shared = min(prompt_size // size, count) if beams else 0
        return (shared + (count - shared) // max(beams, 1)) * size

    def _checked_ids(self, tokens: Items[int]) -> array[int]:
        """The same numbers, of which each is one of the vocabulary."""
        size = self._spec.vocab_size
        try:
            numbers = array("I", tokens)
        except (TypeError, OverflowError):
            pass
        else:
            if max(tokens, default=0) < size:
                return numbers
        wrong = next(token for token in tokens if not isinstance(token, Integral) or not 0 <= token < size)
        raise SamplingError(f"token id {wrong} is not one of the {size} of the vocabulary")

    def _known_ends(self, params: SamplingParams, end_ids: Iterable[int]) -> frozenset[int]:
        """Those that the model can write: a tokenizer may have more tokens than the model."""
        if params.ignores_eos:
            return frozenset()
        return frozenset(token for token in end_ids if 0 <= token < self._spec.vocab_size)


def _drawn_with(seed: int | None) -> int:
    """The 64 bits of a sequence's randomness; those below 0 are spread, or each would be one of the largest."""
    if seed is None:
        return secrets.randbits(64)
    if seed >= 0:
        return int(seed)
    return int.from_bytes(hashlib.blake2b(str(seed).encode(), digest_size=8).digest())
