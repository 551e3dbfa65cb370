"""Holds the engine against `transformers.generate` on real shapes with random weights, and times its first start.

    python benchmarks/llm_equality.py --models llama-2-7b --folder /tmp/models

In bfloat16 two ways of adding up differ in the last bits, and random weights make near ties. So each token of the
engine is held against the library's logits in float32 for the same text, beside what the library itself takes in
bfloat16; and the engine in float32 has to take the same tokens.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, FalconConfig, LlamaConfig, Qwen2Config

CONFIGS: dict[str, Any] = {
    "llama-2-7b": LlamaConfig(),
    "qwen2-1.5b": Qwen2Config(
        vocab_size=151936, hidden_size=1536, intermediate_size=8960, num_hidden_layers=28, num_attention_heads=12,
        num_key_value_heads=2, max_position_embeddings=32768, rope_theta=1e6, tie_word_embeddings=True,
    ),
    "falcon-7b": FalconConfig(vocab_size=65024, bos_token_id=11, eos_token_id=11),
}  # fmt: skip
START = """
import sys, time
began = time.time()
from trireme.llm.engine import EngineCore
from trireme.llm.executor_choice import load_executor
from trireme.llm.options import EngineOptions
from trireme.llm.sampling_params import SamplingParams
import queue
options = EngineOptions(max_sequences=256)
engine = EngineCore(load_executor(sys.argv[1], options, "cuda"), options)
done = queue.SimpleQueue()
engine.submit(range(5, 69), SamplingParams(max_tokens=2, ignores_eos=True), done.put)
done.get()
print(f"first token {time.time() - began:.1f} s after the start of Python's imports", flush=True)
engine.close()
"""


def build(name: str, folder: Path) -> Any:
    """A model of the real shape on the GPU, its files beside it."""
    config = CONFIGS[name]
    config.torch_dtype = torch.bfloat16
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(config, torch_dtype=torch.bfloat16)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data.normal_(0, 0.02)
    model.save_pretrained(folder)
    return model.eval()


def compare(model: Any, folder: Path, count: int, new: int) -> None:
    """In bfloat16 against the library's own distance from float32, and in float32 token by token."""
    from trireme.llm.engine import EngineCore
    from trireme.llm.executor_choice import load_executor
    from trireme.llm.options import EngineOptions

    generator = torch.Generator().manual_seed(1)
    lengths = [int(size) for size in torch.randint(8, 200, (count,), generator=generator)]
    prompts = [torch.randint(10, 30000, (size,), generator=generator).tolist() for size in lengths]
    options = EngineOptions(max_sequences=64, cache_bytes=8 << 30)
    exact = type(model).from_pretrained(folder, dtype=torch.float32, device_map="cuda").eval()
    for dtype in ("bfloat16", "float32"):
        engine = EngineCore(load_executor(folder, options, "cuda", dtype), options)
        for label, together in (("alone", 1), ("in one batch", count)):
            found = ask(engine, prompts, new, together)
            print(f"  {dtype}, {label}:", flush=True)
            report(model, exact, prompts, found)
        engine.close()


def ask(engine: Any, prompts: list[list[int]], new: int, together: int) -> list[list[int]]:
    import queue

    from trireme.llm.sampling_params import SamplingParams

    found: list[list[int]] = [[] for _ in prompts]
    for first in range(0, len(prompts), together):
        done: queue.SimpleQueue[int] = queue.SimpleQueue()
        group = range(first, min(first + together, len(prompts)))
        for index in group:

            def listen(output: Any, index: int = index, done: Any = done) -> None:
                found[index] += output.token_ids
                if output.finish_reason is not None:
                    done.put(index)

            engine.submit(prompts[index], SamplingParams(max_tokens=new, ignores_eos=True), listen)
        for _ in group:
            done.get()
    return found


def report(model: Any, exact: Any, prompts: list[list[int]], found: list[list[int]]) -> None:
    """At each place of the engine's own texts: the token that the library would have taken there, by its logits."""
    rows: dict[str, list[torch.Tensor]] = {"the engine": [], "the library in bfloat16": []}
    for prompt, got in zip(prompts, found, strict=True):
        tokens = torch.tensor([prompt + got], device="cuda")
        here = slice(len(prompt) - 1, -1)
        with torch.inference_mode():
            right = exact(tokens).logits[0, here].float()
            rough = model(tokens).logits[0, here].float()
        for name, chosen in (("the engine", tokens[0, len(prompt) :]), ("the library in bfloat16", rough.argmax(-1))):
            gap = right.max(-1).values - right.gather(1, chosen[:, None])[:, 0]
            rows[name].append(gap / right.std(-1))
    for name, parts in rows.items():
        gaps = torch.cat(parts)
        equal = int((gaps == 0).sum())
        print(
            f"    {name}: {equal} of {gaps.numel()} tokens are those of float32, the others are behind by at most "
            f"{gaps.max():.4f} standard deviations of the logits",
            flush=True,
        )


def start_times(folder: Path) -> None:
    cache = folder / "triton"
    shutil.rmtree(cache, ignore_errors=True)
    environment = {**os.environ, "TRITON_CACHE_DIR": str(cache)}
    for label in ("cold compile cache", "warm compile cache"):
        began = time.time()
        done = subprocess.run(
            [sys.executable, "-c", START, str(folder)], env=environment, capture_output=True, text=True
        )
        print(f"  {label}: {done.stdout.strip()} (whole process {time.time() - began:.1f} s)", flush=True)
        if done.returncode:
            print(done.stderr[-2000:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=list(CONFIGS))
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--new", type=int, default=32)
    parser.add_argument("--keep", action="store_true", help="leave the folder for others")
    options = parser.parse_args()
    for name in options.models:
        folder = options.folder / name
        print(name, flush=True)
        model = build(name, folder)
        compare(model, folder, options.prompts, options.new)
        del model
        torch.cuda.empty_cache()
        start_times(folder)
        if not options.keep:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
