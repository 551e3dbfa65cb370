"""The kernels against plain PyTorch: on a GPU, or on a processor in the Triton language's interpreter."""

from __future__ import annotations

import os

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
pytest.importorskip("triton")

from trireme.llm.kernels import activations, elementwise, matmul  # noqa: E402
from trireme.llm.kernels.chunk_attention import ChunkScratch, chunk_attention  # noqa: E402
from trireme.llm.kernels.chunk_size import CHUNK_ROWS  # noqa: E402
from trireme.llm.kernels.decode_attention import DecodeScratch, decode_attention  # noqa: E402
from trireme.llm.kernels.tilings import tiling_for  # noqa: E402

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
DTYPE = torch.bfloat16 if torch.cuda.is_available() else torch.float32
TOLERANCE = 2e-2 if torch.cuda.is_available() else 2e-5
BLOCK = 16


def random(*shape: int, scale: float = 1.0) -> torch.Tensor:
    return (torch.randn(*shape, dtype=torch.float32) * scale).to(DTYPE).to(DEVICE)


def is_close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    difference = (found.float() - expected.float()).norm() / expected.float().norm()
    return bool(difference < TOLERANCE)


@pytest.mark.parametrize(
    ("rows", "tiling"),
    [
        (1, matmul.Tiling(1, 2, 64, 1, 2)),
        (5, matmul.Tiling(16, 16, 32, 2, 2)),
        (30, matmul.Tiling(32, 16, 32, 2, 2)),
        (40, matmul.Tiling(64, 32, 32, 4, 3)),
        (5, matmul.Tiling(16, 16, 32, 2, 2, splits=3)),
        (70, matmul.Tiling(64, 32, 32, 4, 3, splits=2)),
        (70, matmul.Tiling(64, 32, 32, 4, 3)),
    ],
)
@pytest.mark.parametrize("form", ["plain", "norm", "gated", "partly activated"])
def test_few_rows(rows: int, tiling: matmul.Tiling, form: str) -> None:
    torch.manual_seed(0)
    n, k = 48, 80
    x, w = random(rows, k), random(2 * n if form == "gated" else n, k, scale=0.1)
    out = torch.full((rows, n), float("nan"), dtype=DTYPE, device=DEVICE)
    wide = x.float()
    scratch = matmul.SplitScratch(DEVICE)
    if form == "norm":
        if rows > 1:
            pytest.skip("the norm is a launch of its own")
        bias, residual = random(n), random(rows, n)
        matmul.few_rows(
            x,
            w,
            tiling,
            out=out,
            bias=bias,
            residual=residual,
            norm_eps=1e-5,
            scratch=scratch,
        )
        normal = wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + 1e-5)
        expected = normal @ w.float().T + bias.float() + residual.float()
    elif form == "gated":
        matmul.few_rows(x, w, tiling, out=out, activation=activations.SILU, is_gated=True)
        gate, up = (wide @ w.float().T).chunk(2, -1)
        expected = torch.nn.functional.silu(gate) * up
    elif form == "partly activated":
        matmul.few_rows(x, w, tiling, out=out, activation=activations.GELU, activate_to=20, scratch=scratch)
        expected = wide @ w.float().T
        expected[:, :20] = torch.nn.functional.gelu(expected[:, :20])
    else:
        for _ in range(2):  # the second time with the counters that the first has left
            matmul.few_rows(x, w, tiling, out=out, scratch=scratch)
        expected = wide @ w.float().T
    assert is_close(out, expected)


@pytest.mark.skipif(DEVICE.type != "cuda", reason="what overlaps on a GPU does not in the interpreter")
@pytest.mark.parametrize("rows", [2, 8, 16, 31])
@pytest.mark.parametrize(("n", "k", "is_gated"), [(12288, 4096, False), (11008, 4096, True), (4096, 11008, False)])
def test_real_sizes(rows: int, n: int, k: int, is_gated: bool) -> None:
    """Loops so long that the compiler overlaps their turns, several times: every row has to be right."""
    torch.manual_seed(2)
    x, w = random(rows, k), random(2 * n if is_gated else n, k, scale=0.02)
    tiling = tiling_for(rows, n, k, is_gated)
    assert tiling is not None
    expected = x.double() @ w.double().T
    if is_gated:
        gate, up = expected.chunk(2, -1)
        expected = torch.nn.functional.silu(gate) * up
    for _ in range(10):
        out = torch.zeros((rows, n), dtype=DTYPE, device=DEVICE)
        matmul.few_rows(
            x, w, tiling, out=out, activation=activations.SILU if is_gated else activations.NONE,
            is_gated=is_gated, scratch=matmul.SplitScratch(DEVICE),
        )  # fmt: skip
        worst = (out.double() - expected).abs().amax(1) / expected.std()
        assert float(worst.max()) < 0.05, worst


