"""Check and measure Turnout on this machine's GPU: kernels, greedy tokens, speed beside transformers.

python scripts/gpu_check.py --json gpu.json

Needs torch, Triton and transformers; no network, no server. Without a GPU, `--reduced` runs the same way
through on the CPU, kernels under Triton's interpreter, with models of no size.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests" / "gpu")]

Rows = list[dict[str, Any]]


def seconds(work: Callable[[], object], device: torch.device, repeats: int = 10) -> float:
    """The median of `repeats` runs, after two that do not count."""
    taken = []
    for _ in range(repeats + 2):
        _wait(device)
        started = time.perf_counter()
        work()
        _wait(device)
        taken.append(time.perf_counter() - started)
    return sorted(taken[2:])[repeats // 2]


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


# ------------------------------------------------------------------ what the device can do


def roofline(device: torch.device, reduced: bool) -> dict[str, float]:
    """Bytes a second that a copy reads and writes, and FLOP/s of a bfloat16 product."""
    source = torch.empty(2**22 if reduced else 2**30, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    size = 128 if reduced else 8192
    a, b = torch.randn(2, size, size, device=device).to(torch.bfloat16)
    return {
        "copy_bytes_per_second": 2 * len(source) / seconds(lambda: target.copy_(source), device),
        "bf16_flops": 2 * size**3 / seconds(lambda: a @ b, device),
    }


# ------------------------------------------------------------------ kernels


def check_kernels(device: torch.device) -> Rows:
    """Ragged attention against float64; raises AssertionError where they differ."""
    from ragged_case import DECODING, MIXED, Case

    cases = [
        Case(heads, kv_heads, dim, size, spans, dtype, stored)
        for heads, kv_heads, dim, size, spans in [
            (2, 2, 64, 8, DECODING),
            (14, 2, 64, 16, MIXED),
            (8, 1, 96, 32, MIXED),
            (4, 2, 128, 16, [(1100, 1), (520, 4), (3, 70)]),
            (2, 1, 256, 16, DECODING),
        ]
        for dtype, stored in [(torch.float32, "auto"), (torch.bfloat16, "auto"), (torch.bfloat16, "fp8")]
    ]
    for case in cases:
        case.check(device)
    return [{"kernel": "ragged_attention", "cases": len(cases), "equal": True}]


def time_kernels(device: torch.device, reduced: bool) -> Rows:
    """Decoding against the bytes it has to read, a long prompt against the products it has to form."""
    from ragged_case import Case

    heads, kv_heads, dim = 32, 8, 128
    if reduced:
        heads, kv_heads, dim = 2, 1, 64
    rows: Rows = []
    batches = [(8, 40)] if reduced else [(1, 32_768), (16, 8192), (64, 4096), (256, 1024)]
    for batch, context in batches:
        case = Case(heads, kv_heads, dim, 16, [(context - 1, 1)] * batch, torch.bfloat16)
        taken = seconds(case.prepare(device), device, repeats=3 if reduced else 10)
        read = 2 * batch * context * kv_heads * dim * 2
        rows.append(
            {"kernel": "decode", "batch": batch, "context": context, "bytes_per_second": read / taken}
        )
    length = 40 if reduced else 8192
    taken = seconds(
        Case(heads, kv_heads, dim, 16, [(0, length)], torch.bfloat16).prepare(device), device, repeats=3
    )
    flops = 4 * heads * dim * length * (length + 1) / 2
    return [*rows, {"kernel": "prefill", "batch": 1, "context": length, "flops": flops / taken}]


# ------------------------------------------------------------------ models


def make_model(folder: Path, shape: Any, dtype: str) -> Path:
    from turnout.models.random_weights import write_random_checkpoint
    from turnout.models.shapes import config_of

    write_random_checkpoint(folder, config_of(shape, "llama", dtype=dtype), seed=0, dtype=dtype)
    return folder


def check_greedy(device: torch.device, folder: Path) -> Rows:
    """Tokens of a small random model in float32, through the whole engine, against transformers'."""
    from throughput import Transformers, random_prompts

    from turnout.core.config import EngineConfig
    from turnout.core.request import RequestSpec, SamplingParams
    from turnout.models.shapes import Shape
    from turnout.runner.assembly import build_engine

    shape = Shape(128, 2, 4, 2, 256, 5000, max_positions=256)
    model = str(make_model(folder / "small", shape, "float32"))
    prompts = [prompt[:9] for prompt in random_prompts(4, 9, seed=1)]
    config = EngineConfig(
        model=model, kv="paged:attention=triton", device=str(device), dtype="float32", kv_memory="8MiB"
    )
    engine = build_engine(config).engine
    params = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True)
    found: dict[str, list[int]] = {str(number): [] for number in range(len(prompts))}
    for number, prompt in enumerate(prompts):
        engine.add(RequestSpec(id=str(number), prompt=prompt, params=params, seed=0))
    while engine.busy:
        for delta in engine.step():
            found[delta.request_id] += delta.tokens
    expected = Transformers(model, "float32", str(device)).generate(prompts, 16)
    assert list(found.values()) == expected, f"greedy tokens differ: {found} and {expected}"
    return [{"check": "greedy tokens", "prompts": len(prompts), "equal": True}]


