"""What engines make of prompts that are pooled, for comparison with transformers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from turnout.config import EngineConfig
from turnout.core.engine.engine import Engine
from turnout.core.types.pooling import PoolingParams
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.runner.assembly import build_engine

CLOSE = 1e-5
Vector = np.ndarray[Any, np.dtype[np.float32]]

LENGTHS = (1, 2, 17, 64, 65, 130, 149, 33)
PROMPTS = [[3 + (7 * at + length) % 110 for at in range(length)] for length in LENGTHS]


def engine_of(folder: Path, **options: object) -> Engine:
    return build_engine(EngineConfig(model=str(folder), device="cpu", **options)).engine  # type: ignore[arg-type]


def pooled(
    engine: Engine,
    prompts: Sequence[Sequence[int]] = PROMPTS,
    second: Mapping[int, int] | None = None,
    **of: str,
) -> list[np.ndarray]:
    for at, prompt in enumerate(prompts):
        params = PoolingParams(normalize=False, second_text=(second or {}).get(len(prompt), 0), **of)  # type: ignore[arg-type]
        spec = RequestSpec(id=str(at), prompt=list(prompt), params=SamplingParams(), seed=0, pooling=params)
        engine.add(spec)
    found: dict[int, np.ndarray] = {}
    while len(found) < len(prompts):
        for delta in engine.step():
            assert not delta.error, delta.error
            if delta.pooled is not None:
                numbers = np.frombuffer(delta.pooled.data, "<f4").reshape(delta.pooled.shape)
                found[int(delta.request_id)] = numbers
    return [found[at] for at in range(len(prompts))]


def are_close(found: Vector, expected: Vector) -> None:
    """As embeddings of length 1 are compared, which these need not be."""
    longest = float(np.linalg.norm(expected, axis=-1).max())
    np.testing.assert_allclose(found, expected, atol=CLOSE * max(1, longest))
