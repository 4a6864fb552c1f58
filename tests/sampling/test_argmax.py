"""Looking for the most likely token in two goes finds what one go finds."""

from __future__ import annotations

import pytest
import torch

from turnout.sampling.argmax import MIN_SIZE_FOR_BLOCKS, argmax


@pytest.mark.parametrize(
    "columns", [MIN_SIZE_FOR_BLOCKS, MIN_SIZE_FOR_BLOCKS + 1, MIN_SIZE_FOR_BLOCKS + 127, 151_936]
)
def test_it_is_where_argmax_finds_it(columns: int) -> None:
    logits = torch.randn(5, columns, generator=torch.Generator().manual_seed(columns))
    logits[1, -1] = logits[2, 0] = logits[3, 130] = 100.0
    logits[3, 129] = logits[3, 3000] = 100.0  # of equals the first
    logits[4] = -torch.inf
    assert torch.equal(argmax(logits), logits.argmax(dim=-1))
    assert argmax(logits).tolist()[1:] == [columns - 1, 0, 129, 0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_few_logits(dtype: torch.dtype) -> None:
    logits = torch.randn(3, 160, dtype=dtype)
    assert torch.equal(argmax(logits), logits.argmax(dim=-1))


def test_not_a_number_shows() -> None:
    logits = torch.zeros(1, MIN_SIZE_FOR_BLOCKS)
    logits[0, 777] = torch.nan
    assert argmax(logits).tolist() == [777]
