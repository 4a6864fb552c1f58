"""Each compiled kernel computes what PyTorch's own operators do."""

from __future__ import annotations

import ctypes
import math
import mmap

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from turnout.core.types.layer_attention import LayerAttention
from turnout.kernels import CpuKernels
from turnout.kernels.attention.dense import attend_densely, hidden_from
from turnout.kernels.attention.rule import rule_of
from turnout.kernels.compiled import BlockTables, PackedWeights

DTYPES = [torch.float32, torch.bfloat16]
TOLERANCE = {
    torch.float32: {"rtol": 2e-5, "atol": 2e-5},
    torch.bfloat16: {"rtol": 1.6e-2, "atol": 1e-2},
}


@pytest.fixture(scope="module")
def kernels(variant_kernels: CpuKernels) -> CpuKernels:
    return variant_kernels


def normal(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


# ------------------------------------------------------------------ linear layers


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 6, 7, 13, 31, 97, 200])
@pytest.mark.parametrize(("inputs", "outputs"), [(64, 160), (300, 33), (1100, 99), (513, 7), (7, 1)])
@pytest.mark.parametrize("exact", [True, False])
def test_linear(kernels: CpuKernels, rows: int, inputs: int, outputs: int, exact: bool) -> None:
    """`exact`: weights that bfloat16 holds, and which are then kept so."""
    weight, x = normal(outputs, inputs), normal(rows, inputs, seed=1)
    weight = weight.bfloat16().float() if exact else weight
    bias = normal(outputs, seed=2)
    packed = kernels.pack([weight])
    assert (packed.numbers.dtype == torch.bfloat16) == exact
    for given in (None, bias):
        torch.testing.assert_close(
            kernels.linear(x, packed, given), F.linear(x, weight, given), rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7, 14, 15, 31, 97, 300])
@pytest.mark.parametrize(("inputs", "outputs"), [(64, 160), (301, 33), (513, 7), (2, 64), (1, 1)])
def test_linear_in_bfloat16(kernels: CpuKernels, rows: int, inputs: int, outputs: int) -> None:
    """Sums are float32, rounded once: to the nearest number that bfloat16 has, or the one beside it."""
    weight, x, bias = (
        normal(*shape, dtype=torch.bfloat16) for shape in ((outputs, inputs), (rows, inputs), (outputs,))
    )
    packed = kernels.pack([weight])
    for given in (None, bias):
        exact = F.linear(x.double(), weight.double(), None if given is None else given.double())
        sizes = F.linear(x.abs().double(), weight.abs().double())
        error = (kernels.linear(x, packed, given).double() - exact).abs()
        assert (error <= 2**-8 * exact.abs() + 1e-5 * sizes).all()


@pytest.mark.parametrize("rows", [40, 300])
def test_a_large_layer_in_bfloat16(kernels: CpuKernels, rows: int) -> None:
    """Of so many inputs, outputs and rows, products by tiles are cut in each of the three."""
    weight, x = normal(490, 1640, dtype=torch.bfloat16), normal(rows, 1640, dtype=torch.bfloat16, seed=1)
    packed = kernels.pack([weight])
    found, exact = kernels.linear(x, packed, None), F.linear(x.double(), weight.double())
    sizes = F.linear(x.abs().double(), weight.abs().double())
    assert ((found.double() - exact).abs() <= 2**-8 * exact.abs() + 1e-5 * sizes).all()
    for row in (0, rows - 1):
        assert torch.equal(kernels.linear(x[row : row + 1], packed, None), found[row : row + 1])


