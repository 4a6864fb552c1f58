"""Playing the scenes of a profile with a real engine: what was in each step, and how long it took.

Most of a large scene's time would go into computing its context, and the steps of an overloaded server, with
hundreds of sequences and much context, would be the ones that there is no time to measure. How long it takes
to read the KV cache does not depend on what is in it, so all but a few of the steps that fill it are only
planned.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import count

import torch

from turnout.core.clock import Clock
from turnout.core.engine.engine import Engine
from turnout.core.interfaces.compute import Runner
from turnout.core.scheduling.scheduler import Capacity
from turnout.core.types.plan import Logits, Plan
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.kernels.gpu.staging import gather_rows
from turnout.lab.simulation.cost import Work, work_of
from turnout.lab.simulation.profiling.fit import StepSample
from turnout.lab.simulation.profiling.scenes import Scene
from turnout.lab.simulation.reach import EVERYTHING, Reach, reaches_of
from turnout.runner.assembly import AssembledEngine

__all__ = ["Stage", "TimedRunner"]

WAITING = 300
"""Requests, in the steps in which others wait."""


class Stage:
    """Plays scenes with one engine."""

    def __init__(self, assembled: AssembledEngine, clock: Clock) -> None:
        self._engine = engine = assembled.engine
        self._clock = clock
        self._planned = _PlannedOnly(engine.limits.vocab_size, assembled.dtype, assembled.device)
        self._runner = TimedRunner(engine.runner, engine, assembled.device, clock, reaches_of(assembled.spec))
        engine.runner = self._runner
        self._ids = count()
        self._rng = random.Random("profile")

    def play(self, scene: Scene, decodes: int, fills: int) -> list[StepSample]:
        """Every step that is computed: at most `fills` that fill its context, and `decodes` of each kind."""
        engine = self._engine
        capacity = engine.scheduler.capacity
        mine = [self._add(length, scene.output) for length in scene.lengths]
        steps = -(-sum(scene.lengths) // capacity.tokens)
        # Evenly among them: they differ in how much context is there already.
        samples = list(self._until_level({i * steps // fills for i in range(fills)}))
        samples += self._decodes(decodes, scene.settling)
        others = list[str]()
        for prompts in scene.prompts:
            self._settle(scene.settling)
            coming = [self._request(length, 1) for length in prompts]
            others += [request.id for request in coming]
            samples.append(self._step(coming))
        self._abort(others)
        engine.scheduler.capacity = Capacity(capacity.tokens, scene.batch)
        mine += [self._add(1, scene.output) for _ in range(WAITING)]
        samples += self._decodes(decodes, scene.settling)
        engine.scheduler.capacity = capacity
        self._abort(mine)
        return samples

    def _abort(self, requests: Iterable[str]) -> None:
        """Those that have not ended."""
        for request in requests:
            self._engine.abort(request)

    def _until_level(self, computed: Collection[int]) -> Iterator[StepSample]:
        """Steps until all can decode; those not `computed`, by place, are only planned."""
        queues = self._engine.scheduler.queues
        for place in count():
            if not queues.waiting_count and all(request.decode_ready for request in queues.running):
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

    def _decodes(self, steps: int, settling: int) -> list[StepSample]:
        self._settle(settling)
        return [self._step() for _ in range(steps)]

    def _settle(self, steps: int) -> None:
        for _ in range(steps):
            self._step()

    def _step(self, coming: Collection[RequestSpec] = ()) -> StepSample:
        """`coming`: requests of one token, which are taken in, computed and ended in the step."""
        since = self._clock()
        for request in coming:
            self._engine.add(request)
        self._engine.step()
        took = self._clock() - since
        self._runner.work.begun = len(coming)  # others came before, and end elsewhere
        return self._runner.sample(took)

    def _add(self, length: int, output: int) -> str:
        request = self._request(length, output)
        self._engine.add(request)
        return request.id

    def _request(self, length: int, output: int) -> RequestSpec:
        """A prompt of so many tokens that no request had before."""
        vocabulary = self._engine.limits.vocab_size
        return RequestSpec(
            id=f"profile-{next(self._ids)}",
            prompt=[self._rng.randrange(vocabulary) for _ in range(length)],
            params=SamplingParams(temperature=0.0, max_tokens=output, ignore_eos=True),
            seed=0,
        )


class _PlannedOnly(Runner):
    """Leaves the KV cache as it is and finds all tokens equally likely."""

    def __init__(self, vocab_size: int, dtype: torch.dtype, device: torch.device) -> None:
        self._values = torch.zeros(1, vocab_size, dtype=dtype, device=device)

    def run(self, plan: Plan) -> Logits:
        # All have the same row: requests here are of one choice and want only their last one's logits.
        rows = {chunk.sequence: range(1) for chunk in plan.chunks if chunk.rows}
        return Logits(self._values, rows, pick=gather_rows)


class TimedRunner(Runner):
    """A runner, and how long its last step took; stands in for an engine's own."""

    def __init__(
        self,
        runner: Runner,
        engine: Engine,
        device: torch.device,
        clock: Clock,
        reaches: Sequence[Reach] = EVERYTHING,
    ) -> None:
        self._runner, self._queues = runner, engine.scheduler.queues
        self._device, self._clock, self._reaches = device, clock, reaches
        self.work = Work()
        self.seconds = 0.0

    def run(self, plan: Plan) -> Logits:
        since = self._clock()
        logits = self._runner.run(plan)
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        self.seconds = self._clock() - since
        self.work = work_of(plan, reaches=self._reaches)
        self.work.running, self.work.waiting = self._queues.running_count, self._queues.waiting_count
        return logits

    def sample(self, whole: float) -> StepSample:
        """The sample of the last step, which took `whole` seconds in all."""
        return StepSample(self.work, self.seconds, max(0.0, whole - self.seconds))
