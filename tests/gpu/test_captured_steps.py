"""Steps that are replayed give the tokens of steps that are launched, whatever came in between."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from test_served_by_kernels import model, serve  # noqa: F401
from torch import Tensor

from turnout.core.config import EngineConfig
from turnout.core.engine import Engine
from turnout.plugins.kv_backends.paged_shapes import padded_batch
from turnout.runner.assembly import build_engine
from turnout.runner.graphs import choose_capture
from turnout.runner.model_runner import ModelRunner


class Recorder:
    """On a CPU: replays by running again on the same memory. Implements Capture."""

    def __init__(self) -> None:
        self.captured = self.replayed = 0

    def capture(self, work: Callable[[], Tensor]) -> Callable[[], Tensor]:
        self.captured += 1
        out = work()

        def replay() -> Tensor:
            self.replayed += 1
            return out.copy_(work())

        return replay


def engine_of(model: Path, device: torch.device, **options: Any) -> Engine:  # noqa: F811
    config = EngineConfig(
        model=str(model),
        kv="paged:attention=triton",
        device=device.type,
        dtype="float32",
        max_model_len=64,
        enforce_eager=True,
        **options,
    )
    return build_engine(config).engine


@pytest.mark.parametrize(
    "options",
    [
        {"kv_memory": "1MiB", "gpu_kernels": "triton"},
        {"kv_memory": "1MiB", "spec_ngram": True, "spec_tokens": 2},
    ],
    ids=["decoding", "verifying"],
)
def test_tokens_are_the_same(model: Path, options: dict[str, Any], device: torch.device) -> None:  # noqa: F811
    launched = serve(engine_of(model, device, **options))
    engine, recorder = engine_of(model, device, **options), Recorder()
    runner = engine.runner
    assert isinstance(runner, ModelRunner)
    capture = choose_capture(device, eager=False) or recorder
    engine.runner = ModelRunner(runner.model, runner.attention, device, capture)
    assert serve(engine) == launched
    assert device.type == "cuda" or recorder.replayed > 2 * recorder.captured > 0


def test_few_batch_sizes_and_little_padding() -> None:
    counts = (1, 2, 3, 5, 9, 33, 65, 129, 256)
    assert [padded_batch(count) for count in counts] == [1, 2, 4, 8, 16, 40, 80, 160, 256]
    sizes = {padded_batch(count) for count in range(1, 257)}
    assert len(sizes) < 24
    assert all(count <= padded_batch(count) <= max(8, 1.8 * count) for count in range(1, 257))
