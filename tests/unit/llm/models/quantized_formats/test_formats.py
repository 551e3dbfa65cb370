"""Quantized checkpoints in the layouts of others give the tokens of the models that they stand for."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
import transformers
from packable_models import PROMPTS, packable_llama, with_matrices
from tiny_language_models import TinyModel

from trireme.llm.executor_choice import load_executor
from trireme.llm.executors.port import ExecutorError
from trireme.llm.models import checkpoint
from trireme.llm.models.catalog import load_weights, quantization_of, read_spec
from trireme.llm.models.checkpoint import CheckpointError, Weight
from trireme.llm.models.fields import by_kind
from trireme.llm.models.quantized import QuantizedWeight, to_float32
from trireme.llm.options import EngineOptions
from trireme.llm.quantization.rounding import round_matrix

Parts = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Codes:
    """A matrix `[out, in]` of whole numbers, and what they stand for."""

    codes: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor
    groups: torch.Tensor

    @property
    def numbers(self) -> torch.Tensor:
        zeros, scales = self.zeros[:, self.groups], self.scales.float()[:, self.groups]
        return (self.codes.float() - zeros.float()) * scales


def quantize(matrix: torch.Tensor, size: int, bits: int = 4, *, is_symmetric: bool = False, seed: int = -1) -> Codes:
    """Round to nearest; a seed shuffles which columns belong together."""
    rows, columns = matrix.shape
    groups = torch.arange(columns) // size
    if seed >= 0:
        groups = groups[torch.randperm(columns, generator=torch.Generator().manual_seed(seed))]
    count, largest = columns // size, 2**bits - 1
    scales, zeros = torch.empty(rows, count), torch.empty(rows, count)
    for group in range(count):
        part = matrix[:, groups == group]
        if is_symmetric:
            scales[:, group] = part.abs().amax(1) / (2 ** (bits - 1) - 1)
            zeros[:, group] = 2 ** (bits - 1)
        else:
            lowest, highest = part.amin(1).clamp(max=0), part.amax(1).clamp(min=0)
            scales[:, group] = (highest - lowest) / largest
            zeros[:, group] = (-lowest / scales[:, group]).round()
    scales = scales.half()
    codes = (matrix / scales.float()[:, groups] + zeros[:, groups]).round().clamp(0, largest)
    return Codes(codes.int(), scales, zeros.int(), groups)


def bit_stream(numbers: torch.Tensor, bits: int, axis: int) -> torch.Tensor:
    """Numbers packed along an axis bit by bit, across the borders of words."""
    moved = numbers.long().movedim(axis, -1)
    stream = torch.stack([(moved >> place) & 1 for place in range(bits)], -1).flatten(-2)
    stream = torch.nn.functional.pad(stream, (0, -stream.shape[-1] % 32)).unflatten(-1, (-1, 32))
    packed = (stream << torch.arange(32)).sum(-1)
    signed = torch.where(packed >= 2**31, packed - 2**32, packed).int()
    return signed.movedim(-1, axis).contiguous()


def words(numbers: torch.Tensor, bits: int, axis: int, order: tuple[int, ...] | None = None) -> torch.Tensor:
    """Numbers packed along an axis, by the letter of the formats: the lowest bits first."""
    if 32 % bits:
        return bit_stream(numbers, bits, axis)
    moved, count = numbers.long().movedim(axis, -1), 32 // bits
    packed = torch.zeros(*moved.shape[:-1], moved.shape[-1] // count, dtype=torch.int64)
    for place in range(count):
        packed |= moved[..., (order[place] if order else place) :: count] << (bits * place)
    signed = torch.where(packed >= 2**31, packed - 2**32, packed).int()
    return signed.movedim(-1, axis).contiguous()


def awq(matrix: torch.Tensor) -> tuple[Parts, torch.Tensor]:
    order = (0, 2, 4, 6, 1, 3, 5, 7)
    found = quantize(matrix, 64)
    return {
        "qweight": words(found.codes.t(), 4, 1, order),
        "qzeros": words(found.zeros.t(), 4, 1, order),
        "scales": found.scales.t().contiguous(),
    }, found.numbers


def gemv(matrix: torch.Tensor) -> tuple[Parts, torch.Tensor]:
    """AWQ's other layout: packed along the inputs, with room for more groups than there are."""
    found = quantize(matrix, 64)
    room = 32 - found.scales.shape[1]
    return {
        "qweight": words(found.codes, 4, 1),
        "qzeros": words(torch.nn.functional.pad(found.zeros, (0, room)), 4, 1),
        "scales": torch.nn.functional.pad(found.scales, (0, room)),
    }, found.numbers


