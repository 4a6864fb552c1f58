"""Measures a step of decoding on the host, all but the model: 256 requests running, nothing computed.

The real engine, scheduler, paged bookkeeping, runner, decoding strategies and messages, overlapping as on a
GPU, attention bound as for a captured graph. The model has no layers and hardly a vocabulary, so the little
that PyTorch computes by it is in these figures, and launching a GPU's kernels is not. One thread.

With `--ranks 2`, beside it, in turns, the same as rank 0 of two: `frame` and `send` are parts of `run`, and
`follow` is what the other rank does for a frame, in a process of its own. The table ends with how many times
as long as one device's step rank 0's takes, by the median of neighbouring turns; neither overlaps.
"""

from __future__ import annotations

import json
import os
import random
import socket
import statistics
import subprocess
import sys
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
from turnout.runner.ranks.channel import Receiver, Sender
from turnout.runner.ranks.followed_runner import FollowedRunner, FrameWriter
from turnout.runner.ranks.recorded_cache import RecordedCache, RecordedEviction, Recording
from turnout.runner.ranks.replay import Follower, followed_eviction

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
    """A follower's books and runner, without a model."""

    def __init__(self, positions: int) -> None:
        eviction, victims = followed_eviction()
        self.follower = Follower(PagedCache(PoolSize(positions), BLOCK, eviction), victims, self)

    def run(self, plan: Plan) -> Logits:
        return Logits(torch.empty(0, 0), {})


def follow(sock: int, positions: int) -> None:
    """Takes frames until there are no more, and prints how long each took, and its bytes."""
    torch.set_num_threads(1)
    took, sizes, follows = list[float](), list[int](), Follows(positions)
    take = _timed(follows.follower.take, took)
    with freeze_garbage():
        for frame in Receiver(socket.socket(fileno=sock)).messages():
            sizes.append(len(frame))
            take(frame)
    click.echo(json.dumps([took, sizes]))


class OtherRank:
    """A follower in a process of its own."""

    def __init__(self, positions: int) -> None:
        ours, theirs = socket.socketpair()
        command = [sys.executable, __file__, "--follow", str(theirs.fileno()), str(positions)]
        with theirs:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, text=True, pass_fds=[theirs.fileno()]
            )
        self.sender = Sender(ours)

    def close(self) -> tuple[list[float], list[int]]:
        """Returns how long each frame took, and its bytes."""
        self.sender.close()
        told, _ = self._process.communicate()
        took, sizes = json.loads(told)
        return took, sizes


def build(running: int, context: int, *, overlaps: bool = True, other: OtherRank | None = None) -> Engine:
    """With room for every request; other: as rank 0, beside that one."""
    followed = other is not None
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
    if other is not None:
        runner = FollowedRunner(runner, FrameWriter(kv, recording), other.sender.send)
    limits = Limits(context, VOCABULARY, running, frozenset())
    return Engine(
        scheduler, runner, decodings, limits, monotonic, None, LogitsProcessors(), overlaps=overlaps
    )


def measure(
    params: dict[str, Any], running: int, prompt: int, steps: int, *, overlaps: bool, ranks: int = 1
) -> dict[str, float]:
    """Milliseconds a step, medians: the whole of it, and of each stage. Of ranks also `bytes`, of a frame."""
    rng, context = random.Random(0), prompt + 2 * steps
    other = OtherRank(running * (context + BLOCK)) if ranks > 1 else None
    engine = build(running, context, overlaps=overlaps, other=other)
    encoder = msgspec.msgpack.Encoder()
    sampling_params = SamplingParams(max_tokens=2 * steps, **params)
    for number in range(running):
        tokens = [rng.randrange(VOCABULARY) for _ in range(prompt)]
        engine.add(RequestSpec(id=f"request-{number}", prompt=tokens, params=sampling_params, seed=number))
    times: dict[str, list[float]] = {stage: [] for stage in (*STAGES, "step", "frame", "send")}
    followed = engine.runner if isinstance(engine.runner, FollowedRunner) else None
    if followed is not None:
        followed.send = _timed(followed.send, times["send"])
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
    medians = {name: 1e3 * statistics.median(found[-steps:]) for name, found in times.items() if found}
    if other is not None:
        took, sizes = other.close()
        medians["follow"] = 1e3 * statistics.median(took[-steps:])
        medians["bytes"] = statistics.median(sizes[-steps:])
    return medians


def _timed(function: Callable[..., Any], times: list[float]) -> Callable[..., Any]:
    def timed(*arguments: Any) -> Any:
        started = time.perf_counter()
        result = function(*arguments)
        times.append(time.perf_counter() - started)
        return result

    return timed


def beside(
    params: dict[str, Any], running: int, prompt: int, steps: int, turns: int
) -> tuple[dict[str, float], dict[str, float], float]:
    """One device, rank 0 of two, and how many times as long the latter's step takes."""
    found: list[tuple[dict[str, float], dict[str, float]]] = []
    for _ in range(turns):
        alone = measure(params, running, prompt, steps, overlaps=False)
        found.append((alone, measure(params, running, prompt, steps, overlaps=False, ranks=2)))
    medians = [
        {name: statistics.median(each[name] for each in of) for name in of[0]}
        for of in ([alone for alone, _ in found], [ranked for _, ranked in found])
    ]
    return *medians, statistics.median(ranked["step"] / alone["step"] for alone, ranked in found)  # type: ignore[return-value]


@click.command(help=__doc__)
@click.option("--running", default=256, show_default=True, help="Requests.")
@click.option("--prompt", default=1024, show_default=True, help="Tokens of each.")
@click.option("--steps", default=200, show_default=True)
@click.option("--ranks", default=1, show_default=True, type=click.IntRange(1, 2))
@click.option("--turns", default=5, show_default=True, help="Of one device and of rank 0.")
@click.option("--follow", "followed", hidden=True, nargs=2, type=int)
@click.argument("names", nargs=-1, type=click.Choice(list(SAMPLING_PARAMS)))
def main(
    running: int,
    prompt: int,
    steps: int,
    ranks: int,
    turns: int,
    followed: tuple[int, int] | None,
    names: tuple[str, ...],
) -> None:
    """Print a table."""
    if followed:
        follow(*followed)
        return
    torch.set_num_threads(1)
    click.echo(f"{running} running, contexts of {prompt} tokens on; milliseconds a step, median of {steps}")
    columns = (*STAGES, "step", *(("frame", "send", "follow") if ranks > 1 else ()))
    click.echo(f"{'requests':<28}" + "".join(f"{name:>10}" for name in columns))

    def show(name: str, found: dict[str, float]) -> None:
        click.echo(f"{name:<28}" + "".join(f"{found.get(column, 0.0):>10.2f}" for column in columns))

    for name in names or SAMPLING_PARAMS:
        if ranks == 1:
            show(name, measure(SAMPLING_PARAMS[name], running, prompt, steps, overlaps=True))
            continue
        alone, ranked, ratio = beside(SAMPLING_PARAMS[name], running, prompt, steps, turns)
        show(f"{name}, one device", alone)
        show(f"{name}, rank 0 of 2", ranked)
        click.echo(f"{name}: {ratio:.2f} times as long, frames of {ranked['bytes']:,.0f} bytes")


if __name__ == "__main__":
    main()
