"""Measuring what steps take on this machine, and fitting a cost model to it.

A real engine serves made-up requests in steps over a grid: so many sequences, each with so much context; then
prompts among them; then others that wait. Every step is a sample: what was in it, and how long it took, in
the runner and around it. Each round goes over the grid again, and of equal steps the mean counts: their sum
is what a run takes.

Most of a large scene's time would go into computing its context, and the steps of an overloaded server, with
hundreds of sequences and much context, would be the ones that there is no time to measure. How long it takes
to read the KV cache does not depend on what is in it, so all but a few of the steps that fill it are only
planned.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from statistics import mean, median

import torch

from turnout.core.clock import Clock
from turnout.core.config import EngineConfig
from turnout.core.engine import Engine
from turnout.core.errors import ConfigError
from turnout.core.garbage import steady
from turnout.core.interfaces import Runner
from turnout.core.plan import Logits, Move, Plan, Way
from turnout.core.request import RequestSpec
from turnout.core.sampling_params import SamplingParams
from turnout.core.scheduler import Capacity
from turnout.lab.simulation.cost import CostModel, Work, work_of
from turnout.lab.simulation.fit import Sample, fit
from turnout.runner.assembly import AssembledEngine, build_engine
from turnout.runner.model_runner import ModelRunner

__all__ = ["Profiler", "Scene", "TimedRunner", "profile", "scenes", "touch"]

DECODES = 5
"""Steps in which all of a scene's sequences decode, and as many with prompts among them, and with others
waiting. At most as many compute its context."""
PROMPTS = ((1 / 64,), (1 / 12,), (3 / 8,), (1.0,), (1 / 5,) * 5)
"""What else comes in such steps: prompts of these shares of the tokens that a step computes at most."""
FEW_DECODES = 2
"""The same where there is no time for all scenes: more different ones say more than more of the same."""
WAITING = 300
SLICE = 0.1
"""Share of all the time that a scene may be expected to take."""
FEW = 200
"""Tokens that are computed in a scene, from which on it says what one of them takes."""
TOKENS_OF_A_STEP = 16
"""Tokens that take as long as a small step; a guess, until a scene says."""
ENOUGH = 60
"""Different steps that are measured however long that takes."""

Progress = Callable[[float], None]
"""Told how much is done, from 0 to 1."""


@dataclass(frozen=True)
class Scene:
    """A point of the grid."""

    batch: int
    """Sequences."""
    context: int
    """Tokens that each one begins with."""
    prompts: tuple[tuple[int, ...], ...]
    """Tokens of those that come while they decode, by the step that they come in."""
    output: int
    """Tokens that each may produce: more than there are steps."""
    spread: bool = False
    """Their contexts are from this long down to an eighth of it, not all alike."""

    @property
    def lengths(self) -> list[int]:
        """Of their contexts."""
        shares = (1.0, 0.5, 0.75, 0.25, 0.125) if self.spread else (1.0,)
        return [max(1, int(self.context * shares[i % len(shares)])) for i in range(self.batch)]

    @property
    def tokens(self) -> int:
        """Positions that it takes at most."""
        return self.batch * (self.context + self.output) + max(map(sum, self.prompts))

    def with_prompts(self, steps: int, room: int) -> Scene:
        """With those of its first `steps` steps' prompts that take no more than so many tokens together."""
        taken = list[tuple[int, ...]]()
        for lengths in self.prompts[:steps]:
            if sum(lengths) <= room:
                taken.append(lengths)
                room -= sum(lengths)
        return replace(self, prompts=tuple(taken))