def gptq(
    bits: int = 4, size: int = 64, offset: int = 1, is_empty: bool = False, **how: Any
) -> Callable[..., tuple[Parts, torch.Tensor]]:
    def make(matrix: torch.Tensor) -> tuple[Parts, torch.Tensor]:
        if not how.get("is_symmetric"):
            matrix = matrix.clone()
            matrix[3] = matrix[3].abs()  # whose zero is 0, written as the largest code
        found = quantize(matrix, size if size > 0 else matrix.shape[1], bits, **how)
        stored = (found.zeros - offset) & (2**bits - 1)
        return {
            "qweight": words(found.codes.t(), bits, 0),
            "qzeros": words(stored.t(), bits, 1),
            "scales": found.scales.t().contiguous(),
            "g_idx": found.groups.int()[: 0 if is_empty else None],
        }, found.numbers

    return make


def packed(size: int = 64, bits: int = 4, **how: Any) -> Callable[..., tuple[Parts, torch.Tensor]]:
    def make(matrix: torch.Tensor) -> tuple[Parts, torch.Tensor]:
        found = quantize(matrix, size if size > 0 else matrix.shape[1], bits, **how)
        parts = {
            "weight_packed": words(found.codes, bits, 1),
            "weight_scale": found.scales,
            "weight_shape": torch.tensor(matrix.shape),
        }
        if not how.get("is_symmetric"):
            parts["weight_zero_point"] = words(found.zeros, bits, 0)
        if "seed" in how:
            parts["weight_g_idx"] = found.groups.int()
        return parts, found.numbers

    return make


def eight(kind: torch.dtype, *, is_by_row: bool) -> Callable[..., tuple[Parts, torch.Tensor]]:
    largest = 127.0 if kind == torch.int8 else 448.0

    def make(matrix: torch.Tensor) -> tuple[Parts, torch.Tensor]:
        scales = (matrix.abs().amax(1, keepdim=True) if is_by_row else matrix.abs().amax().reshape(1)) / largest
        scales = scales.bfloat16().float()
        codes = (matrix / scales).clamp(-largest, largest)
        codes = codes.round().to(kind) if kind == torch.int8 else codes.to(kind)
        return {"weight": codes, "weight_scale": scales.bfloat16()}, codes.float() * scales

    return make


