"""A runner and a link that only remember, and the requests and configurations that the tests send through them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from trireme.config.model_config import ModelConfig
from trireme.core.request import InferenceRequest
from trireme.core.tensor import Tensor
from trireme.proto import model_config_pb2


class RecordingRunner:
    """Implements `BatchRunner`."""

    def __init__(self) -> None:
        self.attached: list[Any] = []
        self.finished: list[tuple[Any, Any, list[Any], Any]] = []
        self.responses: list[tuple[Any, Any]] = []
        self.rescheduled: list[Any] = []
        self.durations: list[tuple[Any, Any]] = []

    def attach(self, instance: Any) -> None:
        self.attached.append(instance)

    def detach(self, instance: Any) -> None:
        self.attached.remove(instance)

    def respond(self, request: Any, response: Any) -> None:
        self.responses.append((request, response))

    def finish(self, instance: Any, batch: Any, responses: Any, timing: Any) -> None:
        self.finished.append((instance, batch, list(responses), timing))

    def measured(self, request: Any, durations: Any) -> None:
        self.durations.append((request, durations))

    def reschedule(self, request: Any) -> None:
        self.rescheduled.append(request)


class RecordingArena:
    def __init__(self) -> None:
        self.placed: list[bytes] = []
        self.released: list[tuple[int, int]] = []
        self.capacity = 1 << 40

    def place(self, data: Any) -> tuple[int, int, int]:
        if len(data) > self.capacity:
            raise MemoryError("arena is full")
        self.placed.append(bytes(data))
        return (1, len(self.placed) * 64, len(data))

    def release(self, segment_id: int, offset: int) -> None:
        self.released.append((segment_id, offset))


class RecordingLink:
    """Stands for a `HostLink`."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, ...]] = []
        self.arena = RecordingArena()
        self.viewed: list[tuple[int, int, int]] = []

    def send(self, message: tuple[Any, ...]) -> None:
        self.sent.append(message)

    def view(self, block: tuple[int, int, int]) -> memoryview:
        self.viewed.append(block)
        return memoryview(bytes(block[2]))

    def borrow(self, name: str, datatype: str, shape: Any, block: tuple[int, int, int]) -> Tensor:
        return Tensor(name, datatype, shape, self.view(block))

    def release(self, segment_id: int, offset: int) -> None:
        self.arena.release(segment_id, offset)


def make_config(
    max_batch_size: int = 8, is_decoupled: bool = False, outputs: tuple[str, ...] = ("OUT",), sequences: str = ""
) -> ModelConfig:
    message = model_config_pb2.ModelConfig(name="m", backend="python", max_batch_size=max_batch_size)
    message.input.add(name="IN", data_type=model_config_pb2.TYPE_FP32, dims=[-1])
    for name in outputs:
        message.output.add(name=name, data_type=model_config_pb2.TYPE_FP32, dims=[-1])
    message.model_transaction_policy.decoupled = is_decoupled
    if sequences:
        getattr(message.sequence_batching, sequences).SetInParent()
    return ModelConfig.from_message(message)


def make_request(data: bytes = b"\0\0\0\0", request_id: str = "r") -> InferenceRequest:
    return InferenceRequest("m", "", request_id, {"IN": Tensor("IN", "FP32", (1, len(data) // 4), data)}, print)


@pytest.fixture
def make() -> SimpleNamespace:
    return SimpleNamespace(config=make_config, request=make_request, runner=RecordingRunner, link=RecordingLink)
