"""A program that makes the calls of older model files, in a process without accelerate: prints what came of each."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from trireme.backends.python.compat import import_hook

import_hook.install()
sys.modules["accelerate"] = None  # type: ignore[assignment]  # as if it was not installed
os.environ["TRANSFORMERS_CACHE"] = sys.argv[2]

import float16_calls  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from huggingface_hub.utils import build_hf_headers  # noqa: E402

folder = sys.argv[1]
outcomes: dict[str, Any] = {"release": int(transformers.__version__.split(".")[0])}


def attempt(name: str, call: Callable[[], Any]) -> None:
    try:
        outcomes[name] = call()
    except Exception as error:
        outcomes[name] = f"{type(error).__name__}: {error}"


tokenizer = transformers.AutoTokenizer.from_pretrained(folder, token="")
by_name = transformers.AutoTokenizer.from_pretrained
attempt("usual cache", lambda: by_name("someone/tiny-model")("I am", "going")["input_ids"])
attempt("token ids", lambda: tokenizer("I am", "going")["input_ids"])
attempt("encode_plus", lambda: tokenizer.encode_plus("I am", "going")["input_ids"])
attempt("batch_encode_plus", lambda: tokenizer.batch_encode_plus([("I am", "going"), ("x", "y")])["input_ids"])
attempt("batch_encode_plus again", lambda: tokenizer.batch_encode_plus(["I am"], return_tensors="pt").input_ids.shape)

load = transformers.AutoModelForCausalLM.from_pretrained
attempt("use_auth_token", lambda: load(folder, use_auth_token="x").dtype == torch.float32)
attempt("dtype", lambda: str(load(folder, dtype=torch.float16).lm_head.weight.dtype))
attempt("torch_dtype", lambda: str(load(folder, torch_dtype=torch.float16).lm_head.weight.dtype))
attempt("dtype by name", lambda: str(load(folder, dtype="float16").lm_head.weight.dtype))
float16_calls.make(attempt, folder, sys.argv[3])
attempt("device_map", lambda: str(load(folder, device_map="auto").device))
attempt("token in header", lambda: build_hf_headers(token="").get("authorization"))

model = load(folder)
generator = transformers.pipeline("text-generation", model=model, tokenizer=tokenizer)
greedy = {"do_sample": False, "pad_token_id": tokenizer.eos_token_id}


def new_tokens(prompt: str, **limits: int) -> int:
    """How many tokens the pipeline adds; the prompt is kept whole."""
    (answer,) = generator(prompt, return_tensors=True, **limits, **greedy)
    ids = tokenizer(prompt)["input_ids"]
    assert answer["generated_token_ids"][: len(ids)] == ids, "the prompt was changed"
    return len(answer["generated_token_ids"]) - len(ids)


long = "Once upon a time there was a server. " * 4
attempt("short prompt", lambda: new_tokens("I am going", max_length=15) + len(tokenizer("I am going")["input_ids"]))
attempt("greedy text", lambda: generator("I am going", max_new_tokens=5, **greedy)[0]["generated_text"])
attempt("long prompt", lambda: new_tokens(long, max_length=15))
attempt("long prompt again", lambda: new_tokens(long * 2, max_length=15))
attempt("new tokens win", lambda: new_tokens("I am going", max_length=15, max_new_tokens=20))
ids = tokenizer(long, return_tensors="pt")
attempt("generate", lambda: model.generate(**ids, max_length=5, **greedy).shape[1] - ids["input_ids"].shape[1])
make = transformers.pipeline
attempt("pipeline device_map", lambda: str(make("text-generation", model=folder, device_map="auto").model.device))
print(json.dumps(outcomes))
