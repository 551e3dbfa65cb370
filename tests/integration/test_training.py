"""The scripts that make the shipped model, run small on a CPU."""

from __future__ import annotations

import importlib
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("tokenizers")
pytest.importorskip("transformers")

ROOT = Path(__file__).resolve().parents[2]
SMALL = (
    *("--hidden", "32", "--layers", "2", "--heads", "2", "--kv-heads", "1", "--mlp", "64"),
    *("--context", "32", "--batch", "4", "--no-compile", "--no-samples"),
)
SENTENCES = [f"The ship number {count} sailed over the wide sea and came home again." for count in range(300)]


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of data as `training.prepare` leaves it, of a few sentences."""
    monkeypatch.syspath_prepend(str(ROOT))
    prepare: Any = importlib.import_module("training.prepare")
    tokenizer: Any = importlib.import_module("training.tokenizer")
    turn: Any = importlib.import_module("training.chat_format").Turn
    chats = [[turn("user", f"Which ship is {count}?"), turn("assistant", f"Ship {count}.")] for count in range(300)]
    trained = tokenizer.train_tokenizer(SENTENCES, 320)
    tokenizer.write_tokenizer(trained, tmp_path, 32)
    prepare.write_tokens(trained, SENTENCES, chats, tmp_path / "tokens.npz", held_back=0.1)
    return tmp_path


def _train(data: Path, out: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "training.train", "--data", str(data), "--out", str(out), *SMALL, *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def _held_back(printed: str) -> list[float]:
    return [float(line.split("text ")[1].split()[0]) for line in printed.splitlines() if "held back" in line]


@pytest.mark.slow
def test_a_few_steps_lower_the_loss_and_transformers_loads_the_folder(prepared: Path, tmp_path: Path) -> None:
    out = tmp_path / "scribe"
    process = _train(prepared, out, "--minutes", "1.5", "--steps", "120", "--evaluate-every", "0.2", "--rate", "1e-2")
    printed, _ = process.communicate(timeout=110)
    assert process.returncode == 0, printed
    losses = _held_back(printed)
    assert losses[-1] < losses[0] / 2

    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    ids = torch.tensor([tokenizer(SENTENCES[5]).input_ids])
    with torch.no_grad():
        loss = float(model(ids, labels=ids).loss)
    assert loss == pytest.approx(losses[-1], abs=1.0)
    rendered = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], tokenize=False, add_generation_prompt=True
    )
    assert rendered == "<|endoftext|><|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert json.loads((out / "generation_config.json").read_text())["eos_token_id"] == [2, 0]


@pytest.mark.slow
def test_an_interrupted_training_leaves_a_whole_folder(prepared: Path, tmp_path: Path) -> None:
    out = tmp_path / "scribe"
    process = _train(prepared, out, "--minutes", "5", "--evaluate-every", "0.5")
    assert process.stdout is not None
    for line in process.stdout:
        if "held back" in line:
            break
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 0
    names = {file.name for file in out.iterdir()}
    assert names >= {"model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json", "README.md"}


def test_only_answers_are_learned(prepared: Path) -> None:
    batches: Any = importlib.import_module("training.batches")
    tokenizers: Any = importlib.import_module("tokenizers")
    tokenizer = tokenizers.Tokenizer.from_file(str(prepared / "tokenizer.json"))
    data = batches.load_data(prepared / "tokens.npz", 150, 0, "cpu")
    ids, targets = data.chat.spread_rows(5, 150)
    assert ids[:, 0].tolist() == [0] * 5
    for row in targets:
        learned = tokenizer.decode([int(token) for token in row if token >= 0], skip_special_tokens=False)
        assert learned.startswith("Ship ")
        assert "user" not in learned
        assert "Which" not in learned


def test_missing_data_is_said(tmp_path: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-m", "training.train", "--data", str(tmp_path), "--out", str(tmp_path / "out")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert process.returncode != 0
    assert "run `python3 -m training.prepare` first" in process.stderr
