"""TorchScript files and exported programs: PyTorch's own results, names of tensors, and clear errors."""

from __future__ import annotations

import asyncio
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served_repository import Served, load_error, place, serve

from trireme.core.tensor import Tensor


def torch_files(tmp_path: Path) -> Any:
    torch = pytest.importorskip("torch")

    class Mixer(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(5)
            self.linear = torch.nn.Linear(3, 2)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.linear(x) * 2, x - y

    return torch, Mixer().eval()


SCRIPT_CONFIG = """
platform: "pytorch_libtorch"
max_batch_size: 8
input [ { name: "%s" data_type: TYPE_FP32 dims: 3 }, { name: "%s" data_type: TYPE_FP32 dims: 3 } ]
output [ { name: "OUTPUT__0" data_type: TYPE_FP32 dims: 2 }, { name: "OUTPUT__1" data_type: TYPE_FP32 dims: 3 } ]
"""


def test_torchscript_gives_pytorchs_own_results_however_its_inputs_are_named(tmp_path: Path) -> None:
    torch, mixer = torch_files(tmp_path)
    names = {"ordered": ("FIRST", "SECOND"), "arguments": ("y", "x")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        script = torch.jit.script(mixer)
        for name, inputs in names.items():
            script.save(str(place(tmp_path, name, SCRIPT_CONFIG % inputs) / "model.pt"))
    x, y = torch.rand(2, 3), torch.rand(2, 3)
    expected = [tensor.detach().numpy() for tensor in mixer(x, y)]

    async def scenario(served: Served) -> None:
        for name, (first, second) in names.items():
            is_swapped = name == "arguments"
            given = {first: (y if is_swapped else x).numpy(), second: (x if is_swapped else y).numpy()}
            outputs = await served.ask(name, **given)
            np.testing.assert_allclose(outputs["OUTPUT__0"], expected[0], rtol=1e-6)
            np.testing.assert_array_equal(outputs["OUTPUT__1"], expected[1])

    serve(tmp_path, scenario)


def test_an_exported_program_is_served_without_a_configuration(tmp_path: Path) -> None:
    torch, mixer = torch_files(tmp_path)
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(
        mixer, (torch.rand(2, 3), torch.rand(2, 3)), dynamic_shapes={"x": {0: batch}, "y": {0: batch}}
    )
    torch.export.save(program, str(place(tmp_path, "mixer") / "model.pt2"))
    x, y = torch.rand(5, 3), torch.rand(5, 3)

    async def scenario(served: Served) -> None:
        config = served.config("mixer")
        assert config.backend == "pytorch"
        assert config.max_batch_size == 4
        assert [(entry.name, list(entry.dims)) for entry in config.input] == [("x", [3]), ("y", [3])]
        assert [(entry.name, list(entry.dims)) for entry in config.output] == [("OUTPUT__0", [2]), ("OUTPUT__1", [3])]
        outputs = await served.ask("mixer", x=x[:3].numpy(), y=y[:3].numpy())
        np.testing.assert_allclose(outputs["OUTPUT__0"], mixer(x, y)[0].detach().numpy()[:3], rtol=1e-6)
        both = await asyncio.gather(
            *(served.ask("mixer", x=x[n : n + 1].numpy(), y=y[n : n + 1].numpy()) for n in range(5))
        )
        joined = np.concatenate([outputs["OUTPUT__1"] for outputs in both])
        np.testing.assert_array_equal(joined, (x - y).numpy())

    serve(tmp_path, scenario)


def test_bfloat16_passes_through_pytorch_bit_by_bit(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    class Twice(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    config = 'input { name: "x" data_type: TYPE_BF16 dims: -1 } output { name: "OUT" data_type: TYPE_BF16 dims: -1 }'
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.script(Twice()).save(str(place(tmp_path, "twice", config) / "model.pt"))

    async def scenario(served: Served) -> None:
        bits = np.array([0x3F80, 0x4049], dtype=np.uint16)  # 1.0 and about pi
        response = await served.answer("twice", {"x": Tensor("x", "BF16", [2], bits.tobytes())})
        assert response.error is None
        assert response.outputs[0].datatype == "BF16"
        assert np.frombuffer(response.outputs[0].data, np.uint16).tolist() == [0x4000, 0x40C9]

    serve(tmp_path, scenario)


def test_pytorch_files_that_are_no_programs_are_refused_with_the_reason(tmp_path: Path) -> None:
    torch, mixer = torch_files(tmp_path)
    config = SCRIPT_CONFIG % ("INPUT__0", "INPUT__1")
    torch.save(mixer.state_dict(), place(tmp_path, "weights", config) / "model.pt")
    (place(tmp_path, "archive") / "model.pt2").write_bytes(b"hello")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.script(mixer).save(str(place(tmp_path, "unnamed") / "model.pt"))

    async def scenario(served: Served) -> None:
        assert "a file of torch.save, which holds no program" in await load_error(served, "weights")
        assert "could not be loaded as a program of torch.export" in await load_error(served, "archive")
        assert "must list its inputs and outputs" in await load_error(served, "unnamed")

    serve(tmp_path, scenario, models=())


def test_a_module_in_a_model_file_is_served_with_the_weights_beside_it(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    config = (
        'backend: "pytorch" runtime: "model.py" max_batch_size: 4 input { name: "x" data_type: TYPE_FP32 dims: 3 } '
    )
    folder = place(tmp_path, "coded", config + 'output { name: "OUTPUT__0" data_type: TYPE_FP32 dims: 3 }')
    (folder / "model.py").write_text(
        "import torch\n"
        "class Scale(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.factor = torch.nn.Parameter(torch.ones(3))\n"
        "    def forward(self, x):\n"
        "        return x * self.factor\n"
    )
    torch.save({"factor": torch.tensor([1.0, 2.0, 3.0])}, folder / "model.pt")

    async def scenario(served: Served) -> None:
        outputs = await served.ask("coded", x=np.ones((2, 3), np.float32))
        assert outputs["OUTPUT__0"].tolist() == [[1.0, 2.0, 3.0]] * 2

    serve(tmp_path, scenario)
