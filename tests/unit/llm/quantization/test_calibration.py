"""What calibration changes: the same results before rounding, smaller errors after it, whatever the architecture."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from packable_models import PROMPTS, packable_llama
from tiny_language_models import TinyModel

from trireme.llm.executors.torch.weights import host_tensors
from trireme.llm.models.catalog import load_weights, read_spec
from trireme.llm.models.checkpoint import Weight
from trireme.llm.models.engine_folder.description import EngineDescription, write_description
from trireme.llm.models.engine_folder.writer import TensorWriter
from trireme.llm.models.quantized import to_float32
from trireme.llm.quantization import awq, calibrated
from trireme.llm.quantization.awq import InputSample, scale_layer
from trireme.llm.quantization.gptq import gptq
from trireme.llm.quantization.layer_walk import LayerWalk
from trireme.llm.quantization.plain import QuantizationError
from trireme.llm.quantization.plan import by_layer
from trireme.llm.quantization.rounding import round_matrix

ARCHITECTURES = [
    "llama",
    "llama with biases, tied",
    "mistral",
    "qwen 3",
    "gemma",
    "gemma 3",
    "phi",
    "phi 3, long",
    "falcon rw",
    "falcon 7b",
    "falcon 40b",
    "pythia",
    "opt",
    "opt 350m",
    "gpt-2",
    "qwen 2 moe",
]
FINAL_NORMS = (
    "model.norm",
    "model.final_layernorm",
    "transformer.ln_f",
    "gpt_neox.final_layer_norm",
    "model.decoder.final_layer_norm",
)


def correlated_inputs(columns: int = 256, rows: int = 600) -> torch.Tensor:
    """Rows of which a few columns are large, as those of real models are, and which depend on each other."""
    generator = torch.Generator().manual_seed(0)
    mixed = torch.randn(rows, columns, generator=generator) @ torch.randn(columns, columns, generator=generator)
    sizes = torch.ones(columns)
    sizes[torch.randperm(columns, generator=generator)[:8]] = 25.0
    return mixed / columns**0.5 * sizes


def error(matrix: torch.Tensor, found: Any, inputs: torch.Tensor) -> float:
    off = torch.from_numpy(to_float32(found)) - matrix
    return float((inputs @ off.t()).square().mean() / (inputs @ matrix.t()).square().mean())


def test_gptq_has_a_fraction_of_the_error_of_rounding() -> None:
    inputs = correlated_inputs()
    matrix = torch.randn(96, 256, generator=torch.Generator().manual_seed(1)) * 0.05
    plain = error(matrix, round_matrix(matrix.numpy(), "int4"), inputs)
    found = error(matrix, gptq(matrix.clone(), inputs.t() @ inputs, 128), inputs)
    assert found < 0.35 * plain


def test_gptq_bears_inputs_that_are_always_zero_or_the_same() -> None:
    matrix = torch.randn(32, 128, generator=torch.Generator().manual_seed(1))
    inputs = torch.zeros(10, 128)
    inputs[:, 5] = 1.0
    found = gptq(matrix.clone(), inputs.t() @ inputs, 64)
    assert np.isfinite(to_float32(found)).all()
    assert error(matrix, found, inputs) < 0.01
    assert np.isfinite(to_float32(gptq(matrix.clone(), torch.zeros(128, 128), 64))).all()


@pytest.mark.timeout(30)
def test_gptq_refuses_inputs_whose_products_leave_the_range_of_numbers() -> None:
    inputs = torch.randn(4, 64, generator=torch.Generator().manual_seed(0)) * 3e18
    with pytest.raises(QuantizationError, match="inputs too large to be multiplied; the checkpoint is damaged"):
        gptq(torch.ones(8, 64), inputs.t() @ inputs, 64)


def test_awq_has_a_smaller_error_where_some_inputs_are_large() -> None:
    inputs = correlated_inputs()
    matrix = torch.randn(96, 256, generator=torch.Generator().manual_seed(1)) * 0.05
    sample = InputSample(1)
    sample.add(inputs)
    factors = awq._best_factors(matrix, sample.rows, sample.sizes)
    assert factors.max() / factors.min() > 2
    scaled = awq.round_clipped(matrix * factors, sample.rows / factors)
    plain = error(matrix, round_matrix(matrix.numpy(), "int4"), inputs)
    assert error(matrix * factors, scaled, inputs / factors) < 0.6 * plain


def test_inputs_that_awq_keeps_come_from_all_texts() -> None:
    sample = InputSample(4)
    for text in range(4):
        sample.add(torch.full((700, 3), float(text)))
    assert sample.rows.shape == (512, 3)
    assert sample.rows[:, 0].unique().tolist() == [0.0, 1.0, 2.0, 3.0]
    assert sample.sizes.tolist() == [1.5, 1.5, 1.5]


def sampled(walk: LayerWalk, number: int, layer: dict[str, torch.Tensor]) -> dict[str, InputSample]:
    samples: dict[str, InputSample] = defaultdict(lambda: InputSample(len(PROMPTS)))
    walk.layer(number, layer, lambda part, rows: samples[part].add(rows), advances=True)
    return samples


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_scaled_model_computes_the_same(
    name: str, tiny_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start_engine: Any
) -> None:
    """The folds of norms and of AWQ's scales, without rounding: written as floats, the tokens stay."""
    monkeypatch.setattr(awq, "group_size", lambda columns: 8)
    model: TinyModel = tiny_model(name)
    spec = read_spec(model.folder)
    walk, changed = None, 0
    with TensorWriter(tmp_path / "engine.safetensors", 500) as writer:
        for prefix, tensors in by_layer(load_weights(model.folder, spec)):
            layer = {part: tensor.float() for part, tensor in host_tensors(tensors.items())}
            if not prefix:
                walk = walk or LayerWalk(spec, layer, PROMPTS, torch.device("cpu"), torch.float32)
            else:
                assert walk is not None
                layer = calibrated._folded(spec, layer)
                layer, factors = scale_layer(spec, layer, sampled(walk, int(prefix.split(".")[1]), layer))
                changed += sum(bool((one != 1).any()) for one in factors.values())
            for part, tensor in layer.items():
                writer.add(prefix + part, Weight(tensor.numpy(), "F32"))
    (tmp_path / "config.json").write_text((model.folder / "config.json").read_text())
    write_description(tmp_path, EngineDescription("none", writer.tensors, writer.weight_bytes, "", 0))
    assert changed >= 2
    wanted = [model.continuation(prompt, 8) for prompt in PROMPTS]
    assert start_engine(tmp_path, kind="torch").tokens(PROMPTS, 8) == wanted


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_texts_go_through_the_layers_as_through_the_model(name: str, tiny_model: Any) -> None:
    model: TinyModel = tiny_model(name)
    spec = read_spec(model.folder)
    walk = None
    for prefix, tensors in by_layer(load_weights(model.folder, spec)):
        layer = dict(host_tensors(tensors.items()))
        if prefix:
            assert walk is not None
            walk.layer(int(prefix.split(".")[1]), layer, advances=True)
        walk = walk or LayerWalk(spec, layer, PROMPTS, torch.device("cpu"), torch.float32)
    assert walk is not None
    modules = dict(model.model.named_modules())
    final = next((modules[one] for one in FINAL_NORMS if one in modules), torch.nn.Identity())
    with torch.no_grad():
        states = model.model(torch.tensor([PROMPTS[2]]), output_hidden_states=True).hidden_states
        found = final(walk._hidden[2].clone())
        found = modules["model.decoder.project_out"](found) if name == "opt 350m" else found
    assert torch.allclose(found, states[-1][0], atol=1e-3)


@pytest.mark.parametrize("method", ["awq", "gptq"])
def test_a_model_of_any_width_gets_what_it_can_take(method: Any, tmp_path: Path) -> None:
    """Columns that do not fill words of four bits get eight."""
    model = packable_llama(tmp_path / "model", intermediate_size=144)
    spec = read_spec(model.folder)
    found = list(calibrated.quantize_calibrated(spec, load_weights(model.folder, spec), method, PROMPTS, "cpu"))
    forms = {prefix + name: getattr(one, "bits", "") for prefix, _, after in found for name, one in after.items()}
    assert forms["layers.0.up.weight"] == "int4"
    assert forms["layers.0.down.weight"] == "int8"
    assert forms["head.weight"] == "fp8"
    assert forms["embed.weight"] == ""
