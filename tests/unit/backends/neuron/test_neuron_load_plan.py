"""Loading onto NeuronCores with a stand-in for the library that drives them, and names of tensors in files."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trireme.backends.compiled.model_load import ModelLoadError
from trireme.backends.neuron import torchscript
from trireme.backends.neuron.cores import CoreShare
from trireme.backends.neuron.file_tensors import fixed_rows, names_in_file
from trireme.backends.neuron.load_plan import LoadPlan
from trireme.backends.neuron.replicas import Replicas

CONFIG: dict[str, Any] = {
    "name": "m",
    "input": [{"name": "INPUT__0", "data_type": "TYPE_FP32"}],
    "output": [{"name": "OUTPUT__0", "data_type": "TYPE_FP32"}],
}
LIBRARY = """import contextlib

placed = []


@contextlib.contextmanager
def neuron_cores_context(start_nc, nc_count):
    placed.append((start_nc, nc_count))
    yield
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.trace(torch.nn.ReLU(), torch.rand(2, 3)).save(str(tmp_path / "m.pt"))
    return tmp_path / "m.pt"


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "packages" / "torch_neuronx"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "experimental.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(str(folder.parent))
    yield folder
    for name in ("torch_neuronx", "torch_neuronx.experimental"):
        sys.modules.pop(name, None)


SHARE = CoreShare(4, 3, 2)


def loaded(path: Path, *, has_device: bool, share: CoreShare = SHARE, config: dict[str, Any] = CONFIG) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torchscript.load(LoadPlan(str(path), config, share, has_device), is_inf2=False)


def test_every_core_gets_the_model_once(script: Path, library: Path) -> None:
    model = loaded(script, has_device=True)
    assert sys.modules["torch_neuronx.experimental"].placed == [(0, 1), (1, 1), (2, 1)]
    assert (len(model.calls), len(set(map(id, model.calls))), model.device) == (6, 3, "NeuronCores")
    x = np.linspace(-1, 1, 21, dtype=np.float32).reshape(7, 3)
    replicas = Replicas(model.calls, model.fixed_rows)
    np.testing.assert_array_equal(replicas.run({"INPUT__0": x}, ["OUTPUT__0"])["OUTPUT__0"].array, np.maximum(x, 0))
    replicas.close()


def test_machine_with_cores_and_without_the_library_is_told_what_to_install(script: Path) -> None:
    with pytest.raises(ModelLoadError) as caught:
        loaded(script, has_device=True)
    assert str(caught.value) == (
        "this machine has NeuronCores, and a PyTorch model needs the package 'torch_neuron' or 'torch_neuronx', which "
        "is not installed; install torch-neuronx from the package index that the AWS Neuron SDK's guide names"
    )


def test_library_that_cannot_be_imported_is_named(script: Path, library: Path) -> None:
    (library / "__init__.py").write_text("raise ImportError('libnrt.so.1: cannot open shared object file')")
    with pytest.raises(ModelLoadError, match="'torch_neuronx' is installed but cannot be imported: libnrt"):
        loaded(script, has_device=True)


def test_cpu_runs_as_many_slices_as_it_has_threads(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    try:
        assert len(loaded(script, has_device=False).calls) == 4
        assert torch.get_num_threads() == 1
        assert len(loaded(script, has_device=False, share=CoreShare(0, 1, 2)).calls) == 2
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_bfloat16_reaches_the_model_as_such_and_comes_back_as_bits(script: Path) -> None:
    config = {**CONFIG, "input": [{"name": "INPUT__0", "data_type": "TYPE_BF16"}]}
    bits = np.array([[0x3F80, 0xBF80]], np.uint16)  # 1 and -1
    result = loaded(script, has_device=False, config=config).calls[0]({"INPUT__0": bits}, ["OUTPUT__0"])["OUTPUT__0"]
    assert result.is_bf16
    assert result.array.tolist() == [[0x3F80, 0]]


def test_names_are_those_of_the_file_or_say_a_place() -> None:
    assert names_in_file("input", ["b", "INPUT__0"], ["a", "b"]) == {"b": "b", "INPUT__0": "a"}
    with pytest.raises(ModelLoadError, match="no input 'c', only 'a', 'b'"):
        names_in_file("input", ["c"], ["a", "b"])
    with pytest.raises(ModelLoadError, match="no output 'OUTPUT__2'"):
        names_in_file("output", ["OUTPUT__2"], ["a", "b"])


@pytest.mark.parametrize(
    ("dims", "rows"), [([4, 4], 4), ([4, 2], None), (["batch"], None), ([None], None), ([-1], None)]
)
def test_rows_are_fixed_where_all_inputs_say_the_same_number(dims: list[object], rows: int | None) -> None:
    assert fixed_rows(dims) == rows
