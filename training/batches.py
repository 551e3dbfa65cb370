"""Draws batches of token ids from the prepared data, which lies on the device as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from training.model import IGNORED


@dataclass(frozen=True, slots=True)
class Stream:
    """Documents or conversations behind each other."""

    ids: Tensor
    targets: Tensor
    """The ids, `IGNORED` where a token is not learned."""
    starts: Tensor
    """Where a row may begin."""

    def rows(self, count: int, context: int, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """So many rows from random places: what is read, and what is to be said."""
        chosen = torch.randint(len(self.starts), (count,), generator=generator, device=self.ids.device)
        return self._cut(self.starts[chosen], context)

    def spread_rows(self, count: int, context: int) -> tuple[Tensor, Tensor]:
        """So many rows spread over the whole, the same ones each time."""
        chosen = torch.linspace(0, len(self.starts) - 1, count, device=self.ids.device).long()
        return self._cut(self.starts[chosen], context)

    def _cut(self, begins: Tensor, context: int) -> tuple[Tensor, Tensor]:
        places = begins[:, None] + torch.arange(context + 1, device=begins.device)
        return self.ids[places[:, :-1]].long(), self.targets[places[:, 1:]].long()


@dataclass(frozen=True, slots=True)
class TrainingData:
    text: Stream
    chat: Stream
    held_text: Stream
    held_chat: Stream

    def mixed(self, count: int, context: int, chat_share: float) -> tuple[Tensor, Tensor]:
        """A batch with that share of conversations."""
        chats = min(count, max(0, round(count * chat_share)))
        parts = [self.text.rows(count - chats, context), self.chat.rows(chats, context)]
        return torch.cat([ids for ids, _ in parts]), torch.cat([targets for _, targets in parts])


def load_data(file: Path, context: int, begin_id: int, device: str) -> TrainingData:
    """Reads what `training.prepare` wrote; says what is wrong with it where it cannot be used."""
    if not file.exists():
        raise SystemExit(f"{file} is missing: run `python3 -m training.prepare` first")
    with np.load(file) as arrays:
        missing = {"train_text", "held_text", "train_chat", "held_chat"} - set(arrays)
        if missing:
            raise SystemExit(f"{file} lacks {', '.join(sorted(missing))}: run `python3 -m training.prepare` again")
        return TrainingData(
            _text_stream(arrays["train_text"], context, device),
            _chat_stream(arrays["train_chat"], arrays["train_chat_answers"], context, begin_id, device),
            _text_stream(arrays["held_text"], context, device),
            _chat_stream(arrays["held_chat"], arrays["held_chat_answers"], context, begin_id, device),
        )


def _text_stream(ids: np.ndarray, context: int, device: str) -> Stream:
    _check_size(ids, context)
    on_device = torch.from_numpy(ids.astype(np.int32)).to(device)
    return Stream(on_device, on_device, torch.arange(len(ids) - context, device=device))


def _chat_stream(ids: np.ndarray, answers: np.ndarray, context: int, begin_id: int, device: str) -> Stream:
    _check_size(ids, context)
    learned = np.unpackbits(answers, count=len(ids)).astype(bool)
    targets = np.where(learned, ids.astype(np.int32), IGNORED)
    starts = np.flatnonzero(ids == begin_id)
    starts = starts[starts < len(ids) - context]
    return Stream(
        torch.from_numpy(ids.astype(np.int32)).to(device),
        torch.from_numpy(targets).to(device),
        torch.from_numpy(starts).to(device),
    )


def _check_size(ids: np.ndarray, context: int) -> None:
    if len(ids) <= context + 1:
        raise SystemExit(f"the data has {len(ids)} tokens in a part: too few for rows of {context}")
