"""The endpoints that write: completions and chats."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from functools import partial
from typing import Final

from trireme.core.datatype import Parameter
from trireme.core.request import InferenceRequest
from trireme.frontends.http.background import BackgroundAnswers
from trireme.frontends.http.endpoints.openai.answering import (
    GenerationAnswer,
    RequestGroup,
    StreamedAnswer,
    WholeAnswer,
)
from trireme.frontends.http.endpoints.openai.endpoint import ModelCalls, arrival_or_none
from trireme.frontends.http.endpoints.openai.prompts import ModelInput, chat_inputs, completion_inputs
from trireme.frontends.http.endpoints.openai.responses import ResponseReader
from trireme.frontends.http.exchange import Exchange
from trireme.frontends.http.routing import Route, route
from trireme.protocol.openai.answers import AnswerWriter, ChatWriter, CompletionWriter
from trireme.protocol.openai.errors import FieldError, UnknownModelError
from trireme.protocol.openai.known_fields import CHAT, COMPLETION
from trireme.protocol.openai.requests import ChatRequest, CompletionRequest, read_chat, read_completion
from trireme.protocol.openai.usage import Usage
from trireme.server.call import CalledModel
from trireme.server.text_models.forms import GenerationForm

STREAM_ID: Final = "stream_id"
"""The parameter by which a step of an ensemble knows the responses of one stream, so that it can tell whole characters:
an id of the request itself, which all steps are given as well, has to be a number for some of them."""


class GenerationEndpoints:
    """`POST /v1/completions` and `POST /v1/chat/completions`."""

    def __init__(self, calls: ModelCalls) -> None:
        self._calls = calls

    def routes(self) -> list[Route]:
        """The paths of this API."""
        return [
            route("/v1/chat/completions", POST=self._calls.endpoint(read_chat, self.chat, CHAT)),
            route("/v1/completions", POST=self._calls.endpoint(read_completion, self.complete, COMPLETION)),
        ]

    def complete(self, exchange: Exchange, call: CalledModel, request: CompletionRequest) -> None:
        """Goes on with texts."""
        form = writing_form(call, request)
        writer = CompletionWriter(f"cmpl-{uuid.uuid4().hex}", int(time.time()), request.asked_model)
        generate = partial(_generate, self._calls.background, exchange, call, form, request, writer)
        self._calls.prepare(exchange, request.model, partial(completion_inputs, form, request), generate)

    def chat(self, exchange: Exchange, call: CalledModel, request: ChatRequest) -> None:
        """Answers the last message of a chat."""
        form = writing_form(call, request)
        writer = ChatWriter(f"chatcmpl-{uuid.uuid4().hex}", int(time.time()), request.asked_model)
        generate = partial(_generate, self._calls.background, exchange, call, form, request, writer)
        self._calls.prepare(exchange, request.model, partial(chat_inputs, form, request), generate)


def writing_form(call: CalledModel, request: CompletionRequest | ChatRequest) -> GenerationForm:
    """How the model is asked for texts; raises FieldError where it writes none, UnknownModelError without adapters."""
    form = call.generation()
    if request.adapter and not call.has_adapters:  # which was not known before the model was loaded
        raise UnknownModelError(request.asked_model)
    if form is None:
        needed = ", ".join(f"'{name}'" for name in call.inputs_in_the_way())
        hint = f" Beside a prompt it needs {needed}, which no request here brings." if needed else ""
        raise FieldError("model", f"The model '{request.model}' does not generate text.{hint}", "unsupported_model")
    return form


def stream_parameters(
    form: GenerationForm, request: CompletionRequest | ChatRequest, first_index: int, answer_id: str
) -> dict[str, Parameter]:
    """What tells a stream from others to the steps of an ensemble, which may get it token by token."""
    is_for_steps = request.is_stream and form.is_ensemble and form.takes_tensors_alone
    return {STREAM_ID: f"{answer_id}-{first_index}"} if is_for_steps else {}


def _generate(
    background: BackgroundAnswers,
    exchange: Exchange,
    call: CalledModel,
    form: GenerationForm,
    request: CompletionRequest | ChatRequest,
    writer: AnswerWriter,
    model_inputs: Sequence[ModelInput],
) -> None:
    usage = Usage()
    answer: GenerationAnswer
    if request.is_stream:
        answer = StreamedAnswer(exchange, writer, usage, request.includes_usage)
    else:
        answer = WholeAnswer(exchange, writer, usage, background)
    request_id = "" if form.is_ensemble else writer.answer_id  # steps are given it, some of which take numbers alone
    requests = []
    for entry in model_inputs:
        reader = ResponseReader(form, entry, usage)
        made = InferenceRequest(request.model, "", request_id, entry.inputs, answer.receiver(reader))
        reader.end_request = made.finish
        made.parameters = entry.parameters | stream_parameters(form, request, entry.first_index, writer.answer_id)
        made.requested_outputs = entry.outputs
        requests.append(made)
    answer.group = RequestGroup(exchange, requests)
    arrival = arrival_or_none(exchange)
    answer.group.start(lambda made: call.start(made, arrival))
