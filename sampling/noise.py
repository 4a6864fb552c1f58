"""The noise of random draws: a function of the request's seed, the choice, the position and the purpose."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from turnout.kernels.gpu.staging import to_device

__all__ = ["exponential", "noise_key", "seed_tensor", "uniform"]

Bits = npt.NDArray[np.uint64]
STEP, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
"""Constants of SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014)."""


def noise_key(seed: int, index: int, position: int, purpose: bytes = b"") -> int:
    """64 bits that are a stable function of the request's seed, the choice, the position and the purpose."""
    packed = struct.pack("<qqq", seed, index, position)
    return int.from_bytes(blake2b(packed, digest_size=8, person=purpose).digest(), "little")


def uniform(key: int) -> float:
    """A number in [0, 1)."""
    return float(key >> 11) / float(2**53)


def seed_tensor(keys: Sequence[int], device: torch.device) -> Tensor:
    """The 64 bits of each key on the device, int64 [keys]."""
    return to_device(np.array(keys, dtype=np.uint64).view(np.int64), device)


def exponential(seeds: Tensor, lanes: int) -> Tensor:
    """Independent exponential numbers, fp64 [seeds, lanes], generated on the device of the seeds.

    For hundreds of rows and a large vocabulary this would be the largest part of the host's time in a step.
    """
    steps = np.arange(1, lanes + 1, dtype=np.uint64) * np.uint64(STEP)
    if seeds.device.type == "cpu":  # NumPy has unsigned integers, and takes a third of the time for one row
        states = seeds.numpy().view(np.uint64)[:, None] + steps
        return torch.from_numpy(-np.log((_bits(states).astype(np.float64) + 0.5) / 2**53))
    bits = _signed_bits(seeds[:, None] + to_device(steps.view(np.int64), seeds.device))
    return -torch.log((bits.double() + 0.5) / 2**53)


def _bits(x: Bits) -> Bits:
    """53 random bits for each state, both in uint64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(FIRST)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(SECOND)
    return (x ^ (x >> np.uint64(31))) >> np.uint64(11)


def _signed_bits(x: Tensor) -> Tensor:
    """`_bits` in int64: PyTorch can neither shift nor multiply unsigned integers."""
    x = (x ^ _shifted(x, 30)) * (FIRST - 2**64)
    x = (x ^ _shifted(x, 27)) * (SECOND - 2**64)
    return _shifted(x ^ _shifted(x, 31), 11)


def _shifted(x: Tensor, bits: int) -> Tensor:
    """`x` shifted to the right without its sign: zeros come in from the left."""
    shifted: Tensor = (x >> bits) & (2 ** (64 - bits) - 1)
    return shifted
