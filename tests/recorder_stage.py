"""A recorder between a test's requests and answers, with its clock, dice and timers in the test's hands."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from trireme.core.errors import ServingError
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.observe.prometheus import PageWriter
from trireme.server.recording.recorder import Recorder
from trireme.server.shared_memory import SharedMemory

MODEL: Any = SimpleNamespace(is_sequence=False)


class Models:
    """Stands where the inference does: keeps requests until the test answers them."""

    def __init__(self) -> None:
        self.requests: list[InferenceRequest] = []
        self.refusal: ServingError | None = None

    def infer_on(self, model: Any, request: InferenceRequest) -> None:
        if self.refusal is not None:
            raise self.refusal
        request.served_version = "3"
        self.requests.append(request)

    def answer(self, response: InferenceResponse | None = None) -> None:
        given = response or InferenceResponse([Tensor("OUT", "INT32", (1,), memoryview(bytearray(b"abcd")))])
        self.requests.pop(0).respond(given)


class Stage:
    """A recorder with its clock, its dice and its timers in the hands of the test."""

    def __init__(self, is_allowed: bool = True) -> None:
        self.now_ns = 0
        self.timers: list[Callable[[], None]] = []
        self.models = Models()
        self.switch = SimpleNamespace(recorder=None)
        self.dice = 0.5
        self.sent: list[InferenceResponse] = []
        self.recorder = Recorder(
            self.models,  # type: ignore[arg-type]
            SharedMemory(),
            is_allowed,
            clock=lambda: self.now_ns,
            dice=lambda: self.dice,
            call_later=lambda delay, call: self.timers.append(call),
        )
        self.recorder.switch = self.switch

    def ask(self, model: Any = MODEL, name: str = "m", data: bytes = b"1234", **fields: Any) -> InferenceRequest:
        request = InferenceRequest(name, "", "", {"IN": Tensor("IN", "INT32", (1,), data)}, self.sent.append)
        for field, value in fields.items():
            setattr(request, field, value)
        (self.recorder if self.switch.recorder is not None else self.models).infer_on(model, request)
        return request

    def pass_time(self, seconds: float) -> None:
        self.now_ns += int(seconds * 1e9)
        timers, self.timers = self.timers, []
        for timer in timers:
            timer()

    def page(self) -> str:
        writer = PageWriter()
        self.recorder.write(writer)
        return writer.page().decode()