@pytest.mark.parametrize("dtype", DTYPES)
def test_several_linear_layers_of_one_input(kernels: CpuKernels, dtype: torch.dtype) -> None:
    weights = [normal(n, 40, dtype=dtype, seed=n) for n in (20, 3, 50)]
    x = normal(9, 40, dtype=dtype)
    expected = torch.cat([F.linear(x.float(), weight.float()) for weight in weights], dim=1)
    torch.testing.assert_close(
        kernels.linear(x, kernels.pack(weights), None), expected.to(dtype), **TOLERANCE[dtype]
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_linear_of_rows_that_lie_apart(kernels: CpuKernels, dtype: torch.dtype) -> None:
    weight, x = normal(20, 24, dtype=dtype), normal(9, 3, 24, dtype=dtype)
    expected = F.linear(x[:, 1].float(), weight.float()).to(dtype)
    torch.testing.assert_close(
        kernels.linear(x[:, 1], kernels.pack([weight]), None), expected, **TOLERANCE[dtype]
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("inputs", "outputs"), [(300, 40), (1100, 130)])
def test_a_row_is_the_same_alone_and_among_others(
    kernels: CpuKernels, dtype: torch.dtype, inputs: int, outputs: int
) -> None:
    """To the last bit: how many rows share a tile does not change in which order products are added up."""
    x = normal(300, inputs, dtype=dtype)
    packed = kernels.pack([normal(outputs, inputs, dtype=dtype)])
    together, some = kernels.linear(x, packed, None), kernels.linear(x[:45], packed, None)
    alone = torch.cat([kernels.linear(row[None], packed, None) for row in x])
    assert torch.equal(together, alone)
    assert torch.equal(some, alone[:45])


def compresses(kernels: CpuKernels) -> None:
    if not kernels.pack([normal(64, 64, dtype=torch.bfloat16)]).compressed:
        pytest.skip("this variant keeps weights as they are")


@pytest.mark.parametrize("inputs", [128, 301, 1640])
def test_compressed_weights_are_all_there(kernels: CpuKernels, inputs: int) -> None:
    """To the bit, numbers with exponents far from the others, too; in three quarters of the memory."""
    compresses(kernels)
    weights = [normal(outputs, inputs, dtype=torch.bfloat16) for outputs in (160, 64, 77)]
    odd = [0.0, -0.0, 1e-39, -1e-39, 1e-20, -3e-9, 60.0]
    weights[0][3, : len(odd)] = torch.tensor(odd).bfloat16()
    weights[1][0], weights[2][-1, -1] = 0, 1e-30
    packed, whole = kernels.pack(weights), torch.cat(weights)
    assert packed.compressed and packed.numbers.nbytes < 0.8 * whole.nbytes + 1024 * inputs
    assert_holds(kernels, packed, whole)


def assert_holds(kernels: CpuKernels, packed: PackedWeights, weight: Tensor) -> None:
    rows = kernels.rows(packed, torch.arange(len(weight)))
    assert torch.equal(rows.view(torch.int16), weight.view(torch.int16))


@pytest.mark.parametrize("huge", [3e38, -math.inf])
def test_weights_of_too_many_sizes_are_not_compressed(kernels: CpuKernels, huge: float) -> None:
    """Beside one that is much larger, no other's exponent has a code."""
    compresses(kernels)
    weight = normal(64, 64, dtype=torch.bfloat16)
    weight[5, 6] = huge
    packed = kernels.pack([weight])
    assert not packed.compressed
    assert_holds(kernels, packed, weight)


@pytest.mark.parametrize("rows", [1, 16, 17, 32, 33, 64, 97, 300])
@pytest.mark.parametrize(("inputs", "outputs"), [(128, 64), (1640, 490)])
def test_compressed_weights_give_the_same_bits(
    kernels: CpuKernels, monkeypatch: pytest.MonkeyPatch, rows: int, inputs: int, outputs: int
) -> None:
    compresses(kernels)
    weight, x = normal(outputs, inputs, dtype=torch.bfloat16), normal(rows, inputs, dtype=torch.bfloat16)
    weight[1, 2], weight[-1, -1] = 100.0, 1e-12
    packed = kernels.pack([weight])
    monkeypatch.setattr("turnout.kernels.compiled.EXCEPTIONS", 0)
    plain = kernels.pack([weight])
    assert packed.compressed and not plain.compressed
    assert torch.equal(kernels.linear(x, packed, None), kernels.linear(x, plain, None))


@pytest.mark.parametrize("inputs", [300, 301])
def test_rows_of_packed_bfloat16_weights(kernels: CpuKernels, inputs: int) -> None:
    weights, tokens = normal(50, inputs, dtype=torch.bfloat16), torch.tensor([49, 0, 17, 17])
    assert torch.equal(kernels.rows(kernels.pack([weights[:20], weights[20:]]), tokens), weights[tokens])


@pytest.mark.parametrize("exact", [True, False])
def test_rows_of_packed_weights(kernels: CpuKernels, exact: bool) -> None:
    weight = normal(50, 300)
    weight = weight.bfloat16().float() if exact else weight
    tokens = torch.tensor([49, 0, 17, 17])
    assert torch.equal(kernels.rows(kernels.pack([weight]), tokens), weight[tokens])


def test_other_widths_are_refused(kernels: CpuKernels) -> None:
    """Which would be read, and written, past the ends of rows."""
    with pytest.raises(ValueError, match="24 inputs are expected, not 23"):
        kernels.linear(normal(2, 23), kernels.pack([normal(20, 24)]), None)
    with pytest.raises(ValueError, match=r"\[2, 9\] cannot be added to \[2, 8\]"):
        kernels.norm(normal(2, 8), normal(2, 9), normal(8), 1e-6)


def test_other_numbers_are_refused(kernels: CpuKernels) -> None:
    x, packed = normal(3, 8, dtype=torch.float16), kernels.pack([normal(4, 8)])
    with pytest.raises(TypeError, match=r"takes torch\.float32, not torch\.float16"):
        kernels.linear(x, packed, None)
    with pytest.raises(TypeError, match=r"float32 and bfloat16, not torch\.float16"):
        kernels.gate(x)


# ------------------------------------------------------------------ between them


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [64, 50, 896])
@pytest.mark.parametrize("rows", [1, 3, 90])
def test_norm(kernels: CpuKernels, dtype: torch.dtype, size: int, rows: int) -> None:
    x, delta, weight = (normal(n, size, dtype=dtype, seed=s) for n, s in ((rows, 0), (rows, 1), (1, 2)))
    for added in (None, delta):
        expected = x if added is None else x + added
        hidden = x.clone()
        normed = kernels.norm(hidden, added, weight[0], 1e-6)
        assert torch.equal(hidden, expected)
        torch.testing.assert_close(
            normed,
            F.rms_norm(expected.float(), (size,), weight[0].float(), 1e-6).to(dtype),
            **TOLERANCE[dtype],
        )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [96, 50])
