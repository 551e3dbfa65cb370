"""A folder as the people of FasterTransformer's GPT-NeoX have it: repository, tools and model, before any edit."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from string import Template

from running_server import RunningServer, port_flags, three_ports
from tiny_models import tiny_causal_lm
from whole_words import keep_words_whole

EXAMPLE = Path(__file__).parents[3] / "examples" / "gptneox"
MODELS = ("ensemble", "fastertransformer", "postprocessing", "preprocessing")
_ORIGINAL_TOKENIZER = "all_models/gptneox/postprocessing/1/20B_tokenizer.json"
_CHANGES = {
    "preprocessing": {"preprocessing/1/20B_tokenizer.json": _ORIGINAL_TOKENIZER},
    "postprocessing": {"postprocessing/1/20B_tokenizer.json": _ORIGINAL_TOKENIZER},
    "fastertransformer": {
        'string_value: "1-gpu"': 'string_value: "/workspace/ft/models/ft/gptneox/"',
        'key: "tensor_para_size" value: { string_value: "1" }': 'key: "tensor_para_size" value: { string_value: "2" }',
    },
}
"""What the originals say in their configurations."""


def make_workspace(folder: Path) -> Path:
    """With `tiny-gptneox`, a Hugging Face folder, in the place of the real model."""
    repository = folder / "all_models" / "gptneox"
    unwanted = shutil.ignore_patterns("*-gpu", "tiny-gptneox", "*.json", "__pycache__", "*_test.py")
    shutil.copytree(EXAMPLE, repository, ignore=unwanted)
    for model, changes in _CHANGES.items():
        path = repository / model / "config.pbtxt"
        text = path.read_text()
        for ours, theirs in changes.items():
            assert ours in text
            text = text.replace(ours, theirs)
        path.write_text(text)
    weights = tiny_causal_lm(folder / "tiny-gptneox", "gptneox")
    keep_words_whole(weights)
    for model in ("preprocessing", "postprocessing"):
        shutil.copy(weights / "tokenizer.json", repository / model / "1" / "20B_tokenizer.json")
    (folder / "tools" / "gpt").mkdir(parents=True)
    for name in ("identity_test.py", "end_to_end_test.py"):
        shutil.copy(EXAMPLE / name, folder / "tools" / "gpt" / name)
    return folder


def run(folder: Path, line: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A line that is typed in the workspace, with python3 and trireme from this environment, in a shell
    unless it is one program, which can be forked."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "WORKSPACE": str(folder), "MODEL": "tiny-gptneox", **variables}
    words = ["bash", "-c", line]
    if line.startswith(("python3 ", "trireme ")) and not set("|&;<>*()\n") & set(line):
        words = [Template(word).substitute(environment) for word in shlex.split(line)]
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=110)


class GptNeoxServer(RunningServer):
    """`tritonserver --model-repository=${WORKSPACE}/all_models/gptneox/`, typed in the workspace."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.ports = three_ports()
        program = Path(sys.executable).with_name("tritonserver")
        words = [str(program), f"--model-repository={folder}/all_models/gptneox/", *flags, *port_flags(self.ports)]
        self._start(folder, words, CUDA_VISIBLE_DEVICES="0", OMP_NUM_THREADS="1")


def greedy_rows(folder: Path) -> tuple[list[list[int]], list[list[int]]]:
    """The rows of triton_out, and what `generate` of transformers makes of their prompts."""
    rows = [[int(word) for word in line.split()] for line in (folder / "triton_out").read_text().splitlines()]
    return rows, continued_by_transformers(folder / "tiny-gptneox", [row[:8] for row in rows])


def continued_by_transformers(folder: Path, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
    """Prompts of one length, each with the 24 most likely tokens behind it."""
    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(folder).float()
    ids = torch.tensor(prompts)
    mask = torch.ones_like(ids)
    length = {"max_new_tokens": 24, "eos_token_id": 50256, "pad_token_id": 0}
    rows: list[list[int]] = model.generate(ids, attention_mask=mask, do_sample=False, **length).tolist()
    return rows
