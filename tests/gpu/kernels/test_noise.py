"""Noise made on a GPU is the CPU's."""

from __future__ import annotations

import random

import torch
from card_tensors import Tensors

from turnout.sampling.noise import exponential, seed_tensor

KEYS = [0, 1, 2**63, 2**64 - 1, *(random.Random(0).getrandbits(64) for _ in range(50))]
"""Signs are what could go wrong: PyTorch's integers have one."""


def test_all_but_the_rounding_of_a_logarithm_is_the_same(card: Tensors) -> None:
    expected = exponential(seed_tensor(KEYS, torch.device("cpu")), 70)
    found = exponential(seed_tensor(KEYS, torch.device("cuda")), 70).cpu()
    torch.testing.assert_close(found, expected, rtol=4e-16, atol=0)
