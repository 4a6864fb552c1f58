"""A step's token ids and positions on the device, including ids that the host does not know yet."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from turnout.core.types.plan import Chunk
from turnout.kernels.gpu.staging import to_device

__all__ = ["fill", "look_up", "token_types"]


def look_up(ids: Tensor, chosen: Sequence[Tensor]) -> Tensor:
    """Returns token ids, replacing each id below 0 by the token of `chosen` that it stands for.

    -1 is the first token of the first tensor, and numbering goes on through all tensors. All are int64 on one
    device, and the host does not wait for it.
    """
    if not chosen:
        return ids
    tokens = chosen[0] if len(chosen) == 1 else torch.cat(list(chosen))
    return torch.where(ids < 0, tokens[(-1 - ids).clamp_min(0)], ids)


def fill(memory: Tensor, inputs: npt.NDArray[np.int64], chosen: Sequence[Tensor]) -> None:
    """Puts ids and positions, [2, tokens], into `memory`, int64 [2, at least as many].

    Ids are looked up in `chosen` as `look_up` does. The columns beyond them become token 0 at position 0.
    """
    host = np.zeros(memory.shape, dtype=np.int64)
    host[:, : inputs.shape[1]] = inputs
    to_device(host, memory.device, memory)
    if chosen:
        memory[0].copy_(look_up(memory[0], chosen))


def token_types(chunks: Sequence[Chunk]) -> npt.NDArray[np.int64]:
    """Returns for each token of the flat batch whether it belongs to a pair's second text, int64 [tokens]."""
    types = []
    for chunk in chunks:
        pooling = chunk.sequence.request.pooling
        second = pooling.params.second_text if pooling is not None else 0
        types.append((np.arange(chunk.start, chunk.end) >= second) if second else np.zeros(len(chunk.tokens)))
    return np.concatenate(types).astype(np.int64)
