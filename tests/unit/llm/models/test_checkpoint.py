"""Checkpoints are read as they were saved, and damaged ones are named with what is wrong."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_language_models import TinyModel, build

from trireme.llm.models.catalog import load_weights, read_spec
from trireme.llm.models.checkpoint import Checkpoint, CheckpointError, Weight, join, read_config, to_float32

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 99\n"
SAFETENSORS = "model.safetensors"


def write(path: Path, header: dict[str, Any], data: bytes = b"") -> None:
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def entry(dtype: Any, shape: list[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def refusal(folder: Path, name: str = "one") -> str:
    with pytest.raises(CheckpointError) as caught:
        Checkpoint(folder).read(name)
    return str(caught.value)


def test_tensors_keep_their_bits(tmp_path: Path) -> None:
    numbers = np.array([1.0, -2.5, 3.0], np.float32)
    halves = numbers.astype(np.float16)
    brains = (numbers.view(np.uint32) >> 16).astype(np.uint16)
    header = {
        "__metadata__": {"format": "pt"},
        "f32": entry("F32", [3], 0, 12),
        "f16": entry("F16", [3, 1], 12, 18),
        "bf16": entry("BF16", [1, 3], 18, 24),
        "none": entry("F32", [0, 4], 24, 24),
    }
    write(tmp_path / SAFETENSORS, header, numbers.tobytes() + halves.tobytes() + brains.tobytes())
    checkpoint = Checkpoint(tmp_path)
    assert checkpoint.names == {"f32", "f16", "bf16", "none"}
    assert checkpoint.read("none").array.shape == (0, 4)
    for name, shape in (("f32", (3,)), ("f16", (3, 1)), ("bf16", (1, 3))):
        weight = checkpoint.read(name)
        assert weight.dtype == name.upper()
        assert weight.array.shape == shape
        assert to_float32(weight).dtype == np.float32
        assert to_float32(weight).ravel().tolist() == numbers.tolist()
    assert checkpoint.read("bf16").array.dtype == np.uint16


def test_tensors_of_a_type_are_measured_over_all_files(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"one": "a.safetensors", "two": "a.safetensors", "three": "b.safetensors"}})
    )
    write(
        tmp_path / "a.safetensors",
        {"one": entry("F8_E4M3", [4], 0, 4), "two": entry("I8", [2], 4, 6), "odd": entry("Q4", [1], 0, 1)},
        bytes(6),
    )
    write(tmp_path / "b.safetensors", {"three": entry("F8_E4M3", [3], 0, 3)}, bytes(3))
    assert Checkpoint(tmp_path).bytes_of("F8_E4M3") == 7


def test_a_quantised_tensor_is_refused_as_numbers() -> None:
    with pytest.raises(CheckpointError, match=r"I8.*F32, F16 or BF16"):
        to_float32(Weight(np.zeros(2, np.int8), "I8"))


def test_tensors_of_several_types_are_not_joined() -> None:
    with pytest.raises(CheckpointError, match="BF16, F16"):
        join([Weight(np.zeros(2, np.float16), "F16"), Weight(np.zeros(2, np.uint16), "BF16")])


@pytest.mark.parametrize(
    ("header", "data", "words"),
    [
        ({"one": entry("F32", [4], 0, 16)}, bytes(8), "bytes 0 to 16.*8 bytes of tensors"),
        ({"one": entry("F32", [4], 8, 16)}, bytes(16), r"8 bytes for tensor 'one', whose shape \[4\] takes 16"),
        ({"one": entry("F32", [4], 16, 0)}, bytes(16), "bytes 16 to 0"),
        ({"one": entry("F32", [4], -16, 0)}, bytes(16), "not whole numbers"),
        ({"one": entry("F32", [-4], 0, 16)}, bytes(16), "not whole numbers"),
        ({"one": entry("F32", [2**40, 2**40], 0, 16)}, bytes(16), "16 bytes for tensor 'one'"),
        ({"one": entry("Q4", [4], 0, 16)}, bytes(16), "type Q4"),
        ({"one": entry([], [4], 0, 16)}, bytes(16), r"type \[\]"),
        ({"one": entry({}, [4], 0, 16)}, bytes(16), "type {}"),
        ({"one": {"dtype": "F32"}}, bytes(16), "without type, shape or place"),
        ({"one": 3}, bytes(16), "without type, shape or place"),
    ],
)
def test_a_wrong_description_names_file_tensor_and_reason(
    tmp_path: Path, header: dict[str, Any], data: bytes, words: str
) -> None:
    write(tmp_path / SAFETENSORS, header, data)
    with pytest.raises(CheckpointError, match=f"model.safetensors .*{words}.*download"):
        Checkpoint(tmp_path).read("one")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "0 bytes, too few"),
        (b"\x01\x02\x03", "3 bytes, too few"),
        (struct.pack("<Q", 2**63) + b"{}", "header has 9223372036854775808 bytes, but the file has 10"),
        (struct.pack("<Q", 100) + b"{}", "header has 100 bytes"),
        (struct.pack("<Q", 2) + b"{x", "not JSON"),
        (struct.pack("<Q", 2) + b"\xff\xfe", "not JSON"),
        (struct.pack("<Q", 2) + b"[]", "not an object"),
        (struct.pack("<Q", 10**5) + b"[" * 10**5, "not JSON"),
        (POINTER, "is a pointer of Git LFS, not the weights themselves; run `git lfs pull`"),
    ],
)
def test_a_damaged_header_is_named(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / SAFETENSORS).write_bytes(content)
    assert words in refusal(tmp_path)


def test_a_truncated_download_is_named_where_it_is_missing(
    tmp_path: Path, tiny_model: Callable[[str], TinyModel]
) -> None:
    folder = tiny_model("llama").folder
    whole = (folder / SAFETENSORS).read_bytes()
    (tmp_path / SAFETENSORS).write_bytes(whole[: len(whole) * 2 // 3])
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    with pytest.raises(CheckpointError, match="not written or copied to its end"):
        list(load_weights(tmp_path, read_spec(tmp_path)))


def test_a_folder_without_weights_says_so(tmp_path: Path) -> None:
    assert "neither model.safetensors nor pytorch_model.bin" in refusal(tmp_path)


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    write(tmp_path / SAFETENSORS, {})
    assert "no tensor 'one'" in refusal(tmp_path)


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    index = {"weight_map": {"one": "a.safetensors", "two": "b.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    write(tmp_path / "a.safetensors", {})
    assert "b.safetensors is missing" in refusal(tmp_path)
    write(tmp_path / "b.safetensors", {})
    assert "a.safetensors has no tensor 'one', which the index says it has" in refusal(tmp_path)


@pytest.mark.parametrize("name", ["../secret.safetensors", "/etc/passwd"])
def test_an_index_cannot_point_out_of_its_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"one": name}}))
    assert "not a file of the same folder" in refusal(tmp_path)


def test_an_index_without_a_map_is_named(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    assert "no 'weight_map'" in refusal(tmp_path)


@pytest.mark.parametrize(("text", "words"), [("{", "not JSON"), ("[]", "list in place of an object")])
def test_a_damaged_config_is_named(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match=f"config.json .*{words}"):
        read_config(tmp_path)
    (tmp_path / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"has no config.json, .* give the folder that has the model's files"):
        read_config(tmp_path)


def save_as_bin(model: Any, folder: Path) -> None:
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(folder)
    torch.save(model.state_dict(), folder / "pytorch_model.bin")


def save_as_old_bin(model: Any, folder: Path) -> None:
    save_as_bin(model, folder)
    torch.save(model.state_dict(), folder / "pytorch_model.bin", _use_new_zipfile_serialization=False)


def save_as_bin_parts(model: Any, folder: Path) -> None:
    save_as_bin(model, folder)
    (folder / "pytorch_model.bin").unlink()
    parts: dict[str, dict[str, Any]] = {"part-1.bin": {}, "part-2.bin": {}}
    for number, (name, tensor) in enumerate(model.state_dict().items()):
        parts[f"part-{number % 2 + 1}.bin"][name] = tensor
    for part, tensors in parts.items():
        torch.save(tensors, folder / part)
    places = {name: part for part, tensors in parts.items() for name in tensors}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": places}))


def save_in_small_parts(model: Any, folder: Path) -> None:
    model.save_pretrained(folder, max_shard_size="20KB")
    assert len(list(folder.glob("*.safetensors"))) > 2


@pytest.mark.parametrize("save", [save_as_bin, save_as_old_bin, save_as_bin_parts, save_in_small_parts])
def test_every_way_of_saving_gives_the_same_weights(
    tmp_path: Path, tiny_model: Callable[[str], TinyModel], save: Callable[[Any, Path], None]
) -> None:
    wanted_folder = tiny_model("llama").folder
    build("llama", tmp_path, save)
    spec = read_spec(tmp_path)
    assert spec == read_spec(wanted_folder)
    wanted = dict(load_weights(wanted_folder, spec))
    found = dict(load_weights(tmp_path, spec))
    assert found.keys() == wanted.keys()
    assert all(np.array_equal(found[name].array, wanted[name].array) for name in wanted)


def test_bfloat16_of_a_bin_file_keeps_its_bits(tmp_path: Path) -> None:
    torch.save({"one": torch.tensor([[1.5, -3.0]], dtype=torch.bfloat16)}, tmp_path / "pytorch_model.bin")
    weight = Checkpoint(tmp_path).read("one")
    assert weight.dtype == "BF16"
    assert to_float32(weight).tolist() == [[1.5, -3.0]]


def test_a_bin_file_that_is_damaged_or_would_run_code_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"PK\x03\x04 nothing")
    assert "cannot be read by PyTorch" in refusal(tmp_path)
    torch.save({"one": print}, tmp_path / "pytorch_model.bin")
    assert "cannot be read by PyTorch (it is damaged, or has something else than tensors in it)" in refusal(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"nothing that PyTorch has saved")
    assert "cannot be read by PyTorch (it is damaged, or has something else than tensors in it)" in refusal(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(POINTER)
    assert "is a pointer of Git LFS" in refusal(tmp_path)


def test_a_bin_file_with_something_else_than_tensors_by_name_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pytorch_model.bin"
    torch.save([torch.zeros(2)], path)
    assert "holds list in place of tensors by name; save the model's state_dict" in refusal(tmp_path)
    torch.save({"one": {"two": torch.zeros(2)}, "three": torch.zeros(2, dtype=torch.float8_e4m3fn)}, path)
    with pytest.raises(CheckpointError, match="has dict in place of the tensor 'one'"):
        Checkpoint(tmp_path).read("one")
    with pytest.raises(CheckpointError, match=r"tensor 'three' of type torch.float8_e4m3fn, which is not known here"):
        Checkpoint(tmp_path).read("three")