def measure_models(
    device: torch.device, folder: Path, reduced: bool, repeats: int
) -> Iterator[dict[str, Any]]:
    """Turnout beside transformers' `generate`, in turns."""
    from throughput import Transformers, Turnout, measure

    from turnout.models.shapes import SHAPES, Shape

    shapes = (
        {"tiny": Shape(64, 2, 4, 2, 96, 5000)} if reduced else {name: SHAPES[name] for name in ("1b", "8b")}
    )
    batches = (1, 2) if reduced else (1, 32, 256)
    loads = [(8, 4)] if reduced else [(512, 128), (1024, 1024)]
    for name, shape in shapes.items():
        model = str(make_model(folder / name, shape, "bfloat16"))
        longest = max(sum(load) for load in loads)
        options: dict[str, Any] = {"max_model_len": longest, "max_num_seqs": max(batches)}
        if reduced:
            options["kv_memory"] = "8MiB"
        engines: list[Any] = [
            Turnout(model, "paged:attention=triton", "bfloat16", str(device), **options),
            Transformers(model, "bfloat16", str(device)),
        ]
        for prompt, output in loads:
            for batch in batches:
                results = measure([engine.run for engine in engines], batch, prompt, output, repeats)
                for engine, result in zip(engines, results, strict=True):
                    yield {
                        "model": name,
                        "engine": engine.name,
                        "batch": batch,
                        "prompt": prompt,
                        "output": output,
                        **asdict(result),
                    }
        engines.clear()
        gc.collect()


def show(rows: Rows) -> None:
    for row in rows:
        click.echo("  " + "  ".join(f"{key} {_short(value)}" for key, value in row.items()))


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@click.command(help=__doc__)
@click.option("--reduced", is_flag=True, help="The same on a CPU, with next to no work.")
@click.option("--repeats", default=3, show_default=True)
@click.option("--models/--no-models", default=True, help="Measure models of 1 and 8 billion parameters, too.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write all figures there.")
def main(reduced: bool, repeats: int, models: bool, json_file: Path | None) -> None:
    if not torch.cuda.is_available():
        if not reduced:
            raise click.UsageError("torch sees no GPU here; --reduced runs through on the CPU")
        os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    report: dict[str, Any] = {"device": name, "torch": torch.__version__, "reduced": reduced}
    click.echo(f"{name}, torch {torch.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        parts: list[tuple[str, Callable[[], Rows]]] = [
            ("roofline", lambda: [roofline(device, reduced)]),
            ("kernels", lambda: check_kernels(device)),
            ("greedy", lambda: check_greedy(device, Path(folder))),
            ("kernel_times", lambda: time_kernels(device, reduced)),
        ]
        if models:
            parts.append(("models", lambda: list(measure_models(device, Path(folder), reduced, repeats))))
        for part, work in parts:
            click.echo(part)
            report[part] = work()
            show(report[part])
    if json_file:
        json_file.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