def blocks(size: tuple[int, int], scale_name: str = "weight_scale") -> Callable[..., tuple[Parts, torch.Tensor]]:
    """Floats of eight bits with a scale for each block; the last ones may be smaller."""

    def make(matrix: torch.Tensor) -> tuple[Parts, torch.Tensor]:
        rows, columns = matrix.shape
        height, width = min(size[0], rows), min(size[1], columns)
        scales = torch.empty(-(-rows // height), -(-columns // width))
        spread = torch.empty_like(matrix)
        for row in range(scales.shape[0]):
            for column in range(scales.shape[1]):
                part = slice(row * height, (row + 1) * height), slice(column * width, (column + 1) * width)
                scales[row, column] = matrix[part].abs().amax() / 448
                spread[part] = scales[row, column]
        codes = (matrix / spread).to(torch.float8_e4m3fn)
        return {"weight": codes, scale_name: scales}, codes.float() * spread

    return make


def shifted(*, is_by_row: bool) -> Callable[..., tuple[Parts, torch.Tensor]]:
    """Whole numbers with a sign whose zero is elsewhere."""

    def make(matrix: torch.Tensor) -> tuple[Parts, torch.Tensor]:
        found = quantize(matrix, matrix.shape[1], 8)
        scales, zeros = found.scales, found.zeros
        if not is_by_row:
            scales, zeros = scales.amax().reshape(1), torch.tensor([120])
        codes = (matrix / scales.float() + zeros).round().clamp(0, 255) - 128
        parts = {
            "weight": codes.to(torch.int8),
            "weight_scale": scales,
            "weight_zero_point": (zeros - 128).to(torch.int8),
        }
        return parts, (codes + 128 - zeros) * scales.float()

    return make


def block_settings(size: int) -> dict[str, Any]:
    weights = {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [size, size]}
    return {**compressed("float-quantized"), "config_groups": {"group_0": {"weights": weights}}}


def compressed(named: str, bits: int = 4) -> dict[str, Any]:
    groups = {"group_0": {"weights": {"num_bits": bits, "type": "int"}}}
    return {"quant_method": "compressed-tensors", "format": named, "ignore": ["lm_head"], "config_groups": groups}


GPTQ = {"quant_method": "gptq", "bits": 4}
CASES: dict[str, tuple[dict[str, Any], Callable[..., tuple[Parts, torch.Tensor]], str]] = {
    "awq": ({"quant_method": "awq", "bits": 4, "version": "gemm"}, awq, "int4"),
    "awq, groups told by the shapes alone": ({"quant_method": "awq", "bits": 4, "group_size": None}, awq, "int4"),
    "awq, gemv": ({"quant_method": "awq", "bits": 4, "group_size": 64, "version": "gemv"}, gemv, "int4"),
    "gptq": ({**GPTQ}, gptq(), "int4"),
    "awq, numbers as texts": (
        {"quant_method": "awq", "bits": "4", "group_size": "64", "version": "gemv"},
        gemv,
        "int4",
    ),
    "gptq, no list of groups": (GPTQ, gptq(is_empty=True), "int4"),
    "gptq, bits as a text": ({**GPTQ, "bits": "4"}, gptq(), "int4"),
    "gptq, symmetric": ({**GPTQ}, gptq(is_symmetric=True), "int4"),
    "gptq, second version": ({**GPTQ, "checkpoint_format": "gptq_v2"}, gptq(offset=0), "int4"),
    "gptq, one group": ({**GPTQ, "group_size": -1}, gptq(size=-1), "int4"),
    "gptq, small groups": ({**GPTQ, "group_size": 32}, gptq(size=32), ""),
    "gptq, act-order": ({**GPTQ, "desc_act": True}, gptq(seed=1), ""),
    "gptq, eight bits": ({**GPTQ, "bits": 8}, gptq(bits=8), ""),
    "gptq, three bits": ({**GPTQ, "bits": 3}, gptq(bits=3), ""),
    "gptq, two bits": ({**GPTQ, "bits": 2}, gptq(bits=2), ""),
    "gptq, other bits than most": ({**GPTQ, "bits": 8, "dynamic": {"+:.*proj": {"bits": 4}}}, gptq(), "int4"),
    "packed": (compressed("pack-quantized"), packed(is_symmetric=True), "int4"),
    "packed, with zeros": (compressed("pack-quantized"), packed(), "int4"),
    "packed, by row": (compressed("pack-quantized"), packed(size=-1, is_symmetric=True), "int4"),
    "packed, act-order": (compressed("pack-quantized"), packed(seed=2), ""),
    "packed, eight bits": (compressed("pack-quantized", 8), packed(bits=8, is_symmetric=True), ""),
    "packed, three bits": (compressed("pack-quantized", 3), packed(bits=3, is_symmetric=True), ""),
    "packed, six bits with zeros": (compressed("pack-quantized", 6), packed(bits=6), ""),
    "int8, with zeros": (compressed("int-quantized"), shifted(is_by_row=True), ""),
    "int8, one scale and zero": (compressed("naive-quantized"), shifted(is_by_row=False), ""),
    "int8": (compressed("int-quantized"), eight(torch.int8, is_by_row=True), "int8"),
    "int8, one scale": (compressed("int-quantized"), eight(torch.int8, is_by_row=False), "int8"),
    "float8": (compressed("float-quantized"), eight(torch.float8_e4m3fn, is_by_row=True), "fp8"),
    "float8, one scale": (compressed("float-quantized"), eight(torch.float8_e4m3fn, is_by_row=False), "fp8"),
    "float8, groups": (compressed("float-quantized"), blocks((1, 64)), ""),
    "float8, blocks": (block_settings(48), blocks((48, 48)), ""),
    "fp8, blocks": ({"quant_method": "fp8", "weight_block_size": [64, 64]}, blocks((64, 64), "weight_scale_inv"), ""),
    "fp8": ({"quant_method": "fp8"}, eight(torch.float8_e4m3fn, is_by_row=False), "fp8"),
}


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> TinyModel:
    return packable_llama(tmp_path_factory.mktemp("packable"))


def write_quantized(llama: TinyModel, folder: Path, case: str) -> TinyModel:
    """The checkpoint in the case's layout, and the model that it stands for."""
    settings, make, _ = CASES[case]
    shutil.copytree(llama.folder, folder)
    tensors: Parts = {name: tensor.half() for name, tensor in llama.model.state_dict().items() if "proj" not in name}

    def change(name: str, matrix: torch.Tensor) -> torch.Tensor:
        parts, numbers = make(matrix)
        tensors.update({f"{name}.{part}": tensor for part, tensor in parts.items()})
        return numbers

    model = with_matrices(llama.model.half().float(), change)
    safetensors.torch.save_file(tensors, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": settings}))
    return TinyModel(folder, model)


@pytest.mark.parametrize("case", CASES)
def test_tokens_are_those_of_the_unpacked_model(case: str, llama: TinyModel, tmp_path: Path, start_engine: Any) -> None:
    model = write_quantized(llama, tmp_path / "model", case)
    assert quantization_of(model.folder) == CASES[case][0]["quant_method"]
    engine = start_engine(model.folder, kind="torch", blocks=64)
    assert engine.tokens(PROMPTS, 12) == [model.continuation(prompt, 12) for prompt in PROMPTS]
    stored = {getattr(weight, "bits", "") for name, weight in load_weights(model.folder, read_spec(model.folder)) if
              name.endswith(("qkv.weight", "down.weight"))}  # fmt: skip
    assert stored == {CASES[case][2]}


@pytest.mark.parametrize(
    "how", [{"is_symmetric": True}, {"seed": 1}, {"bits": 8}], ids=["plain", "act-order", "8 bits"]
)
def test_a_matrix_that_was_saved_the_other_way_round(how: Any, tmp_path: Path) -> None:
    """GPT-2 has `[in, out]`, but GPTQ's are `[out, in]` whatever they were; a square one has no shape that tells."""
    settings = {"n_embd": 64, "n_head": 4, "n_layer": 1, "vocab_size": 64, "tie_word_embeddings": True}
    transformers.GPT2LMHeadModel(transformers.GPT2Config(**settings)).save_pretrained(tmp_path)
    path, name = tmp_path / "model.safetensors", "transformer.h.0.attn.c_proj"
    tensors = safetensors.torch.load_file(path)
    parts, numbers = gptq(**how)(tensors.pop(f"{name}.weight").t())
    safetensors.torch.save_file({**tensors, **{f"{name}.{part}": one for part, one in parts.items()}}, path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "quantization_config": GPTQ}))
    found = dict(load_weights(tmp_path, read_spec(tmp_path)))["layers.0.o.weight"]
    assert np.allclose(checkpoint.to_float32(found), numbers, atol=1e-4)


def test_numpy_computes_with_it_too(llama: TinyModel, tmp_path: Path, start_engine: Any) -> None:
    model = write_quantized(llama, tmp_path / "model", "awq")
    engine = start_engine(model.folder, blocks=64)
    assert engine.tokens(PROMPTS[:1], 8) == [model.continuation(PROMPTS[0], 8)]


def test_layers_that_were_left_out_are_joined_with_the_others(
    llama: TinyModel, tmp_path: Path, start_engine: Any
) -> None:
    """Values that are not quantized beside queries and keys that are."""
    folder = tmp_path / "model"
    model = write_quantized(llama, folder, "float8")
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    for layer in range(2):
        name = f"model.layers.{layer}.self_attn.v_proj"
        whole = llama.model.state_dict()[f"{name}.weight"]
        tensors[f"{name}.weight"] = whole.half()
        del tensors[f"{name}.weight_scale"]
        dict(model.model.named_modules())[name].weight.data.copy_(whole.half())
    safetensors.torch.save_file(tensors, folder / "model.safetensors")
    assert start_engine(folder, kind="torch").tokens(PROMPTS, 8) == [model.continuation(one, 8) for one in PROMPTS]


@pytest.mark.parametrize(
    ("settings", "words_of_error"),
    [
        ({"quant_method": "bitsandbytes"}, r"quantized with 'bitsandbytes', which is not known here; known are awq"),
        ({"quant_method": "gptq", "bits": 5}, "of 5 bits is not known here; known are 2, 3, 4 and 8"),
        ({"quant_method": "gptq", "bits": None}, "of None bits is not known here; known are 2, 3, 4 and 8"),
        ({"quant_method": "gptq", "bits": [4]}, r"of \[4\] bits is not known here; known are 2, 3, 4 and 8"),
        ({"quant_method": "gptq", "bits": "x"}, "of 'x' bits is not known here; known are 2, 3, 4 and 8"),
        ({"quant_method": "gptq", "checkpoint_format": "marlin"}, "in the layout 'marlin' is not known here"),
        ({"quant_method": "awq", "version": "gemv_fast"}, "in the layout 'gemv_fast' is not known here"),
        ({"quant_method": "awq", "bits": 8}, "of 8 bits is not known here"),
        ({"quant_method": "awq", "bits": [4]}, r"of \[4\] bits is not known here"),
        ({"quant_method": "awq", "version": "gemv", "group_size": None}, "in groups of None is not known here"),
        (compressed("marlin-24"), "in the format 'marlin-24' is not known here"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, r"blocks of \[128\] are not known here"),
    ],
)
def test_what_is_not_known_is_said(settings: Any, words_of_error: str, llama: TinyModel, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(llama.folder, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": settings}))
    with pytest.raises(CheckpointError, match=words_of_error):
        load_executor(folder, EngineOptions(cache_bytes=2**22), "numpy")


@pytest.mark.parametrize("part", ["qzeros", "scales"])
def test_parts_that_are_missing_or_of_another_matrix_are_told(part: str, llama: TinyModel, tmp_path: Path) -> None:
    model = write_quantized(llama, tmp_path / "model", "gptq")
    path = model.folder / "model.safetensors"
    tensors, name = safetensors.torch.load_file(path), f"model.layers.1.mlp.down_proj.{part}"
    safetensors.torch.save_file({**tensors, name: tensors[name][:, :8].contiguous()}, path)
    with pytest.raises(CheckpointError, match=r"the parts of 'model.layers.1.mlp.down_proj' do not belong together"):
        list(load_weights(model.folder, read_spec(model.folder)))
    del tensors[name]
    safetensors.torch.save_file(tensors, path)
    with pytest.raises(CheckpointError, match=f"has no tensor '{name}'"):
        list(load_weights(model.folder, read_spec(model.folder)))


@pytest.mark.parametrize(("case", "part"), [("gptq", "scales"), ("awq", "scales"), ("float8", "weight_scale")])
def test_scales_that_are_no_numbers_are_told(case: str, part: str, llama: TinyModel, tmp_path: Path) -> None:
    model = write_quantized(llama, tmp_path / "model", case)
    path, name = model.folder / "model.safetensors", f"model.layers.1.mlp.down_proj.{part}"
    tensors = safetensors.torch.load_file(path)
    tensors[name].view(-1)[0] = torch.nan
    safetensors.torch.save_file(tensors, path)
    with pytest.raises(CheckpointError, match=f"'{name}' has scales that are infinite or not numbers; download"):
        list(load_weights(model.folder, read_spec(model.folder)))


def test_batch_invariance_is_refused(llama: TinyModel, tmp_path: Path) -> None:
    model = write_quantized(llama, tmp_path / "model", "awq")
    with pytest.raises(ExecutorError, match=r"batch_invariant needs weights of 16 or 32 bits.*quantized \(awq\)"):
        load_executor(model.folder, EngineOptions(is_batch_invariant=True), "cpu")


def test_rows_of_queries_keys_and_values_are_sorted_as_without_quantization(llama: TinyModel) -> None:
    spec = read_spec(llama.folder)
    numbers = np.random.default_rng(0).normal(size=(spec.qkv_size, 128)).astype(np.float32)
    found = round_matrix(numbers, "int4")
    plain, sorted_packed = by_kind(Weight(to_float32(found), "F32"), spec), by_kind(found, spec)
    assert isinstance(plain, Weight)
    assert isinstance(sorted_packed, QuantizedWeight)
    assert np.array_equal(plain.array, to_float32(sorted_packed))
