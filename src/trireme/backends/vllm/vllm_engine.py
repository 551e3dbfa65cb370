"""vLLM itself, where it is installed and asked for."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import itertools
import logging
import threading
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

from trireme.backends.compiled.model_load import ModelLoadError
from trireme.backends.python.pb_utils.errors import ErrorCode
from trireme.backends.served_engine.refusals import InvalidRequestError
from trireme.backends.vllm.text_answer import ChoiceDelta, TextAnswer

log = logging.getLogger(__name__)

PACKAGE = "vllm"


class VllmEngine:
    """Its event loop runs in a thread of its own."""

    def __init__(self, arguments: Mapping[str, Any], adapters: Mapping[str, Path]) -> None:
        if importlib.util.find_spec(PACKAGE) is None:
            raise ModelLoadError(
                "the parameter 'engine' asks for vLLM, which is not installed here: pip install vllm, or leave it out"
            )
        self._package = importlib.import_module(PACKAGE)
        self._adapters = self._lora_requests(adapters)
        self._numbers = itertools.count()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="vllm", daemon=True)
        self._thread.start()
        self._engine = self._wait(self._start(arguments))

    @property
    def is_alive(self) -> bool:
        """Whether steps are still run."""
        return not getattr(self._engine, "errored", False)

    def submit(self, answer: TextAnswer, timeout_s: float | None) -> None:
        """Raises InvalidRequestError where the sampling parameters cannot be followed."""
        options = dict(answer.request.options)
        if "cumulative_logprob" in answer.request.told:
            options.setdefault("logprobs", 0)
        if answer.request.chat is not None:
            options.setdefault("max_tokens", None)  # as many as fit
        try:
            params = self._package.SamplingParams(**options)
        except (TypeError, ValueError) as error:
            raise InvalidRequestError(str(error)) from None
        number = f"trireme-{next(self._numbers)}"
        tells = answer.request.options.get("logprobs") is not None
        work = asyncio.run_coroutine_threadsafe(self._run(answer, params, number, tells, timeout_s), self._loop)

        def cancel() -> None:
            work.cancel()

        answer.cancel = cancel

    def close(self) -> None:
        """Ends what is under way."""
        shutdown = getattr(self._engine, "shutdown", None)
        if shutdown is not None:
            shutdown()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10)

    @staticmethod
    def _lora_requests(adapters: Mapping[str, Path]) -> dict[str, Any]:
        """vLLM wants a number for each, from 1."""
        if not adapters:
            return {}
        make = importlib.import_module(f"{PACKAGE}.lora.request").LoRARequest
        return {name: make(name, number, str(folder)) for number, (name, folder) in enumerate(adapters.items(), 1)}

    async def _start(self, arguments: Mapping[str, Any]) -> Any:
        return self._package.AsyncLLMEngine.from_engine_args(self._package.AsyncEngineArgs(**arguments))

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _run(self, answer: TextAnswer, params: Any, number: str, tells: bool, timeout_s: float | None) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._follow(answer, params, number, tells)
        except InvalidRequestError as error:
            answer.fail(str(error), ErrorCode.INVALID_ARG)
        except TimeoutError:
            await self._engine.abort(number)
            answer.fail("the request was ended: timeout", ErrorCode.UNAVAILABLE)
        except Exception as error:
            log.exception("vLLM gives no answer")
            answer.fail(f"Error generating stream: {error}", ErrorCode.INTERNAL)

    async def _follow(self, answer: TextAnswer, params: Any, number: str, tells: bool) -> None:
        told: list[_Told] = []
        adapter = self._adapters.get(answer.request.adapter)
        chosen = {} if adapter is None else {"lora_request": adapter}
        prompt: dict[str, Any] = {"prompt": answer.request.prompt}
        if answer.request.chat is not None:
            prompt = {"prompt_token_ids": answer.request.chat.tokens_of(await self._engine.get_tokenizer())}
        async for output in self._engine.generate(prompt, params, number, **chosen):
            if not told:
                told = [_Told() for _ in output.outputs]
                answer.begin(len(told), len(output.prompt_token_ids))
            answer.take([told[one.index].delta(one, tells) for one in output.outputs], output.finished)
            if answer.sender.is_cancelled() and not output.finished:
                await self._engine.abort(number)
                answer.fail("Request was cancelled", ErrorCode.CANCELLED)
                return


class _Told:
    """How much of one answer, which vLLM gives as a whole each time, is known already."""

    def __init__(self) -> None:
        self._size = self._token_count = self._entry_count = 0
        self._logprob = 0.0

    def delta(self, output: Any, tells: bool) -> ChoiceDelta:
        """What is new."""
        entries = list(output.logprobs or [])[self._entry_count :] if tells else None
        logprob = output.cumulative_logprob or 0.0
        found = ChoiceDelta(
            output.index,
            output.text[self._size :],
            len(output.token_ids) - self._token_count,
            logprob - self._logprob,
            None if entries is None else [_described(entry) for entry in entries],
            output.finish_reason,
        )
        self._size, self._token_count, self._logprob = len(output.text), len(output.token_ids), logprob
        self._entry_count += len(entries or [])
        return found


def _described(entry: Mapping[int, Any]) -> dict[int, dict[str, Any]]:
    return {
        token: {"logprob": one.logprob, "rank": one.rank, "decoded_token": one.decoded_token}
        for token, one in entry.items()
    }
