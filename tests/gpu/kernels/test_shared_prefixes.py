"""A prefix that is read once for several sequences gives what each of them reading it gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from ragged_case import Case

from turnout.core.types.plan import Chunk
from turnout.plugins.kv_backends.paged.device.kernels import ragged_attention as module
from turnout.plugins.kv_backends.paged.device.shared_prefixes import SharedPrefix, shared_prefixes
from turnout.plugins.kv_backends.storage.dtypes import KVDtype

BESIDE = [(9, 1), (0, 20)]
"""One that shares nothing, and a prompt."""


@pytest.mark.parametrize(
    ("new", "heads", "kv_heads", "dim"),
    [
        (1, 2, 2, 64),
        (3, 7, 1, 96),
        pytest.param(1, 7, 1, 96, marks=pytest.mark.slow),
        pytest.param(3, 2, 2, 64, marks=pytest.mark.slow),
    ],
)
def test_it_equals_the_textbook(heads: int, kv_heads: int, dim: int, new: int, device: torch.device) -> None:
    spans = [(70, new), (75, new), (64, new), *BESIDE]
    case = Case(heads, kv_heads, dim, 16, spans, shared={1: 4, 2: 3}, cascade=1)
    assert case.reads_once(device) == [48]
    case.check(device)


def test_two_prefixes_and_their_members_in_any_order(device: torch.device) -> None:
    case = Case(4, 2, 64, 8, [(40, 1), (40, 1), (30, 1), (33, 1), (20, 1)], shared={1: 3, 3: 2}, cascade=1)
    assert case.reads_once(device) == [24, 16]
    case.check(device)


@pytest.mark.parametrize("most", [2, pytest.param(16, marks=pytest.mark.slow)])
def test_a_long_one_is_read_in_parts(
    most: int, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_PARTS", most)
    spans = [(1200, 1), (1105, 1), (600, 1), (7, 1)]
    Case(2, 1, 64, 32, spans, shared={1: 34, 2: 18}, cascade=1).check(device)


@pytest.mark.parametrize(("dtype", "stored"), [(torch.bfloat16, "auto"), (torch.bfloat16, "fp8")])
def test_what_is_computed_and_stored_in(dtype: torch.dtype, stored: KVDtype, device: torch.device) -> None:
    Case(4, 2, 64, 16, [(40, 1), (50, 1)], dtype, stored, shared={1: 2}, cascade=1).check(device)


def test_by_default_each_reads_its_own(device: torch.device) -> None:
    assert Case(2, 1, 64, 16, [(70, 1), (75, 1)], shared={1: 4}).reads_once(device) == []


# ------------------------------------------------------------------ which prefixes


def found(tables: list[list[int]], starts: list[int], worth: int = 1) -> list[SharedPrefix]:
    chunks: list[Any] = [Chunk(None, start, [0], 1) for start in starts]  # type: ignore[arg-type]
    return shared_prefixes(chunks, tables, range(len(chunks)), block_size=10, min_saved=worth)


def test_blocks_that_are_the_same_at_the_beginning() -> None:
    assert found([[1, 2, 3, 4], [7, 8], [1, 2, 5]], [35, 15, 25]) == [SharedPrefix([0, 2], 2)]


def test_only_what_all_members_have_computed() -> None:
    """A block that a sequence still writes to is not read for others."""
    assert found([[1, 2, 3], [1, 2, 3]], [29, 25]) == [SharedPrefix([0, 1], 2)]
    assert found([[1, 2], [1, 2]], [9, 19]) == []


def test_fewer_members_where_a_longer_prefix_saves_more() -> None:
    tables = [[1, 2, 3, 4, 5], [1, 9], [1, 2, 3, 4, 6]]
    assert found(tables, [45, 15, 45]) == [SharedPrefix([0, 2], 4)]
    assert found([*tables, [1, 8], [1, 7], [1, 5], [1, 6]], [45, *[15] * 6]) == [
        SharedPrefix([0, 1, 2, 3, 4, 5, 6], 1)
    ]


@pytest.mark.parametrize(("worth", "reads"), [(20, True), (21, False)])
def test_what_it_must_save(worth: int, reads: bool) -> None:
    assert bool(found([[1, 2, 3], [1, 2, 4]], [25, 25], worth)) == reads
