"""What a rank other than the first does: it loads its part, and computes what it is told until the first is gone."""

from __future__ import annotations

import json
import os
import select
import socket
import threading
from collections.abc import Iterable

import numpy as np
import torch

from trireme.llm.executors.ranks.messages import Order, StepMessage, read_step, receive
from trireme.llm.executors.ranks.part import ModelPart, RankSetup, load_part
from trireme.llm.executors.torch.cache import BlockTables
from trireme.llm.executors.torch.executor import step_tokens
from trireme.llm.executors.torch.layout import LayoutBuilder
from trireme.llm.executors.torch.results import RowLogits


def follow(link: socket.socket) -> None:
    """Returns when the first rank says so; ends the process where that is gone, whatever this one waits for."""
    threading.Thread(target=_end_with_first, args=(link,), daemon=True).start()
    try:
        lines = link.makefile("rb", buffering=0)
        part = load_part(RankSetup.from_json(_line(lines.readline())))
        _tell(link, {"blocks": part.limits.block_count, "pid": os.getpid()})
        follower = Follower(part, json.loads(_line(lines.readline()))["blocks"])
        _tell(link, {"ready": True})
        while follower.run_order(*receive(link)):
            pass
    except ConnectionError:
        return
    except Exception as error:
        _tell(link, {"error": f"{type(error).__name__}: {error}"})
        raise


class Follower:
    """A rank's part of a model, and the tables of blocks that it is told of."""

    def __init__(self, part: ModelPart, block_count: int) -> None:
        self._device = part.device
        self._decoder = part.join(block_count)
        limits = part.limits
        self._tables = FollowedTables(limits.max_sequences, -(-part.whole.max_positions // limits.block_size))
        pages, is_fused = self._decoder.pages, self._decoder.is_fused
        self._layouts = LayoutBuilder(pages, self._tables, part.device, part.dtype, is_causal_known=is_fused)
        self._logits: RowLogits | None = None

    def run_order(self, order: Order, parts: list[np.ndarray[tuple[int, ...], np.dtype[np.int64]]]) -> bool:
        """Whether there is more to come."""
        with torch.inference_mode():
            if order is Order.STEP:
                self._run(read_step(parts))
            elif order is Order.LOGITS and self._logits is not None:
                self._logits(*parts[0].tolist())
            elif order is Order.COPY:
                sources, targets = torch.from_numpy(parts[0].reshape(-1, 2)).to(self._device).unbind(1)
                self._decoder.pages.copy(sources, targets)
        return order is not Order.END

    def _run(self, step: StepMessage) -> None:
        self._tables.learn(step.tables)
        tokens = step_tokens(step.packed, step.spans, self._layouts, self._decoder.windows, self._device)
        rows = torch.tensor(step.rows, dtype=torch.int64, device=self._device)
        self._logits = self._decoder.run(tokens, rows)


class FollowedTables(BlockTables):
    """Those of the first rank, as far as it has told."""

    def learn(self, changes: Iterable[tuple[int, int, tuple[int, ...]]]) -> None:
        """Takes over blocks: of a slot, from a place on."""
        for slot, first, blocks in changes:
            self._blocks[slot, first : first + len(blocks)] = blocks


def _end_with_first(link: socket.socket) -> None:
    """However the first rank has ended: its end of the connection is closed with it."""
    poll = select.poll()
    poll.register(link, 0)  # which leaves what the system always tells: that the other end is closed
    poll.poll()
    os._exit(0)


def _tell(link: socket.socket, line: dict[str, object]) -> None:
    link.sendall(json.dumps(line).encode() + b"\n")


def _line(line: bytes) -> str:
    if not line:
        raise ConnectionError("the first rank is gone")
    return line.decode()
