"""Measures a step of decoding on the host, all but the model: 256 requests running, nothing computed.

The real engine, scheduler, paged bookkeeping, runner, decoding strategies and messages, overlapping as on a
GPU, attention bound as for a captured graph. The model has no layers and hardly a vocabulary, so the little
that PyTorch computes by it is in these figures, and launching a GPU's kernels is not. One thread.
"""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TRITON_INTERPRET", "1")  # kernels are bound, and none is launched

import click
import msgspec
import torch
from torch import Tensor, nn

from turnout.core.clock import monotonic
from turnout.core.engine.admission import Limits
from turnout.core.engine.engine import Engine
from turnout.core.engine.logits_processing import LogitsProcessors
from turnout.core.interfaces.compute import ComputeContext, Runner
from turnout.core.interfaces.decoding import Decoding
from turnout.core.interfaces.kv import KVCache, PoolSize
from turnout.core.process import freeze_garbage
from turnout.core.registry.registry import Registry
from turnout.core.scheduling.guarded_eviction import GuardedEviction
from turnout.core.scheduling.scheduler import Capacity, Scheduler
from turnout.core.types.model_spec import ModelSpec
from turnout.core.types.plan import Logits, Plan
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.models.families import Llama
from turnout.models.random.shapes import Shape, config_of
from turnout.plugins.evictions.lru import Lru
from turnout.plugins.kv_backends.paged.device.kernel_attention import PagedKernels
from turnout.plugins.kv_backends.paged.host.cache import PagedCache
from turnout.plugins.predictors.max_tokens import MaxTokens
from turnout.runner.execution.capture import CapturedPieces
from turnout.runner.execution.model_runner import ModelRunner
from turnout.runner.ranks.followed_runner import FollowedRunner, FrameWriter
from turnout.runner.ranks.recorded_cache import RecordedCache, RecordedEviction, Recording
from turnout.runner.ranks.replay import FollowedEviction, Follower, followed_eviction

VOCABULARY = 64
BLOCK = 16
SAMPLING_PARAMS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "sampled": {"temperature": 0.8},
    "top_p 0.9": {"temperature": 0.8, "top_p": 0.9},
    "log-probabilities": {"temperature": 0, "logprobs": 1},
}
STAGES = ("plan", "run", "resolve", "decide", "encode")


class Nothing(nn.Module):
    """A model that computes nothing: its logits are the same for every token."""

    def forward(self, ids: Tensor, positions: Tensor, attend: object) -> Tensor:
        return torch.zeros(len(ids), 1)

    def logits(self, hidden: Tensor) -> Tensor:
        return torch.zeros(len(hidden), VOCABULARY)


class Replays:
    """Stands in for CUDA graphs: a replay does nothing."""

    def capture(self, work: Callable[[], Tensor]) -> Callable[[], Tensor]:
        out = work()
        return lambda: out

    def capture_pieces(self, work: Callable[[Callable[[], None]], Tensor]) -> CapturedPieces:
        return CapturedPieces([], work(lambda: None))


class Follows:
    """A follower in this process: what it does for a frame is timed by itself."""

    def __init__(self, kv: KVCache, victims: FollowedEviction) -> None:
        self.follower = Follower(kv, victims, self)
        self.frames: list[int] = []

    def run(self, plan: Plan) -> Logits:
        return Logits(torch.empty(0, 0), {})

    def take(self, frame: bytes) -> None:
        self.frames.append(len(frame))
        self.follower.take(frame)


