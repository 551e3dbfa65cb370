"""Providers that were asked for and did not start."""

from __future__ import annotations

import pytest

from trireme.backends.compiled.model_load import ModelLoadError
from trireme.backends.onnxruntime.session_options import check_providers

CPU, CUDA, TENSORRT = "CPUExecutionProvider", "CUDAExecutionProvider", "TensorrtExecutionProvider"


def check(chosen: list[str], active: list[str], kind: str = "GPU") -> None:
    check_providers("m", [(name, {}) for name in chosen], active, kind)


def test_a_session_that_would_run_on_the_processor_instead_of_the_gpu_is_refused() -> None:
    with pytest.raises(ModelLoadError, match=r"model 'm' has an instance on a GPU, and CUDAExecutionProvider did not"):
        check([CUDA, CPU], [CPU])


def test_an_accelerator_that_is_missing_beside_a_gpu_that_works_is_a_warning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    check([TENSORRT, CUDA, CPU], [CUDA, CPU])
    assert "model 'm' runs with CUDAExecutionProvider, CPUExecutionProvider: TensorrtExecutionProvider did" in (
        capsys.readouterr().err
    )


def test_what_started_as_asked_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    check([CUDA, CPU], [CUDA, CPU])
    check([CPU], [CPU], kind="CPU")
    assert capsys.readouterr().err == ""
