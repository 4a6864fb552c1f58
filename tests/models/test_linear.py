"""A few rows are multiplied from the other side, which is faster on a CPU and nothing else."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from turnout.models.layers import FEW, Linear


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(16, 48), (48, 16), (16, 16)])
def test_it_is_the_linear_layer_it_stands_for(shape: tuple[int, int], bias: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    layer = Linear(*shape, bias=bias, dtype=dtype)
    for parameter in layer.parameters():
        parameter.data.normal_()
    for rows in (0, 1, 2, 5, FEW, FEW + 1):
        x = torch.randn(rows, shape[0], dtype=dtype)
        y = layer(x)
        assert y.shape == (rows, shape[1]) and y.dtype == dtype and y.is_contiguous()
        torch.testing.assert_close(y, functional.linear(x, layer.weight, layer.bias))
