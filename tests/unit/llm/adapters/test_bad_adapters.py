"""Adapters that cannot be used are refused with the file and the reason, and leave everything else alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path, PosixPath
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_adapters import ATTENTION, write_adapter
from tiny_language_models import TinyModel

from trireme.llm.adapters.adapter import AdapterError
from trireme.llm.adapters.reading import read_adapter
from trireme.llm.models.catalog import read_spec
from trireme.llm.models.checkpoint import CheckpointError, open_tensors

Models = Callable[[str], TinyModel]
Q = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"


@pytest.fixture
def folder(tiny_model: Models, tmp_path: Path) -> Path:
    write_adapter(tiny_model("llama"), tmp_path / "one", base_model_name_or_path="someone/llama")
    return tmp_path / "one"


@pytest.fixture
def refusal(tiny_model: Models, folder: Path) -> Callable[..., str]:
    """Why the adapter is refused, by the model of a recipe."""

    def read(recipe: str = "llama") -> str:
        with pytest.raises(AdapterError) as caught:
            read_adapter("one", folder, read_spec(tiny_model(recipe).folder))
        return str(caught.value)

    return read


def configure(folder: Path, **fields: Any) -> None:
    path = folder / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_a_configuration_of_gigabytes_is_not_read(folder: Path, refusal: Callable[..., str]) -> None:
    os.truncate(folder / "adapter_config.json", 3 << 30)
    assert "adapter_config.json cannot be read (it has more than 64 MiB)" in refusal()


def test_tensors_with_a_damaged_header_are_not_read(folder: Path, refusal: Callable[..., str]) -> None:
    with (folder / "adapter_model.safetensors").open("r+b") as file:
        file.write((1 << 31).to_bytes(8, "little"))
        file.truncate(1 << 42)
    assert f"says that its header has {1 << 31} bytes, but the file has {1 << 42} in all" in refusal()


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("use_dora", True, "DoRA"),
        ("bias", "lora_only", "trained biases are not followed"),
        ("lora_bias", True, "biases"),
        ("modules_to_save", ["lm_head"], "whole modules"),
        ("target_parameters", ["experts.gate_up_proj"], "experts"),
        ("layer_replication", [[0, 2], [1, 3]], "repeated"),
        ("trainable_token_indices", [1], "tokens"),
        ("alora_invocation_tokens", [1], "aLoRA"),
        ("init_lora_weights", "pissa", "changes the model's own weights"),
        ("peft_type", "IA3", "of the kind 'IA3'"),
        ("r", 0, "from 1 to 4096"),
        ("r", "4", "from 1 to 4096"),
        ("lora_alpha", None, "must be a number"),
        ("rank_pattern", ["q_proj"], "not an object"),
        ("rank_pattern", {"(": 2}, "no pattern"),
    ],
)
def test_settings_that_are_not_followed(
    folder: Path, refusal: Callable[..., str], field: str, value: Any, reason: str
) -> None:
    configure(folder, **{field: value})
    text = refusal()
    assert field in text or reason in text
    assert reason in text
    assert "adapter_config.json" in text


@pytest.mark.parametrize("value", [True, False, "gaussian", "eva", None])
def test_usual_beginnings_of_a_training_are_fine(tiny_model: Models, folder: Path, value: Any) -> None:
    configure(folder, init_lora_weights=value, use_dora=False, modules_to_save=None, bias="none")
    assert len(read_adapter("one", folder, read_spec(tiny_model("llama").folder)).layers) == 3


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe"])
def test_a_damaged_configuration(folder: Path, refusal: Callable[..., str], content: bytes) -> None:
    (folder / "adapter_config.json").write_bytes(content)
    assert "adapter_config.json" in refusal()


def test_a_file_that_was_not_copied_to_its_end(folder: Path, refusal: Callable[..., str]) -> None:
    path = folder / "adapter_model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    assert "was not written or copied to its end" in refusal()
    path.write_bytes(b"\x01")
    assert "too few for a header" in refusal()
    path.unlink()
    assert "neither adapter_model.safetensors nor adapter_model.bin" in refusal()


TRUNCATED_WHILE_READ = """
import os, sys
from pathlib import Path
from trireme.llm.models.checkpoint import open_tensors, to_float32
path = Path(sys.argv[1])
file = open_tensors(path)
os.truncate(path, 0)
print(sum(float(abs(to_float32(file.read(name))).sum()) for name in file.names))
"""


@pytest.mark.parametrize("suffix", ["safetensors", "bin"])
def test_a_file_that_is_truncated_while_it_is_read_does_not_end_the_process(folder: Path, suffix: str) -> None:
    path = folder / f"adapter_model.{suffix}"
    tensors = load_file(folder / "adapter_model.safetensors")
    if suffix == "bin":
        torch.save(tensors, path)
    total = sum(float(tensor.abs().sum()) for tensor in tensors.values())
    del tensors  # which may be parts of the file
    command = [sys.executable, "-c", TRUNCATED_WHILE_READ, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == pytest.approx(total, rel=1e-3)


class ShrinkingPath(PosixPath):
    """Its file, and no other, is truncated as soon as somebody knows its size."""

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        stats = super().stat(follow_symlinks=follow_symlinks)
        os.truncate(self, stats.st_size // 2)
        return stats


def test_a_file_that_is_truncated_before_it_is_read(folder: Path) -> None:
    path = folder / "adapter_model.safetensors"
    size = path.stat().st_size
    with pytest.raises(CheckpointError, match=f"had {size} bytes, of which {size // 2} were left when it was read"):
        open_tensors(ShrinkingPath(path))


def test_something_else_that_pytorch_has_saved(folder: Path, refusal: Callable[..., str]) -> None:
    (folder / "adapter_model.safetensors").unlink()
    torch.save([1, 2], folder / "adapter_model.bin")
    assert "adapter_model.bin" in refusal()
    torch.save({Q: "text", Q.replace("lora_A", "lora_B"): "text"}, folder / "adapter_model.bin")
    assert "has str in place of the tensor" in refusal()
    (folder / "adapter_model.bin").write_bytes(b"no file of PyTorch's")
    assert "cannot be read by PyTorch" in refusal()


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda content: b"", "it is damaged, or has something else"),
        (lambda content: content[:3], "it is damaged, or has something else"),
        (lambda content: content[: len(content) // 2], "it is damaged, or has something else"),
        (
            lambda content: content.replace(b"PK\x03\x04", b"PK??").replace(b"PK??", b"PK\x03\x04", 1),
            "cannot be read by PyTorch",
        ),
    ],
)
def test_a_damaged_file_of_pytorch_is_read_once(
    folder: Path,
    refusal: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    damage: Callable[[bytes], bytes],
    reason: str,
) -> None:
    path, reads = folder / "adapter_model.bin", list[Path]()
    torch.save(load_file(folder / "adapter_model.safetensors"), path)
    (folder / "adapter_model.safetensors").unlink()
    path.write_bytes(damage(path.read_bytes()))
    load = torch.load
    monkeypatch.setattr(torch, "load", lambda given, **options: reads.append(given) or load(given, **options))
    told = refusal()
    assert told.startswith(f"{path} cannot be read by PyTorch (")
    assert reason in told
    assert reads == [path]


def test_an_adapter_of_another_model(refusal: Callable[..., str]) -> None:
    text = refusal("llama, wide heads")
    assert "lora_B.weight' as [16, 4], where the model and the adapter's rank ask for" in text
    assert "made for 'someone/llama'" in text
    text = refusal("pythia")
    assert "GPTNeoXForCausalLM" in text
    assert "mlp.gate_proj" in text


def change(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "adapter_model.safetensors"
    tensors = load_file(path)
    edit(tensors)
    save_file(tensors, path)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("base_model.model.lm_head.lora_A.weight", "one of the two matrices"),
        ("base_model.model.lm_head.weight", "not matrices of LoRA"),
        ("base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector", "not matrices of LoRA"),
    ],
)
def test_tensors_that_are_no_pair(folder: Path, refusal: Callable[..., str], name: str, reason: str) -> None:
    change(folder, lambda tensors: tensors.update({name: torch.zeros(2, 2)}))
    assert reason in refusal()


@pytest.mark.parametrize(
    "module", ["lm_head", "model.embed_tokens", "model.layers.3.self_attn.q_proj", "vision.layers.0.fc1"]
)
def test_modules_that_cannot_be_adapted(folder: Path, refusal: Callable[..., str], module: str) -> None:
    pair = {f"base_model.model.{module}.lora_{one}.weight": torch.zeros(4, 4) for one in "AB"}
    change(folder, lambda tensors: tensors.update(pair))
    assert f"adapts '{module}'" in refusal()


def test_experts_cannot_be_adapted(tiny_model: Models, tmp_path: Path) -> None:
    tiny = tiny_model("qwen 2 moe")
    write_adapter(tiny, tmp_path / "experts", (*ATTENTION, "gate_proj"))
    with pytest.raises(AdapterError, match="shared_expert"):
        read_adapter("experts", tmp_path / "experts", read_spec(tiny.folder))


def test_another_rank_than_the_configuration_says(folder: Path, refusal: Callable[..., str]) -> None:
    configure(folder, r=8)
    assert "ask for [8, " in refusal()


def test_numbers_that_are_none(folder: Path, refusal: Callable[..., str]) -> None:
    change(folder, lambda tensors: tensors[Q].fill_(float("nan")))
    assert "not finite" in refusal()