class Pages:
    """Sequences of given lengths in a cache, their blocks in random order."""

    def __init__(self, lengths: list[int], heads: int, kv_heads: int, head_size: int) -> None:
        torch.manual_seed(1)
        self.lengths, self.heads, self.kv_heads, self.head_size = lengths, heads, kv_heads, head_size
        width = max(length // BLOCK + 1 for length in lengths)
        count = width * len(lengths)
        order = torch.randperm(count, dtype=torch.int32)
        self.tables = order.reshape(len(lengths), width).to(DEVICE)
        self.k_cache = torch.zeros(count, kv_heads, BLOCK, head_size, dtype=DTYPE, device=DEVICE)
        self.v_cache = torch.zeros_like(self.k_cache)
        self.keys = [random(length, kv_heads, head_size) for length in lengths]
        self.values = [random(length, kv_heads, head_size) for length in lengths]

    def fill(self, counts: list[int]) -> None:
        for row, count in enumerate(counts):
            for position in range(count):
                block = int(self.tables[row, position // BLOCK])
                self.k_cache[block, :, position % BLOCK] = self.keys[row][position]
                self.v_cache[block, :, position % BLOCK] = self.values[row][position]

    def expected(self, row: int, q: torch.Tensor, position: int, window: int = 0, softcap: float = 0.0) -> torch.Tensor:
        """Attention of one query `[heads, head size]` over the keys up to its position."""
        begin = max(0, position - window + 1) if window else 0
        group = self.heads // self.kv_heads
        keys = self.keys[row][begin : position + 1].float().repeat_interleave(group, 1)
        values = self.values[row][begin : position + 1].float().repeat_interleave(group, 1)
        scores = torch.einsum("hd,thd->ht", q.float(), keys) * self.head_size**-0.5
        if softcap:
            scores = softcap * torch.tanh(scores / softcap)
        return torch.einsum("ht,thd->hd", scores.softmax(-1), values)


@pytest.mark.parametrize(("heads", "kv_heads", "head_size"), [(4, 4, 32), (4, 2, 48), (12, 2, 32), (20, 1, 32)])
@pytest.mark.parametrize(("splits", "window", "softcap"), [(1, 0, 0.0), (3, 0, 0.0), (4, 20, 0.0), (2, 0, 5.0)])
def test_decode(heads: int, kv_heads: int, head_size: int, splits: int, window: int, softcap: float) -> None:
    lengths = [1, 5, 40, 130]
    pages = Pages(lengths, heads, kv_heads, head_size)
    pages.fill([length - 1 for length in lengths])
    rows = len(lengths)
    q = random(rows, heads, head_size)
    last = [(pages.keys[row][-1], pages.values[row][-1]) for row in range(rows)]
    qkv = torch.cat([torch.cat([q[row], last[row][0], last[row][1]]).reshape(1, -1) for row in range(rows)])
    slots = torch.arange(rows, dtype=torch.int32, device=DEVICE)
    positions = torch.tensor([length - 1 for length in lengths], dtype=torch.int32, device=DEVICE)
    out = torch.full((rows, heads * head_size), float("nan"), dtype=DTYPE, device=DEVICE)
    scratch = DecodeScratch(rows, heads, head_size, splits, DEVICE)
    for _ in range(2):  # the second time with the counters that the first has left
        decode_attention(
            qkv, pages.k_cache, pages.v_cache, pages.tables, slots, positions, None, out, scratch, heads=heads,
            scale=head_size**-0.5, splits=splits, window=window, softcap=softcap,
        )  # fmt: skip
    expected = torch.stack(
        [pages.expected(row, q[row], lengths[row] - 1, window, softcap).reshape(-1) for row in range(rows)]
    )
    assert is_close(out, expected)
    block = int(pages.tables[3, 129 // BLOCK])
    assert torch.equal(pages.k_cache[block, :, 129 % BLOCK], pages.keys[3][129])
    assert torch.equal(pages.v_cache[block, :, 129 % BLOCK], pages.values[3][129])


def turned(x: torch.Tensor, positions: torch.Tensor, cosines: torch.Tensor) -> torch.Tensor:
    """`x [rows, heads, head size]` with its halves rotated."""
    cos, sin = cosines[positions.long()][:, None].float().chunk(2, -1)
    low, high = x.float().chunk(2, -1)
    return torch.cat([low * cos - high * sin, high * cos + low * sin], -1)


def test_decode_rotates_what_it_reads_and_stores() -> None:
    heads, kv_heads, head_size, lengths = 4, 2, 32, [3, 50]
    pages = Pages(lengths, heads, kv_heads, head_size)
    pages.fill([length - 1 for length in lengths])
    cosines = torch.randn(64, head_size, device=DEVICE)
    positions = torch.tensor([2, 49], dtype=torch.int32, device=DEVICE)
    q, k = random(2, heads, head_size), random(2, kv_heads, head_size)
    v = torch.stack([pages.values[row][-1] for row in range(2)])
    qkv = torch.cat([q.reshape(2, -1), k.reshape(2, -1), v.reshape(2, -1)], 1)
    q_turned, k_turned = turned(q, positions, cosines), turned(k, positions, cosines)
    for row in range(2):
        pages.keys[row][-1] = k_turned[row].to(DTYPE)
    out = torch.empty(2, heads * head_size, dtype=DTYPE, device=DEVICE)
    slots = torch.arange(2, dtype=torch.int32, device=DEVICE)
    scratch = DecodeScratch(2, heads, head_size, 2, DEVICE)
    decode_attention(
        qkv, pages.k_cache, pages.v_cache, pages.tables, slots, positions, cosines, out, scratch, heads=heads,
        scale=head_size**-0.5, splits=2,
    )  # fmt: skip
    expected = torch.stack([pages.expected(row, q_turned[row], lengths[row] - 1).reshape(-1) for row in range(2)])
    assert is_close(out, expected)


@pytest.mark.parametrize(("heads", "kv_heads", "head_size"), [(4, 4, 32), (6, 2, 48)])
@pytest.mark.parametrize("window", [0, 20])
@pytest.mark.parametrize(("splits", "tile_rows"), [(1, CHUNK_ROWS), (3, CHUNK_ROWS), (1, 32), (3, 16)])
def test_chunks(heads: int, kv_heads: int, head_size: int, window: int, splits: int, tile_rows: int) -> None:
    lengths, starts = [300, 7], [230, 0]
    pages = Pages(lengths, heads, kv_heads, head_size)
    pages.fill(lengths)
    counts = [length - start for length, start in zip(lengths, starts, strict=True)]
    qkv = random(sum(counts), (heads + 2 * kv_heads) * head_size)
    tiles = []
    first = 0
    for row, (start, count) in enumerate(zip(starts, counts, strict=True)):
        for offset in range(0, count, tile_rows):
            tiles.append([row, first + offset, min(tile_rows, count - offset), start + offset])
        first += count
    out = torch.full((sum(counts), heads * head_size), float("nan"), dtype=DTYPE, device=DEVICE)
    tiles.append([0, 0, 0, 0])
    scratch = ChunkScratch(len(tiles), heads, head_size, splits, DEVICE) if splits > 1 else None
    for _ in range(2):  # the second time with the counters that the first has left
        chunk_attention(
            qkv, pages.k_cache, pages.v_cache, pages.tables, torch.tensor(tiles, dtype=torch.int32, device=DEVICE), out,
            heads=heads, scale=head_size**-0.5, window=window, scratch=scratch, tile_rows=tile_rows,
        )  # fmt: skip
    q = qkv[:, : heads * head_size].reshape(-1, heads, head_size)
    expected, index = [], 0
    for row in range(2):
        for position in range(starts[row], lengths[row]):
            expected.append(pages.expected(row, q[index], position, window).reshape(-1))
            index += 1
    assert is_close(out, torch.stack(expected))


@pytest.mark.parametrize("is_layer", [False, True])
def test_norm_and_gate(is_layer: bool) -> None:
    x, weight, bias = random(3, 70), random(70), random(70)
    found = elementwise.norm(x, weight, bias if is_layer else None, 1e-5, is_layer=is_layer)
    wide = x.float() - (x.float().mean(-1, keepdim=True) if is_layer else 0)
    expected = wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + 1e-5) * weight.float()
    assert is_close(found, expected + (bias.float() if is_layer else 0))
    gate, up = x.float().chunk(2, -1)
    assert is_close(elementwise.gate(x, activations.SILU), torch.nn.functional.silu(gate) * up)


@pytest.mark.parametrize("is_interleaved", [False, True])
@pytest.mark.parametrize("qk_norm", [0, 1, 2])
def test_rotation_of_a_part_with_norms(is_interleaved: bool, qk_norm: int) -> None:
    heads, kv_heads, head_size, rotary = 4, 2, 32, 16
    pages = Pages([40], heads, kv_heads, head_size)
    positions = torch.tensor([7, 33], dtype=torch.int32, device=DEVICE)
    slots = torch.zeros(2, dtype=torch.int32, device=DEVICE)
    qkv = random(2, (heads + 2 * kv_heads) * head_size)
    cosines = torch.randn(64, rotary, device=DEVICE)
    weight, bias = random(2, head_size), random(2, head_size)
    parts = qkv.clone().float().reshape(2, -1, head_size)
    q, k, v = parts.split([heads, kv_heads, kv_heads], 1)

    def prepared(x: torch.Tensor, which: int) -> torch.Tensor:
        if qk_norm == 2:
            x = x - x.mean(-1, keepdim=True)
        if qk_norm:
            x = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * weight[which].float() + bias[which].float()
        cos, sin = cosines[positions.long()][:, None].chunk(2, -1)
        part = x[..., :rotary]
        if is_interleaved:
            low, high = part[..., ::2], part[..., 1::2]
            part = torch.stack([low * cos - high * sin, high * cos + low * sin], -1).flatten(-2)
        else:
            low, high = part.chunk(2, -1)
            part = torch.cat([low * cos - high * sin, high * cos + low * sin], -1)
        return torch.cat([part, x[..., rotary:]], -1)

    expected = torch.cat([prepared(q, 0), prepared(k, 1), v], 1).reshape(2, -1)
    elementwise.rotate_and_store(
        qkv, pages.k_cache, pages.v_cache, pages.tables, slots, positions, cosines, heads=heads,
        is_interleaved=is_interleaved, qk_norm=qk_norm, qk_weight=weight, qk_bias=bias if qk_norm else None,
    )  # fmt: skip
    assert is_close(qkv, expected)
    block = int(pages.tables[0, 33 // BLOCK])
    assert is_close(pages.k_cache[block, :, 33 % BLOCK].reshape(-1), prepared(k, 1)[1].reshape(-1))
    assert is_close(pages.v_cache[block, :, 33 % BLOCK].reshape(-1), v[1].reshape(-1))


def test_rotation_of_whole_heads() -> None:
    heads, kv_heads, head_size = 5, 2, 24
    pages = Pages([40], heads, kv_heads, head_size)
    positions = torch.tensor([7, 33], dtype=torch.int32, device=DEVICE)
    slots = torch.zeros(2, dtype=torch.int32, device=DEVICE)
    qkv = random(2, (heads + 2 * kv_heads) * head_size)
    cosines = torch.randn(64, head_size, device=DEVICE)
    q, k, v = qkv.clone().reshape(2, -1, head_size).split([heads, kv_heads, kv_heads], 1)
    elementwise.rotate_and_store(
        qkv, pages.k_cache, pages.v_cache, pages.tables, slots, positions, cosines, heads=heads
    )  # fmt: skip
    assert is_close(qkv[:, : heads * head_size], turned(q, positions, cosines).reshape(2, -1))
    for row, position in enumerate([7, 33]):
        block = int(pages.tables[0, position // BLOCK])
        assert is_close(pages.k_cache[block, :, position % BLOCK], turned(k, positions, cosines)[row])
        assert is_close(pages.v_cache[block, :, position % BLOCK], v[row])


def test_the_most_likely_token_or_none_where_there_are_no_numbers() -> None:
    logits = torch.randn(6, 300, generator=torch.Generator().manual_seed(4)).to(DEVICE, DTYPE)
    logits[1, 200], logits[3, 17], logits[4] = torch.nan, torch.inf, -torch.inf
    last_tokens = torch.full((9,), 7, dtype=torch.int32, device=DEVICE)
    slots = torch.tensor([8, 2, 0, 3, 5, 1], dtype=torch.int32, device=DEVICE)
    wanted = logits.float().cpu().argmax(-1).tolist()
    found = elementwise.take_largest(logits, slots, last_tokens).tolist()
    assert found == [wanted[0], -1, wanted[2], -1, -1, wanted[5]]
    assert last_tokens.tolist() == [wanted[2], wanted[5], 0, 0, 7, 0, 7, 7, wanted[0]]
