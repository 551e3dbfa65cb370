"""Configurations that do not fit a PyTorch model: refused at the load where its file says enough, else answered."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served_repository import Served, load_error, place, serve

ROW = np.ones((1, 3), np.float32)


def tensors(*entries: str) -> str:
    """`<name> <type> <dims>` of each."""
    parts = [entry.split(" ") for entry in entries]
    return ", ".join(f'{{ name: "{name}" data_type: TYPE_{kind} dims: [ {dims} ] }}' for name, kind, dims in parts)


def config(inputs: str, outputs: str = "", max_batch_size: int = 4) -> str:
    outputs = outputs or tensors("OUTPUT__0 FP32 3")
    return f'backend: "pytorch" max_batch_size: {max_batch_size} input [ {inputs} ] output [ {outputs} ]'


def save_script(model: Any, folder: Path) -> None:
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.script(model).save(str(folder / "model.pt"))


def scaled_product() -> Any:
    torch = pytest.importorskip("torch")

    class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: torch.Tensor, y: torch.Tensor, scale: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
            return x * y * scale, x - y

    return Model().eval()


def product() -> Any:
    torch = pytest.importorskip("torch")

    class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x * y, x - y

    return Model().eval()


def listed() -> Any:
    torch = pytest.importorskip("torch")

    class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
            return [x, x * 2]

    return Model().eval()


BOTH = tensors("x FP32 3", "y FP32 3")


def test_torchscript_that_does_not_fit_its_schema_is_not_loaded(tmp_path: Path) -> None:
    configs = {
        "too_few": config(tensors("INPUT__0 FP32 3")),
        "no_such_output": config(BOTH, tensors("OUTPUT__5 FP32 3")),
    }
    for name, text in configs.items():
        save_script(scaled_product(), place(tmp_path, name, text))

    async def scenario(served: Served) -> None:
        assert (
            "unable to load model 'too_few', configuration expects 1 inputs, model provides 3: "
            "forward takes (x, y, scale)"
        ) in await load_error(served, "too_few")
        assert (
            "unable to load model 'no_such_output', output 'OUTPUT__5' of the configuration is result number 5 of "
            "forward, which returns 2, from 0 on"
        ) in await load_error(served, "no_such_output")

    serve(tmp_path, scenario, models=())


def test_results_that_only_a_call_shows_are_answered_with_the_reason(tmp_path: Path) -> None:
    save_script(scaled_product(), place(tmp_path, "other_type", config(BOTH, tensors("OUTPUT__0 INT64 3"))))
    one = tensors("x FP32 3")
    save_script(listed(), place(tmp_path, "list", config(one, tensors("OUTPUT__1 FP32 3", "OUTPUT__2 FP32 3"))))

    async def scenario(served: Served) -> None:
        response = await served.answer("other_type", {"x": ROW, "y": ROW})
        assert response.error is not None
        assert response.error.message == (
            "configuration expects datatype TYPE_INT64 for output 'OUTPUT__0', model provides TYPE_FP32"
        )
        response = await served.answer("list", {"x": ROW})
        assert response.error is not None
        assert response.error.message == (
            "output 'OUTPUT__2' of the configuration is result number 2 of forward, which returns 2, from 0 on"
        )
        response = await served.answer("list", {"x": ROW}, requested_outputs=("OUTPUT__1",))
        assert response.error is None

    serve(tmp_path, scenario)


def test_an_exported_program_that_does_not_fit_is_not_loaded(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    batch = torch.export.Dim("batch", min=1, max=64)
    example = (torch.rand(2, 3), torch.rand(2, 3))
    program = torch.export.export(product(), example, dynamic_shapes={"x": {0: batch}, "y": {0: batch}})
    expected = {
        "fits_by_place": (tensors("INPUT__0 FP32 3", "INPUT__1 FP32 -1"), tensors("RESULT FP32 3"), ""),
        "dims": (
            tensors("x FP32 5", "y FP32 3"),
            "",
            "tensor 'x': the model expects 2 dimensions (shape [-1,3]) but the model configuration specifies "
            "2 dimensions (shape [-1,5])",
        ),
        "too_few": (tensors("x FP32 3"), "", "configuration expects 1 inputs, model provides 2"),
    }
    for name, (inputs, outputs, _) in expected.items():
        torch.export.save(program, str(place(tmp_path, name, config(inputs, outputs)) / "model.pt2"))

    async def scenario(served: Served) -> None:
        for name, (_, _, error) in expected.items():
            if error:
                assert error in await load_error(served, name)
        outputs = await served.ask("fits_by_place", INPUT__0=ROW, INPUT__1=ROW * 2)
        assert outputs["RESULT"].tolist() == [[2.0, 2.0, 2.0]]

    serve(tmp_path, scenario, models=("fits_by_place",))
