"""The shipped model in an engine, requests to it, and a sender that keeps what it is given."""

from __future__ import annotations

import json
import queue
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trireme.backends.llm.answer_form import AnswerForms
from trireme.backends.llm.answers import Answer
from trireme.backends.llm.llm_request import LlmRequest, read_llm_request
from trireme.backends.llm.sampling_options import read_beams
from trireme.backends.llm.tensors import OUTPUTS
from trireme.backends.python.pb_utils.request import InferenceRequest
from trireme.backends.python.pb_utils.response import InferenceResponse
from trireme.backends.python.pb_utils.tensor import Tensor
from trireme.llm import Engine
from trireme.llm.chat.formats import REASONING_TAGS, TOOL_FORMATS

SHIPPED = Path(__file__).parents[4] / "examples" / "model_repository" / "scribe" / "1"


class KeptResponses:
    """Stands in for the sender of a request."""

    def __init__(self) -> None:
        self.responses: queue.Queue[tuple[InferenceResponse, int]] = queue.Queue()

    def send(self, response: InferenceResponse, flags: int) -> None:
        self.responses.put((response, flags))

    def all(self) -> list[dict[str, list[Any]]]:
        """Of each response its outputs, texts decoded."""
        found = []
        while True:
            response, flags = self.responses.get(timeout=60)
            assert response.error() is None, response.error()
            found.append({tensor.name(): _plain(tensor) for tensor in response.output_tensors()})
            if flags:
                return found


def _plain(tensor: Tensor) -> list[Any]:
    values = tensor.as_numpy().tolist()
    return [value.decode() if isinstance(value, bytes) else value for value in values]


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    with Engine.load(SHIPPED, device="numpy") as running:
        yield running


@pytest.fixture
def read(engine: Engine) -> Callable[..., LlmRequest]:
    """Reads a request with options; a chat with the format of Hermes and reasoning, unless `text` is given.

    It asks for the outputs that fit the request, unless `names` says which, or () for a request that says nothing.
    """

    def make(text: str = "", stream: bool = False, names: tuple[str, ...] | None = None, **options: Any) -> LlmRequest:
        chat = json.dumps([{"role": "user", "content": "What is the capital of France?"}])
        prompt = _text("text_input", text) if text else _text("messages", chat)
        tensors = [prompt, _text("sampling_parameters", json.dumps(options)), Tensor("stream", np.array([stream]))]
        if names is None:
            names = tuple(sorted(_fitting_outputs(not text, options)))
        request = InferenceRequest("", 0, tensors, names, "scribe")
        forms = AnswerForms(engine, TOOL_FORMATS["hermes"], REASONING_TAGS["think"])
        return read_llm_request(request, engine.tokenizer, names, forms)

    return make


@pytest.fixture
def answer(
    read: Callable[..., LlmRequest], fulfil: Callable[[LlmRequest], list[dict[str, list[Any]]]]
) -> Callable[..., list[dict[str, list[Any]]]]:
    """All responses to a request."""
    return lambda **options: fulfil(read(**options))


@pytest.fixture
def fulfil(engine: Engine) -> Callable[[LlmRequest], list[dict[str, list[Any]]]]:
    """All responses to a request that was read."""

    def ask(llm_request: LlmRequest) -> list[dict[str, list[Any]]]:
        kept: Any = KeptResponses()
        engine.submit(
            llm_request.tokens, llm_request.params, Answer(llm_request, kept, engine.tokenizer, lambda output: None)
        )
        found: list[dict[str, list[Any]]] = kept.all()
        return found

    return ask


def _fitting_outputs(is_chat: bool, options: Mapping[str, Any]) -> set[str]:
    names = OUTPUTS.keys() - {"logprobs", "delta", "score", "prompt_logprobs", "cumulative_logprob"}
    if is_chat:
        names |= {"delta"}
    if options.keys() & {"num_beams", "beam_width", "use_beam_search"} and read_beams(options, options.get("n", 1)).get(
        "beams"
    ):
        names |= {"score"}
    return names | ({"prompt_logprobs"} & options.keys())


def _text(name: str, text: str) -> Tensor:
    array = np.empty(1, np.object_)
    array[0] = text.encode()
    return Tensor(name, array)
