"""Latent attention by native kernels: a token has the bits that it has among others."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from turnout.kernels import CpuKernels, choose_kernels
from turnout.models.decoder.fused import pack_rest
from turnout.models.decoder.latent_attention import LatentAttention, LatentSizes
from turnout.models.decoder.rope import Rotation

SIZES = LatentSizes(hidden=64, heads=4, rank=48, query_rank=40, plain=24, turned=8, value=20)


def own_keys(layer: int, q: Tensor, k: Tensor, v: Tensor | None, sinks: Tensor | None = None) -> Tensor:
    """Attention in which each token sees itself alone, so that no other takes part."""
    return k[..., : SIZES.rank].expand(-1, SIZES.heads, -1) * q[..., :1].sigmoid()


def computed(module: LatentAttention, x: Tensor, angles: Tensor) -> Tensor:
    both = angles[:, None].repeat(1, 1, 2)
    rotation = Rotation(both.cos().to(x.dtype), both.sin().to(x.dtype))
    with torch.inference_mode():
        return module(x, rotation, own_keys)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_token_alone_equals_itself_among_sixteen(dtype: torch.dtype) -> None:
    kernels, note = choose_kernels("auto", torch.device("cpu"), dtype)
    if not isinstance(kernels, CpuKernels):
        pytest.skip(note)
    module = LatentAttention(SIZES, 0, bias=False).to(dtype)
    generator = torch.Generator().manual_seed(2)
    for parameter in module.parameters():
        parameter.data.normal_(std=parameter.shape[-1] ** -0.5, generator=generator)
        parameter.requires_grad_(False)
    x = torch.randn(16, SIZES.hidden, generator=generator).to(dtype)
    angles = torch.randn(16, SIZES.turned // 2, generator=generator)
    plain = computed(module, x, angles)
    pack_rest(module, kernels)
    together = computed(module, x, angles)
    tolerance = 1e-5 if dtype == torch.float32 else 0.05
    torch.testing.assert_close(together, plain, rtol=tolerance, atol=tolerance)
    alone = torch.cat([computed(module, x[i : i + 1], angles[i : i + 1]) for i in range(16)])
    assert torch.equal(alone, together)
