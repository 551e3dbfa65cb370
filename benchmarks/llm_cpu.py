"""Measures the language-model engine on the CPU: concurrent requests against transformers, which takes one at a time.

    python benchmarks/llm_cpu.py --requests 16

The model has random weights. Both sides continue the same prompts greedily, and have to come to the same tokens.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import torch
import transformers

from trireme.llm.engine import EngineCore
from trireme.llm.executor_choice import load_executor
from trireme.llm.options import EngineOptions
from trireme.llm.request import SequenceOutput
from trireme.llm.sampling_params import SamplingParams


def make_model(folder: Path) -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=32000,
        hidden_size=512,
        intermediate_size=1376,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=2048,
        initializer_range=0.05,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    model.generation_config = transformers.GenerationConfig()
    model.save_pretrained(folder)
    return model


def run_transformers(model: Any, prompts: list[list[int]], new: int) -> tuple[float, list[list[int]]]:
    found = []
    began = time.perf_counter()
    with torch.inference_mode():
        for prompt in prompts:
            ids = torch.tensor([prompt])
            mask = torch.ones_like(ids)
            tokens = model.generate(
                ids, attention_mask=mask, max_new_tokens=new, do_sample=False, eos_token_id=None, pad_token_id=0
            )
            found.append(tokens[0, len(prompt) :].tolist())
    return time.perf_counter() - began, found


def run_engine(engine: EngineCore, prompts: list[list[int]], new: int) -> tuple[float, list[list[int]]]:
    found: list[list[int]] = [[] for _ in prompts]
    done = threading.Semaphore(0)

    def listener(index: int) -> Any:
        def listen(news: SequenceOutput) -> None:
            found[index] += news.token_ids
            if news.finish_reason is not None:
                assert not news.error, news.error
                done.release()

        return listen

    began = time.perf_counter()
    for index, prompt in enumerate(prompts):
        engine.submit(prompt, SamplingParams(max_tokens=new), listener(index))
    for _ in prompts:
        done.acquire()
    return time.perf_counter() - began, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", choices=["cpu", "numpy"], default="cpu")
    options = parser.parse_args()
    generator = torch.Generator().manual_seed(0)
    shape = (options.requests, options.prompt)
    prompts = torch.randint(3, 32000, shape, generator=generator).tolist()
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(Path(folder))
        settings = EngineOptions(has_prefix_cache=False)
        engine = EngineCore(load_executor(folder, settings, options.device, "float32"), settings)
        run_transformers(model, prompts[:1], 4)
        run_engine(engine, prompts, 4)
        total = options.requests * options.new
        ours, theirs = [], []
        for _ in range(options.rounds):
            took, tokens = run_engine(engine, prompts, options.new)
            ours.append(took)
            their_time, their_tokens = run_transformers(model, prompts, options.new)
            theirs.append(their_time)
            equal = sum(one == other for one, other in zip(tokens, their_tokens, strict=True))
            print(f"engine {total / took:8.1f} tokens/s   transformers {total / their_time:8.1f} tokens/s   "
                  f"{equal} of {len(prompts)} texts equal", flush=True)  # fmt: skip
        engine.close()
    print(f"ratio {min(theirs) / min(ours):.2f} with {options.requests} requests, {torch.get_num_threads()} threads")


if __name__ == "__main__":
    main()
