"""Models on a GPU: Turnout launched and replayed, quantized and not, beside transformers."""

from __future__ import annotations

import gc
import importlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from turnout.bench.throughput import (
    ThroughputResult,
    Transformers,
    TransformersContinuous,
    Turnout,
    random_prompts,
)
from turnout.models.random.shapes import SHAPES, Shape
from turnout.runner.memory.budget import weight_bytes

__all__ = ["MODELS", "REDUCED", "Load", "Setup", "measure_models"]


@dataclass(frozen=True)
class Load:
    batch: int
    prompt: int
    output: int


@dataclass(frozen=True)
class Setup:
    """An engine with a model, and what it is to serve."""

    engine: str
    loads: tuple[Load, ...]
    options: dict[str, Any] = field(default_factory=dict)


ONE, SOME, MANY, LONG = Load(1, 512, 128), Load(32, 512, 128), Load(256, 1024, 256), Load(32, 1024, 1024)

MODELS: list[tuple[str, Shape, list[Setup]]] = [
    (
        "8b",
        SHAPES["8b"],
        [
            Setup("turnout", (ONE, SOME, MANY, LONG)),
            Setup("turnout, fp8", (ONE, SOME, MANY), {"quantization": "fp8"}),
            Setup("turnout, int8", (ONE, SOME, MANY), {"quantization": "int8"}),
            Setup("turnout, int4wo", (ONE,), {"quantization": "int4wo"}),
            Setup("transformers", (ONE, SOME)),
            Setup("transformers, continuous batching", (MANY,)),
            Setup("turnout, step after step", (ONE, SOME, MANY), {"async_scheduling": False}),
            Setup("turnout, launched", (ONE, SOME), {"enforce_eager": True}),
        ],
    ),
    (
        "1b",
        SHAPES["1b"],
        [Setup("turnout", (ONE, SOME, MANY, LONG)), Setup("transformers", (ONE, SOME))],
    ),
]
SMALL = Load(2, 8, 4)
REDUCED: list[tuple[str, Shape, list[Setup]]] = [
    (
        "tiny",
        Shape(64, 2, 4, 2, 96, 5000),
        [
            Setup("turnout", (SMALL,), {"kv_memory": "8MiB"}),
            Setup("transformers", (SMALL,)),
            Setup("transformers, continuous batching", (SMALL,)),
        ],
    )
]


def measure_models(
    models: list[tuple[str, Shape, list[Setup]]],
    make: Callable[[str, Shape], Path],
    device: torch.device,
    repeats: int,
    until: float,
) -> Iterator[dict[str, Any]]:
    """A row for each run; those that `until`, by `time.monotonic`, leaves no time for say so."""
    for name, shape, setups in models:
        model = make(name, shape)
        for setup in setups:
            yield from _measured(name, str(model), setup, device, repeats, until)
            gc.collect()
            if device.type == "cuda":
                torch.cuda.empty_cache()


def _measured(
    name: str, model: str, setup: Setup, device: torch.device, repeats: int, until: float
) -> Iterator[dict[str, Any]]:
    rows = [{"model": name, "engine": setup.engine, **asdict(load)} for load in setup.loads]
    if time.monotonic() > until:
        yield from ({**row, "left out": "time was up"} for row in rows)
        return
    try:
        engine = _engine(model, setup, device)
    except Exception as error:
        yield from ({**row, "failed": repr(error)} for row in rows)
        return
    for row, load in zip(rows, setup.loads, strict=True):
        if time.monotonic() > until:
            yield {**row, "left out": "time was up"}
            continue
        try:
            yield {**row, **_figures(engine, load, repeats)}
        except Exception as error:  # a row that says so is worth more than no rows at all
            yield {**row, "failed": repr(error)}


def _engine(model: str, setup: Setup, device: torch.device) -> Any:
    if setup.engine == "transformers":
        return Transformers(model, "bfloat16", str(device))
    if setup.engine.startswith("transformers"):
        return TransformersContinuous(model, "bfloat16", str(device))
    longest = max(load.prompt + load.output for load in setup.loads)
    most = max(load.batch for load in setup.loads)
    options = {"max_model_len": longest, "max_num_seqs": most, "preemption": "recompute", **setup.options}
    return Turnout(model, "paged:attention=triton", "bfloat16", str(device), **options)


def _figures(engine: Any, load: Load, repeats: int) -> dict[str, Any]:
    """The best of `repeats` runs behind one that compiles and captures."""
    best: ThroughputResult | None = None
    for repeat in range(repeats + 1):
        # New prompts each time: a prefix cache must have nothing to find.
        prompts = random_prompts(load.batch, load.prompt, seed=1000 * load.batch + repeat)
        result = engine.run(prompts, load.output)
        if repeat and (best is None or result.tokens_per_second > best.tokens_per_second):
            best = result
    assert best is not None
    row: dict[str, Any] = asdict(best)
    if isinstance(engine, Turnout):
        row["host_ms"] = _host_ms(engine, load)
        if load.batch == 1:
            row["read_bytes_per_second"] = _read(engine.assembled.engine.runner) / (row["tpot_ms"] / 1e3)
    return row


def _host_ms(engine: Turnout, load: Load) -> float:
    """What the host does for a step, in a run of its own: all but waiting for tokens."""
    loop, prompts = engine.assembled.engine, random_prompts(load.batch, load.prompt, seed=load.batch)
    steps, started = loop.stats().steps, time.perf_counter()
    with _waiting() as waited:
        engine.run(prompts, min(load.output, 64))
    whole = time.perf_counter() - started
    return float(1e3 * (whole - sum(waited)) / (loop.stats().steps - steps))


@contextmanager
def _waiting() -> Iterator[list[float]]:
    """Seconds of each wait for tokens."""
    waited: list[float] = []
    candidates: Any = importlib.import_module("turnout.plugins.decoding.candidates")
    to_host_async = candidates.to_host_async

    def timed(tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
        arrival = to_host_async(tensor)

        def wait() -> torch.Tensor:
            since = time.perf_counter()
            there: torch.Tensor = arrival()
            waited.append(time.perf_counter() - since)
            return there

        return wait

    candidates.to_host_async = timed
    try:
        yield waited
    finally:
        candidates.to_host_async = to_host_async


def _read(runner: Any) -> int:
    """Bytes of weights that a token takes: all but an embedding that is not the head, too."""
    table, head = runner.model.model.embed_tokens.weight, getattr(runner.model.lm_head, "weight", None)
    return weight_bytes(runner.model) - (0 if table is head else int(table.nbytes))
