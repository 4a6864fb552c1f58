"""Multi-head latent attention over compressed keys and values (https://arxiv.org/abs/2405.04434)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from turnout.core.interfaces.attention import Attend
from turnout.kernels import CpuKernels
from turnout.kernels.compiled import PackedWeights
from turnout.models.decoder.layers import Linear, RMSNorm
from turnout.models.decoder.rope import Rotation

__all__ = ["HeadExpansion", "LatentAttention", "LatentSizes"]

NORM_EPS = 1e-6


@dataclass(frozen=True)
class LatentSizes:
    """The widths of latent attention."""

    hidden: int
    heads: int
    rank: int
    """Of compressed keys and values."""
    query_rank: int | None
    """Of compressed queries; None: they are not compressed."""
    plain: int
    """Of the part of a head's keys that is not rotated."""
    turned: int
    """Of the part that is rotated, which all heads share."""
    value: int
    """Of a head's values."""


class LatentAttention(nn.Module):
    """Keeps for each token its compressed keys and values and one rotated key, for all heads together.

    What expands keys is applied to queries instead, and what expands values to what attention returns: so
    keys and values are never expanded, and the compressed ones are both.
    """

    def __init__(self, sizes: LatentSizes, layer: int, bias: bool) -> None:
        super().__init__()
        self.sizes, self.layer = sizes, layer
        queries = sizes.heads * (sizes.plain + sizes.turned)
        if sizes.query_rank is None:
            self.q_proj = Linear(sizes.hidden, queries, bias=False)
        else:
            self.q_a_proj = Linear(sizes.hidden, sizes.query_rank, bias=bias)
            self.q_a_layernorm = RMSNorm(sizes.query_rank, NORM_EPS)
            self.q_b_proj = Linear(sizes.query_rank, queries, bias=False)
        self.kv_a_proj_with_mqa = Linear(sizes.hidden, sizes.rank + sizes.turned, bias=bias)
        self.kv_a_layernorm = RMSNorm(sizes.rank, NORM_EPS)
        self.kv_b_proj = HeadExpansion(sizes)
        self.o_proj = Linear(sizes.heads * sizes.value, sizes.hidden, bias=bias)

    def forward(self, x: Tensor, rotation: Rotation, attend: Attend, rows: Tensor | None = None) -> Tensor:
        """Returns [tokens, hidden], or the `rows` of it. x: [tokens, hidden], normed."""
        sizes = self.sizes
        q = self._queries(x).reshape(len(x), sizes.heads, sizes.plain + sizes.turned)
        plain, turned = torch.split(q, [sizes.plain, sizes.turned], dim=-1)
        kept, key = torch.split(self.kv_a_proj_with_mqa(x), [sizes.rank, sizes.turned], dim=-1)
        q = torch.cat((self.kv_b_proj.queries(plain), rotation.apply(turned)), dim=-1)
        k = torch.cat((self.kv_a_layernorm(kept)[:, None], rotation.apply(key[:, None])), dim=-1)
        mixed = attend(self.layer, q, k, None)
        mixed = mixed if rows is None else mixed[rows]
        out: Tensor = self.o_proj(self.kv_b_proj.values(mixed).flatten(1))
        return out

    def _queries(self, x: Tensor) -> Tensor:
        if self.sizes.query_rank is None:
            out: Tensor = self.q_proj(x)
        else:
            out = self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x)))
        return out


class HeadExpansion(nn.Module):
    """The weights that expand keys and values, no linear layer: quantizers leave them alone."""

    weight: nn.Parameter | None

    def __init__(self, sizes: LatentSizes) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(sizes.heads * (sizes.plain + sizes.value), sizes.rank))
        self.sizes = sizes
        self._packed: tuple[CpuKernels, list[PackedWeights], list[PackedWeights]] | None = None

    def queries(self, plain: Tensor) -> Tensor:
        """Returns queries for compressed keys, [tokens, heads, rank]. plain: [tokens, heads, plain]."""
        if self._packed is None:
            return torch.einsum("thp,hpr->thr", plain, self._parts()[0])
        kernels, keys, _ = self._packed
        return _by_head(kernels, plain, keys)

    def values(self, mixed: Tensor) -> Tensor:
        """Returns values, [tokens, heads, value]. mixed: compressed ones, [tokens, heads, rank]."""
        if self._packed is None:
            return torch.einsum("thr,hvr->thv", mixed, self._parts()[1])
        kernels, _, values = self._packed
        return _by_head(kernels, mixed, values)

    def pack(self, kernels: CpuKernels) -> None:
        """Lets kernels compute both, whose results for a token do not depend on the others."""
        if self.weight is not None:
            keys, values = self._parts()
            self._packed = (
                kernels,
                [kernels.pack([part.t().contiguous()]) for part in keys],
                [kernels.pack([part.contiguous()]) for part in values],
            )
            self.weight = None

    def _parts(self) -> tuple[Tensor, Tensor]:
        """Returns what expands keys, [heads, plain, rank], and what expands values, [heads, value, rank]."""
        assert self.weight is not None
        by_head = self.weight.view(self.sizes.heads, -1, self.sizes.rank)
        return by_head[:, : self.sizes.plain], by_head[:, self.sizes.plain :]


def _by_head(kernels: CpuKernels, x: Tensor, packed: list[PackedWeights]) -> Tensor:
    """Returns [tokens, heads, outputs]. x: [tokens, heads, inputs]."""
    return torch.stack([kernels.linear(x[:, h], weights, None) for h, weights in enumerate(packed)], dim=1)
