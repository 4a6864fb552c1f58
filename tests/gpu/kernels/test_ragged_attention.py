"""Attention through block tables equals the textbook's in float64, whatever the shapes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from ragged_case import DECODING, MIXED, Case

from turnout.plugins.kv_backends.paged.device.kernels import ragged_attention as module
from turnout.plugins.kv_backends.storage.dtypes import KVDtype


@pytest.mark.parametrize(
    ("heads", "kv_heads", "dim"),
    [
        (2, 2, 64),
        pytest.param(4, 2, 96, marks=pytest.mark.slow),
        (7, 1, 64),
        pytest.param(8, 1, 96, marks=pytest.mark.slow),
    ],
)
def test_decoding(heads: int, kv_heads: int, dim: int, device: torch.device) -> None:
    Case(heads, kv_heads, dim, 16, DECODING).check(device)


@pytest.mark.parametrize(
    ("heads", "kv_heads"),
    [(4, 2), *(pytest.param(*each, marks=pytest.mark.slow) for each in ((7, 1), (2, 2), (8, 1)))],
)
def test_a_ragged_batch(heads: int, kv_heads: int, device: torch.device) -> None:
    Case(heads, kv_heads, 64, 16, MIXED).check(device)


@pytest.mark.parametrize("dim", [32, 128, 256])
def test_head_dimensions(dim: int, device: torch.device) -> None:
    Case(2, 1, dim, 16, [(20, 1), (9, 30), (0, 5)]).check(device)


@pytest.mark.parametrize(
    "block_size", [1, 24, *(pytest.param(each, marks=pytest.mark.slow) for each in (8, 32))]
)
def test_block_sizes(block_size: int, device: torch.device) -> None:
    Case(4, 2, 64, block_size, [(20, 1), (64, 1), (9, 40), (31, 1)]).check(device)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_what_models_compute_in(dtype: torch.dtype, device: torch.device) -> None:
    """One of each kind: in what order and of what lengths is the same in every dtype."""
    Case(4, 2, 64, 16, [(37, 3), (0, 20), (5, 1)], dtype).check(device)


HALVES = [pytest.param(each, marks=pytest.mark.slow) for each in (torch.bfloat16, torch.float16)]


@pytest.mark.parametrize(
    "stored", ["int8", *(pytest.param(name, marks=pytest.mark.slow) for name in ("bfloat16", "fp8"))]
)
@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
def test_what_is_stored_in_fewer_bits(stored: KVDtype, dtype: torch.dtype, device: torch.device) -> None:
    Case(4, 2, 64, 16, [(0, 5), (17, 3), (33, 1), (20, 20), (70, 40)], dtype, stored).check(device)


def test_small_values_lose_nothing_in_float16(device: torch.device) -> None:
    """Weights times their scales would: float16 has no small numbers, and theirs are smaller than they."""
    Case(4, 2, 64, 16, [(33, 1), (70, 40)], torch.float16, "int8", size=2.0**-12).check(device)


@pytest.mark.parametrize("past", [pytest.param(511, marks=pytest.mark.slow), 512, 1100])
def test_a_long_context_is_read_in_parts(past: int, device: torch.device) -> None:
    Case(4, 2, 64, 16, [(past, 1), (3, 1), (520, 4)]).check(device)


def test_more_parts_than_there_may_be(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_PARTS", 3)
    Case(2, 1, 64, 16, [(2100, 1), (700, 1)]).check(device)


RULES = {
    "scale": {"scale": 0.07},
    "window": {"window": 20},
    "a window of one position": {"window": 1},
    "softcap": {"softcap": 1.5, "scale": 0.4},
    "sinks": {"sinks": True},
    "all": {"scale": 0.2, "window": 50, "softcap": 2.0, "sinks": True},
}


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param(rule, id=name, marks=[] if name == "all" else pytest.mark.slow)
        for name, rule in RULES.items()
    ],
)
def test_rules_of_layers(rule: dict[str, Any], device: torch.device) -> None:
    """In decoding, verifying and prompts, and where a context is read in parts."""
    Case(4, 2, 64, 16, MIXED, **rule).check(device)
    Case(4, 2, 64, 16, [(1100, 1), (3, 1), (520, 4)], **rule).check(device)


def test_rules_of_layers_over_8_bits(device: torch.device) -> None:
    Case(8, 1, 64, 16, [(17, 3), (70, 40)], torch.bfloat16, "int8", **RULES["all"]).check(device)


def test_a_window_longer_than_a_part(device: torch.device) -> None:
    Case(2, 1, 64, 16, [(1700, 1), (600, 2)], window=1024, sinks=True).check(device)


def test_sinks_count_once_where_a_prefix_is_read_once(device: torch.device) -> None:
    case = Case(4, 2, 64, 16, [(600, 1), (610, 1)], shared={1: 20}, cascade=1, sinks=True, softcap=2.0)
    assert case.reads_once(device) == [320]
    case.check(device)


@pytest.mark.parametrize("past", [pytest.param(40, marks=pytest.mark.slow), 520])
def test_rules_in_a_shaped_step(past: int, device: torch.device) -> None:
    Case(4, 2, 64, 16, [(past, 1), (past + 9, 1), (0, 1)], shaped=True, **RULES["all"]).check(device)


@pytest.mark.usefixtures("products_in_order")
@pytest.mark.parametrize("past", [pytest.param(40, marks=pytest.mark.slow), 520])
def test_a_rows_numbers_do_not_depend_on_the_batch(past: int, device: torch.device) -> None:
    alone, _ = Case(4, 2, 64, 16, [(past, 1)]).run(device)
    together, _ = Case(4, 2, 64, 16, [(9, 30), (600, 1), (past, 1), (3, 1)]).run(device)
    assert together[31].equal(alone[0])
