"""On a CPU, NumPy finds the most likely token where PyTorch finds it."""

from __future__ import annotations

import pytest
import torch

from turnout.sampling.argmax import argmax


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("columns", [4096, 8191, 32_768 + 127, 151_936])
def test_it_is_where_argmax_finds_it(columns: int, dtype: torch.dtype) -> None:
    logits = torch.randn(5, columns, generator=torch.Generator().manual_seed(columns)).to(dtype)
    logits[1, -1] = logits[2, 0] = logits[3, 130] = 100.0
    logits[3, 129] = logits[3, 3000] = 100.0  # of equals the first
    logits[4] = -torch.inf
    found = argmax(logits)
    assert found.dtype == torch.int64 and torch.equal(found, logits.argmax(dim=-1))
    assert found.tolist()[1:] == [columns - 1, 0, 129, 0]


def test_rows_of_a_larger_tensor() -> None:
    logits = torch.randn(6, 300)[::2, 1:]
    assert torch.equal(argmax(logits), logits.argmax(dim=-1))


def test_no_rows() -> None:
    assert argmax(torch.empty(0, 300)).tolist() == []


def test_not_a_number_shows() -> None:
    logits = torch.zeros(1, 32_768)
    logits[0, 777] = logits[0, 778] = torch.nan
    assert argmax(logits).tolist() == [777]
