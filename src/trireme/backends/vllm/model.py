"""A model of Triton's vLLM backend."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trireme.backends.compiled.model_load import ModelLoadError
from trireme.backends.python.pb_utils import runtime as pb_runtime
from trireme.backends.python.pb_utils.logger import route_records_of
from trireme.backends.python.pb_utils.model_config import ModelConfig
from trireme.backends.python.pb_utils.request import InferenceRequest
from trireme.backends.python.pb_utils.sender import InferenceResponseSender
from trireme.backends.served_engine.refusals import begin_each
from trireme.backends.served_engine.slow_streams import SlowStreams
from trireme.backends.vllm import tensors
from trireme.backends.vllm.engine_file import read_engine_file, read_own_settings
from trireme.backends.vllm.lora_file import read_lora_file
from trireme.backends.vllm.own_engine import OwnEngine
from trireme.backends.vllm.text_answer import TextAnswer
from trireme.backends.vllm.text_request import read_text_request
from trireme.backends.vllm.vllm_engine import VllmEngine

ENGINES = ("trireme", "vllm")
"""The values of the parameter `engine`; the first is taken where there is none."""


class TritonPythonModel:
    """Takes requests without waiting for their answers."""

    @staticmethod
    def auto_complete_config(config: ModelConfig) -> ModelConfig:
        """Fills in the tensors; loads nothing."""
        return tensors.complete(config)

    def initialize(self, args: Mapping[str, str]) -> None:
        """Loads the model on its device."""
        for room in ("trireme.llm", "trireme.backends.vllm"):
            route_records_of(room)
        config = json.loads(args["model_config"])
        self._slow_streams = SlowStreams(pb_runtime.current().channel.wait_until)
        self._engine = self._load(config, args)

    def execute(self, requests: list[InferenceRequest]) -> None:
        """Hands the requests to the engine."""
        begin_each(requests, self._begin)

    def is_ready(self) -> bool:
        """Whether the engine still runs steps."""
        return self._engine.is_alive

    def finalize(self) -> None:
        """Ends what is under way and gives the device's memory back."""
        self._engine.close()

    def _load(self, config: Mapping[str, Any], args: Mapping[str, str]) -> OwnEngine | VllmEngine:
        named = config.get("parameters", {}).get("engine", {}).get("string_value", "") or ENGINES[0]
        if named not in ENGINES:
            raise ModelLoadError(f"parameter 'engine' must be {' or '.join(ENGINES)}, found '{named}'")
        place = Path(args["model_repository"]), args["model_version"]
        arguments = read_engine_file(*place)
        self._adapters = adapters = read_lora_file(arguments, *place)
        if named == "vllm":
            return VllmEngine(arguments, adapters or {})
        settings = read_own_settings(arguments, config, args, pb_runtime.current().channel.gather, adapters)
        return OwnEngine(settings, config["name"], args["model_version"])

    def _begin(self, request: InferenceRequest, sender: InferenceResponseSender) -> None:
        answer = TextAnswer(read_text_request(request, self._adapters), sender, self._slow_streams, lambda: None)
        timeout_us = request.timeout()
        self._engine.submit(answer, timeout_us / 1e6 if timeout_us else None)
