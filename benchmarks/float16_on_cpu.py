"""A model loaded in float16 on the CPU: as it is, with compat float16 as a worker computes it, and in float32.

    python benchmarks/float16_on_cpu.py [--threads 1]

A Llama with 2 layers of 128 and random weights generates in this process; the least of three times each.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

VARIABLE = "TRIREME_COMPAT"
SHAPES = ((1, 5, 10), (1, 128, 1), (8, 128, 1))
ROUNDS = 3


def build(folder: Path) -> None:
    """The files of the model."""
    import transformers

    sizes = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.LlamaConfig(vocab_size=1000, bos_token_id=None, eos_token_id=None, **sizes)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def load(folder: Path, dtype: str, compat: str) -> Any:
    """The model as a worker has it with these words."""
    import transformers

    os.environ[VARIABLE] = compat
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()


def least_ms(model: Any, ids: Any, new_tokens: int) -> float:
    """The quickest of some generations."""
    import torch

    seconds = []
    for _ in range(ROUNDS + 1):  # the first warms up
        began = time.perf_counter()
        model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=new_tokens,
            min_new_tokens=new_tokens,
            pad_token_id=0,
            do_sample=False,
        )
        seconds.append(time.perf_counter() - began)
    return min(seconds[1:]) * 1000


def main() -> None:
    """Prints a line for each shape."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    from trireme.backends.python.compat import import_hook

    import_hook.install()  # as workers do before they import a model's file
    import torch

    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder)
        build(files)
        models = {
            "float16": load(files, "float16", ""),
            "compat float16": load(files, "float16", "float16"),
            "float32": load(files, "float32", ""),
        }
        for rows, prompt, new_tokens in SHAPES:
            ids = torch.randint(5, 50, (rows, prompt))
            times = {name: least_ms(model, ids, new_tokens) for name, model in models.items()}
            told = "  ".join(f"{name} {ms:.1f} ms" for name, ms in times.items())
            ratio = times["float16"] / times["compat float16"]
            print(f"{rows} x {prompt} tokens, {new_tokens} new: {told}  ratio {ratio:.1f}", flush=True)


if __name__ == "__main__":
    main()
