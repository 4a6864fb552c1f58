"""Check and measure Turnout on this machine's GPU: kernels, greedy tokens, speed beside transformers.

python scripts/gpu_check.py --json gpu.json --docs

Needs no network and none of the server's packages, and says what it lacks. What checks nothing is left out
when `--minutes` are over. Without a GPU, `--reduced` runs the same way through on the CPU, kernels under
Triton's interpreter, with models of no size.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import click
import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "gpu" / "support"))

Rows = list[dict[str, Any]]

NEEDED = ("pluggy", "pydantic", "msgspec", "llguidance", "psutil", "jinja2", "tqdm", "transformers", "triton")
"""Beside torch and click."""


def check_installation() -> None:
    """Raises UsageError that says what to do without a network."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise click.UsageError(f"missing here: {', '.join(missing)}; wheels of them are enough")
    if not any(entry.value.startswith("turnout.") for entry in entry_points(group="turnout")):
        raise click.UsageError(
            "Turnout is not installed here; without a network: "
            "python -m pip install --no-index --no-deps --no-build-isolation --editable ."
        )


PARTS = ("kernels", "greedy", "kernel_times", "models")

HEAD_START = 20_000_000
"""Cycles that a GPU idles before it is measured, while what it is to run is asked of it."""


ROUNDS = 5
"""Of runs, whose median is reported, and whose least and most are the spread."""


class Spread(NamedTuple):
    """Seconds of a run."""

    median: float
    least: float
    most: float


def seconds(work: Callable[[], object], device: torch.device, repeats: int = 10) -> float:
    return spread(work, device, repeats).median


