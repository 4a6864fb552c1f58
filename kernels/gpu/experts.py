"""The Triton programs of `expert_programs.py` as functions of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from turnout.kernels.gpu.expert_programs import expert_products, weighted_sums
from turnout.kernels.gpu.rounding import quantize
from turnout.kernels.gpu.weights import DeviceWeights

__all__ = ["ExpertProducts", "SortedPairs", "add_up"]


class Tile(NamedTuple):
    """Pairs and outputs of a program. Whatever the tile, a number is summed in the same order."""

    rows: int
    columns: int
    warps: int
    stages: int


SHORT = Tile(16, 128, 4, 4)
"""For decoding, which is bound by reading weights: most experts have a few pairs."""
USUAL = Tile(64, 128, 4, 4)
TALL = Tile(128, 128, 8, 3)
LARGE = Tile(128, 256, 8, 3)
"""For long prompts, which are bound by multiplying."""
EXACT = Tile(64, 64, 4, 4)
"""For float32, whose products take registers for what they multiply."""
LARGE_MEMORY = 160 * 1024
"""Bytes of shared memory that LARGE takes, and some cards lack."""
SUMMED = 1024
"""Numbers that one program adds up."""
TYPES = {
    torch.float32: tl.float32,
    torch.bfloat16: tl.bfloat16,
    torch.float16: tl.float16,
    torch.int8: tl.int8,
    torch.uint8: tl.uint8,
}


class SortedPairs:
    """A step's pairs of a token and an expert, sorted by expert. Nothing waits for the device."""

    def __init__(
        self,
        chosen: Tensor,
        experts: int,
        dtype: torch.dtype,
        *,
        partial: bool = False,
        tall: bool = True,
    ) -> None:
        """chosen: int64 [tokens, top]; dtype: of the activations. partial: other ranks have those below 0 and
        from `experts` on. tall: as `ExpertProducts.tall` of all layers says."""
        self.top, self.partial = chosen.shape[1], partial
        ordered, self.order = chosen.flatten().sort(stable=True)
        bounds = torch.arange(experts + 1, device=chosen.device)
        self.starts = torch.searchsorted(ordered, bounds)
        self.tile = tile_of(len(ordered), experts, dtype, chosen.device, tall=tall)
        self.tiles = len(ordered) // self.tile.rows + min(experts, len(ordered))
        """As many tiles as there can be."""


def tile_of(pairs: int, experts: int, dtype: torch.dtype, device: torch.device, *, tall: bool = True) -> Tile:
    """The tile for so many pairs of a token and an expert. tall: as `ExpertProducts.tall` says."""
    if dtype == torch.float32:
        return EXACT
    if pairs <= 8 * experts:
        return SHORT
    if pairs <= 128 * experts or not tall:
        return USUAL
    if device.type != "cuda":
        return TALL
    properties: Any = torch.cuda.get_device_properties(device)
    memory = properties.shared_memory_per_block_optin
    return LARGE if memory >= LARGE_MEMORY else TALL


class ExpertProducts:
    """A linear layer of all experts, of one kind and shape."""

    def __init__(self, experts: Sequence[DeviceWeights]) -> None:
        """experts: as `of` takes them, alike."""
        self._weights = experts  # the tables have their addresses
        self._like = experts[0]
        self.experts = len(experts)
        row = self._like.numbers.shape[1] * self._like.numbers.element_size()
        self._aligned = all(size % 16 == 0 for size in (row, *(w.numbers.data_ptr() for w in self._weights)))
        self._tables = [
            _addresses([getattr(each, name) for each in experts], self._like.numbers.device)
            for name in ("numbers", "scale", "bias", "offset")
        ]

    @classmethod
    def of(cls, experts: Sequence[DeviceWeights]) -> ExpertProducts | None:
        """Returns the layer; None: the experts differ in kind or shape."""
        kinds = {
            (
                *(each.numbers.shape, each.numbers.dtype, each.numbers.is_contiguous()),
                *(
                    each.scale is None,
                    each.bias is None,
                    each.codes,
                    each.floats,
                    each.offset is None,
                    each.group,
                ),
            )
            for each in experts
        }
        alike = len(kinds) == 1 and experts[0].numbers.is_contiguous()
        return cls(experts) if alike else None

    @property
    def tall(self) -> bool:
        """Whether tall tiles have enough registers: 4 bits take more of them."""
        return not self._like.group

    def __call__(self, x: Tensor, pairs: SortedPairs, *, gather: bool) -> Tensor:
        """Returns [pairs, outputs] in x's dtype.

        gather: x has a row for each token, and the result one for each sorted pair; otherwise x has one for
        each sorted pair, and the result one for each pair as it was before: 0 for pairs of other ranks.
        """
        like, dtype = self._like, x.dtype
        rows, scale = quantize(x, "fp8" if like.floats else "int8") if like.codes else (x.contiguous(), None)
        empty = torch.zeros if pairs.partial and not gather else torch.empty
        out = empty((len(pairs.order), like.outputs), dtype=dtype, device=x.device)
        numbers, scales, biases, offsets = (
            like.numbers if table is None else table for table in self._tables
        )
        expert_products[triton.cdiv(like.outputs, pairs.tile.columns), pairs.tiles](
            rows,
            rows if scale is None else scale,
            numbers,
            scales,
            biases,
            offsets,
            pairs.starts,
            pairs.order,
            out,
            self.experts,
            like.outputs,
            like.inputs,
            EXPERTS=triton.next_power_of_2(self.experts),
            TOP=pairs.top,
            ROWS=pairs.tile.rows,
            COLUMNS=pairs.tile.columns,
            STEP=like.group or (32 if dtype == torch.float32 else 64),
            GATHER=gather,
            NUMBERS=TYPES[like.numbers.dtype],
            ALIGNED=self._aligned,
            BIAS=like.bias is not None,
            BIAS_NUMBERS=TYPES[dtype if like.bias is None else like.bias.dtype],
            SCALED=like.scale is not None and not like.group,
            CODES=like.codes,
            FLOATS=like.floats,
            GROUP=like.group,
            OFFSET=like.offset is not None,
            # float32 means float32, not the 10 bits of tf32.
            PRECISION="ieee" if dtype == torch.float32 else "tf32",
            num_warps=pairs.tile.warps,
            num_stages=pairs.tile.stages,
        )
        return out


def add_up(parts: Tensor, weights: Tensor) -> Tensor:
    """Returns the weighted sums of tokens' parts, [tokens, size]. parts: [tokens · top, size]."""
    tokens, top = weights.shape
    size = parts.shape[1]
    out = torch.empty((tokens, size), dtype=parts.dtype, device=parts.device)
    weighted_sums[tokens, triton.cdiv(size, SUMMED)](
        parts, weights.float().contiguous(), out, size, TOP=top, BLOCK=SUMMED
    )
    return out


def _addresses(tensors: Sequence[Tensor | None], device: torch.device) -> Tensor:
    """Returns where the tensors are, int64 on the device: 0 where there is none, which is not read."""
    found = [0 if each is None else each.data_ptr() for each in tensors]
    return torch.tensor(found, dtype=torch.int64, device=device)
