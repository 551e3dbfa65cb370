"""Answers too large for one message, or long as JSON: in the server process sent in parts, in a front end joined."""

from __future__ import annotations

import mmap
from collections import deque
from typing import Any, Final

from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.frontends.inflight import ConnectionBytes
from trireme.frontends.processes import messages
from trireme.frontends.processes.process_link import Message, ProcessLink

_PART_BYTES: Final = 1 << 18


class LargeAnswers:
    """Those to one process. What the link has no room for stays where the model has put it; all of an answer counts as
    held by its connection until the front end says how much of it waits there."""

    __slots__ = ("_held", "_link", "_waiting")

    def __init__(self, link: ProcessLink) -> None:
        self._link = link
        self._waiting: deque[_PartedAnswer] = deque()
        self._held: dict[int, tuple[ConnectionBytes, int]] = {}

    def send(
        self, key: int, version: str, response: InferenceResponse, inflight: ConnectionBytes, held_bytes: int
    ) -> None:
        """Begins to send the answer to a call, which takes as much, here and where it is written."""
        inflight.hold(held_bytes)
        self._held[key] = inflight, held_bytes
        self._waiting.append(_PartedAnswer(key, version, response))
        self.go_on()

    def go_on(self) -> None:
        """Sends as much as the link has room for."""
        while self._waiting and not self._link.is_full:
            if self._waiting[0].send_some(self._link):
                self._waiting.popleft()

    def settled(self, key: int) -> None:
        """The front end has written the answer."""
        inflight, size = self._held.pop(key, (None, 0))
        if inflight is not None:
            inflight.hold(-size)

    def cancel(self, key: int) -> None:
        """Nobody waits for the answer any more."""
        if key in self._held:
            self.settled(key)
            self._waiting = deque(answer for answer in self._waiting if answer.key != key)

    def close(self) -> None:
        """The process is gone."""
        for key in list(self._held):
            self.cancel(key)


class _PartedAnswer:
    """One answer and how far it has been sent."""

    __slots__ = ("_index", "_offset", "_outputs", "_parameters", "_version", "key")

    def __init__(self, key: int, version: str, response: InferenceResponse) -> None:
        self.key = key
        self._version = version
        self._outputs: list[Tensor] = list(response.outputs)
        self._parameters = response.parameters
        self._index = 0
        self._offset = 0

    def send_some(self, link: ProcessLink) -> bool:
        """Sends a part, or the end of it all; whether that was the end."""
        if self._index == len(self._outputs):
            outputs = [(tensor.name, tensor.datatype, tensor.shape, None) for tensor in self._outputs]
            link.send((messages.ANSWER, self.key, self._version, outputs, self._parameters))
            return True
        data = memoryview(self._outputs[self._index].data)
        part = data[self._offset : self._offset + _PART_BYTES]
        link.send_part((messages.PART, self.key, self._index, len(data), part), len(part))
        self._offset += len(part)
        if self._offset >= len(data):
            self._index += 1
            self._offset = 0
        return False


class AnswerParts:
    """The large answers that a front-end process has begun to receive."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: dict[int, dict[int, tuple[memoryview, int]]] = {}  # the memory, and how much of it is filled

    def take(self, message: Message) -> None:
        """Keeps a PART."""
        _, call, index, size, data = message
        outputs = self._parts.setdefault(call, {})
        whole, filled = outputs.get(index) or (_memory(size), 0)
        whole[filled : filled + len(data)] = data
        outputs[index] = whole, filled + len(data)

    def complete(self, message: Message) -> Message:
        """What ends the call: an ANSWER with the data that came ahead of it, an error as it is."""
        parts = self._parts.pop(message[1])
        if message[0] != messages.ANSWER:
            return message
        kind, call, version, outputs, parameters = message
        whole: list[Any] = []
        for index, (name, datatype, shape, _) in enumerate(outputs):
            whole.append((name, datatype, shape, parts[index][0].toreadonly()))
        return kind, call, version, whole, parameters

    def has(self, call: int) -> bool:
        """Whether parts of the call's answer have come."""
        return call in self._parts

    def drop(self, call: int) -> None:
        """Nobody waits for the answer any more."""
        self._parts.pop(call, None)


def _memory(size: int) -> memoryview:
    """Of the system, page by page as it is filled: to clear gigabytes at once would hold up everybody."""
    return memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE) if size else bytearray())
