"""The executor in PyTorch follows the one in numpy in all that is not greedy, and computes in other types too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tiny_language_models import VOCAB, TinyModel

from trireme.llm.executors.port import ExecutorError
from trireme.llm.executors.torch.devices import torch_device
from trireme.llm.executors.torch.executor import TorchExecutor
from trireme.llm.executors.torch.weights import Linear, host_tensors, to_tensor
from trireme.llm.models.catalog import load_weights, read_spec
from trireme.llm.models.checkpoint import CheckpointError, Weight
from trireme.llm.options import EngineOptions
from trireme.llm.prefix_cache import BlockKeys
from trireme.llm.request import Sequence
from trireme.llm.sampling_params import SamplingParams
from trireme.llm.scheduler import Scheduler

PROMPTS = [np.random.default_rng(length).integers(3, VOCAB, length).tolist() for length in (3, 9, 17, 30, 41)]
PARAMS = [
    SamplingParams(max_tokens=12),
    SamplingParams(max_tokens=12, temperature=0.8, seed=1, top_p=0.9),
    SamplingParams(max_tokens=12, temperature=1.2, seed=2, top_k=20, logprobs=3),
    SamplingParams(max_tokens=12, repetition_penalty=1.5, logprobs=0),
    SamplingParams(max_tokens=12, temperature=0.9, seed=3, min_p=0.05, frequency_penalty=1.0, min_tokens=3),
]


def test_all_kinds_of_requests_in_one_batch_get_what_numpy_gives_them(tiny_model: Any, start_engine: Any) -> None:
    folder = tiny_model("mistral").folder
    numpy, torch_ = (start_engine(folder, kind=kind, max_step_tokens=16) for kind in ("numpy", "torch"))
    wanted, found = numpy.answers(PROMPTS, PARAMS), torch_.answers(PROMPTS, PARAMS)
    for ours, theirs in zip(found, wanted, strict=True):
        assert [output.token_ids for output in ours] == [output.token_ids for output in theirs]
        for one, other in zip(ours, theirs, strict=True):
            assert [place.rank for place in one.logprobs] == [place.rank for place in other.logprobs]
            assert [place.logprob for place in one.logprobs] == pytest.approx(
                [place.logprob for place in other.logprobs], abs=1e-4
            )
    assert len(found[2][0].logprobs[0].top) == 3


@pytest.mark.parametrize("count", [1, 2, 7, 8, 32, 33, 128, 129])
@pytest.mark.parametrize("has_bias", [False, True])
def test_a_product_of_any_number_of_rows_is_the_same(count: int, has_bias: bool) -> None:
    numbers = np.random.default_rng(count)
    matrix, rows = (torch.from_numpy(numbers.normal(size=(size, 24))) for size in (40, count))
    bias = torch.from_numpy(numbers.normal(size=40)) if has_bias else None
    wanted = rows @ matrix.t() + (0 if bias is None else bias)
    found = Linear(matrix.float(), None if bias is None else bias.float())(rows.float())
    assert found.is_contiguous()
    assert torch.allclose(found.double(), wanted, atol=1e-4)


def step(executor: TorchExecutor, prompt: list[int], params: SamplingParams) -> Any:
    """The result of a prompt's only step."""
    scheduler = Scheduler(executor.limits)
    size = len(prompt)
    scheduler.add(Sequence(1, list(prompt), size, params, lambda output: None, BlockKeys(4), size + 1))
    plan = scheduler.schedule()
    assert plan is not None
    return executor.collect(executor.submit(plan))


def executor_of(model: TinyModel, dtype: torch.dtype = torch.float32) -> TorchExecutor:
    spec = read_spec(model.folder)
    options = EngineOptions(block_size=4, max_sequences=4, cache_bytes=2**20)
    return TorchExecutor(spec, host_tensors(load_weights(model.folder, spec)), options, dtype=dtype)


def test_probabilities_of_a_prompt(tiny_model: Callable[[str], TinyModel]) -> None:
    model, prompt = tiny_model("llama"), PROMPTS[1]
    found = step(executor_of(model), prompt, SamplingParams(prompt_logprobs=2)).prompt_logprobs[0]
    wanted = torch.from_numpy(model.logits(prompt)).log_softmax(-1)
    assert len(found) == len(prompt) - 1
    for place, one in enumerate(found):
        assert one.logprob == pytest.approx(float(wanted[place, prompt[place + 1]]), abs=1e-4)
        assert [token for token, _ in one.top] == wanted[place].topk(2).indices.tolist()


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")  # where the processor has no arithmetic for the type
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("name", ["llama", "gemma 2", "falcon rw", "mixtral", "qwen 3"])
def test_other_types_come_close(name: str, dtype: torch.dtype, tiny_model: Callable[[str], TinyModel]) -> None:
    model, prompt = tiny_model(name), PROMPTS[2]
    found = step(executor_of(model, dtype), prompt, SamplingParams(prompt_logprobs=0)).prompt_logprobs[0]
    wanted = torch.from_numpy(model.logits(prompt)).log_softmax(-1)
    expected = [float(wanted[place, token]) for place, token in enumerate(prompt[1:])]
    tolerance = 0.3 if dtype == torch.bfloat16 else 0.1
    far = [one.logprob for one, near in zip(found, expected, strict=True) if abs(one.logprob - near) > tolerance]
    assert len(far) <= (1 if name == "mixtral" else 0)  # rounding may send a token to another expert


def test_tensors_are_read_where_they_are() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert to_tensor(Weight(array, "F32")).data_ptr() == array.ctypes.data
    halves = torch.tensor([1.5, -2.0], dtype=torch.bfloat16)
    bits = halves.view(torch.int16).numpy().view(np.uint16)
    assert torch.equal(to_tensor(Weight(bits, "BF16")), halves)
    assert to_tensor(Weight(bits, "BF16")).data_ptr() == bits.ctypes.data
    with pytest.raises(CheckpointError, match="F8_E4M3"):
        to_tensor(Weight(np.zeros(2, np.uint8), "F8_E4M3"))


def test_a_missing_tensor_is_named(tiny_model: Callable[[str], TinyModel]) -> None:
    folder = tiny_model("llama").folder
    spec = read_spec(folder)
    tensors = [pair for pair in host_tensors(load_weights(folder, spec)) if pair[0] != "layers.1.o.weight"]
    with pytest.raises(ExecutorError, match=r"layers\.1\.o\.weight"):
        TorchExecutor(spec, tensors, EngineOptions())


def test_a_device_that_nobody_knows_is_named() -> None:
    assert torch_device("cpu") == torch.device("cpu")
    with pytest.raises(ExecutorError, match=r"^there is no device 'tpu'; use c[a-z]+$"):
        torch_device("tpu")
