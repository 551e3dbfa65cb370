"""The endpoint that makes vectors of texts."""

from __future__ import annotations

import uuid
from functools import partial

from trireme.core.elements import decode_bytes
from trireme.core.errors import InternalError
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.frontends.http import answers
from trireme.frontends.http.background import BackgroundAnswers
from trireme.frontends.http.endpoints.openai.answering import RequestGroup
from trireme.frontends.http.endpoints.openai.endpoint import ModelCalls, arrival_or_none
from trireme.frontends.http.endpoints.openai.tensors import input_tensor
from trireme.frontends.http.exchange import Exchange
from trireme.frontends.http.routing import Route, route
from trireme.protocol.openai.embeddings import EmbeddingRequest, encode_embeddings, read_embedding
from trireme.protocol.openai.errors import FieldError
from trireme.protocol.openai.known_fields import EMBEDDING
from trireme.protocol.openai.usage import Usage
from trireme.server.call import CalledModel
from trireme.server.long_work import INLINE_JSON_BYTES
from trireme.server.text_models.forms import EmbeddingForm


class EmbeddingEndpoint:
    """`POST /v1/embeddings`."""

    def __init__(self, calls: ModelCalls) -> None:
        self._calls = calls

    def routes(self) -> list[Route]:
        """The path of this API."""
        return [route("/v1/embeddings", POST=self._calls.endpoint(read_embedding, self.embed, EMBEDDING))]

    def embed(self, exchange: Exchange, call: CalledModel, request: EmbeddingRequest) -> None:
        """One request for each text: those that come together run in one batch, and none is padded for another."""
        form = call.embedding()
        if form is None:
            raise FieldError("model", f"The model '{request.model}' makes no embeddings.", "unsupported_model")
        answer = EmbeddingAnswer(self._calls.background, exchange, form, request)
        request_id = f"embd-{uuid.uuid4().hex}"
        requests = []
        for index, text in enumerate(request.inputs):
            if not isinstance(text, str):
                raise FieldError("input", "This model takes texts, not token ids.", "unsupported_content")
            tensor = input_tensor(form.text_input, [text], form.has_batch)
            respond = exchange.responder(partial(answer.respond, index))
            made = InferenceRequest(request.model, "", request_id, {tensor.name: tensor}, respond)
            made.requested_outputs = (form.vector_output, "usage") if form.has_usage else (form.vector_output,)
            requests.append(made)
        answer.group = RequestGroup(exchange, requests)
        arrival = arrival_or_none(exchange)
        answer.group.start(lambda made: call.start(made, arrival))


class EmbeddingAnswer:
    """Collects one vector per text."""

    def __init__(
        self, background: BackgroundAnswers, exchange: Exchange, form: EmbeddingForm, request: EmbeddingRequest
    ) -> None:
        self.group: RequestGroup | None = None
        self._background = background
        self._exchange = exchange
        self._form = form
        self._request = request
        self._usage = Usage()
        self._vectors: dict[int, Tensor] = {}
        self._open_count = len(request.inputs)

    def respond(self, index: int, response: InferenceResponse) -> None:
        """Takes a response to the request for one text."""
        if self._exchange.is_answered or (response.is_empty and not response.is_final):
            return
        error = response.error
        for tensor in response.outputs:
            if tensor.name == self._form.vector_output:
                self._vectors[index] = tensor
            elif tensor.name == "usage":
                self._usage.add(decode_bytes(tensor.data)[0])
        if response.is_final:
            self._open_count -= 1
            if error is None and index not in self._vectors:
                error = InternalError(f"the model gave no '{self._form.vector_output}'")
        if error is not None:
            self._exchange.send_error(error)
            if self.group is not None:
                self.group.cancel()
        elif not self._open_count:
            self._finish()

    def _finish(self) -> None:
        self.group = None
        vectors = [self._vectors[index] for index in range(len(self._request.inputs))]
        encode = partial(encode_embeddings, self._request, vectors, self._usage)
        size_bytes = sum(len(tensor.data) for tensor in vectors) + sum(map(len, self._request.inputs))
        if size_bytes > INLINE_JSON_BYTES:
            self._background.ordered_work(self._exchange).compute(encode, self._send)
            return
        try:
            self._send(encode())
        except FieldError as error:  # more dimensions than there are
            self._exchange.send_error(error)

    def _send(self, body: bytes) -> None:
        self._exchange.send(answers.typed(self._exchange.head, 200, body))
