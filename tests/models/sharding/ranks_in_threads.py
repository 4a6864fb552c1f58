"""Ranks of one model as threads of this process: the mechanism alone, without processes and kernels."""

from __future__ import annotations

import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import torch
from torch import Tensor, nn

from turnout.core.interfaces.compute import ComputeContext
from turnout.core.interfaces.kv import PoolSize, Span
from turnout.core.registry.registry import Registry
from turnout.core.types.model_spec import ModelSpec
from turnout.core.types.plan import Chunk, Plan
from turnout.core.types.request import Request, RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.models.sharding.plan import ShardPlan, plan_shards
from turnout.models.sharding.stages import Stage
from turnout.plugins.decoding.greedy import Greedy
from turnout.plugins.evictions.lru import Lru
from turnout.runner.checkpoint import open_checkpoint
from turnout.runner.execution.model_runner import ModelRunner
from turnout.runner.kv_memory import KVHalves
from turnout.runner.policies import kv_for_model
from turnout.runner.weights import load_weights

_one_builds = threading.Lock()
CONTEXT = ComputeContext(torch.device("cpu"), torch.float32)
PROMPT = [3, 141, 59, 26, 53, 58, 97, 93, 23, 84, 62, 64, 33, 83, 27, 95, 2, 88, 41, 97, 16, 93, 99, 37, 51]


class Meeting:
    """Where threads exchange tensors."""

    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size, timeout=60)
        self.given: list[Tensor | None] = [None] * size
        self.ways: defaultdict[tuple[int, int], queue.Queue[Tensor]] = defaultdict(lambda: queue.Queue(1))

    def exchange(self, rank: int, x: Tensor) -> list[Tensor]:
        self.given[rank] = x.clone()
        self.barrier.wait()
        found = list(self.given)
        self.barrier.wait()
        return found


class ThreadCollective:
    """What models need of a Collective."""

    def __init__(self, meeting: Meeting, rank: int, size: int) -> None:
        self.meeting, self.rank, self.size = meeting, rank, size
        self.sums = 0

    def all_reduce(self, x: Tensor) -> Tensor:
        self.sums += 1
        total, *others = self.meeting.exchange(self.rank, x)
        total = total.clone()
        for other in others:
            total += other
        return total

    def all_reduce_max(self, x: Tensor) -> Tensor:
        return torch.stack(self.meeting.exchange(self.rank, x)).amax(0)

    def gather(self, x: Tensor, sizes: Sequence[int] | None = None) -> Tensor | None:
        given = self.meeting.exchange(self.rank, x)
        return torch.cat(given, dim=-1) if self.rank == 0 else None

    def all_gather(self, x: Tensor) -> Tensor:
        return torch.cat(self.meeting.exchange(self.rank, x))

    def send(self, x: Tensor, to: int) -> None:
        self.meeting.ways[self.rank, to].put(x.clone(), timeout=60)

    def receive(self, like: Tensor, source: int) -> Tensor:
        found = self.meeting.ways[source, self.rank].get(timeout=60)
        assert found.shape == like.shape
        assert found.dtype == like.dtype
        return found


def on_ranks(size: int, work: Callable[[ThreadCollective], object]) -> list:
    """Runs `work` on each rank; returns what it returned, in the order of ranks."""
    meeting = Meeting(size)

    def run(rank: int) -> object:
        try:
            with torch.inference_mode():
                return work(ThreadCollective(meeting, rank, size))
        except BaseException:
            meeting.barrier.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(run, rank) for rank in range(size)]
    faults = [future.exception() for future in futures if future.exception()]
    for fault in faults:
        if not isinstance(fault, threading.BrokenBarrierError):
            raise fault
    return [future.result() for future in futures]