def test_gate(kernels: CpuKernels, dtype: torch.dtype, size: int) -> None:
    both = normal(5, 2 * size, dtype=dtype) * 20
    both[0, :3] = torch.tensor([300.0, -300.0, 0.0])
    expected = F.silu(both[:, :size]) * both[:, size:]
    torch.testing.assert_close(kernels.gate(both), expected, **TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [64, 16, 20, 2])
def test_rotate(kernels: CpuKernels, dtype: torch.dtype, dim: int) -> None:
    angles = normal(7, 1, dim // 2)
    cosine, sine = (torch.cat((x, x), dim=-1).to(dtype) for x in (angles.cos(), angles.sin()))
    whole = normal(7, 5, dim, dtype=dtype)
    x = whole[:, :3]
    first, second = x.chunk(2, dim=-1)
    expected = x * cosine + torch.cat((-second, first), dim=-1) * sine
    others = whole[:, 3:].clone()
    kernels.rotate(x, cosine, sine)
    torch.testing.assert_close(x, expected, **TOLERANCE[dtype])
    assert torch.equal(whole[:, 3:], others)


# ------------------------------------------------------------------ attention


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("stored", DTYPES)
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (4, 2), (14, 2), (9, 1)])
@pytest.mark.parametrize("dim", [64, 16, 20, 128])
def test_attention_over_block_tables(
    kernels: CpuKernels, dtype: torch.dtype, stored: torch.dtype, heads: int, kv_heads: int, dim: int
) -> None:
    """Chunks of one token and of many, behind contexts of many lengths, in blocks that lie anywhere."""
    size, chunks = 4, [(0, 1), (0, 5), (6, 1), (63, 1), (64, 2), (130, 70), (3, 17)]
    most = max(-(-(start + length) // size) for start, length in chunks)
    order = torch.randperm(len(chunks) * most, generator=torch.Generator().manual_seed(3))
    slots = (order * size).view(len(chunks), most)
    keys, values = (normal(len(order) * size, kv_heads, dim, dtype=stored, seed=s) for s in (1, 2))
    lengths = torch.tensor([length for _, length in chunks])
    rows = lengths.cumsum(0) - lengths
    starts = torch.tensor([start for start, _ in chunks])
    q = normal(int(lengths.sum()), heads + 1, dim, dtype=dtype)[:, :heads]
    out = kernels.attend(q, keys, values, BlockTables(size, rows, lengths, starts, slots))
    for row, (start, length), table in zip(rows.tolist(), chunks, slots, strict=True):
        where = (table[:, None] + torch.arange(size)).reshape(-1)[: start + length]
        k, v = (x[where].float().transpose(0, 1) for x in (keys, values))
        mask = torch.ones(length, start + length, dtype=torch.bool).tril(start)
        expected = F.scaled_dot_product_attention(
            q[row : row + length].float().transpose(0, 1), k, v, attn_mask=mask, enable_gqa=True
        )
        torch.testing.assert_close(
            out[row : row + length], expected.transpose(0, 1).to(dtype), **TOLERANCE[dtype]
        )


@pytest.mark.parametrize("start", [0, 37, 200])
@pytest.mark.parametrize("dim", [64, 80, 128])
def test_attention_in_bfloat16_rounds_weights_and_results_alone(
    kernels: CpuKernels, start: int, dim: int
) -> None:
    """Scores and sums are float32; a weight, and what comes out, is rounded once at most."""
    size, length, heads, kv_heads = 16, 75, 6, 2
    blocks = -(-(start + length) // size)
    slots = torch.randperm(blocks, generator=torch.Generator().manual_seed(3))[None] * size
    keys, values = (normal(blocks * size, kv_heads, dim, dtype=torch.bfloat16, seed=seed) for seed in (1, 2))
    q = normal(length, heads, dim, dtype=torch.bfloat16)
    tables = BlockTables(size, torch.tensor([0]), torch.tensor([length]), torch.tensor([start]), slots)
    where = (slots[0][:, None] + torch.arange(size)).reshape(-1)[: start + length]
    k, v = (x[where].double().repeat_interleave(heads // kv_heads, 1).transpose(0, 1) for x in (keys, values))
    scores = q.double().transpose(0, 1) @ k.transpose(1, 2) * dim**-0.5
    hidden = torch.ones(length, start + length, dtype=torch.bool).tril(start).logical_not()
    weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
    exact, sizes = ((weights @ each).transpose(0, 1) for each in (v, v.abs()))
    error = (kernels.attend(q, keys, values, tables).double() - exact).abs()
    assert (error <= 2**-8 * (exact.abs() + sizes) + 1e-5 * sizes).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (6, 2), (14, 2), (9, 1)])
@pytest.mark.parametrize(("dim", "size"), [(64, 4), (64, 16), (80, 16), (24, 4), (20, 4)])
def test_attention_of_a_token_is_the_same_however_it_comes(
    kernels: CpuKernels, dtype: torch.dtype, heads: int, kv_heads: int, dim: int, size: int
) -> None:
    """To the bit: alone or among many chunks, and by itself or with its whole prompt."""
    length, batch = 150, 16
    blocks = -(-length // size)
    slots = torch.randperm(blocks, generator=torch.Generator().manual_seed(3))[None] * size
    keys, values = (normal(blocks * size, kv_heads, dim, dtype=dtype, seed=seed) for seed in (1, 2))
    q = normal(length, heads, dim, dtype=dtype)

    def attended(starts: list[int], lengths: list[int], rows: Tensor) -> Tensor:
        counts = torch.tensor(lengths)
        firsts, tables = counts.cumsum(0) - counts, slots.expand(len(starts), -1).contiguous()
        return kernels.attend(
            rows, keys, values, BlockTables(size, firsts, counts, torch.tensor(starts), tables)
        )

    whole = attended([0], [length], q)
    alone = torch.cat([attended([start], [1], q[start : start + 1]) for start in range(length)])
    together = torch.cat(
        [
            attended(list(range(start, start + count)), [1] * count, q[start : start + count])
            for start in range(0, length, batch)
            for count in [min(batch, length - start)]
        ]
    )
    assert torch.equal(alone, whole)
    assert torch.equal(together, whole)


@pytest.mark.parametrize("length", [5, 16, 23, 70])
def test_attention_reads_nothing_behind_the_last_position(kernels: CpuKernels, length: int) -> None:
    """An encoder's text is one block, of the longest's size: behind the last there may be no memory."""
    page, line = mmap.PAGESIZE, 64
    size = -(-length * line * 2 // page) * page
    memory = mmap.mmap(-1, size + page, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    numbers = torch.frombuffer(memory, dtype=torch.bfloat16)
    libc = ctypes.CDLL(None, use_errno=True)
    behind = ctypes.c_void_p(numbers.data_ptr() + size)
    assert not libc.mprotect(behind, ctypes.c_size_t(page), 0)
    keys = numbers[: size // 2][-length * line :].view(length, 1, line)
    keys.copy_(normal(length, 1, line, dtype=torch.bfloat16))
    q = normal(length, 1, line, dtype=torch.bfloat16, seed=1)
    where = BlockTables(
        80, torch.tensor([0]), torch.tensor([length]), torch.tensor([0]), torch.zeros(1, 1, dtype=torch.long)
    )
    expected = kernels.attend(q, keys.clone(), keys.clone(), where)
    assert torch.equal(kernels.attend(q, keys, keys, where), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_heads_may_come_one_behind_the_other(kernels: CpuKernels, dtype: torch.dtype) -> None:
    """As a model that transposes them gives them: they were read as if each token's lay side by side."""
    q, k, v = (normal(4, 20, 32, dtype=dtype, seed=seed).transpose(0, 1) for seed in range(3))
    keys, values = torch.zeros(2, 32, 4, 32, dtype=dtype)
    slots = torch.arange(20) + 5
    kernels.write(k, keys, slots)
    kernels.write(v, values, slots)
    assert torch.equal(keys[slots], k) and torch.equal(values[slots], v)
    tables = BlockTables(32, *(torch.tensor([each]) for each in (0, 20, 0)), torch.tensor([[5]]))
    expected = kernels.attend(q.contiguous(), keys, values, tables)
    assert torch.equal(kernels.attend(q, keys, values, tables), expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("where", ["query", "key"])
@pytest.mark.parametrize("more", [{}, {"softcap": 3.0}, {"sinks": True}], ids=str)
def test_attention_hides_nothing_that_is_no_number(
    kernels: CpuKernels, dtype: torch.dtype, where: str, more: dict
) -> None:
    """Weights were 0 where a score was NaN, so that what came out looked sound; soft caps made it the cap."""
    rule, length, at = LayerAttention(2, 1, 32, 32, **more), 40, 20
    q, keys, values = (normal(64, heads, 32, dtype=dtype, seed=heads) for heads in (2, 1, 1))
    (q if where == "query" else keys)[at, :, 3] = torch.nan
    tables = BlockTables(64, *(torch.tensor([each]) for each in (0, length, 0)), torch.tensor([[0]]))
    sinks = torch.zeros(2) if rule.sinks else None
    out = kernels.attend(q[:length], keys, values, tables, rule_of(rule), sinks)
    lost = torch.arange(length) == at if where == "query" else torch.arange(length) >= at
    assert out[lost].isnan().all() and out[~lost].isfinite().all()


RULES = {
    "window": LayerAttention(6, 2, 32, 32, window=40),
    "a window of one position": LayerAttention(4, 4, 16, 16, window=1),
    "a soft cap": LayerAttention(6, 2, 32, 32, softcap=3.0, scale=1.0),
    "sinks": LayerAttention(8, 1, 32, 32, sinks=True, window=70),
    "values of another width": LayerAttention(6, 2, 24, 40, scale=0.3),
    "values in keys": LayerAttention(6, 1, 48, 40, values_in_keys=True),
    "many heads for one": LayerAttention(100, 1, 40, 32, values_in_keys=True),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("size", [4, 16])
def test_attention_by_a_rule_is_the_same_however_a_token_comes(
    kernels: CpuKernels, dtype: torch.dtype, rule: LayerAttention, size: int
) -> None:
    """To the bit: alone, with others, and in its whole prompt; and it is what float64 says."""
    length, batch = 150, 16
    blocks = -(-length // size)
    slots = torch.randperm(blocks, generator=torch.Generator().manual_seed(3))[None] * size
    keys, values = (
        normal(blocks * size, rule.kv_heads, dim, dtype=dtype, seed=seed)
        for seed, dim in enumerate((rule.key_dim, rule.value_dim), 1)
    )
    if rule.values_in_keys:
        values = keys[..., : rule.value_dim]
    q, sinks = normal(length, rule.heads, rule.key_dim, dtype=dtype), normal(rule.heads, seed=5)

    def attended(starts: list[int], lengths: list[int], rows: Tensor) -> Tensor:
        counts = torch.tensor(lengths)
        tables = slots.expand(len(starts), -1).contiguous()
        where = BlockTables(size, counts.cumsum(0) - counts, counts, torch.tensor(starts), tables)
        return kernels.attend(rows, keys, values, where, rule_of(rule), sinks if rule.sinks else None)

    whole = attended([0], [length], q)
    alone = torch.cat([attended([start], [1], q[start : start + 1]) for start in range(length)])
    chunks = range(0, length, batch)
    together = torch.cat(
        [
            attended(list(range(start, min(start + batch, length))), [1] * len(rows), rows)
            for start, rows in zip(chunks, q.split(batch), strict=True)
        ]
    )
    parts = torch.cat(
        [attended([start], [len(rows)], rows) for start, rows in zip(chunks, q.split(batch), strict=True)]
    )
    assert torch.equal(alone, whole) and torch.equal(together, whole) and torch.equal(parts, whole)
    where = (slots[0][:, None] + torch.arange(size)).reshape(-1)[:length]
    mask = torch.zeros(length, length, dtype=torch.float64)
    places = torch.arange(length)
    mask.masked_fill_(hidden_from(places[:, None], places, rule.window), -torch.inf)
    sides = (x.double()[None] for x in (q, keys[where], values[where]))
    expected = attend_densely(rule, *sides, mask[None, None], sinks if rule.sinks else None)[0]
    torch.testing.assert_close(whole, expected.to(dtype), **TOLERANCE[dtype])


@pytest.mark.parametrize("start", [0, 700, 5000])
def test_a_window_reads_nothing_before_the_blocks_that_it_touches(kernels: CpuKernels, start: int) -> None:
    """What lies in them may be anything: here NaN, which would spread."""
    rule, size, length = LayerAttention(4, 2, 16, 16, window=100), 16, 70
    blocks = -(-(start + length) // size)
    keys, values = (normal(blocks * size, 2, 16, seed=seed) for seed in (1, 2))
    first = max(0, start + 1 - rule.window) if rule.window else 0
    for each in (keys, values):
        each[: first // 64 * 64] = torch.nan
    slots = torch.arange(blocks)[None] * size
    tables = BlockTables(size, torch.tensor([0]), torch.tensor([length]), torch.tensor([start]), slots)
    out = kernels.attend(normal(length, 4, 16), keys, values, tables, rule_of(rule))
    assert out.isfinite().all()
