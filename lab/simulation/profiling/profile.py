"""Measuring what steps take on this machine, and fitting a cost model to it.

A real engine serves made-up requests in steps over a grid: so many sequences, each with so much context; then
prompts among them; then others that wait. Every step is a sample: what was in it, and how long it took, in
the runner and around it. Each round goes over the grid again, and of equal steps the mean counts: their sum
is what a run takes.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from statistics import mean, median

import torch

from turnout.config import EngineConfig
from turnout.core.clock import Clock
from turnout.core.engine.engine import Engine
from turnout.core.errors import ConfigError
from turnout.core.process import freeze_garbage
from turnout.core.types.plan import Move, Plan, Way
from turnout.lab.simulation.cost import CostModel
from turnout.lab.simulation.profiling.fit import StepSample, fit
from turnout.lab.simulation.profiling.scenes import DECODES, FEW_SEQUENCES, Scene, scenes
from turnout.lab.simulation.profiling.stage import Stage
from turnout.runner.assembly import AssembledEngine, build_engine
from turnout.runner.execution.model_runner import ModelRunner

__all__ = ["Profiler", "profile", "touch"]

FEW_DECODES = 2
"""The same where there is no time for all scenes: more different ones say more than more of the same."""
SLICE = 0.1
"""Share of all the time that a scene may be expected to take."""
FEW = 200
"""Tokens that are computed in a scene, from which on it says what one of them takes."""
TOKENS_OF_A_STEP = 16
"""Tokens that take as long as a small step; a guess, until a scene says."""
SMALL_MODEL = 0.01
"""Seconds: caches hold much of what a small step of a small model reads, which takes less than that. Where
there is little time, only small steps of such models are worth those that settle."""
MIN_KINDS = 60
"""Different steps that are measured however long that takes."""

Progress = Callable[[float], None]
"""Told how much is done, from 0 to 1."""


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
    with freeze_garbage():
        for share in profiler.measure(seconds):
            progress(share)
        return profiler.cost(name)


class Profiler:
    """Measures the steps of an engine of its own, scene by scene."""

    def __init__(self, config: EngineConfig, clock: Clock) -> None:
        # Steps of known contents, one after the other: without speculation.
        alone = {"spec_draft": None, "spec_ngram": False, "spec_tokens": None, "async_scheduling": False}
        config = config.model_copy(update=alone)
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
        self._stage = Stage(assembled, clock)
        self._taken: dict[tuple[Scene, int], list[StepSample]] = {}

    def measure(self, seconds: float) -> Iterator[float]:
        """Go over the grid until the time is up; over a part of it where once takes longer than that.

        Scenes that would take much of the time are left out. Yields how much is done, from 0 to 1, after each
        scene. Time that passes outside does not count.
        """
        self._stage.play(self._grid[0], FEW_DECODES, 1)  # the first steps are slow for reasons of their own
        step = median(s.device + s.host for s in self._stage.play(self._grid[0], FEW_DECODES, 1))
        small = self._grid[0].settled().small_steps(DECODES)
        decodes = DECODES if small * step * len(self._grid) < seconds else FEW_DECODES
        spent, token, played = 0.0, step / TOKENS_OF_A_STEP, []
        for scene in _spread(self._grid):
            if spent >= seconds and len(self._taken) >= MIN_KINDS:
                break
            if decodes == DECODES or (step < SMALL_MODEL and scene.batch <= FEW_SEQUENCES):
                scene = scene.settled()
            small = scene.small_steps(decodes)
            least = small * step
            room = int((max(SLICE * seconds, 2 * least) - least) / token) - small * scene.batch
            if room < 0:
                continue
            scene = scene.with_prompts(decodes, room)
            prompts, context = sum(map(sum, scene.prompts)), sum(scene.lengths)
            fills = min(decodes, (room - prompts) // min(context, self._most_tokens))
            took = self._play(scene, decodes, fills)
            computed = small * scene.batch + prompts + min(context, fills * self._most_tokens)
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
    kv, piece = engine.scheduler.kv, 4096
    size = kv.capacity * max(1, len(kv.snapshot().groups))
    for start in range(piece, size, piece):
        engine.runner.run(Plan([], [Move(0, start, min(piece, size - start), "copy")]))


def _spread(grid: Sequence[Scene]) -> list[Scene]:
    """An order of which any beginning has small and large scenes, evenly (van der Corput's sequence)."""
    bits = len(grid).bit_length()
    places = sorted(range(len(grid)), key=lambda place: f"{place:0{bits}b}"[::-1])
    return [grid[place] for place in places]


def _mean(samples: list[StepSample]) -> StepSample:
    """The mean of equal steps."""
    device, host = (mean(getattr(s, part) for s in samples) for part in ("device", "host"))
    return replace(samples[0], device=device, host=host)


def _move_seconds(assembled: AssembledEngine, clock: Clock) -> float:
    """Seconds of a position, over all layers, that is swapped out or in, or copied where there is no swap
    memory.
    """
    engine, device = assembled.engine, assembled.device
    kv = engine.scheduler.kv
    state = kv.snapshot()
    swap = state.swap
    length = min(2048, engine.limits.max_model_len, kv.capacity // 2, swap or kv.capacity)
    target = 0 if swap else length
    away: Way = "swap_out" if swap else "copy"
    home: Way = "swap_in" if swap else "copy"
    moves = [Move(0, target, length, away), Move(0, target, length, home)]
    times = []
    for _ in range(5):
        since = clock()
        engine.runner.run(Plan([], moves))
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(clock() - since)
    return median(times) / (2 * length) * max(1, len(state.groups))  # a move is of one group's layers
