"""The layers that run on GPUs, against transformers: on a GPU, or in the Triton language's interpreter."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
pytest.importorskip("triton")

import triton  # noqa: E402
import triton.language as tl  # noqa: E402
from packable_models import packable_llama  # noqa: E402
from rounding_cache import RoundingCache  # noqa: E402
from tiny_language_models import RECIPES  # noqa: E402

from trireme.llm.executors.cuda.decoder import CudaDecoder, PagedCache, StepTensors  # noqa: E402
from trireme.llm.executors.cuda.weights import join, why_not  # noqa: E402
from trireme.llm.executors.torch.weights import host_tensors, packed_host_tensors  # noqa: E402
from trireme.llm.kernels.chunk_size import CHUNK_ROWS  # noqa: E402
from trireme.llm.kernels.elementwise import as_kept  # noqa: E402
from trireme.llm.models.catalog import load_weights, read_spec  # noqa: E402
from trireme.llm.quantization.builder import BuildOptions, build  # noqa: E402

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
ON_GPU = pytest.mark.skipif(DEVICE.type == "cpu", reason="the interpreter computes without rounding to 16 bits")
TOKENS = [5, 17, 99, 3, 42, 42, 8, 120, 77, 64, 31, 2, 9, 101, 56, 23, 88, 14, 70, 6]
BLOCK = 4


class Runner:
    """Sequences in a cache whose blocks lie in another order than they are written."""

    def __init__(
        self,
        folder: Any,
        slots: int,
        dtype: torch.dtype = torch.float32,
        keeps_packed: bool = False,
        cache_dtype: torch.dtype | None = None,
        **settings: bool,
    ) -> None:
        self.spec = read_spec(folder)
        reason = why_not(self.spec)
        if reason:
            pytest.skip(f"plain PyTorch runs it: {reason}")
        width = len(TOKENS) // BLOCK + 1
        stored = load_weights(folder, self.spec)
        tensors: Any = packed_host_tensors(stored) if keeps_packed else host_tensors(stored)
        named = ((name, tensor.clone() if isinstance(tensor, torch.Tensor) else tensor) for name, tensor in tensors)
        weights = join(named, self.spec, DEVICE, dtype)
        cache = PagedCache(self.spec, slots * width, BLOCK, slots, DEVICE, cache_dtype or dtype)
        order = torch.randperm(slots * width, generator=torch.Generator().manual_seed(0)).to(torch.int32)
        cache.tables[:slots, :width] = order.view(slots, width).to(DEVICE)
        self.weights = weights
        self.decoder = CudaDecoder(self.spec, weights, cache, 64, DEVICE, dtype, **settings)

    def run(
        self, tokens: list[int], slots: list[int], positions: list[int], singles: int, ends: list[int] | None = None
    ) -> Any:
        """Logits of every row, or of `ends` alone; the rows behind the first `singles` are one chunk."""
        x = self.weights.embedding[torch.tensor(tokens, device=DEVICE)] * self.spec.embedding_scale
        rest = range(singles, len(tokens))
        tiles = [[slots[row], row, min(CHUNK_ROWS, len(tokens) - row), positions[row]] for row in rest[::CHUNK_ROWS]]
        step = StepTensors(
            torch.tensor(slots, dtype=torch.int32, device=DEVICE),
            torch.tensor(positions, dtype=torch.int32, device=DEVICE),
            singles,
            1,
            torch.tensor(tiles, dtype=torch.int32, device=DEVICE) if tiles else None,
        )
        return self.logits(x, step, ends)

    def logits(self, x: Any, step: StepTensors, ends: list[int] | None) -> Any:
        wanted = None if ends is None else torch.tensor(ends, dtype=torch.int32, device=DEVICE)
        found = self.decoder.run(x.contiguous(), step, wanted)
        return self.decoder.logits(found).float().cpu().numpy() if len(found) else found


@pytest.mark.parametrize("name", RECIPES)
def test_logits(name: str, tiny_model: Any) -> None:
    model = tiny_model(name)
    runner = Runner(model.folder, 2)
    expected = model.logits(TOKENS)
    size = len(TOKENS)
    whole = runner.run(TOKENS, [0] * size, list(range(size)), 0)
    assert np.abs(whole - expected).max() < 1e-3, "a whole prompt"
    begun = runner.run(TOKENS[:7], [1] * 7, list(range(7)), 0)
    assert np.abs(begun - expected[:7]).max() < 1e-3
    alone = runner.run([TOKENS[7]], [1], [7], 1)
    assert np.abs(alone - expected[7]).max() < 1e-3, "one token"
    mixed = runner.run([TOKENS[-1], *TOKENS[8:]], [0] + [1] * (size - 8), [size - 1, *range(8, size)], 1)
    assert np.abs(mixed[0] - expected[-1]).max() < 1e-3, "one token beside a chunk"
    assert np.abs(mixed[1:] - expected[8:]).max() < 1e-3, "a chunk beside one token"
    both = runner.run([TOKENS[-1]] * 2, [0, 1], [size - 1] * 2, 2)
    assert np.abs(both - expected[-1]).max() < 1e-3, "two tokens of two sequences"


@pytest.mark.parametrize("name", RECIPES)
def test_rows_that_are_asked_for_alone(name: str, tiny_model: Any) -> None:
    """A chunk that nothing is read from yet, then one of which two rows are, beside one token."""
    model = tiny_model(name)
    runner = Runner(model.folder, 2)
    expected = model.logits(TOKENS)
    size = len(TOKENS)
    assert len(runner.run(TOKENS[:7], [1] * 7, list(range(7)), 0, ends=[])) == 0
    runner.run(TOKENS[:-1], [0] * (size - 1), list(range(size - 1)), 0, ends=[size - 2])
    rows, slots, positions = [TOKENS[-1], *TOKENS[7:]], [0] + [1] * (size - 7), [size - 1, *range(7, size)]
    mixed = runner.run(rows, slots, positions, 1, ends=[0, 3, size - 7])
    assert np.abs(mixed - expected[[size - 1, 9, size - 1]]).max() < 1e-3


@pytest.mark.parametrize("name", ["llama", "falcon 7b", "qwen 3", "phi"])
def test_keys_and_values_of_eight_bits(name: str, tiny_model: Any) -> None:
    """As the plain executor keeps them, whose tokens are held against the library's."""
    folder, size = tiny_model(name).folder, len(TOKENS)
    runner = Runner(folder, 2, cache_dtype=torch.float8_e4m3fn)
    expected = rounded_logits(tiny_model(name), TOKENS)
    whole = runner.run(TOKENS, [0] * size, list(range(size)), 0)
    assert np.abs(whole - expected).max() < 1e-2, "a whole prompt"
    runner.run(TOKENS[:7], [1] * 7, list(range(7)), 0)
    for position in range(7, size):
        alone = runner.run([TOKENS[position]], [1], [position], 1)
        assert np.abs(alone - expected[position]).max() < 1e-2, position


