"""Engine folders are read as they were written, and what is wrong with one is said."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from trireme.llm.models.catalog import float8_bytes, load_weights, quantization_of, read_spec, stored_bytes
from trireme.llm.models.checkpoint import CheckpointError, Weight, to_float32
from trireme.llm.models.engine_folder.description import EngineDescription, read_description, write_description
from trireme.llm.models.engine_folder.writer import TensorWriter
from trireme.llm.models.quantized import QuantizedWeight
from trireme.llm.quantization.rounding import round_matrix

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 32,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "tie_word_embeddings": True,
}


def write_engine(folder: Path, bits: Any = "int4", **changes: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    numbers = np.random.default_rng(0)
    with TensorWriter(folder / "engine.safetensors", 20) as writer:
        writer.add("embed.weight", Weight(numbers.normal(size=(32, 64)).astype(np.float16), "F16"))
        for name, shape in (("qkv", (192, 64)), ("o", (64, 64)), ("up", (128, 64)), ("down", (64, 64))):
            writer.add(f"layers.0.{name}.weight", round_matrix(numbers.normal(size=shape).astype(np.float32), bits))
        for name in ("layers.0.attention_norm", "layers.0.mlp_norm", "norm"):
            writer.add(f"{name}.weight", Weight(np.ones(64, np.float16), "F16"))
    values = {
        "quantization": bits,
        "tensors": writer.tensors,
        "weight_bytes": writer.weight_bytes,
        "source": "tiny",
        "source_bytes": 1,
        **changes,
    }
    write_description(folder, EngineDescription(**values))
    return folder


@pytest.mark.parametrize("bits", ["int4", "int8", "fp8"])
def test_what_was_written_is_read(bits: Any, tmp_path: Path) -> None:
    folder = write_engine(tmp_path / "engine", bits)
    spec = read_spec(folder)
    found = dict(load_weights(folder, spec))
    assert quantization_of(folder) == bits
    assert next(iter(found)) == "embed.weight"
    qkv = found["layers.0.qkv.weight"]
    assert isinstance(qkv, QuantizedWeight)
    assert (qkv.bits, qkv.shape, qkv.zeros is not None) == (bits, (192, 64), bits == "int4")
    assert np.abs(to_float32(qkv)).max() > 1
    assert stored_bytes(folder) < (folder / "engine.safetensors").stat().st_size
    packed = [weight.codes.nbytes for weight in found.values() if isinstance(weight, QuantizedWeight)]
    assert float8_bytes(folder) == (sum(packed) if bits == "fp8" else 0)


def test_the_file_is_one_that_others_can_read(tmp_path: Path) -> None:
    folder = write_engine(tmp_path / "engine", "int8")
    theirs = safetensors.numpy.load_file(folder / "engine.safetensors")
    (down,) = (weight for name, weight in load_weights(folder, read_spec(folder)) if name == "layers.0.down.weight")
    assert isinstance(down, QuantizedWeight)
    assert np.array_equal(theirs["layers.0.down.weight"], down.codes)
    assert np.array_equal(theirs["layers.0.down.weight.scale"], down.scales)


def test_tensors_are_views_of_the_file(tmp_path: Path) -> None:
    folder = write_engine(tmp_path / "engine")
    for _, weight in load_weights(folder, read_spec(folder)):
        array = weight.array if isinstance(weight, Weight) else weight.codes
        assert not array.flags.owndata
        assert not array.flags.writeable


def test_another_version_is_refused(tmp_path: Path) -> None:
    folder = write_engine(tmp_path / "engine", format_version=7)
    with pytest.raises(CheckpointError, match=r"format version 7, and this release reads version 1; build"):
        quantization_of(folder)


def test_an_unknown_quantization_is_refused(tmp_path: Path) -> None:
    folder = write_engine(tmp_path / "engine", quantization="int3")
    with pytest.raises(CheckpointError, match=r"quantization 'int3', which is not known here; known are none, fp8"):
        quantization_of(folder)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ("[]", "in place of an object"),
        ('{"format_version": 1, "quantization": "int4"}', "does not say source, tensors, weight_bytes"),
    ],
)
def test_a_damaged_description_is_told(text: str, words: str, tmp_path: Path) -> None:
    folder = write_engine(tmp_path / "engine")
    (folder / "trireme_engine.json").write_text(text)
    with pytest.raises(CheckpointError, match=words):
        read_description(folder)


def test_a_file_that_was_cut_off_is_told_before_anything_is_read(tmp_path: Path) -> None:
    folder = write_engine(tmp_path / "engine")
    path = folder / "engine.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    words = "was not written or copied to its end; build the folder again, or copy all of it"
    with pytest.raises(CheckpointError, match=words):
        next(load_weights(folder, read_spec(folder)))
    with pytest.raises(CheckpointError, match=words):
        float8_bytes(folder)


def test_a_missing_file_and_a_missing_tensor_are_told(tmp_path: Path) -> None:
    folder = write_engine(tmp_path / "engine", tensors=99)
    with pytest.raises(CheckpointError, match="but 99 were written"):
        next(load_weights(folder, read_spec(folder)))
    (folder / "engine.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"engine.safetensors is missing; build the folder again"):
        next(load_weights(folder, read_spec(folder)))


def test_scales_of_another_matrix_are_told(tmp_path: Path) -> None:
    folder = write_engine(tmp_path / "engine")
    path = folder / "engine.safetensors"
    length = int.from_bytes(path.read_bytes()[:8], "little")
    header = json.loads(path.read_bytes()[8 : 8 + length])
    header["layers.0.down.weight.scale"], header["layers.0.up.weight.scale"] = (
        header["layers.0.up.weight.scale"],
        header["layers.0.down.weight.scale"],
    )
    text = json.dumps(header, separators=(",", ":")).encode().ljust(length)
    path.write_bytes(path.read_bytes()[:8] + text + path.read_bytes()[8 + length :])
    with pytest.raises(CheckpointError, match=r"scales or zeros of 'layers.0.down.weight' that do not belong"):
        list(load_weights(folder, read_spec(folder)))


def test_a_folder_whose_config_is_another_models_is_told(tmp_path: Path) -> None:
    folder = write_engine(tmp_path / "engine")
    (folder / "config.json").write_text(json.dumps({**CONFIG, "intermediate_size": 128}))
    with pytest.raises(CheckpointError, match="the two do not belong together"):
        list(load_weights(folder, read_spec(folder)))


def test_layers_that_the_config_does_not_have_are_told(tmp_path: Path) -> None:
    folder = write_engine(tmp_path / "engine")
    with TensorWriter(folder / "engine.safetensors", 2) as writer:
        writer.add("layers.1.norm.weight", Weight(np.ones(64, np.float16), "F16"))
    write_description(folder, replace(read_description(folder), tensors=1))
    with pytest.raises(CheckpointError, match=r"has a tensor 'layers.1.norm.weight', which the model of its config"):
        list(load_weights(folder, read_spec(folder)))


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_scales_that_are_no_numbers_are_told(tmp_path: Path, wrong: float) -> None:
    folder = write_engine(tmp_path / "engine")
    codes = round_matrix(np.ones((64, 64), np.float32), "int4")
    with TensorWriter(folder / "engine.safetensors", 3) as writer:
        writer.add("layers.0.o.weight", replace(codes, scales=np.full_like(codes.scales, wrong)))
    write_description(folder, replace(read_description(folder), tensors=writer.tensors))
    with pytest.raises(CheckpointError, match=r"scales of 'layers.0.o.weight' that are infinite or not numbers; build"):
        list(load_weights(folder, read_spec(folder)))
