"""What a model weighs before it is loaded, and whether it fits."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from trireme.llm.executor_choice import load_executor
from trireme.llm.options import EngineOptions
from trireme.llm.quantization.builder import BuildOptions, build
from trireme.tools.deploy.hub.model_files import read_folder
from trireme.tools.deploy.hub.weights import Weights, weigh
from trireme.tools.deploy.memory.device import DeviceMemory, device_memory
from trireme.tools.deploy.memory.estimate import Estimate, check_fit, estimate
from trireme.tools.deploy.options import DeployError, DeployOptions, MemoryTooSmallError, ModelNotUsableError
from trireme.tools.deploy.plan import Plan, make_plan
from trireme.tools.deploy.sizes import parse_size, size_text

GIB = 1 << 30
SCRIBE = Path(__file__).parents[4] / "examples/model_repository/scribe/1"
needs_no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without a GPU")
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "torch_dtype": "float16",
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
}
LLAMA_WEIGHTS = Weights(6_738_415_616, 13_476_831_232, "float16", True, 262_144_000)


def rows_of(config: dict[str, Any], weights: Weights, device: str, **wishes: Any) -> dict[str, int]:
    found = estimate(config, weights, DeployOptions("m", **wishes), device, is_generating=True)
    return {what.split(",")[0].split(" from")[0]: size for what, size in found.rows}


def write_safetensors(file: Path, **tensors: tuple[str, list[int], int]) -> None:
    """A file whose tensors are all zeros."""
    header, offset = {}, 0
    for name, (dtype, shape, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + bytes(offset))


def test_keys_and_values_are_counted_for_every_token_of_the_batch() -> None:
    rows = rows_of(LLAMA, LLAMA_WEIGHTS, "cuda:0", batch_size=4, length_tokens=2048)
    assert rows["weights"] == 13_476_831_232
    assert rows["keys and values"] == 4 * 2048 * 2 * 32 * 4096 * 2
    assert "conversion" not in rows


def test_heads_that_share_keys_and_values_need_less() -> None:
    whole = rows_of(LLAMA, LLAMA_WEIGHTS, "cuda:0")["keys and values"]
    assert rows_of({**LLAMA, "num_key_value_heads": 8}, LLAMA_WEIGHTS, "cuda:0")["keys and values"] == whole // 4
    falcon = {**LLAMA, "multi_query": True}
    assert rows_of(falcon, LLAMA_WEIGHTS, "cuda:0")["keys and values"] == whole // 32


def test_half_precision_becomes_single_on_a_slow_processor_unless_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trireme.tools.deploy.memory.estimate.emulates", lambda name: name != "float32")
    rows = rows_of(LLAMA, LLAMA_WEIGHTS, "cpu")
    assert rows["weights"] == 2 * 13_476_831_232
    assert rows["conversion"] == 262_144_000
    assert rows_of(LLAMA, LLAMA_WEIGHTS, "cpu", dtype="bfloat16")["weights"] == 13_476_831_232


def test_quantised_weights_stay_as_they_are() -> None:
    quantised = Weights(7_000_000_000, 3_500_000_000, "u8", True, 1)
    assert rows_of(LLAMA, quantised, "cuda:0")["weights"] == 3_500_000_000


@pytest.fixture
def built(tmp_path: Path) -> Path:
    build(BuildOptions(SCRIBE, tmp_path / "built", "int4", measures_perplexity=False), lambda *_: None)
    return tmp_path / "built"


def test_built_weights_count_unpacked_where_the_engine_unpacks_them(built: Path) -> None:
    on_cpu, on_gpu = (make_plan(DeployOptions(str(built), device=name), "cuda:1@80GiB") for name in ("cpu", "cuda:0"))
    ((text, size), *_), ((packed_text, packed), *_) = on_cpu.estimate.rows, on_gpu.estimate.rows
    assert (text, size) == (f"weights, about 5.8 M in {on_cpu.estimate.dtype}", 5_767_168 * bytes_of(on_cpu))
    assert packed_text == "weights, about 5.8 M in int4, as they are stored"
    assert packed < 5_767_168
    least = on_cpu.estimate.total_bytes
    check_fit(on_cpu.estimate, DeviceMemory("cpu", least), DeployOptions("m"))
    with pytest.raises(MemoryTooSmallError):
        check_fit(on_cpu.estimate, DeviceMemory("cpu", least - 1), DeployOptions("m"))


def test_a_description_that_is_nested_too_deeply_is_for_the_engine_to_tell_of(built: Path) -> None:
    (built / "trireme_engine.json").write_text("[" * 100_000)
    plan = make_plan(DeployOptions(str(built), device="cpu"), "cuda:1@80GiB")
    assert "as they are stored" not in plan.estimate.rows[0][0]


@needs_no_gpu
@pytest.mark.parametrize("has_half", [True, False])
@pytest.mark.parametrize("source", ["built", "saved"])
def test_the_datatype_is_the_one_that_the_engine_takes(
    built: Path, source: str, has_half: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for place in ("llm.executor_choice", "tools.deploy.memory.estimate"):
        monkeypatch.setattr(f"trireme.{place}.emulates", lambda name: name == "float16" or not has_half)
    folder = built if source == "built" else SCRIBE
    with caplog.at_level("INFO"):
        load_executor(folder, EngineOptions(cache_bytes=2**20, max_sequences=4), "cpu")
    taken = "bfloat16" if has_half else "float32"
    assert f"runs on the CPU with PyTorch, in {taken}" in caplog.text
    assert (f"weights (int4) are unpacked to {taken}, in which this CPU computes" in caplog.text) == (source == "built")
    assert make_plan(DeployOptions(str(folder), device="cpu"), "cpu").estimate.dtype == taken


def test_numpy_computes_in_float32_where_pytorch_is_missing(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr("trireme.llm.executor_choice.emulates", lambda name: False)
    plan = make_plan(DeployOptions(str(built)), "cpu")
    assert plan.estimate.rows[0][0] == "weights, about 5.8 M in float32"


def test_code_that_is_ejected_loads_the_model_as_it_was_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trireme.tools.deploy.memory.estimate.emulates", lambda name: True)
    ejected = make_plan(DeployOptions(str(SCRIBE), is_ejected=True), "cpu")
    served = make_plan(DeployOptions(str(SCRIBE), backend="transformers"), "cpu")
    assert (ejected.estimate.dtype, served.estimate.dtype) == ("float16", "float32")


def bytes_of(plan: Plan) -> int:
    return {"float32": 4}.get(plan.estimate.dtype, 2)


@pytest.mark.parametrize(
    ("backend", "device", "text", "size"),
    [
        ("auto", "cpu", "weights, about 8.2 K in gptq, as they are stored", 4096),
        ("llm", "cpu", "weights, about 8.2 K in float32", 4 * 8192),
        ("llm", "cuda:0", "weights, about 8.2 K in gptq, as they are stored", 4096),
    ],
)
def test_weights_that_others_have_packed_are_unpacked_by_the_engine_on_a_processor(
    tmp_path: Path, backend: str, device: str, text: str, size: int
) -> None:
    quantized = {"quantization_config": {"quant_method": "gptq", "bits": 4}}
    config = {"torch_dtype": "float32", "model_type": "unheard-of", **quantized}
    (tmp_path / "config.json").write_text(json.dumps(config))
    write_safetensors(tmp_path / "model.safetensors", **{"a.qweight": ("I32", [32, 32], 4096)})
    plan = make_plan(DeployOptions(str(tmp_path), device=device, backend=backend), "cuda:1@80GiB")
    assert plan.estimate.rows[0] == (text, size)


def test_the_part_of_a_larger_model_that_writes_is_counted() -> None:
    nested = {"architectures": ["X"], "text_config": LLAMA}
    assert rows_of(nested, LLAMA_WEIGHTS, "cuda:0") == rows_of(LLAMA, LLAMA_WEIGHTS, "cuda:0")


def test_headers_tell_count_datatype_and_the_largest_tensor(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    write_safetensors(tmp_path / "model.safetensors", a=("BF16", [1000, 64], 128_000), b=("F32", [64], 256))
    weights = weigh(read_folder(tmp_path, "x", "this folder"))
    assert weights == Weights(64_064, 128_256, "bfloat16", True, 128_000)


def test_weights_that_end_early_are_found_out(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    file = tmp_path / "model.safetensors"
    write_safetensors(file, a=("F32", [1000], 4000))
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ModelNotUsableError, match=r"is not a complete safetensors file: it has \d+ bytes of \d+$"):
        weigh(read_folder(tmp_path, "x", "this folder"))


def test_weights_of_another_form_are_told_from_their_size(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"torch_dtype": "float16"}')
    (tmp_path / "pytorch_model.bin").write_bytes(bytes(4096))
    assert weigh(read_folder(tmp_path, "x", "this folder")) == Weights(2048, 4096, "float16", False, 4096)


def test_a_pointer_in_place_of_weights_is_explained(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    with pytest.raises(ModelNotUsableError, match="git lfs pull"):
        weigh(read_folder(tmp_path, "x", "this folder"))


def test_a_model_that_does_not_fit_is_refused_with_what_is_missing_and_what_helps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trireme.tools.deploy.memory.estimate.emulates", lambda dtype: True)  # as most processors do
    options = DeployOptions("big", batch_size=8)
    found = estimate(LLAMA, LLAMA_WEIGHTS, options, "cpu", is_generating=True)
    with pytest.raises(MemoryTooSmallError) as refused:
        check_fit(found, DeviceMemory("cpu", 8 * GIB), options)
    text = str(refused.value)
    missing = size_text(found.total_bytes - 8 * GIB)
    assert f"cpu has 8.0 GiB: {missing} are missing." in text
    assert "--dtype bfloat16" in text
    assert "--batch 2" in text
    assert "--device" in text
    assert "--force" in text


def test_what_fits_is_unknown_or_is_forced_goes_on() -> None:
    found = Estimate((("weights", 10 * GIB),), "float16", 0)
    check_fit(found, DeviceMemory("cpu", 10 * GIB), DeployOptions("m"))
    check_fit(found, DeviceMemory("hpu:0", None), DeployOptions("m"))
    check_fit(found, DeviceMemory("cpu", GIB), DeployOptions("m", is_forced=True))


def test_the_best_device_is_taken_unless_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIREME_DEVICES", "cuda:2@80GiB,hpu:1")
    assert device_memory(DeployOptions("m")).device == "cuda:0"
    assert device_memory(DeployOptions("m")).free_bytes == 80 * GIB
    assert device_memory(DeployOptions("m", device="cuda:1")).device == "cuda:1"
    assert device_memory(DeployOptions("m", device="hpu", memory_bytes=5)).free_bytes == 5
    assert device_memory(DeployOptions("m", device="cpu")).device == "cpu"
    with pytest.raises(DeployError, match="it has cpu, cuda:0, cuda:1, hpu:0"):
        device_memory(DeployOptions("m", device="cuda:2"))
    with pytest.raises(DeployError, match="compiled models"):
        device_memory(DeployOptions("m", device="neuron:0-3"))
    monkeypatch.setenv("TRIREME_DEVICES", "toaster:1")
    with pytest.raises(DeployError, match="toaster"):
        device_memory(DeployOptions("m"))


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("24GiB", 24 * GIB),
        ("24 GB", 24_000_000_000),
        ("100MB", 100_000_000),
        ("100mib", 100 << 20),
        ("512M", 512 << 20),
        ("1.5g", 3 * GIB // 2),
        ("1Ti", 1 << 40),
        ("9", 9),
        ("9B", 9),
    ],
)
def test_sizes_are_read_as_people_write_them(text: str, size: int) -> None:
    assert parse_size(text, "memory") == size


def test_a_size_that_is_none_names_the_flag() -> None:
    with pytest.raises(DeployError, match="--memory 'plenty'"):
        parse_size("plenty", "memory")