def on_grid(
    parts: int, stages: int, work: Callable[[ThreadCollective, ThreadCollective], object]
) -> list[object]:
    """Runs `work` on each rank, which is one of `parts` of one of `stages`; rank 0's result comes first."""
    of_stage, of_part = [Meeting(parts) for _ in range(stages)], [Meeting(stages) for _ in range(parts)]

    def run(rank: int) -> object:
        stage, part = divmod(rank, parts)
        with torch.inference_mode():
            return work(
                ThreadCollective(of_stage[stage], part, parts), ThreadCollective(of_part[part], stage, stages)
            )

    with ThreadPoolExecutor(parts * stages) as pool:
        return list(pool.map(run, range(parts * stages)))


def load(
    folder: Path,
    collective: ThreadCollective | None = None,
    quantization: str = "none",
    line: ThreadCollective | None = None,
    layers: Sequence[int] = (),
    *,
    whole_experts: bool = False,
    impl: str = "auto",
) -> tuple[nn.Module, ModelSpec, ModelSpec]:
    """Returns a rank's share, its spec, and that of the layers whose keys and values it has."""
    registry = Registry.load()
    with nullcontext() if impl == "auto" else _one_builds:  # transformers sets dtypes of the whole process
        checkpoint = open_checkpoint(registry, str(folder), None, impl)
        spec, kept, shards = checkpoint.spec, checkpoint.spec, None
        if collective is not None:
            family = checkpoint.family
            shards = plan_shards(family, spec, collective, line, layers, whole_experts=whole_experts)
            spec, kept = shards.spec, shards.kv_spec
        model = load_weights(registry, checkpoint, quantization, CONTEXT, progress=False, shards=shards)
    return model, spec, kept


@torch.inference_mode()
def logits_of(
    folder: Path,
    collective: ThreadCollective | None = None,
    quantization: str = "none",
    line: ThreadCollective | None = None,
    layers: Sequence[int] = (),
    *,
    whole_experts: bool = False,
    impl: str = "auto",
) -> Tensor:
    """The logits of a prompt in two chunks, the rest token by token: [tokens, vocabulary] on rank 0."""
    model, spec, kept = load(
        folder, collective, quantization, line, layers, whole_experts=whole_experts, impl=impl
    )
    halves = KVHalves(kv_for_model(Registry.load().create("kv", "paged"), spec), kept, CONTEXT)
    cache = halves.cache(PoolSize(256), Lru())
    runner = ModelRunner(model, halves.attention(cache), CONTEXT.device)
    request = Request(
        RequestSpec(id="r", prompt=PROMPT, params=SamplingParams(), seed=0), Greedy(), 0.0, 64, frozenset()
    )
    (sequence,) = request.live
    assert cache.reserve([Span(sequence, 0, len(PROMPT))])
    found, start = [], 0
    for length in (9, 7, *[1] * (len(PROMPT) - 16)):
        chunk = Chunk(sequence, start, PROMPT[start : start + length], length)
        step = runner.begin(Plan([chunk], cache.drain()))
        if isinstance(model, Stage):
            model.pass_on()
        found.append(runner.finish(step).values)
        start += length
    return torch.cat(found)


def shards_of(folder: Path, size: int) -> ShardPlan:
    registry = Registry.load()
    checkpoint = open_checkpoint(registry, str(folder))
    return plan_shards(checkpoint.family, checkpoint.spec, ThreadCollective(Meeting(size), 0, size))


def assert_as_on_one_device(together: Tensor, alone: Tensor, within: float, *, codes: bool = False) -> None:
    """within: relative to the largest logit, if that is above 1.

    codes: activations are rounded to 8 bits. A number near the middle of two codes becomes one of them on
    ranks and the other on one device, which moves all logits of its token; few tokens have such a number.
    """
    largest = max(1.0, float(alone.abs().max()))
    differences = (together - alone).abs().amax(1)
    if codes:
        moved = differences > within * largest
        assert moved.float().mean() <= 0.1, differences
        assert float(differences.max()) <= 1e-2 * largest
        differences = differences[~moved]
    assert float(differences.max()) <= within * largest
    assert (together.argmax(-1) == alone.argmax(-1)).all()