def scenes(most_sequences: int, most_tokens: int, longest: int, pool: int) -> list[Scene]:
    """The grid, small ones first. `most_tokens`: of a step; `longest`: a request; `pool`: KV positions."""
    # Not powers of two: kernels are at their best with those, and batches that come up are others.
    batches = [size for size in (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233) if size < most_sequences]
    contexts = (4, 16, 64, 192, 448, 960, 1984, 4032)
    prompts = [
        tuple(max(1, min(int(share * most_tokens), longest - 1)) for share in shares) for shares in PROMPTS
    ]
    grid = [
        Scene(batch, context, _turned(prompts, i + j), _output(batch, context, most_tokens), spread)
        for i, batch in enumerate(batches)
        for j, context in enumerate(contexts)
        for spread in (False, True)[:batch]
    ]
    possible = [
        scene for scene in grid if scene.context + scene.output <= longest and scene.tokens <= 0.8 * pool
    ]
    return sorted(possible, key=lambda scene: scene.tokens)


def _turned(prompts: Sequence[tuple[int, ...]], by: int) -> tuple[tuple[int, ...], ...]:
    """Others come first, for scenes that have no time for all."""
    by %= len(prompts)
    return (*prompts[by:], *prompts[:by])


def _spread(grid: Sequence[Scene]) -> list[Scene]:
    """In an order of which any beginning has small ones and large ones, evenly (van der Corput's)."""
    bits = len(grid).bit_length()
    places = sorted(range(len(grid)), key=lambda place: f"{place:0{bits}b}"[::-1])
    return [grid[place] for place in places]


def _output(batch: int, context: int, most_tokens: int) -> int:
    """More than there are steps: those that compute the prompts, and those after them."""
    return 4 * DECODES + batch * context // most_tokens


def profile(
    config: EngineConfig,
    *,
    seconds: float = 60.0,
    name: str = "",
    clock: Clock = time.perf_counter,
    progress: Progress = lambda share: None,
) -> CostModel:
    """Measure for about so many `seconds`. Raises TurnoutError where too little can be measured.

    `clock` times the steps; `time.thread_time`, where everything is computed in one thread, does not count
    what else the machine does.
    """
    profiler = Profiler(config, clock)
    with steady():
        for share in profiler.measure(seconds):
            progress(share)
        return profiler.cost(name)


