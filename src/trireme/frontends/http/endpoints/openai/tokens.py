"""The endpoints that ask for a model's tokens alone; the tokenizer is the worker's."""

from __future__ import annotations

import uuid
from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from trireme.core.datatype import Parameter
from trireme.core.elements import decode_bytes
from trireme.core.errors import InternalError
from trireme.core.request import InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.frontends.http.endpoints.openai.endpoint import ModelCalls, arrival_or_none
from trireme.frontends.http.endpoints.openai.prompts import messages_text
from trireme.frontends.http.endpoints.openai.tensors import input_tensor
from trireme.frontends.http.exchange import Exchange
from trireme.frontends.http.routing import Route, route
from trireme.protocol.openai.errors import FieldError
from trireme.protocol.openai.known_fields import DETOKENIZE, TOKENIZE
from trireme.protocol.openai.tokens import (
    DetokenizeRequest,
    TokenizeRequest,
    encode_prompt,
    encode_tokens,
    read_detokenize,
    read_tokenize,
)
from trireme.server.call import CalledModel
from trireme.server.text_models.forms import GenerationForm


class TokenEndpoints:
    """`POST /tokenize` and `POST /detokenize`."""

    def __init__(self, calls: ModelCalls) -> None:
        self._calls = calls

    def routes(self) -> list[Route]:
        """The paths of this API."""
        return [
            route("/tokenize", POST=self._calls.endpoint(read_tokenize, self.tokenize, TOKENIZE)),
            route("/detokenize", POST=self._calls.endpoint(read_detokenize, self.detokenize, DETOKENIZE)),
        ]

    def tokenize(self, exchange: Exchange, call: CalledModel, request: TokenizeRequest) -> None:
        """The tokens of a text or a chat."""
        form = _tokenizing_form(call, request.model)

        def encode() -> Tensor:
            if request.messages is None:
                return input_tensor(form.inputs[form.prompt_input], [request.prompt], form.has_batch)
            return input_tensor(form.inputs["messages"], [messages_text(request.messages)], form.has_batch)

        parameters: dict[str, Parameter] = {"operation": "tokenize", **request.options}
        outputs = ["token_ids"]
        if request.wants_texts:
            parameters["return_token_strs"] = True
            outputs.append(form.text_output)
        ask = partial(_ask, exchange, call, request.model, parameters, outputs, _encode_token_ids)
        self._calls.prepare(exchange, request.model, encode, ask)

    def detokenize(self, exchange: Exchange, call: CalledModel, request: DetokenizeRequest) -> None:
        """The text of tokens."""
        form = _tokenizing_form(call, request.model)
        encode = partial(input_tensor, form.inputs["input_ids"], request.tokens, form.has_batch)
        parameters: dict[str, Parameter] = {"operation": "detokenize"}
        ask = partial(_ask, exchange, call, request.model, parameters, [form.text_output], _encode_text)
        self._calls.prepare(exchange, request.model, encode, ask)


def _tokenizing_form(call: CalledModel, model: str) -> GenerationForm:
    form = call.generation()
    if form is None or not form.has_tokenizer:
        raise FieldError("model", f"The model '{model}' has no tokenizer that can be asked.", "unsupported_model")
    return form


def _ask(
    exchange: Exchange,
    call: CalledModel,
    model: str,
    parameters: dict[str, Parameter],
    outputs: Sequence[str],
    encode: Callable[[list[Tensor], Mapping[str, Parameter]], bytes],
    tensor: Tensor,
) -> None:
    """Sends the request, and answers with the response that has its outputs."""

    def respond(response: InferenceResponse) -> None:
        given = {entry.name: entry for entry in response.outputs}
        missing = [name for name in outputs if name not in given]
        if response.error is not None:
            exchange.send_error(response.error)
        elif not missing:
            exchange.send_json(encode([given[name] for name in outputs], response.parameters or {}))
        elif response.is_final:
            exchange.send_error(InternalError(f"the model gave no '{missing[0]}'"))

    request = InferenceRequest(model, "", f"tok-{uuid.uuid4().hex}", {tensor.name: tensor}, exchange.responder(respond))
    request.parameters = parameters
    request.requested_outputs = tuple(outputs)
    exchange.request = request
    exchange.body = b""
    call.start(request, arrival_or_none(exchange))


def _encode_token_ids(outputs: list[Tensor], parameters: Mapping[str, Parameter]) -> bytes:
    ids, *others = outputs
    tokens = array("i" if ids.datatype == "INT32" else "q", bytes(ids.data)).tolist()
    texts = [text.decode("utf-8", "replace") for other in others for text in decode_bytes(other.data)]
    limit = parameters.get("max_model_len")
    return encode_tokens(tokens, limit if isinstance(limit, int) else None, texts if others else None)


def _encode_text(outputs: list[Tensor], _: Mapping[str, Parameter]) -> bytes:
    return encode_prompt(b"".join(decode_bytes(outputs[0].data)).decode("utf-8", "replace"))
