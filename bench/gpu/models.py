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


ONE, SOME, MORE, MANY = Load(1, 512, 128), Load(32, 512, 128), Load(64, 512, 128), Load(256, 512, 128)

MODELS: list[tuple[str, Shape, list[Setup]]] = [
    (
        "8b",
        SHAPES["8b"],
        [
            Setup("turnout", (ONE, SOME, MORE, MANY)),
            Setup("turnout, int8", (ONE, SOME), {"quantization": "int8"}),
            Setup("turnout, fp8", (ONE, SOME), {"quantization": "fp8"}),
            Setup("transformers, continuous batching", (MANY,)),
            Setup("transformers", (ONE, SOME)),
            Setup("turnout, int4wo", (ONE,), {"quantization": "int4wo"}),
            Setup("turnout, launched", (ONE,), {"enforce_eager": True}),
            Setup("turnout, step after step", (ONE, MORE), {"async_scheduling": False}),
        ],
    ),
    ("1b", SHAPES["1b"], [Setup("turnout", (ONE, MANY)), Setup("transformers", (ONE,))]),
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
    """The median of `repeats` runs behind one that compiles and captures, by tokens a second."""
    results = list[ThroughputResult]()
    for repeat in range(repeats + 1):
        # New prompts each time: a prefix cache must have nothing to find.
        prompts = random_prompts(load.batch, load.prompt, seed=1000 * load.batch + repeat)
        results.append(engine.run(prompts, load.output))
    results = sorted(results[1:], key=lambda result: result.tokens_per_second)
    row: dict[str, Any] = asdict(results[len(results) // 2])
    row |= {"least": results[0].tokens_per_second, "most": results[-1].tokens_per_second}
    if isinstance(engine, Turnout):
        row["host_ms"] = _host_ms(engine, load)
        row["gap_us"] = _gap_us(engine, load)
        if load.batch == 1:
            row["read_bytes_per_second"] = _read(engine.assembled.engine.runner) / (row["tpot_ms"] / 1e3)
    return row


def _gap_us(engine: Turnout, load: Load) -> float | None:
    """The longest time in which the device does nothing between steps that decode; None: no device is traced.

    Of prompts of few tokens, so that the second half of the trace decodes alone.
    """
    profiler: Any = torch.profiler
    cuda = profiler.ProfilerActivity.CUDA
    if cuda not in profiler.supported_activities():
        return None
    with profiler.profile(activities=[cuda]) as traced:
        engine.run(random_prompts(load.batch, 16, seed=load.batch), 32)
    spans = sorted(
        (event.time_range.start, event.time_range.end)
        for event in traced.events() or ()
        if event.device_type.name == "CUDA"
    )
    decoding = spans[len(spans) // 2 : len(spans) * 9 // 10]
    if len(decoding) < 2:
        return None
    busy_until, longest = decoding[0][1], 0.0
    for start, end in decoding[1:]:
        longest = max(longest, start - busy_until)
        busy_until = max(busy_until, end)
    return longest


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
