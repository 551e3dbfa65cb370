"""Chooses tokens on the device, for the rows where the largest logit does not decide by itself.

It comes to what `numpy_sampler` comes to. Nothing waits for the device: the host knows which rows have which limits, so
rows of one kind lie together, and their parameters travel in one small table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence as Items
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from trireme.llm.grammar.mask_batches import make_masks
from trireme.llm.grammar.token_bits import TokenBits, as_mask, every_token
from trireme.llm.models.spec import DecoderSpec
from trireme.llm.request import Sequence
from trireme.llm.sampling.history import Edits, LogitEntries
from trireme.llm.sampling.noise import row_keys
from trireme.llm.sampling.pinned_rows import PinnedRows
from trireme.llm.sampling.reports import Reports, candidate_counts, describe, likeliest
from trireme.llm.sampling.token_history import top_p_of
from trireme.llm.sampling.torch_noise import gumbel, token_steps

_AT_ONCE = 2**22
"""Logits that noise is drawn for at once, without kernels, and the likeliest ones that are looked at: it bounds the
memory, at 8 bytes each several times over."""
_COLUMNS = 7
"""Of the table of what rows draw with."""
_FIRST_TRY = 256
"""How many of the largest logits are looked at first where probabilities are summed up on a CPU."""


class _Kind(IntEnum):
    """What a row needs; rows are sorted by it."""

    BEAM = 0
    GREEDY = 1
    UNLIMITED = 2
    TOP_K = 3
    TOP_P = 4
    """Without top-k: the whole row has to be sorted."""


class RowKernels(Protocol):
    """What a device does in one launch where PyTorch takes dozens, as `llm.kernels.drawing` has it."""

    def forbid(self, values: torch.Tensor, places: torch.Tensor, bits: torch.Tensor, /) -> None:
        """Leaves of those rows what `token_bits` allow, in place."""
        ...

    def draw(
        self, values: torch.Tensor, keys: torch.Tensor, temperatures: torch.Tensor, floors: torch.Tensor | None, /
    ) -> torch.Tensor:
        """For each row the token with the largest sum of noise and scaled logit that is not below the floor."""
        ...

    def mass(
        self, values: torch.Tensor, temperatures: torch.Tensor, largest: torch.Tensor, floors: torch.Tensor, /
    ) -> torch.Tensor:
        """For each row the sum of exp(scaled logit - largest), of those that are not below the floor."""
        ...

    def top_p_floor(
        self, values: torch.Tensor, temperatures: torch.Tensor, largest: torch.Tensor, shares: torch.Tensor, /
    ) -> torch.Tensor:
        """For each row the scaled logit of the last token with which the likeliest ones have that share."""
        ...


@dataclass(slots=True)
class _Rows:
    """Rows of one kind: their logits `[rows, vocab]`, their parameters `[rows, 1]` each."""

    kind: _Kind
    logits: torch.Tensor
    keys: torch.Tensor
    top_k: torch.Tensor
    largest_k: int
    temperature: torch.Tensor
    top_p: torch.Tensor
    log_min_p: torch.Tensor
    has_top_p: bool
    has_min_p: bool
    _scaled: torch.Tensor | None = None

    def scaled(self) -> torch.Tensor:
        """The logits by their temperature."""
        if self._scaled is None:
            self._scaled = self.logits.to(torch.float64) / self.temperature
        return self._scaled

    @property
    def is_limited(self) -> bool:
        """Whether any token is left out."""
        return self.has_min_p or self.kind > _Kind.UNLIMITED


class TorchSampler:
    """Works on rows of logits; knows nothing of the batch around them, so that a seed decides alone."""

    def __init__(self, spec: DecoderSpec, device: torch.device, kernels: RowKernels | None = None) -> None:
        self._vocab_size = spec.vocab_size
        self._device = device
        self._kernels = kernels
        self._steps = token_steps(spec.vocab_size, device)
        self._places_of_bits = torch.tensor([1 << place for place in range(8)], dtype=torch.uint8, device=device)
        self._pinned_bits = PinnedRows(-(-spec.vocab_size // 8), device)

    def prepare(self) -> None:
        """Compiles the kernels, if there are any, before a request waits for them."""
        if self._kernels is None:
            return
        values = torch.zeros((1, self._vocab_size), device=self._device)
        table = self.send(np.ones((1, _COLUMNS), np.int64))
        numbers = table.view(torch.float64)
        for floor in (None, numbers[:, 4:5]):
            self._kernels.draw(values, table[:, 2:3], numbers[:, 4:5], floor)
        ones = numbers[:, 4:5]
        self._kernels.mass(values, ones, ones, ones)
        self._kernels.top_p_floor(values, ones, ones, numbers[:, 5:6])
        self._bound(values, [0], [every_token(self._vocab_size)])

    def choose(
        self, logits: torch.Tensor, rows: Items[int], sequences: Items[Sequence], positions: Items[int]
    ) -> tuple[torch.Tensor, Reports]:
        """A token for each of those rows, and what is to be told of their probabilities."""
        kinds = [_kind_of(sequence, self._vocab_size) for sequence in sequences]
        ks = [min(sequence.params.top_k, self._vocab_size) for sequence in sequences]
        order = sorted(range(len(rows)), key=lambda index: (kinds[index], ks[index]))
        table = self.send(_table(order, rows, sequences, positions, self._vocab_size))
        numbers = table.view(torch.float64)
        values = logits.index_select(0, table[:, 0]).to(torch.float32, copy=True)
        beams = kinds.count(_Kind.BEAM)
        values[:beams] = values[:beams].log_softmax(-1)
        edits = self._edits([sequences[index] for index in order])
        largest = values.argmax(-1) if edits.forbids else None
        self._edit(values, edits)
        tokens = []
        for kind, first, last in self._runs([kinds[index] for index in order], [ks[index] for index in order]):
            params = [sequences[index].params for index in order[first:last]]
            part = _Rows(
                kind,
                values[first:last],
                table[first:last, 2:3],
                table[first:last, 3:4],
                max(ks[index] for index in order[first:last]),
                numbers[first:last, 4:5],
                numbers[first:last, 5:6],
                numbers[first:last, 6:7],
                any(top_p_of(sequences[index]) < 1.0 for index in order[first:last]),
                any(one.min_p for one in params),
            )
            tokens.append(part.logits.argmax(-1) if kind <= _Kind.GREEDY else self._draw(part))
        chosen = torch.cat(tokens)
        if largest is not None:  # which is taken where everything is forbidden
            chosen = torch.where(values.amax(-1) > -math.inf, chosen, largest)
        chosen = chosen.index_select(0, table[:, 1])
        reports = Reports()
        self._describe(reports, logits, rows, sequences, chosen)
        if beams:
            counts = candidate_counts([sequences[index] for index in order[:beams]])
            reports.add([rows[index] for index in order[:beams]], counts, likeliest(values[:beams], max(counts)))
        return chosen.to(torch.int32), reports

    def send(self, array: npt.NDArray[np.generic]) -> torch.Tensor:
        """A copy on the device, behind the work that it has been given."""
        tensor = torch.from_numpy(array)
        if self._device.type != "cuda":
            return tensor.to(self._device)
        return tensor.pin_memory().to(self._device, non_blocking=True)

    def _rows_at_once(self, count: int) -> int:
        """Of so many."""
        return max(1, _AT_ONCE // self._vocab_size if self._kernels is None else count)

    def _runs(self, kinds: Items[_Kind], ks: Items[int]) -> list[tuple[_Kind, int, int]]:
        """Neighbours of one kind, at most so many at once as there is memory for: kernels need none, but for the `k`
        likeliest of each row, of which the last row of a run has most."""
        at_once = self._rows_at_once(len(kinds))
        runs: list[tuple[_Kind, int, int]] = []
        for place, (kind, k) in enumerate(zip(kinds, ks, strict=True)):
            most = min(at_once, _AT_ONCE // k) if kind is _Kind.TOP_K else at_once
            if runs and runs[-1][0] is kind and place - runs[-1][1] < most:
                runs[-1] = (kind, runs[-1][1], place + 1)
            else:
                runs.append((kind, place, place + 1))
        return runs

    def _edits(self, sequences: Items[Sequence]) -> Edits:
        """What is to be changed; a sequence for which that cannot be told is given its error."""
        make_masks(sequences)
        edits = Edits(self._vocab_size)
        for row, sequence in enumerate(sequences):
            if sequence.params.needs_history:
                try:
                    edits.add(row, sequence)
                except Exception as error:
                    sequence.fail("its next token could not be chosen", error)
        return edits

    def _edit(self, values: torch.Tensor, edits: Edits) -> None:
        """Penalties, biases and what is forbidden, in place."""
        flat = values.view(-1)
        if edits.factors.places:
            places, factors = self._sent(edits.factors)
            found = flat.index_select(0, places)
            flat.index_copy_(0, places, torch.where(found > 0, found / factors, found * factors))
        if edits.decrease.places:
            places, amounts = self._sent(edits.decrease)
            flat.index_add_(0, places, amounts, alpha=-1)
        if edits.increase.places:
            flat.index_add_(0, *self._sent(edits.increase))
        if edits.forbidden.places:
            flat.index_fill_(0, self._sent(edits.forbidden)[0], -math.inf)
        at_once = self._rows_at_once(len(edits.bounded_rows))
        for first in range(0, len(edits.bounded_rows), at_once):
            self._bound(values, edits.bounded_rows[first : first + at_once], edits.allowed[first : first + at_once])

    def _bound(self, values: torch.Tensor, rows: list[int], allowed: list[TokenBits]) -> None:
        """Forbids whatever is not allowed in those rows."""
        if self._device.type == "cpu":
            for row, one in zip(rows, allowed, strict=True):
                values[row].masked_fill_(torch.from_numpy(~as_mask(one, self._vocab_size)), -math.inf)
            return
        bits, places = self._pinned_bits.send(allowed), self.send(np.array(rows, np.int64))
        if self._kernels is not None:
            self._kernels.forbid(values, places, bits)
            return
        values.index_copy_(0, places, values.index_select(0, places).masked_fill_(self._left_out(bits), -math.inf))

    def _left_out(self, bits: torch.Tensor) -> torch.Tensor:
        """Takes sets of tokens apart on the device: for each row, which tokens are not in its set."""
        return (bits.unsqueeze(-1) & self._places_of_bits == 0).flatten(1)[:, : self._vocab_size]

    def _sent(self, amounts: LogitEntries) -> tuple[torch.Tensor, torch.Tensor]:
        return self.send(np.concatenate(amounts.places)), self.send(np.concatenate(amounts.numbers))

    def _draw(self, rows: _Rows) -> torch.Tensor:
        """The token with the largest sum of logit and noise, among those that the limits leave."""
        if self._kernels is not None:
            floor = self._floor(rows) if rows.is_limited else None
            return self._kernels.draw(rows.logits, rows.keys, rows.temperature, floor)
        scaled, floor = rows.scaled(), self._floor(rows)
        is_kept = scaled >= floor
        if self._device.type != "cpu":
            return torch.where(is_kept, scaled + gumbel(rows.keys + self._steps), -math.inf).argmax(-1)
        places, tokens = is_kept.nonzero(as_tuple=True)  # noise costs more than to look for where it is needed
        noise = gumbel(rows.keys[places, 0] + self._steps[tokens])
        sums = torch.full_like(scaled, -math.inf)
        sums[places, tokens] = scaled[places, tokens] + noise
        return sums.argmax(-1)

    def _floor(self, rows: _Rows) -> torch.Tensor:
        """The smallest scaled logits that the limits leave, `[rows, 1]`."""
        largest = rows.logits.amax(-1, keepdim=True).to(torch.float64) / rows.temperature
        floor = largest + rows.log_min_p
        if rows.kind is _Kind.TOP_K:
            floor = torch.maximum(floor, self._top_k_floor(rows, largest))
        elif rows.kind is _Kind.TOP_P:
            floor = torch.maximum(floor, self._top_p_floor(rows, largest))
        return floor

    def _top_k_floor(self, rows: _Rows, largest: torch.Tensor) -> torch.Tensor:
        """Top-p counts within what top-k has left, to which equals of the last one belong."""
        falling = rows.logits.topk(rows.largest_k).values.to(torch.float64) / rows.temperature
        last = rows.top_k - 1
        floor = falling.gather(1, last)
        if not rows.has_top_p:
            return floor
        if self._kernels is not None:
            mass = self._kernels.mass(rows.logits, rows.temperature, largest, floor)
        else:
            scaled = rows.scaled()
            mass = torch.where(scaled >= floor, scaled - largest, -math.inf).exp_().sum(-1, keepdim=True)
        places = ((falling - largest).exp_().cumsum(-1) < rows.top_p * mass).sum(-1, keepdim=True)
        limited = falling.gather(1, torch.minimum(places, last))
        return torch.where(rows.top_p < 1.0, limited, floor)

    def _top_p_floor(self, rows: _Rows, largest: torch.Tensor) -> torch.Tensor:
        if self._kernels is not None:
            return self._kernels.top_p_floor(rows.logits, rows.temperature, largest, rows.top_p)
        if self._device.type == "cpu" and self._vocab_size > _FIRST_TRY:
            wanted = rows.top_p * (rows.scaled() - largest).exp_().sum(-1, keepdim=True)
            falling = rows.logits.topk(_FIRST_TRY).values.to(torch.float64) / rows.temperature
            sums = (falling - largest).exp_().cumsum(-1)
            if bool((sums[:, -1:] >= wanted).all()):
                return falling.gather(1, (sums < wanted).sum(-1, keepdim=True))
        falling = rows.logits.sort(-1, descending=True).values.to(torch.float64) / rows.temperature
        sums = (falling - largest).exp_().cumsum(-1)
        places = (sums < rows.top_p * sums[:, -1:]).sum(-1, keepdim=True)
        return falling.gather(1, places.clamp_(max=self._vocab_size - 1))

    def _describe(
        self,
        reports: Reports,
        logits: torch.Tensor,
        rows: Items[int],
        sequences: Items[Sequence],
        chosen: torch.Tensor,
    ) -> None:
        """Those of whom probabilities are to be told."""
        counts = {
            index: one.params.logprobs
            for index, one in enumerate(sequences)
            if one.params.logprobs is not None and not one.params.beams
        }
        if counts:
            there = [rows[index] for index in counts]
            places = self.send(np.array([there, list(counts)], np.int64))
            report = describe(
                logits.index_select(0, places[0]), chosen.index_select(0, places[1]), max(counts.values())
            )
            reports.add(there, counts.values(), report)


def _kind_of(sequence: Sequence, vocab_size: int) -> _Kind:
    params = sequence.params
    if params.beams:
        return _Kind.BEAM
    if params.is_greedy:
        return _Kind.GREEDY
    if 0 < params.top_k < vocab_size:
        return _Kind.TOP_K
    return _Kind.TOP_P if top_p_of(sequence) < 1.0 else _Kind.UNLIMITED


def _table(
    order: Items[int], rows: Items[int], sequences: Items[Sequence], positions: Items[int], vocab_size: int
) -> npt.NDArray[np.int64]:
    """By row in their new order: the row of logits, where its result belongs, the key of its noise, then the limits."""
    params = [sequences[index].params for index in order]
    table = np.empty((len(order), _COLUMNS), np.int64)
    table[:, 0] = [rows[index] for index in order]
    table[order, 1] = range(len(order))
    keys = row_keys([sequences[index].seed for index in order], [positions[index] for index in order])
    table[:, 2] = keys.view(np.int64)
    table[:, 3] = [min(one.top_k, vocab_size) for one in params]
    numbers = table.view(np.float64)
    numbers[:, 4] = [1.0 if one.is_greedy else one.temperature for one in params]
    numbers[:, 5] = [top_p_of(sequences[index]) for index in order]
    numbers[:, 6] = [math.log(one.min_p) if one.min_p else -math.inf for one in params]
    return table
