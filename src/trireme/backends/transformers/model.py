"""The transformers backend: any model of the Hugging Face hub, by its id or its folder, for the task it is made for."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from trireme.backends.compiled.batching import RequestError
from trireme.backends.python.pb_utils import runtime as pb_runtime
from trireme.backends.python.pb_utils.model_config import ModelConfig
from trireme.backends.python.pb_utils.request import InferenceRequest
from trireme.backends.python.pb_utils.response import InferenceResponse
from trireme.backends.python.pb_utils.sender import InferenceResponseSender
from trireme.backends.python.pb_utils.tensor import Tensor
from trireme.backends.python.pb_utils.types import TRITONSERVER_RESPONSE_COMPLETE_FINAL
from trireme.backends.python.worker_device import CPU, DEVICE_VARIABLE, device_of_worker
from trireme.backends.transformers import completion
from trireme.backends.transformers.forms import TaskForm
from trireme.backends.transformers.items import (
    Emitter,
    Item,
    ItemReader,
    Outputs,
    error_response,
    response_of,
    text_array,
)
from trireme.backends.transformers.loading import Loaded, load
from trireme.backends.transformers.runner import Runner, run_items
from trireme.backends.transformers.settings import Settings, read_defaults, read_settings
from trireme.backends.transformers.source import locate, read_model_config, task_of
from trireme.backends.transformers.tasks import canonical_task, form_of
from trireme.huggingface.tasks import TASK_CLASSES


class TritonPythonModel:
    """One instance of a Hugging Face model."""

    @staticmethod
    def auto_complete_config(config: ModelConfig) -> ModelConfig:
        """Fills in what the model's task takes and gives; loads no weights."""
        settings, _ = read_settings(config.as_dict())
        return completion.complete(config, _identify(settings).form, settings)

    def initialize(self, args: Mapping[str, str]) -> None:
        """Loads the model on the worker's device."""
        config = json.loads(args["model_config"])
        settings, parameters = read_settings(config)
        identity = _identify(settings)
        form = identity.form
        defaults = read_defaults(form, parameters, settings.name)
        parameters.warn_of_rest("transformers", {})
        completion.check(config, form, settings)
        self._is_batching = config.get("max_batch_size", 0) > 0
        self._is_decoupled = pb_runtime.current().is_decoupled
        self._reader = ItemReader(form, defaults, self._is_batching)
        self._can_stream = any(option.name == "stream" for option in form.options)
        classes = TASK_CLASSES[identity.served_task]
        loaded = load(settings, identity.source, identity.task, classes, _device_name(settings, args))
        self._inference_mode = loaded.torch.inference_mode
        self._runner = _runner(form, loaded)

    def execute(self, requests: list[InferenceRequest]) -> list[InferenceResponse] | None:
        """Runs the requests together, as far as their settings allow."""
        if not self._is_decoupled:
            return self._answers(requests, [None] * len(requests))
        streams = [self._stream(request) for request in requests]
        answers = self._answers(requests, streams)
        for request, stream, answer in zip(requests, streams, answers, strict=True):
            if stream is None or not stream.is_ended:
                request.get_response_sender().send(answer, flags=TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        return None

    def finalize(self) -> None:
        """Gives the device's memory back."""
        del self._runner

    def _stream(self, request: InferenceRequest) -> _Stream | None:
        """Where the request's text goes as it is written; None where all of it is wanted at once."""
        if not self._can_stream:
            return None
        try:
            is_wanted = self._reader.options(request).get("stream", True)
        except RequestError:
            return None  # which it is answered with
        return _Stream(request.get_response_sender(), self._is_batching) if is_wanted else None

    def _answers(
        self, requests: Sequence[InferenceRequest], emits: Sequence[Emitter | None]
    ) -> list[InferenceResponse]:
        rows: list[Item] = []
        spans: list[range | Exception] = []
        for request, emit in zip(requests, emits, strict=True):
            try:
                items = self._reader.read(request, emit)
                if emit is not None and len(items) != 1:
                    raise RequestError(f"a request that is streamed must have one row, found {len(items)}")
                spans.append(range(len(rows), len(rows) + len(items)))
                rows += items
            except Exception as error:  # whatever it is, it is this request's alone
                spans.append(error)
        with self._inference_mode():
            outputs = run_items(self._runner, rows)
        return [
            error_response(span)
            if isinstance(span, Exception)
            else _response(request, [outputs[index] for index in span], self._is_batching)
            for request, span in zip(requests, spans, strict=True)
        ]


class _Stream:
    """Sends text to one client as it is written."""

    def __init__(self, sender: InferenceResponseSender, is_batching: bool) -> None:
        self._sender = sender
        self._shape = (1, 1) if is_batching else (1,)
        self.is_ended = False

    def __call__(self, text: str) -> None:
        """One response with the next piece."""
        if not self._sender.is_cancelled():
            array = text_array([text]).reshape(self._shape)
            self._sender.send(InferenceResponse([Tensor("text_output", array)]))

    def end(self) -> None:
        """The mark that nothing follows."""
        self.is_ended = True
        self._sender.send(flags=TRITONSERVER_RESPONSE_COMPLETE_FINAL)


def _response(request: InferenceRequest, rows: Sequence[Outputs | Exception], is_batching: bool) -> InferenceResponse:
    outputs: list[Outputs] = []
    for index, row in enumerate(rows):
        if isinstance(row, Exception):
            if len(rows) > 1 and isinstance(row, RequestError):
                row = RequestError(f"row {index}: {row}")
            return error_response(row)
        outputs.append(row)
    return response_of(outputs, request.requested_output_names(), is_batching)


class _Identity(NamedTuple):
    """Where the model is, its task as it was named and as it is served, and what it takes and gives."""

    source: str
    task: str
    served_task: str
    form: TaskForm


def _identify(settings: Settings) -> _Identity:
    source = locate(settings)

    def read_config() -> Mapping[str, Any]:
        return read_model_config(settings, source)

    task = task_of(settings, source, read_config)
    served_task = canonical_task(task, settings.name)
    return _Identity(source, task, served_task, form_of(served_task, read_config))


def _device_name(settings: Settings, args: Mapping[str, str]) -> str:
    """Where the server placed the worker; where it did not say, what the configuration asks for."""
    if os.environ.get(DEVICE_VARIABLE):
        return device_of_worker()
    if settings.device is not None:
        return settings.device
    return f"cuda:{args['model_instance_device_id']}" if args["model_instance_kind"] == "GPU" else CPU


def _runner(form: TaskForm, loaded: Loaded) -> Runner:
    module, _, name = form.runner.partition(":")
    runner: Runner = getattr(importlib.import_module(f"trireme.backends.transformers.{module}"), name)(loaded)
    return runner
