"""Engines on a GPU, and what they made of some prompts; for one that is not there, too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from card_tensors import Tensors
from torch import Tensor

from turnout.config import EngineConfig
from turnout.core.engine.engine import Engine
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.runner.assembly import build_engine
from turnout.runner.execution import capture

__all__ = [
    "BY_PYTORCH",
    "OVERFLOWS",
    "PARAMS",
    "PROMPTS",
    "Captures",
    "built",
    "counted",
    "serve",
    "waited",
    "waiting",
]

OVERFLOWS = "ignore:(overflow|invalid value|All-NaN slice) encountered:RuntimeWarning"
"""A warning of NumPy's, which interprets the kernels, to filter.

Rows that pad a step have no context, so attention leaves in them what the memory held, which on the card that
is not there is no number. Nothing reads the result.
"""
PROMPTS = [[7, 8, 9, 10, 11, 12, 13, 14, 15, 16, tail] for tail in (1, 2)] + [[5] * 30]
BY_PYTORCH = {"kv": "paged:attention=torch", "gpu_kernels": "torch"}
PARAMS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "sampled": {"temperature": 0.8},
    "cut": {"temperature": 0.8, "top_k": 20, "top_p": 0.9, "min_p": 0.01},
    "adjusted": {"temperature": 0, "presence_penalty": 0.5, "logit_bias": {5: 2.0}, "min_tokens": 3},
    "scored": {"temperature": 0, "logprobs": 2, "prompt_logprobs": 1},
    "choices": {"temperature": 0.8, "n": 2},
    "beams": {"use_beam_search": True, "beam_width": 3},
}


def built(model: Path | str, device: str, **options: Any) -> Engine:
    fixed = {"dtype": "float32", "max_model_len": 64, "kv_memory": "1MiB", "cpu_kernels": "torch"}
    return build_engine(EngineConfig(model=str(model), device=device, **{**fixed, **options})).engine


def serve(
    engine: Engine, chosen: dict[str, dict[str, Any]], prompts: list[list[int]] = PROMPTS
) -> dict[str, list[int]]:
    """Each choice's tokens of each prompt with each of `chosen`, all at once."""
    outputs: dict[str, list[int]] = {}
    for name, params in chosen.items():
        sampling_params = SamplingParams(**{"max_tokens": 6, "ignore_eos": True, **params})
        for number, prompt in enumerate(prompts):
            engine.add(RequestSpec(id=f"{name}-{number}", prompt=prompt, params=sampling_params, seed=number))
    while engine.busy:
        for delta in engine.step():
            outputs.setdefault(f"{delta.request_id}-{delta.index}", []).extend(delta.tokens)
    assert engine.scheduler.kv.free == engine.scheduler.kv.capacity
    return outputs


@dataclass
class Captures:
    """What engines captured, whole and in pieces, and replays of each."""

    whole: int = 0
    replayed: int = 0
    cuts: int = 0
    pieces: int = 0


def counted(patch: pytest.MonkeyPatch) -> Captures:
    """Of all engines that are built from now on."""
    found = Captures()

    class Counting(capture.CudaCapture):
        def capture(self, work: Callable[[], Tensor]) -> Callable[[], Tensor]:
            replay = super().capture(work)
            found.whole += 1
            found.cuts -= 1  # it is one piece

            def again() -> Tensor:
                found.replayed += 1
                found.pieces -= 1
                return replay()

            return again

        def capture_pieces(self, work: Callable[[Callable[[], None]], Tensor]) -> capture.CapturedPieces:
            pieces = super().capture_pieces(work)
            found.cuts += 1

            def piece(replay: Callable[[], None]) -> None:
                found.pieces += 1
                replay()

            return pieces._replace(replays=[partial(piece, replay) for replay in pieces.replays])

    patch.setattr(capture, "CudaCapture", Counting)
    return found


def waiting(card: Tensors) -> set[str]:
    """Files of the code that waited since the last call."""
    found = {wait.rpartition("/")[2].partition(":")[0] for wait in card.waits}
    card.waits.clear()
    return found


def waited(card: Tensors) -> int | None:
    """How often the host has waited for something that was sent to it; None: a real GPU does not tell."""
    return None if torch.cuda.is_available() else len(card.order.left)
