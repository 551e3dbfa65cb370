"""A folder becomes an executor on the device that is there, and what is in the way is told."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from tiny_language_models import RECIPES, TinyModel, build

from trireme.llm import executor_choice
from trireme.llm.executor_choice import devices_in_use, is_on_cuda, load_executor
from trireme.llm.executors import limits
from trireme.llm.executors.numpy.executor import NumpyExecutor
from trireme.llm.executors.port import Executor, ExecutorError
from trireme.llm.executors.torch import devices as torch_devices
from trireme.llm.executors.torch import loading as torch_loading
from trireme.llm.executors.torch.executor import TorchExecutor
from trireme.llm.models.catalog import load_weights, read_spec
from trireme.llm.models.fields import UnsupportedModelError
from trireme.llm.options import EngineOptions
from trireme.llm.prefix_cache import BlockKeys
from trireme.llm.request import Sequence
from trireme.llm.sampling_params import SamplingParams
from trireme.llm.scheduler import Scheduler

OPTIONS = EngineOptions(cache_bytes=2**20, max_sequences=4)
needs_no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without a GPU")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def first_token(executor: Executor, prompt: list[int]) -> int:
    scheduler = Scheduler(executor.limits)
    listener = [].append  # type: ignore[var-annotated]
    scheduler.add(Sequence(1, list(prompt), len(prompt), SamplingParams(), listener, BlockKeys(16), len(prompt) + 1))
    plan = scheduler.schedule()
    assert plan is not None
    return int(executor.collect(executor.submit(plan)).tokens[0])


@needs_no_gpu
@pytest.mark.parametrize(
    ("device", "kind"), [("auto", TorchExecutor), ("cpu", TorchExecutor), ("numpy", NumpyExecutor)]
)
def test_a_device_by_its_name(device: str, kind: type, tiny_model: Callable[[str], TinyModel]) -> None:
    model, prompt = tiny_model("llama"), [5, 9, 17, 40]
    executor = load_executor(model.folder, OPTIONS, device)
    assert isinstance(executor, kind)
    assert [first_token(executor, prompt)] == model.continuation(prompt, 1)


@pytest.mark.parametrize(
    ("device", "has_gpu", "in_use"),
    [
        ("auto", True, ("cuda:0",)),
        ("auto", False, ("cpu",)),
        ("cpu", True, ("cpu",)),
        ("numpy", True, ("cpu",)),
        ("cuda:1", True, ("cuda:1",)),
        ("hpu", False, ("hpu:0",)),
    ],
)
def test_devices_in_use_are_those_that_were_taken(
    device: str, has_gpu: bool, in_use: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_devices, "has_cuda", lambda: has_gpu)
    assert devices_in_use(cast(Executor, object()), device) == in_use
    assert is_on_cuda(device) is in_use[0].startswith("cuda")


@pytest.mark.parametrize(("tokens", "blocks"), [(16, 1), (17, 2), (10**9, 0)])
@pytest.mark.parametrize("device", ["cpu", "numpy"])
def test_cache_keeps_no_more_tokens_than_it_may(device: str, tokens: int, blocks: int, tiny_model: Any) -> None:
    options = EngineOptions(cache_bytes=2**20, max_sequences=4, cache_tokens=tokens)
    count = load_executor(tiny_model("llama").folder, options, device).limits.block_count
    assert count == blocks if tokens < 10**9 else count > 2


def test_numpy_is_taken_where_pytorch_is_not_installed(tiny_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tiny_model("llama").folder
    monkeypatch.setattr(executor_choice.importlib.util, "find_spec", lambda name: None)
    for device in ("auto", "cpu"):
        executor = load_executor(folder, OPTIONS, device)
        assert isinstance(executor, NumpyExecutor)
        monkeypatch.setitem(sys.modules, "trireme.llm.executors.torch", None)
        assert devices_in_use(executor, device) == ("cpu",)
    with pytest.raises(ExecutorError, match="install torch"):
        load_executor(folder, OPTIONS, "cuda")
    with pytest.raises(ExecutorError, match="bfloat16"):
        load_executor(folder, OPTIONS, "cpu", "bfloat16")


def test_pytorch_is_not_imported_where_numpy_is_asked_for(tiny_model: Any) -> None:
    program = (
        "import sys; from trireme.llm.executor_choice import load_executor; "
        "from trireme.llm.options import EngineOptions; "
        f"load_executor({str(tiny_model('llama').folder)!r}, EngineOptions(), 'numpy'); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("device", "dtype", "message"),
    [("tpu", "auto", "known are auto, cuda"), ("cuda:x", "auto", "not a device"), ("cpu", "int8", "float32, bfloat16")],
)
def test_names_that_mean_nothing(device: str, dtype: str, message: str, tiny_model: Any) -> None:
    with pytest.raises(ExecutorError, match=message):
        load_executor(tiny_model("llama").folder, OPTIONS, device, dtype)


@needs_no_gpu
def test_a_device_that_is_not_there(tiny_model: Any) -> None:
    with pytest.raises(ExecutorError, match=r"no device 'cuda:1' for PyTorch .* use 'cpu'"):
        load_executor(tiny_model("llama").folder, OPTIONS, "cuda:1")


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ExecutorError, match=r"there is no folder .*absent"):
        load_executor(tmp_path / "absent", OPTIONS)


def test_an_architecture_that_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["NobodysForCausalLM"]}))
    with pytest.raises(ExecutorError, match=r"NobodysForCausalLM is not known here, and transformers .* cannot load"):
        load_executor(tmp_path, OPTIONS)
    with pytest.raises(UnsupportedModelError, match=r"NobodysForCausalLM.* transformers, which does not compute with"):
        load_executor(tmp_path, OPTIONS, "numpy")


def test_an_architecture_that_is_not_known_without_transformers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["BloomForCausalLM"]}))
    monkeypatch.setattr(
        executor_choice.importlib.util, "find_spec", lambda name: None if name == "transformers" else name
    )
    with pytest.raises(UnsupportedModelError, match=r"BloomForCausalLM.* install transformers"):
        load_executor(tmp_path, OPTIONS)


@pytest.mark.parametrize("device", ["cpu", "numpy"])
def test_too_large_a_cache_is_told_with_what_there_is(device: str, tiny_model: Any) -> None:
    with pytest.raises(ExecutorError, match=r"cache 1048576\.00 GiB, but the machine has .* free; lower cache_bytes"):
        load_executor(tiny_model("llama").folder, EngineOptions(cache_bytes=2**50), device)


def test_too_large_a_model_is_told(tiny_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_loading, "free_host_bytes", lambda: 1000)
    with pytest.raises(ExecutorError, match=r"its weights take .* MiB in float32 .* smaller dtype"):
        load_executor(tiny_model("llama").folder, OPTIONS, "cpu")


@pytest.mark.parametrize("name", ["llama", "opt 350m", "gpt-2", "qwen 2 moe", "falcon rw"])
def test_the_size_of_the_weights_is_known_before_they_are_read(name: str, tiny_model: Any) -> None:
    folder = tiny_model(name).folder
    spec = read_spec(folder)
    arrays = [weight.array for name, weight in load_weights(folder, spec) if weight.array.ndim > 1]
    matrices = sum(array.size for array in arrays if array.shape[0] > 1)
    assert limits.weight_count(spec) == matrices


@pytest.mark.parametrize(("has_arithmetic", "wanted"), [(True, torch.bfloat16), (False, torch.float32)])
@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")
def test_the_type_follows_checkpoint_and_processor(
    has_arithmetic: bool, wanted: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build("llama", tmp_path, lambda model, folder: model.to(torch.bfloat16).save_pretrained(folder))
    monkeypatch.setattr(executor_choice, "emulates", lambda dtype: not has_arithmetic)
    taken = []
    monkeypatch.setattr(torch_loading, "TorchExecutor", lambda *arguments: taken.append(arguments[-1]))
    load_executor(tmp_path, OPTIONS, "cpu")
    load_executor(tmp_path, OPTIONS, "cpu", "float16")
    assert taken == [wanted, torch.float16]


@needs_gpu
@pytest.mark.parametrize("name", RECIPES)
def test_a_gpu_gives_the_same_token(name: str, tiny_model: Callable[[str], TinyModel]) -> None:
    model, prompt = tiny_model(name), [5, 9, 17, 40]
    executor = load_executor(model.folder, OPTIONS, "cuda", "float32")
    assert [first_token(executor, prompt)] == model.continuation(prompt, 1)


@pytest.mark.parametrize("device", ["numpy", "cpu"])
def test_batch_invariance_is_refused_where_it_is_not_kept(device: str, tiny_model: Any) -> None:
    options = EngineOptions(is_batch_invariant=True)
    with pytest.raises(ExecutorError, match="batch_invariant needs the kernels for NVIDIA GPUs"):
        load_executor(tiny_model("llama").folder, options, device)


def test_pytorch_is_recommended_to_those_alone_who_have_not_asked_for_numpy(
    tiny_model: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tiny_model("llama").folder
    caplog.set_level("INFO", "trireme.llm")
    load_executor(folder, OPTIONS, "numpy")
    assert "runs on the CPU with numpy" in caplog.text
    assert "faster" not in caplog.text
    monkeypatch.setattr(executor_choice.importlib.util, "find_spec", lambda name: None)
    load_executor(folder, OPTIONS, "auto")
    assert "PyTorch would be faster" in caplog.text


def test_limits_that_are_others_than_asked_for_are_told(tiny_model: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="trireme")
    folder = tiny_model("llama").folder
    most = load_executor(folder, OPTIONS, "numpy").spec.max_positions
    assert not [record for record in caplog.records if "max_length" in record.getMessage()]
    options = EngineOptions(cache_bytes=2**20, max_sequences=4, max_length=10**5, cache_tokens=8)
    assert load_executor(folder, options, "numpy").spec.max_positions == most
    told = [record.getMessage() for record in caplog.records]
    assert f"max_length is 100000, but the model takes {most} tokens: so many it is" in told
    assert "cache_tokens is 8: the cache keeps 16, whole blocks of 16" in told
