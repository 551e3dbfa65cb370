"""What the backend uses of vLLM, in the place of the package: it answers with the words of the prompt, in turn."""

import asyncio
from dataclasses import dataclass, field

MOST = 20
"""Tokens of an answer whose request does not say."""


@dataclass
class AsyncEngineArgs:
    model: str
    disable_log_requests: bool = False
    enable_lora: bool = False


@dataclass
class SamplingParams:
    max_tokens: int | None = 16
    n: int = 1
    temperature: float = 1.0
    logprobs: int | None = None

    def __post_init__(self):
        if self.max_tokens is not None and (not isinstance(self.max_tokens, int) or self.max_tokens < 1):
            raise ValueError(f"max_tokens must be at least 1, got {self.max_tokens}.")


@dataclass
class Logprob:
    logprob: float
    rank: int
    decoded_token: str


@dataclass
class CompletionOutput:
    index: int
    text: str = ""
    token_ids: list = field(default_factory=list)
    cumulative_logprob: float | None = None
    logprobs: list | None = None
    finish_reason: str | None = None


@dataclass
class RequestOutput:
    prompt: str | None
    prompt_token_ids: list
    outputs: list
    finished: bool = False


class Tokenizer:
    chat_template = "of the stand-in"

    def apply_chat_template(self, messages, add_generation_prompt, tokenize, return_dict, **values):
        assert tokenize
        assert not return_dict
        return [len(message["content"]) for message in messages] + [int(add_generation_prompt), len(values)]


class AsyncLLMEngine:
    errored = False

    @classmethod
    def from_engine_args(cls, arguments):
        asyncio.get_running_loop()
        print(f"vLLM has been given the model {arguments.model}", flush=True)
        return cls()

    async def get_tokenizer(self):
        return Tokenizer()

    async def generate(self, prompt, params, request_id, lora_request=None):
        words = prompt["prompt"].split() if "prompt" in prompt else list(map(str, prompt["prompt_token_ids"]))
        if lora_request is not None:
            words = [lora_request.lora_name, str(lora_request.lora_int_id), lora_request.lora_path]
        outputs = [CompletionOutput(index) for index in range(params.n)]
        most = MOST if params.max_tokens is None else params.max_tokens
        for step in range(most):
            await asyncio.sleep(0.005)
            for one in outputs:
                one.text += f" {words[(step + one.index) % len(words)]}"
                one.token_ids = [*one.token_ids, step]
                if params.logprobs is not None:
                    one.logprobs = [*(one.logprobs or []), {step: Logprob(-0.5, 1, "word")}]
                    one.cumulative_logprob = (one.cumulative_logprob or 0.0) - 0.5
                one.finish_reason = "length" if step == most - 1 else None
            yield RequestOutput(prompt.get("prompt"), words, outputs, step == most - 1)

    async def abort(self, request_id):
        print(f"vLLM has ended {request_id}", flush=True)