@triton.jit
def _round_kernel(numbers, small, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(small + place, as_kept(tl.load(numbers + place, mask=place < count), small), mask=place < count)


def rounded(numbers: Any) -> Any:
    """As the kernels keep them: the interpreter's rounding is not quite a GPU's."""
    given = numbers.contiguous().to(DEVICE)
    small = torch.empty(given.shape, dtype=torch.float8_e4m3fn, device=DEVICE)
    _round_kernel[(-(-given.numel() // 1024),)](given, small, given.numel(), BLOCK=1024)
    return small.to(numbers.dtype).to(numbers.device)


@pytest.mark.skipif(DEVICE.type == "cpu", reason="the interpreter does not carry where rounding doubles a number")
def test_eight_bits_are_rounded_as_pytorch_does() -> None:
    numbers = torch.randn(4096, generator=torch.Generator().manual_seed(0)) * 100
    assert torch.equal(rounded(numbers), numbers.clamp(-448, 448).to(torch.float8_e4m3fn).float())


def rounded_logits(model: Any, tokens: list[int]) -> Any:
    """The library's, with a cache whose numbers have passed through eight bits."""
    with torch.inference_mode():
        cache = RoundingCache(model.model.config, rounded)
        return model.model(torch.tensor([tokens]), past_key_values=cache, use_cache=True).logits[0].numpy()


@pytest.mark.parametrize(
    ("method", "family"), [("int4", "Llama"), ("int8", "Llama"), ("fp8", "Llama"), ("int4", "GPTNeoX")]
)
@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.bfloat16, marks=ON_GPU)], ids=str)
def test_logits_of_a_quantized_folder_are_those_of_its_numbers(
    method: Any, family: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    model = packable_llama(tmp_path / "model", family)
    build(BuildOptions(model.folder, tmp_path / "engine", method, measures_perplexity=False), lambda *_: None)
    packed, unpacked = (Runner(tmp_path / "engine", 2, dtype, keeps_packed=keeps) for keeps in (True, False))
    assert sum(not isinstance(one.weight, torch.Tensor) for one in packed.weights.products()) >= 5
    assert packed.weights.size_bytes < 0.6 * unpacked.weights.size_bytes
    size = len(TOKENS)
    for places, singles in ((range(size), 0), (range(1), 1)):
        tokens = [TOKENS[place] for place in places]
        found, wanted = (one.run(tokens, [0] * len(tokens), list(places), singles) for one in (packed, unpacked))
        error = np.sqrt(((found - wanted) ** 2).mean() / (wanted**2).mean())
        exact = 2e-3 if dtype == torch.float32 else 2e-2
        if DEVICE.type == "cuda":  # it rounds inputs as well, beside floats of eight bits: of four bits the head alone
            exact = {"fp8": 0.15, "int4": 0.05}.get(method, exact)
        assert error < exact
    last = packed.run(TOKENS, [1] * size, list(range(size)), 0, ends=[size - 1])
    whole = packed.run(TOKENS, [1] * size, list(range(size)), 0)
    assert np.abs(last - whole[-1:]).max() < 0.05 * np.abs(whole[-1]).max(), "a row that is asked for alone"


def chunks(runner: Runner, *parts: tuple[int, int, list[int]], ends: list[int] | None = None) -> Any:
    """Logits of every row of chunks, or of `ends` alone: `(slot, first position, tokens)`."""
    tokens, slots, positions, tiles = [], [], [], []
    for slot, start, own in parts:
        for offset in range(0, len(own), CHUNK_ROWS):
            tiles.append([slot, len(tokens) + offset, min(CHUNK_ROWS, len(own) - offset), start + offset])
        tokens += own
        slots += [slot] * len(own)
        positions += range(start, start + len(own))
    x = runner.weights.embedding[torch.tensor(tokens, device=DEVICE)] * runner.spec.embedding_scale
    step = StepTensors(
        *(torch.tensor(values, dtype=torch.int32, device=DEVICE) for values in (slots, positions)),
        0, 1, torch.tensor(tiles, dtype=torch.int32, device=DEVICE),
    )  # fmt: skip
    return runner.logits(x, step, ends)


@pytest.mark.parametrize("name", ["llama", "falcon 7b", "qwen 3"])
def test_batch_invariant_to_the_last_bit(name: str, tiny_model: Any) -> None:
    """A sequence at once, in parts, token by token, alone and beside others."""
    dtype = torch.bfloat16 if DEVICE.type == "cuda" else torch.float32
    runner = Runner(tiny_model(name).folder, 4, dtype, is_batch_invariant=True)
    others = [(1, 0, TOKENS[:3]), (2, 0, TOKENS[5:17])]
    alone = chunks(runner, (0, 0, TOKENS))
    beside = chunks(runner, *others, (0, 0, TOKENS))
    assert np.array_equal(beside[-len(TOKENS) :], alone)
    last = len(TOKENS) - 1
    assert np.array_equal(chunks(runner, (0, 0, TOKENS), *others, ends=[3, last]), alone[[3, last]])
    begun = chunks(runner, (3, 0, TOKENS[:7]), others[0])
    assert np.array_equal(begun[:7], alone[:7])
    for position in range(7, len(TOKENS)):
        row = chunks(runner, (3, position, [TOKENS[position]]), *others[: position % 3])[0]
        assert np.array_equal(row, alone[position]), position
