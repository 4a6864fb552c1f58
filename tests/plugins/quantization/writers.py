"""Writers of published layouts, code by code and word by word: slow, and as their documents say.

Each takes float weights [out, in] and returns the tensors of a layer, and the weights that these stand for.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Written(NamedTuple):
    tensors: dict[str, Tensor]
    weight: Tensor
    """float32 [out, in]."""


def asymmetric(weight: Tensor, group: int, bits: int, index: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """codes [out, in], scale and zero [out, groups], and the weight they stand for.

    index: [in], the group of each input.
    """
    levels, groups = 2**bits - 1, int(index.max()) + 1
    scale, zero = torch.empty(len(weight), groups), torch.empty(len(weight), groups)
    codes, found = torch.empty(weight.shape, dtype=torch.int64), torch.empty(weight.shape)
    for number in range(groups):
        columns = (index == number).nonzero().flatten()
        part = weight[:, columns]
        low, high = part.amin(1).clamp(max=0), part.amax(1).clamp(min=0)
        scale[:, number] = ((high - low) / levels).half().float()
        zero[:, number] = (-low / scale[:, number]).round().clamp(1, levels)
        code = (part / scale[:, number, None]).round() + zero[:, number, None]
        codes[:, columns] = code.clamp(0, levels).long()
        found[:, columns] = (codes[:, columns] - zero[:, number, None]) * scale[:, number, None]
    return codes, scale, zero.long(), found


def packed(codes: Tensor, bits: int, places: list[int] | None = None) -> Tensor:
    """[rows, n] to int32 [rows, n · bits / 32]; place i of a word is for code places[i]."""
    words = 32 // bits
    places = places or list(range(words))
    out = torch.zeros(len(codes), codes.shape[1] // words, dtype=torch.int64)
    for word in range(out.shape[1]):
        for place, code in enumerate(places):
            out[:, word] |= codes[:, word * words + code] << (place * bits)
    return torch.where(out >= 2**31, out - 2**32, out).to(torch.int32)


def gptq(
    weight: Tensor, *, group: int = 32, bits: int = 4, desc_act: bool = False, version: int = 1
) -> Written:
    width = weight.shape[1]
    index = torch.arange(width) // (group if group > 0 else width)
    if desc_act:
        index = index[torch.randperm(width, generator=torch.Generator().manual_seed(7))]
    codes, scale, zero, found = asymmetric(weight, group, bits, index)
    tensors = {
        "qweight": packed(codes, bits).t().contiguous(),
        "qzeros": packed((zero - int(version == 1)).t(), bits),
        "scales": scale.t().contiguous().half(),
        "g_idx": index.to(torch.int32),
    }
    # Along inputs: the rows of the transposed weight are what a word runs over.
    return Written(tensors, found)


def awq(weight: Tensor, *, group: int = 32) -> Written:
    index = torch.arange(weight.shape[1]) // group
    codes, scale, zero, found = asymmetric(weight, group, 4, index)
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    tensors = {
        "qweight": packed(codes.t(), 4, order),
        "qzeros": packed(zero.t(), 4, order),
        "scales": scale.t().contiguous().half(),
    }
    return Written(tensors, found)


def fp8_blocks(weight: Tensor, *, block: int = 128) -> Written:
    rows, columns = -(-weight.shape[0] // block), -(-weight.shape[1] // block)
    scale, codes = torch.empty(rows, columns), torch.empty(weight.shape, dtype=torch.float8_e4m3fn)
    found = torch.empty(weight.shape)
    for row in range(rows):
        for column in range(columns):
            here = slice(row * block, (row + 1) * block), slice(column * block, (column + 1) * block)
            scale[row, column] = weight[here].abs().max() / 448
            codes[here] = (weight[here] / scale[row, column]).to(torch.float8_e4m3fn)
            found[here] = codes[here].float() * scale[row, column]
    return Written({"weight": codes, "weight_scale_inv": scale}, found)


def fp8_channels(weight: Tensor) -> Written:
    scale = weight.abs().amax(1, keepdim=True) / 448
    codes = (weight / scale).to(torch.float8_e4m3fn)
    return Written({"weight": codes, "weight_scale": scale}, codes.float() * scale)


def fp8_layers(weight: Tensor) -> Written:
    """As Mistral publishes it, and transformers writes it without blocks."""
    scale = weight.abs().max() / 448
    codes = (weight / scale).to(torch.float8_e4m3fn)
    tensors = {"weight": codes, "weight_scale_inv": scale, "activation_scale": torch.tensor(0.5)}
    return Written(tensors, codes.float() * scale)


def int8_channels(weight: Tensor) -> Written:
    scale = weight.abs().amax(1, keepdim=True) / 127
    codes = (weight / scale).round().to(torch.int8)
    return Written({"weight": codes, "weight_scale": scale}, codes.float() * scale)


def pack_quantized(weight: Tensor, *, bits: int = 4, group: int = 32, symmetric: bool = True) -> Written:
    width = weight.shape[1]
    index = torch.arange(width) // (group if group > 0 else width)
    codes, scale, zero, found = asymmetric(weight, group, bits, index)
    tensors = {"weight_shape": torch.tensor(weight.shape)}
    if symmetric:
        half = 2 ** (bits - 1)
        largest = torch.stack([weight[:, index == g].abs().amax(1) for g in range(scale.shape[1])], dim=1)
        scale = (largest / (half - 1)).half().float()
        codes = ((weight / scale[:, index]).round().clamp(-half, half - 1) + half).long()
        found = (codes - half) * scale[:, index]
    else:
        tensors["weight_zero_point"] = packed(zero.t(), bits).t().contiguous()
    return Written(
        {**tensors, "weight_packed": packed(codes, bits), "weight_scale": scale.half()}, found.float()
    )