def build(running: int, context: int, *, overlaps: bool = True, followed: bool = False) -> Engine:
    """With room for every request."""
    registry = Registry.load()
    shape = Shape(16, 1, 1, 1, 16, VOCABULARY)
    spec: ModelSpec = Llama().spec(config_of(shape, "llama"))
    size, recording = PoolSize(running * (context + BLOCK)), Recording()
    kv = PagedCache(size, BLOCK, RecordedEviction(GuardedEviction(Lru()), recording) if followed else Lru())
    device = torch.device("cpu")
    attention = PagedKernels(spec, kv, ComputeContext(device, torch.float32))
    capacity, policy = Capacity(8192, running), registry.create("scheduler", "fcfs")
    books: KVCache = RecordedCache(kv, recording) if followed else kv
    scheduler = Scheduler(policy, books, capacity, MaxTokens(), grows_at=BLOCK)
    decodings: list[Decoding] = [registry.create("decoding", name) for name in ("greedy", "sampling")]
    runner: Runner = ModelRunner(Nothing(), attention, device, Replays())
    if followed:
        eviction, victims = followed_eviction()
        follows = Follows(PagedCache(size, BLOCK, eviction), victims)
        runner = FollowedRunner(runner, FrameWriter(kv, recording), follows.take)
    limits = Limits(context, VOCABULARY, running, frozenset())
    return Engine(
        scheduler, runner, decodings, limits, monotonic, None, LogitsProcessors(), overlaps=overlaps
    )


def measure(params: dict[str, Any], running: int, prompt: int, steps: int, ranks: int) -> dict[str, float]:
    """Milliseconds a step, medians: the whole of it, and of each stage."""
    rng = random.Random(0)
    engine = build(running, prompt + 2 * steps, overlaps=not ranks, followed=ranks > 1)
    encoder = msgspec.msgpack.Encoder()
    sampling_params = SamplingParams(max_tokens=2 * steps, **params)
    for number in range(running):
        tokens = [rng.randrange(VOCABULARY) for _ in range(prompt)]
        engine.add(RequestSpec(id=f"request-{number}", prompt=tokens, params=sampling_params, seed=number))
    times: dict[str, list[float]] = {stage: [] for stage in (*STAGES, "step", "frame", "follow")}
    followed = engine.runner if isinstance(engine.runner, FollowedRunner) else None
    if followed is not None:
        followed.send = _timed(followed.send, times["follow"])
        followed.frames.frame = _timed(followed.frames.frame, times["frame"])  # type: ignore[method-assign]
    for place, name in (
        (engine.scheduler, "plan"),
        (engine.runner, "run"),
        (engine, "_resolve_in_flight"),
        (engine, "_decide"),
    ):
        stage = name.removeprefix("_").removesuffix("_in_flight")
        setattr(place, name, _timed(getattr(place, name), times[stage]))
    encode = _timed(encoder.encode, times["encode"])
    step = _timed(lambda: encode(engine.step()), times["step"])
    while (
        not all(request.decode_ready for request in engine.scheduler.queues.running)
        or not engine.stats().steps
    ):
        step()
    while engine.scheduler.queues.waiting_count:
        step()
    with freeze_garbage():
        for _ in range(steps):
            step()
    return {name: 1e3 * statistics.median(found[-steps:]) for name, found in times.items() if found}


def _timed(function: Callable[..., Any], times: list[float]) -> Callable[..., Any]:
    def timed(*arguments: Any) -> Any:
        started = time.perf_counter()
        result = function(*arguments)
        times.append(time.perf_counter() - started)
        return result

    return timed


@click.command(help=__doc__)
@click.option("--running", default=256, show_default=True, help="Requests.")
@click.option("--prompt", default=1024, show_default=True, help="Tokens of each.")
@click.option("--steps", default=200, show_default=True)
@click.option(
    "--ranks",
    default=0,
    show_default=True,
    help="1: steps do not overlap; 2: and a follower in this process repeats them. `frame` and `follow` are "
    "parts of `run`.",
)
@click.argument("names", nargs=-1, type=click.Choice(list(SAMPLING_PARAMS)))
def main(running: int, prompt: int, steps: int, ranks: int, names: tuple[str, ...]) -> None:
    """Print a table."""
    torch.set_num_threads(1)
    click.echo(f"{running} running, contexts of {prompt} tokens on; milliseconds a step, median of {steps}")
    columns = (*STAGES, "step", *(("frame", "follow") if ranks > 1 else ()))
    click.echo(f"{'requests':<20}" + "".join(f"{name:>10}" for name in columns))
    for name in names or SAMPLING_PARAMS:
        found = measure(SAMPLING_PARAMS[name], running, prompt, steps, ranks)
        click.echo(f"{name:<20}" + "".join(f"{found.get(stage, 0.0):>10.2f}" for stage in columns))


if __name__ == "__main__":
    main()
