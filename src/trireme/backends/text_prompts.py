"""Text generation for `model.py` files: whatever the tensors are called, and however many prompts a request has.

    from trireme.models import TextPromptModel as TritonPythonModel

The first input of config.pbtxt holds prompts, and the first output gets the answers in the same shape. The parameters
are those of the transformers backend, which does the work.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from trireme.backends.compiled.batching import RequestError
from trireme.backends.python.pb_utils.model_config import ModelConfig
from trireme.backends.python.pb_utils.request import InferenceRequest
from trireme.backends.python.pb_utils.response import InferenceResponse
from trireme.backends.python.pb_utils.tensor import Tensor
from trireme.backends.transformers import model
from trireme.backends.transformers.items import Item, Outputs, error_response, text_array
from trireme.backends.transformers.runner import run_items


class TritonPythonModel(model.TritonPythonModel):
    """One loaded model; the prompts of all requests that come together run as one batch."""

    @staticmethod
    def auto_complete_config(config: ModelConfig) -> ModelConfig:
        """The tensors are as they are declared."""
        return config

    def initialize(self, args: Mapping[str, str]) -> None:
        """Loads the model that the configuration names; to the backend the tensors have the names of its task."""
        config = json.loads(args["model_config"])
        self._input_name, self._output_name = (config[kind][0]["name"] for kind in ("input", "output"))
        config["input"][0]["name"], config["output"][0]["name"] = "text_input", "text_output"
        super().initialize({**args, "model_config": json.dumps(config)})

    def execute(self, requests: list[InferenceRequest]) -> list[InferenceResponse]:
        """A response beside each request."""
        items = [self._items(request) for request in requests]
        with self._inference_mode():
            outputs = run_items(self._runner, [item for own in items if isinstance(own, list) for item in own])
        answers = iter(outputs)
        return [
            self._answer(request, [next(answers) for _ in own]) if isinstance(own, list) else error_response(own)
            for request, own in zip(requests, items, strict=True)
        ]

    def _items(self, request: InferenceRequest) -> list[Item] | RequestError:
        """One for each prompt of the request, or what is wrong with it."""
        try:
            options = self._reader.options(request)
            prompts = self._input_of(request).as_numpy().ravel()
        except RequestError as error:
            return error
        return [Item({"text_input": prompt}, options, request.is_cancelled) for prompt in prompts]

    def _answer(self, request: InferenceRequest, answers: list[Outputs | Exception]) -> InferenceResponse:
        texts = []
        for index, answer in enumerate(answers):
            if isinstance(answer, RequestError) and len(answers) > 1:
                answer = RequestError(f"prompt {index}: {answer}")
            if isinstance(answer, Exception):
                return error_response(answer)
            texts.append(str(answer["text_output"][0]))
        shape = self._input_of(request).shape()
        return InferenceResponse([Tensor(self._output_name, text_array(texts).reshape(shape))])

    def _input_of(self, request: InferenceRequest) -> Tensor:
        for tensor in request.inputs():
            if tensor.name() == self._input_name:
                return tensor
        raise RequestError(f"input '{self._input_name}' is missing")