def spread(work: Callable[[], object], device: torch.device, repeats: int = 10) -> Spread:
    """Of rounds of `repeats` runs each, after two runs that do not count; on a GPU by its own clock."""
    if device.type != "cuda":
        return Spread(*[_seconds_on_cpu(work)] * 3)
    work()
    work()
    torch.cuda.synchronize()
    found = sorted(_round(work, repeats) for _ in range(ROUNDS))
    return Spread(found[len(found) // 2], found[0], found[-1])


def _round(work: Callable[[], object], repeats: int) -> float:
    cuda: Any = torch.cuda
    before, after = (cuda.Event(enable_timing=True) for _ in range(2))
    cuda._sleep(HEAD_START)
    before.record()
    for _ in range(repeats):
        work()
    after.record()
    torch.cuda.synchronize()
    return float(before.elapsed_time(after)) / 1e3 / repeats


def _seconds_on_cpu(work: Callable[[], object]) -> float:
    """The duration of one run: the figure is not reported."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


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


def attention_cases(reduced: bool) -> Iterator[Any]:
    from ragged_case import DECODING, MIXED, Case

    float32, bfloat16 = torch.float32, torch.bfloat16
    if reduced:
        yield Case(2, 1, 64, 16, [(17, 1), (0, 5)], bfloat16, "fp8")
        yield Case(2, 1, 64, 16, [(33, 1), (40, 1)], bfloat16, shared={1: 2}, cascade=1)
        return
    for dtype, stored in [(float32, "auto"), (bfloat16, "auto"), (bfloat16, "int8"), (bfloat16, "fp8")]:
        yield Case(2, 2, 64, 8, DECODING, dtype, stored)
        yield Case(14, 2, 64, 16, MIXED, dtype, stored)
        yield Case(8, 1, 96, 32, MIXED, dtype, stored)
        yield Case(4, 2, 128, 16, [(1100, 1), (520, 4), (3, 70)], dtype, stored)
        yield Case(2, 1, 256, 16, DECODING, dtype, stored)
        yield Case(8, 2, 128, 16, [(1100, 1), (1200, 1), (40, 3)], dtype, stored, {1: 60}, cascade=1)


def sizes(reduced: bool) -> Any:
    from kernel_cases import Sizes

    if not reduced:
        return Sizes()
    return Sizes(hidden=64, intermediate=48, heads=2, kv_heads=1, dim=64, tokens=5, few=())


def check_kernels(device: torch.device, reduced: bool) -> Rows:
    """Against float64 and float32; raises AssertionError where they differ."""
    from kernel_cases import kernel_cases

    attention = list(attention_cases(reduced))
    for case in attention:
        case.check(device)
    rows: Rows = [{"kernel": "attention", "cases": len(attention), "equal": True}]
    for case in kernel_cases(sizes(reduced), device):
        error = case.error()
        assert error <= case.tolerance, f"{case.name}, {case.shape}: error {error}, allowed {case.tolerance}"
        rows.append({"kernel": case.name, "shape": case.shape, "error": error})
    return [*rows, check_truncation(device, reduced)]


def check_truncation(device: torch.device, reduced: bool) -> dict[str, Any]:
    """top-k and top-p by bisection keep what sorting keeps; sums of few powers of two are exact."""
    from turnout.core.types.sampling_params import SamplingParams
    from turnout.sampling.distributions import truncate_by_kernel, truncate_by_sorting

    params = [SamplingParams(top_k=50), SamplingParams(top_p=0.9), SamplingParams(top_k=900, top_p=0.5)]
    weights = 2.0 ** -torch.randint(0, 4, (3, 500 if reduced else 128_256), device=device).float()
    weights[:, 7] = 1
    found, expected = truncate_by_kernel(weights, params), truncate_by_sorting(weights, params)
    assert found.equal(expected), "truncation: other tokens are kept"
    return {"kernel": "truncation", "shape": str(list(weights.shape)), "error": 0.0}


def time_kernels(device: torch.device, reduced: bool, best: dict[str, float]) -> Rows:
    """Each against the bytes that it has to move, or the products that it has to form."""
    rows = [*_attention_times(device, reduced, best), *_truncation_times(device, reduced, best)]
    from kernel_cases import kernel_cases

    for case in kernel_cases(sizes(reduced), device):
        rows.append(_row(case.name, case.shape, spread(case.work, device), best, case.bytes, case.flops))
    return [*rows, *_expert_times(device, reduced, best)]


def _row(
    kernel: str, shape: str, taken: Spread, best: dict[str, float], moved: float = 0, flops: float = 0
) -> dict[str, Any]:
    fastest = moved / best["copy_bytes_per_second"] if moved else flops / best["bf16_flops"]
    return {
        "kernel": kernel,
        "shape": shape,
        "seconds": taken.median,
        "least": taken.least,
        "most": taken.most,
        "of_roofline": fastest / taken.median,
    }


def _attention_times(device: torch.device, reduced: bool, best: dict[str, float]) -> Iterator[dict[str, Any]]:
    """Decoding against the bytes of its context, a long prompt against its products."""
    from ragged_case import Case

    heads, kv_heads, dim = (2, 1, 64) if reduced else (32, 8, 128)
    batches = [(2, 40)] if reduced else [(1, 32_768), (16, 8192), (64, 4096), (256, 1024)]
    bfloat16 = torch.bfloat16
    for batch, context in batches:
        for stored, itemsize in [("auto", 2)] if reduced else [("auto", 2), ("fp8", 1)]:
            case = Case(heads, kv_heads, dim, 16, [(context - 1, 1)] * batch, bfloat16, stored)
            taken = spread(case.prepare(device), device)
            read = 2 * batch * context * kv_heads * dim * itemsize
            yield _row(f"decode, KV {stored}", f"{batch} x {context}", taken, best, read)
    for batch, shared in [(2, 2)] if reduced else [(2, 32), (4, 32), (16, 8), (16, 32), (64, 8), (64, 128)]:
        yield from _shared_times(device, best, (heads, kv_heads, dim), batch, shared)
    length = 20 if reduced else 8192
    case = Case(heads, kv_heads, dim, 16, [(0, length)], bfloat16)
    flops = 4 * heads * dim * length * (length + 1) / 2
    yield _row("prefill", f"1 x {length}", spread(case.prepare(device), device, 3), best, flops=flops)


def _shared_times(
    device: torch.device, best: dict[str, float], heads: tuple[int, int, int], batch: int, shared: int
) -> Iterator[dict[str, Any]]:
    """A prefix of `shared` blocks read by each of `batch` sequences, and once for all, against the latter."""
    from ragged_case import Case

    for cascade in (0, 1):
        spans = [(shared * 16 + 100, 1)] * batch
        members = dict.fromkeys(range(1, batch), shared)
        case = Case(*heads, 16, spans, torch.bfloat16, "auto", members, cascade)
        taken = spread(case.prepare(device), device)
        read = 2 * (batch * 101 + shared * 16) * heads[1] * heads[2] * 2
        kind = "prefix read once" if cascade else "prefix read by each"
        yield _row(f"decode, {kind}", f"{batch} x ({shared * 16} + 100)", taken, best, read)


def _truncation_times(
    device: torch.device, reduced: bool, best: dict[str, float]
) -> Iterator[dict[str, Any]]:
    """Against reading and writing the weights once."""
    from turnout.core.types.sampling_params import SamplingParams
    from turnout.sampling.distributions import truncate_by_kernel, truncate_by_sorting

    batch, vocabulary = (2, 500) if reduced else (64, 128_256)
    weights = torch.rand(batch, vocabulary, device=device)
    params = [SamplingParams(top_p=0.9)] * batch
    for name, work in [("by bisection", truncate_by_kernel), ("by sorting", truncate_by_sorting)]:
        taken = spread(partial(work, weights, params), device, 3)
        yield _row(f"top-p {name}", f"{batch} x {vocabulary}", taken, best, 2 * weights.nbytes)


def _expert_times(device: torch.device, reduced: bool, best: dict[str, float]) -> Iterator[dict[str, Any]]:
    """Those of Qwen3-30B-A3B: gate and up in one, few tokens against their weights, many against products."""
    from turnout.kernels.gpu.experts import ExpertProducts, SortedPairs
    from turnout.kernels.gpu.weights import DeviceWeights

    experts, top, outputs, inputs = (4, 2, 48, 64) if reduced else (128, 8, 1536, 2048)
    weights = torch.randn(experts, outputs, inputs, device=device).to(torch.bfloat16)
    products = ExpertProducts([DeviceWeights(each, None, None) for each in weights])
    for tokens in (3,) if reduced else (1, 16, 64, 8192):
        chosen = torch.rand(tokens, experts, device=device).topk(top).indices
        pairs = SortedPairs(chosen, experts, torch.bfloat16)
        x = torch.randn(tokens, inputs, device=device).to(torch.bfloat16)
        taken = spread(partial(products, x, pairs, gather=True), device)
        few = tokens <= 64
        read = len(set(chosen.flatten().tolist())) * outputs * inputs * 2 if few else 0
        flops = 0 if few else 2 * tokens * top * outputs * inputs
        shape = f"{tokens} x {top} of {experts} x {inputs} x {outputs}"
        yield _row("experts, bf16", shape, taken, best, read, flops)


# ------------------------------------------------------------------ models


def make_model(folder: Path, shape: Any, dtype: str, device: str = "cpu") -> Path:
    from turnout.models.random.random_weights import write_random_checkpoint
    from turnout.models.random.shapes import config_of

    shards = 1 if shape.hidden < 1024 else 8
    config = config_of(shape, "llama", dtype=dtype)
    write_random_checkpoint(folder, config, seed=0, dtype=dtype, shards=shards, device=device)
    return folder


def check_greedy(device: torch.device, folder: Path) -> Rows:
    """Tokens of a small random model in float32, through the whole engine, against transformers'.

    Long enough to be replayed from graphs, whole or in pieces, where there are any. And how often a step
    waits for the device, but for tokens of the step before.
    """
    from turnout.bench.throughput import Transformers, random_prompts
    from turnout.models.random.shapes import Shape

    shape = Shape(128, 2, 4, 2, 256, 5000, max_positions=256)
    model = str(make_model(folder / "small", shape, "float32"))
    prompts = random_prompts(3, 9, seed=1)
    output = 24 if device.type == "cuda" else 6
    expected = Transformers(model, "float32", str(device)).generate(prompts, output)
    rows: Rows = []
    for way, options in GREEDY.items():
        found, waits = _served(model, prompts, output, device, options)
        assert found == expected, f"greedy tokens, {way}, differ: {found} and {expected}"
        rows.append({"check": f"greedy tokens, {way}", "equal": True, "waits_of_a_step": waits})
    return rows


GREEDY: dict[str, dict[str, Any]] = {
    "step after step": {"async_scheduling": False},
    "overlapping": {"async_scheduling": True},
    "in chunks": {"async_scheduling": True, "max_num_batched_tokens": 4},
}


def _served(
    model: str, prompts: list[list[int]], output: int, device: torch.device, options: dict[str, Any]
) -> tuple[list[list[int]], int]:
    """Tokens, and how often a step in the middle waited."""
    from turnout.config import EngineConfig
    from turnout.core.types.request import RequestSpec
    from turnout.core.types.sampling_params import SamplingParams
    from turnout.runner.assembly import build_engine

    config = EngineConfig(
        model=model,
        kv="paged:attention=triton",
        device=str(device),
        dtype="float32",
        kv_memory="8MiB",
        gpu_kernels="triton",
        **options,
    )
    engine = build_engine(config).engine
    params = SamplingParams(temperature=0, max_tokens=output, ignore_eos=True)
    found: dict[str, list[int]] = {str(number): [] for number in range(len(prompts))}
    for number, prompt in enumerate(prompts):
        engine.add(RequestSpec(id=str(number), prompt=prompt, params=params, seed=0))
    waits = []
    while engine.busy:
        deltas, waited = _watched(engine.step, device)
        waits.append(waited)
        for delta in deltas:
            found[delta.request_id] += delta.tokens
    return list(found.values()), waits[len(waits) // 2]


def _watched(step: Callable[[], Any], device: torch.device) -> tuple[Any, int]:
    """What a step returns, and how often it waited for the device."""
    if device.type != "cuda":
        return step(), 0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            result = step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return result, sum("synchroniz" in str(warning.message) for warning in caught)


def models(
    device: torch.device, folder: Path, reduced: bool, repeats: int, until: float, best: Any
) -> Iterator[dict[str, Any]]:
    from turnout.bench.gpu.models import MODELS, REDUCED, measure_models

    def make(name: str, shape: Any) -> Path:
        return make_model(folder / name, shape, "bfloat16", str(device))

    for row in measure_models(REDUCED if reduced else MODELS, make, device, repeats, until):
        rate = row.get("read_bytes_per_second")
        yield {**row, "of_roofline": rate / best["copy_bytes_per_second"] if rate else None}


def show(rows: Rows) -> None:
    for row in rows:
        click.echo("  " + "  ".join(f"{key} {_short(value)}" for key, value in row.items()))


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _named(device: torch.device, reduced: bool) -> dict[str, Any]:
    import transformers
    import triton

    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    return {
        "device": name,
        "driver": driver_version() if device.type == "cuda" else None,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "transformers": transformers.__version__,
        "reduced": reduced,
    }


def driver_version() -> str | None:
    """None: nvidia-smi is not there, or does not say."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return said.split("\n")[0].strip() or None


@click.command(help=__doc__)
@click.option("--reduced", is_flag=True, help="The same on a CPU, with next to no work.")
@click.option(
    "--repeats", default=3, show_default=True, help="Runs of models that count; their median is shown."
)
@click.option(
    "--part",
    "wanted",
    multiple=True,
    type=click.Choice(PARTS),
    default=PARTS,
    help="What to do; several times for several.  [default: all]",
)
@click.option("--minutes", default=9.0, show_default=True, help="After which no further model is measured.")
@click.option("--keep", type=click.Path(path_type=Path), help="Folder for the models, which stay there.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write all figures there.")
@click.option("--docs", is_flag=True, help="Write the table into docs/how-to/use-a-gpu.md, too.")
def main(
    reduced: bool,
    repeats: int,
    wanted: tuple[str, ...],
    minutes: float,
    keep: Path | None,
    json_file: Path | None,
    docs: bool,
) -> None:
    until = time.monotonic() + 60 * minutes
    check_installation()
    if not torch.cuda.is_available():
        if not reduced:
            raise click.UsageError("torch sees no GPU here; --reduced runs through on the CPU")
        os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    report = _named(device, reduced)
    report["command"] = " ".join(["python scripts/gpu_check.py", *(f"--part {part}" for part in wanted)])
    show([report])
    with kept_or_temporary(keep) as folder:
        best = roofline(device, reduced)
        report["roofline"] = [best]
        show(report["roofline"])
        parts: dict[str, Callable[[], Iterable[dict[str, Any]]]] = {
            "kernels": lambda: check_kernels(device, reduced),
            "greedy": lambda: check_greedy(device, folder),
            "kernel_times": lambda: time_kernels(device, reduced, best),
            "models": lambda: models(device, folder, reduced, repeats, until, best),
        }
        for part in wanted:
            click.echo(part)
            rows = report[part] = []
            for row in parts[part]():
                rows.append(row)
                show([row])
                if json_file:  # after each row: what comes later may fail
                    json_file.write_text(json.dumps(report, indent=2) + "\n")
    _tabulate(report, docs)


@contextmanager
def kept_or_temporary(folder: Path | None) -> Iterator[Path]:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        return
    with tempfile.TemporaryDirectory() as temporary:
        yield Path(temporary)


def _tabulate(report: dict[str, Any], docs: bool) -> None:
    if "kernel_times" not in report:
        return
    from turnout.bench.gpu.table import table
    from turnout.lab.results.markdown import write_marked

    text = table(report)
    click.echo("\n" + text)
    if docs:
        write_marked(ROOT / "docs" / "how-to" / "use-a-gpu.md", "measured", text)


if __name__ == "__main__":
    main()
