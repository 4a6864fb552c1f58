"""Builds a rank's share of layers whose weights are given whole, as checkpoints store them."""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING, NoReturn

import torch
from torch import Tensor, nn

from turnout.core.errors import ConfigError
from turnout.core.interfaces.layer_share import LayerShare
from turnout.kernels.blocks import BLOCK_TYPES
from turnout.plugins.quantization.layers.int4 import GROUPS, TILE

if TYPE_CHECKING:
    from turnout.plugins.quantization.layers.factory import LayerFactory

__all__ = ["Cut", "ShareFactory"]

LEAST_BLOCK = 16
"""Outputs or inputs that share a scale of 8-bit floats, at least; scales take memory, too."""


class Cut:
    """Takes a rank's part of codes, scales and biases. Raises ConfigError for what cannot be divided exactly.

    Scales of groups that ranks cut apart are kept by all of them, for smaller groups.
    """

    def __init__(self, share: LayerShare) -> None:
        self._share = share

    def codes(self, codes: Tensor) -> Tensor:
        """codes: [out, in]."""
        inputs = self._share.inputs
        return self.rows(codes[:, inputs.start : inputs.stop])

    def rows(self, numbers: Tensor) -> Tensor:
        """Of [out] or [out, n]; rows behind the last output are zeros."""
        outputs = self._share.outputs
        part = numbers[outputs.start : outputs.stop].contiguous()
        more = len(outputs) - len(part)
        if not more:
            return part
        bits = part.view(torch.uint8) if part.dtype.itemsize == 1 else part  # zeros of any type of one byte
        return torch.cat((bits, bits.new_zeros(more, *bits.shape[1:]))).view(part.dtype)

    def bias(self, bias: Tensor | None) -> Tensor | None:
        """Zeros on ranks that do not add it: all know by that that there is one."""
        if bias is None:
            return None
        return self.rows(bias if self._share.has_bias else torch.zeros_like(bias))

    def groups(self, scale: Tensor) -> Tensor:
        """Of [out, groups], as float32 [out, groups of this rank]."""
        inputs, width = self._share.inputs, self._share.whole[1]
        if scale.shape[1] == 1 or not self._share.splits_inputs:
            return self.rows(scale)
        stored = width // scale.shape[1]
        group = gcd(stored, inputs.start, len(inputs))
        if group < GROUPS[-1]:
            self.refuse(f"its weights have a scale for each {stored} inputs")
        return self.rows(
            scale.repeat_interleave(stored // group, dim=1)[:, inputs.start // group : inputs.stop // group]
        )

    def order(self, order: Tensor | None) -> Tensor | None:
        if order is not None and self._share.splits_inputs:
            self.refuse("its groups have inputs from anywhere (g_idx)")
        return order

    def tiles(self) -> None:
        """Refuses outputs that kernels of 4 bits do not take."""
        if len(self._share.outputs) % TILE:
            self.refuse(f"kernels of 4 bits take outputs in multiples of {TILE}")

    def blocks(self, blocks: Tensor, kind: str) -> Tensor:
        """blocks: uint8 [out, bytes]."""
        inputs, of = self._share.inputs, BLOCK_TYPES[kind]
        if inputs.start % of.inputs or len(inputs) % of.inputs:
            self.refuse(f"its weights are stored in blocks of {of.inputs} inputs ({kind})")
        start, stop = (each // of.inputs * of.stored for each in (inputs.start, inputs.stop))
        return self.rows(blocks[:, start:stop])

    def squares(self, scale: Tensor, block: tuple[int, int]) -> tuple[Tensor, tuple[int, int]]:
        """Of scales for blocks of outputs and inputs, and the sizes of these."""
        share, sizes = self._share, list[int]()
        for dim, (size, part, whole) in enumerate(
            zip(block, (share.outputs, share.inputs), share.whole, strict=True)
        ):
            if len(part) == whole:
                sizes.append(size)
                continue
            finer = gcd(size, part.start, len(part))
            if finer < LEAST_BLOCK:
                self.refuse(f"its weights have a scale for blocks of {block[0]} x {block[1]}")
            wide = scale.repeat_interleave(size // finer, dim=dim)
            scale = wide.narrow(dim, part.start // finer, len(part) // finer)
            sizes.append(finer)
        return scale.contiguous(), (sizes[0], sizes[1])

    def refuse(self, why: str) -> NoReturn:
        share = self._share
        raise ConfigError(
            f"tensor_parallel_size={share.collective.size} cannot divide {share.layer}: {why}, and a rank "
            f"would have {len(share.outputs):,} outputs of {len(share.inputs):,} inputs; take fewer ranks, "
            "--pipeline-parallel-size, or unquantized weights and --quantization"
        )


class ShareFactory:
    """Implements `LayerFactory` over that of a device."""

    def __init__(self, whole: LayerFactory, share: LayerShare) -> None:
        self._build, self._cut = whole, Cut(share)

    def int8(self, codes: Tensor, scale: Tensor, bias: Tensor | None) -> nn.Module:
        cut = self._cut
        return self._build.int8(cut.codes(codes), cut.rows(scale), cut.bias(bias))

    def int8_weights(self, codes: Tensor, scale: Tensor, bias: Tensor | None) -> nn.Module:
        cut = self._cut
        return self._build.int8_weights(cut.codes(codes), cut.rows(scale), cut.bias(bias))

    def int8_groups(
        self, codes: Tensor, scale: Tensor, offset: Tensor, bias: Tensor | None, order: Tensor | None
    ) -> nn.Module:
        cut = self._cut
        groups = cut.groups(scale), cut.groups(offset)
        return self._build.int8_groups(cut.codes(codes), *groups, cut.bias(bias), cut.order(order))

    def int4(
        self, codes: Tensor, scale: Tensor, offset: Tensor, bias: Tensor | None, order: Tensor | None
    ) -> nn.Module:
        cut = self._cut
        cut.tiles()
        groups = cut.groups(scale), cut.groups(offset)
        return self._build.int4(cut.codes(codes), *groups, cut.bias(bias), cut.order(order))

    def blocks(self, blocks: Tensor, kind: str, bias: Tensor | None) -> nn.Module:
        return self._build.blocks(self._cut.blocks(blocks, kind), kind, self._cut.bias(bias))

    def fp8(self, codes: Tensor, scale: Tensor, bias: Tensor | None, activations: bool) -> nn.Module:
        cut = self._cut
        return self._build.fp8(cut.codes(codes), cut.rows(scale), cut.bias(bias), activations)

    def fp8_blocks(
        self, codes: Tensor, scale: Tensor, block: tuple[int, int], bias: Tensor | None
    ) -> nn.Module:
        cut = self._cut
        return self._build.fp8_blocks(cut.codes(codes), *cut.squares(scale, block), cut.bias(bias))
