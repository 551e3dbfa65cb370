"""One instance of a language model: requests go to its engine as they come, and are answered as they are written."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping

from trireme.backends.llm import tensors
from trireme.backends.llm.answer_form import AnswerForms
from trireme.backends.llm.answers import Answer, refusal, tokens_answer
from trireme.backends.llm.caretaker import Caretaker
from trireme.backends.llm.metrics import EngineMetrics
from trireme.backends.llm.pacing import Pacer
from trireme.backends.llm.sampling_options import WishError
from trireme.backends.llm.settings import read_settings
from trireme.backends.llm.wishes import Wishes, read_wishes
from trireme.backends.python.pb_utils import runtime as pb_runtime
from trireme.backends.python.pb_utils.errors import ErrorCode
from trireme.backends.python.pb_utils.logger import route_records_of
from trireme.backends.python.pb_utils.model_config import ModelConfig
from trireme.backends.python.pb_utils.request import InferenceRequest
from trireme.backends.python.pb_utils.sender import InferenceResponseSender
from trireme.backends.python.pb_utils.types import TRITONSERVER_RESPONSE_COMPLETE_FINAL
from trireme.llm.chat.formats import find_reasoning, find_tool_format
from trireme.llm.engine import EngineBusyError, EngineClosedError
from trireme.llm.generation import Generation, TextOutput
from trireme.llm.sampling_params import SamplingError
from trireme.llm.text_engine import Engine
from trireme.llm.tokenizer.port import ChatError, TokenizerError

log = logging.getLogger(__name__)


class TritonPythonModel:
    """Takes requests without waiting for their answers."""

    @staticmethod
    def auto_complete_config(config: ModelConfig) -> ModelConfig:
        """Fills in the tensors; loads nothing."""
        return tensors.complete(config)

    def initialize(self, args: Mapping[str, str]) -> None:
        """Loads the model on its device."""
        route_records_of("trireme.llm")  # which device, whose code, and why
        config = json.loads(args["model_config"])
        settings = read_settings(config, args, pb_runtime.current().channel.gather)
        self._engine = Engine.load(
            settings.folder, device=settings.device, dtype=settings.dtype, options=settings.options
        )
        template = self._engine.tokenizer.template_text
        self._forms = AnswerForms(
            self._engine,
            find_tool_format(settings.tool_parser, template),
            find_reasoning(settings.reasoning_parser, template),
            settings.max_new_tokens,
        )
        self._metrics = EngineMetrics(self._engine.core, config["name"], args["model_version"])
        self._caretaker = Caretaker(self._engine.core, settings.options.step_timeout_s, self._metrics.update)
        self._pacer = Pacer(pb_runtime.current().channel.wait_until)
        self._caretaker.start()

    def execute(self, requests: list[InferenceRequest]) -> None:
        """Hands the requests to the engine."""
        for request in requests:
            sender = request.get_response_sender()
            try:
                names = request.requested_output_names()
                wishes = read_wishes(request, self._engine.tokenizer, names, self._forms)
                if wishes.operation:
                    self._answer_about_tokens(wishes, sender)
                else:
                    self._submit(wishes, sender, request)
            except (WishError, SamplingError, ChatError, TokenizerError) as error:
                sender.send(refusal(error), TRITONSERVER_RESPONSE_COMPLETE_FINAL)
            except (EngineBusyError, EngineClosedError) as error:
                sender.send(refusal(error, ErrorCode.UNAVAILABLE), TRITONSERVER_RESPONSE_COMPLETE_FINAL)
            except Exception as error:  # of this request alone: others of the batch run already
                log.exception("a request cannot be read")
                if not sender.is_closed:
                    sender.send(refusal(error, ErrorCode.INTERNAL), TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def is_ready(self) -> bool:
        """Whether the engine still runs steps."""
        return self._engine.core.is_alive

    def finalize(self) -> None:
        """Ends what is under way and gives the device's memory back."""
        self._caretaker.stop()
        self._engine.close()

    def _submit(self, wishes: Wishes, sender: InferenceResponseSender, request: InferenceRequest) -> None:
        generation: Generation | None = None
        active = self._caretaker.active

        def on_end(output: TextOutput) -> None:
            if generation is not None:
                active.pop(generation, None)
            self._metrics.ended(output, len(wishes.tokens), wishes.params.choices)

        def cancel() -> None:
            if generation is not None:
                generation.cancel()

        def listen(output: TextOutput) -> None:
            if output.is_last:
                sender.measured(self._metrics.durations(output, wishes.params.choices))
            answer(output)

        answer = Answer(wishes, sender, self._engine.tokenizer, on_end, cancel, self._pacer)
        timeout_us = request.timeout()
        generation = self._engine.submit(
            wishes.tokens,
            wishes.params,
            listen,
            priority=wishes.priority,
            timeout_s=timeout_us / 1e6 if timeout_us else None,
        )
        if answer.has_failed:  # before it could be cancelled
            generation.cancel()
        active[generation] = sender
        if generation.is_finished:  # before it was noted
            active.pop(generation, None)

    def _answer_about_tokens(self, wishes: Wishes, sender: InferenceResponseSender) -> None:
        if wishes.operation not in ("tokenize", "detokenize"):
            raise WishError(f"'operation' must be tokenize or detokenize, found '{wishes.operation}'")
        text = self._engine.tokenizer.decode(wishes.tokens, skip_special=False)
        sender.send(tokens_answer(wishes.tokens, text), TRITONSERVER_RESPONSE_COMPLETE_FINAL)
