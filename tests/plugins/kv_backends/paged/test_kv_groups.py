"""Layers with a window are kept apart, and of each sequence only what they still see, but for checkpoints."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from steps import compute, fork, release, sequence, spans, swap_out

from turnout.core.interfaces.kv import PoolSize, Span
from turnout.core.types.layer_attention import LayerAttention
from turnout.kernels import CpuKernels
from turnout.plugins.evictions.lru import Lru
from turnout.plugins.kv_backends.paged.backend import Paged
from turnout.plugins.kv_backends.paged.host.cache import PagedCache
from turnout.plugins.kv_backends.paged.host.kv_groups import described, groups_of
from turnout.testing.checks.attention_traffic import Traffic, new_sequence, spec_of

FULL = LayerAttention(heads=4, kv_heads=2, key_dim=8, value_dim=8)
LOCAL = replace(FULL, window=64)
BLOCK, WINDOW = 16, 64


def gemma(layers: int, window: int = 1024, context: int = 32_768) -> Any:
    rules = [FULL if layer % 6 == 5 else replace(FULL, window=window) for layer in range(layers)]
    return replace(spec_of(rules), max_positions=context)


def cache(
    tokens: int = 4096, windows: Any = (None, WINDOW), swap: int = 0, step: int | None = None
) -> PagedCache:
    return PagedCache(PoolSize(tokens, swap, step), BLOCK, Lru(), windows=windows)


def words(count: int, seed: int = 1) -> list[int]:
    return [1 + (number * number + seed * number) % 97 for number in range(count)]


# ------------------------------------------------------------------ which layers are together


def test_groups_have_equally_many_layers_and_those_that_see_all_come_first() -> None:
    found = groups_of(gemma(12))
    assert found is not None and found.height == 2
    assert found.windows == (None, *[1024] * 5)
    assert found.groups[0].layers == (5, 11)
    for layer in range(12):
        assert found.groups[found.table_of[layer]].layers[found.place_of[layer]] == layer


def test_a_number_of_layers_that_does_not_divide_leaves_little_unused() -> None:
    found = groups_of(gemma(34))  # 5 see all, 29 have a window
    assert found is not None and (found.height, len(found.groups)) == (5, 7)


def test_layers_of_several_shapes_and_windows_beyond_the_context_are_kept_in_full() -> None:
    assert groups_of(spec_of([FULL, FULL])) is None
    assert groups_of(spec_of([LOCAL, replace(FULL, kv_heads=4)])) is None
    assert groups_of(gemma(12, window=32_768)) is None


def test_keys_and_values_are_kept_for_the_layer_that_reads_furthest_back() -> None:
    rules = [LOCAL, FULL, replace(LOCAL, kv_from=0, window=96), replace(FULL, kv_from=1)]
    found = groups_of(spec_of(rules))
    assert found is not None and found.windows == (None, 96)
    assert found.table_of == (1, 0, 1, 0)


def test_the_start_up_summary_says_what_is_kept() -> None:
    spec = gemma(34)
    (line,) = described(spec, groups_of(spec), wanted=True)
    assert line == "KV memory in 7 groups of 5 layers: 29 keep the last 1,024, 5 keep all positions"
    odd = spec_of([LOCAL, replace(FULL, kv_heads=4)])
    assert "differ in shape" in described(odd, groups_of(odd), wanted=True)[0]
    assert "groups=false" in described(spec, None, wanted=False)[0]
    assert described(spec_of([FULL, FULL]), None, wanted=True) == []


# ------------------------------------------------------------------ what is held


def test_a_long_sequence_holds_less_than_a_third() -> None:
    """Gemma 3: of six layers, one sees all 32,768 positions, and five see 1,024."""
    spec = gemma(30)
    backend = Paged().for_model(spec)
    kv = backend.cache(PoolSize(32_768, step=2048), Lru())
    one = sequence(words(32_700))
    for end in [*range(2048, 32_700, 2048), 32_700]:
        compute(kv, one, upto=end)
        assert kv.snapshot().held <= 0.3 * 32_768
    one.tokens += words(20)
    for end in range(32_701, 32_720):
        compute(kv, one, upto=end)
    assert kv.snapshot().held < 0.21 * 32_768
    assert kv.snapshot().held <= backend.positions(32_768, 2048) < 0.3 * 32_768


def test_a_request_that_keeps_little_is_admitted_to_a_small_pool() -> None:
    kv, step = cache(1024, (None, *[WINDOW] * 3), step=64), 64
    assert kv.holds(2000, 1) and not kv.holds(4096, 1) and not cache(1024, (None, WINDOW)).holds(2000, 1)
    one = sequence(words(2000), room=0)
    for end in range(step, 2000, step):
        compute(kv, one, upto=end)
    assert kv.snapshot().groups[0].held == 1984 and kv.snapshot().groups[1].held <= WINDOW + 2 * 64


def test_a_refused_reservation_lets_go_of_nothing() -> None:
    kv = cache(512)
    one = sequence(words(3000))
    compute(kv, one, upto=400)
    before = kv.snapshot()
    assert not kv.reserve([Span(one, 400, 1500)]) and kv.snapshot() == before


def test_a_fork_keeps_what_its_parent_lets_go() -> None:
    kv = cache()
    one = sequence(words(160), n=2)
    compute(kv, one)
    two = fork(kv, one, 5)
    one.tokens += words(100, seed=3)
    compute(kv, one, upto=250)
    first = kv._groups[1].first
    assert first(one.id) > first(two.id) == 0
    compute(kv, two)
    release(kv, one, two)
    assert kv.free == kv.capacity and not kv.group_tables[1]


# ------------------------------------------------------------------ prefixes


def run_through(kv: PagedCache, tokens: list[int], step: int = 64) -> int:
    """Serves a prompt of its own request; returns how much of it was found."""
    one = sequence(tokens)
    found = kv.cached(one)
    for end in [*range(found + step, len(tokens), step), len(tokens)]:
        compute(kv, one, upto=end)
    release(kv, one)
    return found


def fill(kv: PagedCache) -> None:
    """Takes all blocks that are evicted before the policy is asked."""
    one = sequence(words(16 * (len(kv._blocks._free) + kv._blocks.passed) // 2, seed=50))
    assert kv.reserve(spans(kv, one))
    kv.release([one])


def test_a_prompt_is_found_again_after_its_window_has_passed() -> None:
    kv = cache()
    one = sequence(words(800), room=400)
    for end in range(64, 801, 64):
        compute(kv, one, upto=end)
    compute(kv, one)
    one.tokens += words(300, seed=9)
    for end in range(801, 1100):
        compute(kv, one, upto=end)
    fill(kv)
    assert kv.cached(sequence(words(800))) == 784
    release(kv, one)
    fill(kv)
    assert kv.cached(sequence([*words(800), 3])) == 800
    assert kv.cached(sequence([*one.tokens, 1])) == 1088


def test_a_place_where_prompts_part_is_found_from_the_second_time_on() -> None:
    kv = cache(8192)
    common = words(640)
    assert run_through(kv, common + words(400, seed=2)) == 0
    fill(kv)
    assert run_through(kv, common + words(400, seed=3)) == 0, "the blocks before the place are not there"
    fill(kv)
    assert run_through(kv, common + words(400, seed=4)) == 640


def test_a_question_about_a_document_is_found_at_its_second_time() -> None:
    """Prompts that part shortly before their ends, at most a quarter of a window."""
    kv = cache(8192)
    document = words(640)
    assert run_through(kv, document + words(WINDOW // 4 - 1, seed=2)) == 0
    fill(kv)
    assert run_through(kv, document + words(30, seed=3)) == 640


def continued(kv: PagedCache, said: list[int], answer: int) -> list[int]:
    """Serves a turn of a conversation; returns all that is said then."""
    one = sequence(said, room=answer)
    found = kv.cached(one)
    for end in [*range(found + 64, len(said), 64), len(said)]:
        compute(kv, one, upto=end)
    for token in words(answer, seed=len(said)):
        one.tokens.append(token)
        compute(kv, one, upto=len(one.tokens))
    release(kv, one)
    return one.tokens[:]


def test_of_a_conversation_its_end_alone_is_kept() -> None:
    """Where a turn went on, the next one does not; where prompts part, others do."""
    kv = cache(8192)
    first = continued(kv, words(640), answer=320)
    second = continued(kv, first + words(320, seed=5), answer=320)
    fill(kv)
    assert kv.cached(sequence([*second, 1])) == len(second) // BLOCK * BLOCK
    assert kv.cached(sequence([*first, 1])) < len(first), "the turn before is over"
    assert kv.cached(sequence(words(640))) == 624, "the first prompt may begin others"
    for seed in (6, 7):
        continued(kv, words(640) + words(200, seed=seed), answer=64)
    fill(kv)
    assert kv.cached(sequence([*words(640), 1])) == 640


def test_a_checkpoint_is_evicted_with_what_its_sequence_held_to_its_end() -> None:
    """It would be of no use alone, nor the rest without it."""
    kv = cache(2048)
    one = sequence(words(320), room=640)
    for end in range(64, 321, 64):
        compute(kv, one, upto=end)
    one.tokens += words(640, seed=2)
    for end in range(384, 961, 64):
        compute(kv, one, upto=end)
    run_through(kv, words(400, seed=3))  # ends before `one` does, so it goes first
    release(kv, one)
    before = kv.cached(sequence(words(320)))
    other = sequence(words(2000, seed=4), room=0)
    end = 0
    while kv.cached(sequence(words(400, seed=3))):
        assert kv.reserve([Span(other, end, end + BLOCK)])
        end += BLOCK
    assert kv.cached(sequence(words(320))) == before == 304


def test_what_windows_have_passed_is_found_as_long_as_there_is_room() -> None:
    kv = cache(8192)
    run_through(kv, words(640) + words(400, seed=2))
    assert kv.snapshot().passed > 0
    assert kv.cached(sequence(words(640) + words(400, seed=3))) == 640


def test_a_pin_keeps_what_its_continuation_sees() -> None:
    kv = cache(1024)
    assert kv.prefixes is not None
    kv.prefixes.pin("it", words(320), "")
    run_through(kv, words(320) + words(200, seed=2))
    for seed in range(3, 8):
        run_through(kv, words(500, seed=seed))
    assert kv.prefixes.pinned()[0].cached == 320
    assert kv.cached(sequence(words(320) + words(100, seed=9))) == 320


def test_layers_that_all_have_windows_find_prefixes_without_their_beginnings() -> None:
    kv = cache(1024, (WINDOW,))
    assert run_through(kv, words(800)) == 0
    fill(kv)
    assert run_through(kv, words(800)) == 784


def test_only_what_is_seen_is_swapped_out() -> None:
    kv = cache(2048, swap=2048)
    one = sequence(words(500))
    for end in (100, 200, 300, 400, 500):
        compute(kv, one, upto=end)
    moved = kv.swappable([one])
    assert moved == 500 + (500 - kv._groups[1].first_seen(500) * BLOCK)
    swap_out(kv, one)
    kv.drain()
    for seed in (2, 3, 4, 5):
        run_through(kv, words(900, seed=seed), step=300)
    assert kv.cached(one) == 496
    one.tokens.append(1)
    assert kv.cached(one) == 500
    compute(kv, one)
    assert sum(move.length for move in kv.drain() if move.way == "swap_in") <= moved


def test_scored_prompts_begin_where_windows_allow() -> None:
    kv = cache()
    run_through(kv, words(700))
    one = sequence(words(700))
    one.request.prompt_scores = []
    assert kv.cached(one) == 688


# ------------------------------------------------------------------ what is not read


@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "compiled"])
@pytest.mark.parametrize("block_size", [4, 16, 48])
def test_blocks_that_were_let_go_are_not_read(kernels: CpuKernels, compiled: bool, block_size: int) -> None:
    """There is NaN in all of them, and in the block that absent entries name; it would spread."""
    rules = [replace(FULL, window=6), FULL, replace(FULL, window=33), replace(FULL, window=6)]
    traffic = Traffic(
        Paged(block_size=block_size),
        rules,
        dtype=torch.float32,
        tolerance=1e-5,
        kernels=kernels if compiled else None,
    )
    kv: Any = traffic.kv
    attention: Any = traffic.attention
    blocks = kv._blocks
    blocks._free.remove(0)
    blocks.holders[0] = 1
    bind = attention.bind

    def fill(chosen: list[int], number: float) -> None:
        slots = (torch.tensor(chosen)[:, None] * block_size + torch.arange(block_size)).flatten()
        for tensor in attention.storage.tensors:
            tensor[:, slots] = torch.where(tensor[:, slots].isnan(), number, tensor[:, slots])
            if number != number:
                tensor[:, slots] = number

    def bind_clean(plan: Any) -> None:
        fill([block for block, holders in enumerate(blocks.holders) if holders and block], 0.0)
        bind(plan)

    attention.bind = bind_clean
    sequences = [new_sequence([1 + number % (2 + which) for number in range(155)]) for which in range(3)]
    for sizes in [(90, 20, 3), (1, 40, 60), (1, 30, 31), *[(1, 1, 1)] * 20]:
        traffic.step(list(zip(sequences, sizes, strict=True)))
        fill([0, *(block for block, holders in enumerate(blocks.holders) if not holders)], torch.nan)
    assert all(kv._groups[table].first(sequences[0].id) > 0 for table in (1, 2))