class Profiler:
    """Measures the steps of an engine of its own, scene by scene."""

    def __init__(self, config: EngineConfig, clock: Clock) -> None:
        # Steps of known contents: nobody guesses ahead.
        config = config.model_copy(update={"spec_draft": None, "spec_ngram": False, "spec_tokens": None})
        self._model, self._clock = config.model, clock
        self._assembled = assembled = build_engine(config)
        engine = assembled.engine
        capacity = engine.scheduler.capacity
        self._grid = scenes(
            capacity.sequences, capacity.tokens, engine.limits.max_model_len, engine.scheduler.kv.capacity
        )
        if not self._grid:
            raise ConfigError(
                f"there is too little room to measure steps in: {capacity.sequences} sequences at most, of "
                f"{engine.limits.max_model_len} tokens at most, and {engine.scheduler.kv.capacity} positions "
                "of KV memory; raise --max-num-seqs (2 at least), --max-model-len or --kv-memory"
            )
        self._most_tokens = capacity.tokens
        touch(engine)
        self._runner = engine.runner
        self._stage = _Stage(assembled, clock)
        self._taken: dict[tuple[Scene, int], list[Sample]] = {}

    def measure(self, seconds: float) -> Iterator[float]:
        """Go over the grid until the time is up; over a part of it where once takes longer than that.

        Scenes that would take much of the time are left out. Yields how much is done, from 0 to 1, after each
        scene. Time that passes outside does not count.
        """
        self._stage.play(self._grid[0], FEW_DECODES, 1)  # the first steps are slow for reasons of their own
        step = median(s.device + s.host for s in self._stage.play(self._grid[0], FEW_DECODES, 1))
        decodes = DECODES if 3 * DECODES * step * len(self._grid) < seconds else FEW_DECODES
        least = 3 * decodes * step
        longest = max(SLICE * seconds, 2 * least)
        spent, token, played = 0.0, step / TOKENS_OF_A_STEP, []
        for scene in _spread(self._grid):
            if spent >= seconds and len(self._taken) >= ENOUGH:
                break
            room = int((longest - least) / token) - 3 * decodes * scene.batch
            if room < 0:
                continue
            scene = scene.with_prompts(decodes, room)
            prompts, context = sum(map(sum, scene.prompts)), sum(scene.lengths)
            fills = min(decodes, (room - prompts) // min(context, self._most_tokens))
            took = self._play(scene, decodes, fills)
            computed = 3 * decodes * scene.batch + prompts + min(context, fills * self._most_tokens)
            if computed > FEW and took > least:
                token = (took - least) / computed
            spent += took
            played.append((scene, fills))
            yield min(1.0, spent / seconds)
        rng = random.Random("order")
        while spent < seconds:
            # In another order each time: what slows a machine lasts for seconds, and is to befall all sizes.
            for scene, fills in rng.sample(played, len(played)):
                if spent < seconds:
                    spent += self._play(scene, decodes, fills)
                    yield min(1.0, spent / seconds)

    def lend_weights(self, engine: Engine) -> None:
        """Have an engine of the same model compute by the very weights that are measured here.

        Of equal ones at other places in memory, steps take a few percent more or less.
        """
        runner = engine.runner
        assert isinstance(runner, ModelRunner) and isinstance(self._runner, ModelRunner)
        runner.model = self._runner.model

    def _play(self, scene: Scene, decodes: int, fills: int) -> float:
        """Measure one scene. Seconds that it took, between its steps as well."""
        since = time.perf_counter()
        for place, sample in enumerate(self._stage.play(scene, decodes, fills)):
            self._taken.setdefault((scene, place), []).append(sample)
        return time.perf_counter() - since

    def cost(self, name: str = "") -> CostModel:
        """Fitted to what was measured so far. Raises TurnoutError where that is too little."""
        assembled = self._assembled
        samples = [_mean(samples) for samples in self._taken.values()]
        coefficients, quality = fit(samples, _move_seconds(assembled, self._clock))
        ready, device = assembled.ready, assembled.device
        return CostModel(
            name=name or f"{self._model} on {device}",
            note="; ".join(ready.summary[:2]),
            device="cuda" if device.type == "cuda" else "cpu",
            kv_memory=assembled.engine.scheduler.kv.capacity * ready.kv_bytes_per_token,
            itemsize=assembled.dtype.itemsize,
            model=assembled.spec,
            seconds=coefficients,
            fit=quality,
        )


def touch(engine: Engine) -> None:
    """Have the system hand out the KV pool's memory, as it has to a server that has run for a while.

    It does so when memory is first touched, and on a virtual machine that takes longer than computing it.
    """
    size, piece = engine.scheduler.kv.capacity, 4096
    for start in range(piece, size, piece):
        engine.runner.run(Plan([], [Move(0, start, min(piece, size - start), "copy")]))


def _mean(samples: list[Sample]) -> Sample:
    """Of equal steps."""
    device, host = (mean(getattr(s, part) for s in samples) for part in ("device", "host"))
    return replace(samples[0], device=device, host=host)


class _Stage:
    """Plays scenes with one engine."""

    def __init__(self, assembled: AssembledEngine, clock: Clock) -> None:
        self._engine = engine = assembled.engine
        self._clock = clock
        self._planned = _PlannedOnly(engine.limits.vocab_size, assembled.dtype, assembled.device)
        self._runner = TimedRunner(engine.runner, engine, assembled.device, clock)
        engine.runner = self._runner
        self._ids = count()
        self._rng = random.Random("profile")

    def play(self, scene: Scene, decodes: int, fills: int) -> list[Sample]:
        """Every step that is computed: at most `fills` that fill its context, and `decodes` of each kind."""
        engine = self._engine
        capacity = engine.scheduler.capacity
        mine = [self._add(length, scene.output) for length in scene.lengths]
        steps = -(-sum(scene.lengths) // capacity.tokens)
        # Evenly among them: they differ in how much context is there already.
        samples = list(self._until_level({i * steps // fills for i in range(fills)}))
        samples += self._steps(decodes)
        others = list[str]()
        for prompts in scene.prompts:
            others += [self._add(length, 1) for length in prompts]
            samples.append(self._step())
        self._abort(others)
        engine.scheduler.capacity = Capacity(capacity.tokens, scene.batch)
        mine += [self._add(1, scene.output) for _ in range(WAITING)]
        samples += self._steps(decodes)
        engine.scheduler.capacity = capacity
        self._abort(mine)
        return samples

    def _abort(self, requests: Iterable[str]) -> None:
        """Those that have not ended."""
        for request in requests:
            self._engine.abort(request)

    def _until_level(self, computed: Collection[int]) -> Iterator[Sample]:
        """Steps until all can decode; those not `computed`, by place, are only planned."""
        queues = self._engine.scheduler.queues
        for place in count():
            if not queues.waiting_count and all(request.level for request in queues.running):
                return
            if place in computed:
                yield self._step()
            else:
                self._plan()

    def _plan(self) -> None:
        """A step that computes nothing."""
        self._engine.runner = self._planned
        self._engine.step()
        self._engine.runner = self._runner

    def _steps(self, steps: int) -> list[Sample]:
        return [self._step() for _ in range(steps)]

    def _step(self) -> Sample:
        since = self._clock()
        self._engine.step()
        return self._runner.sample(self._clock() - since)

    def _add(self, length: int, output: int) -> str:
        """A prompt of so many tokens that nobody has seen before."""
        vocabulary = self._engine.limits.vocab_size
        request = RequestSpec(
            id=f"profile-{next(self._ids)}",
            prompt=[self._rng.randrange(vocabulary) for _ in range(length)],
            params=SamplingParams(temperature=0.0, max_tokens=output, ignore_eos=True),
            seed=0,
        )
        self._engine.add(request)
        return request.id


class _PlannedOnly(Runner):
    """Leaves the KV cache as it is and finds all tokens equally likely."""

    def __init__(self, vocab_size: int, dtype: torch.dtype, device: torch.device) -> None:
        self._values = torch.zeros(1, vocab_size, dtype=dtype, device=device)

    def run(self, plan: Plan) -> Logits:
        # All have the same row: requests here are of one choice and want only their last one's logits.
        return Logits(self._values, {chunk.sequence: range(1) for chunk in plan.chunks if chunk.rows})


class TimedRunner(Runner):
    """A runner, and how long its last step took; stands in for an engine's own."""

    def __init__(self, runner: Runner, engine: Engine, device: torch.device, clock: Clock) -> None:
        self._runner, self._queues = runner, engine.scheduler.queues
        self._device, self._clock = device, clock
        self.work = Work()
        self.seconds = 0.0

    def run(self, plan: Plan) -> Logits:
        since = self._clock()
        logits = self._runner.run(plan)
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        self.seconds = self._clock() - since
        self.work = work_of(plan)
        self.work.running, self.work.waiting = self._queues.running_count, self._queues.waiting_count
        return logits

    def sample(self, whole: float) -> Sample:
        """Of the last step, which took so many seconds in all."""
        return Sample(self.work, self.seconds, max(0.0, whole - self.seconds))


def _move_seconds(assembled: AssembledEngine, clock: Clock) -> float:
    """Of a position that is parked or restored, or copied where there is nowhere to park."""
    engine, device = assembled.engine, assembled.device
    kv = engine.scheduler.kv
    parking = kv.snapshot().parking
    length = min(2048, engine.limits.max_model_len, kv.capacity // 2, parking or kv.capacity)
    target = 0 if parking else length
    away: Way = "park" if parking else "copy"
    home: Way = "restore" if parking else "copy"
    moves = [Move(0, target, length, away), Move(0, target, length, home)]
    times = []
    for _ in range(5):
        since = clock()
        engine.runner.run(Plan([], moves))
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(clock() - since)
    return median(times) / (2 * length)
