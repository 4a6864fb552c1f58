"""The self-test of the kernels finds each of them right in every variant, and a wrong one wrong."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from turnout.kernels import CpuKernels
from turnout.kernels.self_test import self_test
from turnout.models.gguf.numbers import dequantized


def wrong(kernels: CpuKernels) -> set[str]:
    return {check.kernel for check in self_test(kernels, dequantized) if not check.passed}


def test_all_are_right(variant_kernels: CpuKernels) -> None:
    assert not wrong(variant_kernels)


def test_blocks_that_stand_for_other_numbers(variant_kernels: CpuKernels) -> None:
    """Off by a hundredth: more than float32 rounds by, and than bfloat16 does."""

    def others(rows: Tensor, kind: str) -> Tensor:
        return dequantized(rows, kind) * (1.01 if kind == "q4_k" else 1)

    found = {check.kernel for check in self_test(variant_kernels, others) if not check.passed}
    assert found == {"linear, Q4_K in float32", "linear, Q4_K in bfloat16"}


def test_experts_that_were_not_chosen(variant_kernels: CpuKernels, monkeypatch: pytest.MonkeyPatch) -> None:
    route = variant_kernels.route

    def unlikely(scores: Tensor, top: int, *, normalized: bool) -> tuple[Tensor, Tensor]:
        chosen, weights = route(scores, top, normalized=normalized)
        return (chosen + 1) % scores.shape[1], weights

    monkeypatch.setattr(variant_kernels, "route", unlikely)
    assert wrong(variant_kernels) == {"router, float32", "router, bfloat16"}


def test_a_result_that_is_no_number(variant_kernels: CpuKernels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        variant_kernels, "gate", lambda both: torch.full_like(both.chunk(2, -1)[0], torch.nan)
    )
    assert wrong(variant_kernels) == {"gate, float32", "gate, bfloat16"}
