"""The layers that run on GPUs, against transformers: on a GPU, or in the Triton language's interpreter."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
pytest.importorskip("triton")

from tiny_language_models import RECIPES  # noqa: E402

from trireme.llm.executors.cuda.decoder import CudaDecoder, PagedCache, StepTensors  # noqa: E402
from trireme.llm.executors.cuda.weights import join, why_not  # noqa: E402
from trireme.llm.executors.torch.weights import host_tensors  # noqa: E402
from trireme.llm.kernels.chunk_size import CHUNK_ROWS  # noqa: E402
from trireme.llm.models.catalog import load_weights, read_spec  # noqa: E402

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
TOKENS = [5, 17, 99, 3, 42, 42, 8, 120, 77, 64, 31, 2, 9, 101, 56, 23, 88, 14, 70, 6]
BLOCK = 4


class Runner:
    """Sequences in a cache whose blocks lie in another order than they are written."""

    def __init__(self, folder: Any, slots: int, dtype: torch.dtype = torch.float32, **settings: bool) -> None:
        self.spec = read_spec(folder)
        reason = why_not(self.spec)
        if reason:
            pytest.skip(f"plain PyTorch runs it: {reason}")
        width = len(TOKENS) // BLOCK + 1
        named = ((name, tensor.clone()) for name, tensor in host_tensors(load_weights(folder, self.spec)))
        weights = join(named, self.spec, DEVICE, dtype)
        cache = PagedCache(self.spec, slots * width, BLOCK, slots, DEVICE, dtype)
        order = torch.randperm(slots * width, generator=torch.Generator().manual_seed(0)).to(torch.int32)
        cache.tables[:slots, :width] = order.view(slots, width).to(DEVICE)
        self.weights = weights
        self.decoder = CudaDecoder(self.spec, weights, cache, 64, DEVICE, dtype, **settings)

    def run(self, tokens: list[int], slots: list[int], positions: list[int], singles: int) -> Any:
        """Logits of every row; the rows behind the first `singles` are one chunk."""
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
        return self.decoder.logits(self.decoder.run(x.contiguous(), step)).float().cpu().numpy()


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


def chunks(runner: Runner, *parts: tuple[int, int, list[int]]) -> Any:
    """Logits of every row of chunks: `(slot, first position, tokens)`."""
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
    return runner.decoder.logits(runner.decoder.run(x.contiguous(), step)).float().cpu().numpy()


@pytest.mark.parametrize("name", ["llama", "falcon 7b", "qwen 3"])
def test_batch_invariant_to_the_last_bit(name: str, tiny_model: Any) -> None:
    """A sequence at once, in parts, token by token, alone and beside others."""
    dtype = torch.bfloat16 if DEVICE.type == "cuda" else torch.float32
    runner = Runner(tiny_model(name).folder, 4, dtype, is_batch_invariant=True)
    others = [(1, 0, TOKENS[:3]), (2, 0, TOKENS[5:17])]
    alone = chunks(runner, (0, 0, TOKENS))
    beside = chunks(runner, *others, (0, 0, TOKENS))
    assert np.array_equal(beside[-len(TOKENS) :], alone)
    begun = chunks(runner, (3, 0, TOKENS[:7]), others[0])
    assert np.array_equal(begun[:7], alone[:7])
    for position in range(7, len(TOKENS)):
        row = chunks(runner, (3, position, [TOKENS[position]]), *others[: position % 3])[0]
        assert np.array_equal(row, alone[position]), position
