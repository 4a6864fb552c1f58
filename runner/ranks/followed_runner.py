"""Runs steps on rank 0, and has followers run them too."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import msgspec

from turnout.core.interfaces.compute import Runner
from turnout.core.interfaces.kv import KVCache
from turnout.core.types.plan import Logits, Plan
from turnout.models.sharding.stages import Stage
from turnout.runner.execution.model_runner import BegunStep, ModelRunner
from turnout.runner.ranks.frames import DIGEST_EVERY, Frame, digest_of, digest_of_moves
from turnout.runner.ranks.recorded_cache import Recording

__all__ = ["FollowedRunner", "FrameWriter", "StagedRunner"]


class FrameWriter:
    """Makes a frame of what was recorded and of a plan."""

    def __init__(self, cache: KVCache, recording: Recording) -> None:
        """cache: the one whose transitions are recorded."""
        self._cache = cache
        self._recording = recording
        self._number = 0
        self._encode = msgspec.msgpack.Encoder().encode

    def frame(self, plan: Plan) -> bytes:
        """Returns the frame of a step; what was recorded is forgotten. No token of `plan` is in flight."""
        recorded, chunks = self._recording, plan.chunks
        self._number += 1
        special = [(at, chunk) for at, chunk in enumerate(chunks) if chunk.scored or chunk.pooled is not None]
        frame = Frame(
            self._number,
            recorded.ops,
            recorded.entered,
            recorded.pins,
            recorded.victims,
            digest_of_moves(plan.moves),
            None if self._number % DIGEST_EVERY else digest_of(self._cache),
            [chunk.sequence.id for chunk in chunks],
            [chunk.start for chunk in chunks],
            [chunk.rows for chunk in chunks],
            [chunk.tokens for chunk in chunks],
            [(at, *_ends(chunk.scored)) for at, chunk in special if chunk.scored],
            [(at, *_ends(chunk.pooled)) for at, chunk in special if chunk.pooled is not None],
        )
        data = self._encode(frame)
        recorded.clear()
        return data


def _ends(positions: range) -> tuple[int, int]:
    return positions.start, positions.stop


class FollowedRunner:
    """Sends each step's frame to followers, then runs the step itself; implements Runner."""

    def __init__(self, runner: Runner, frames: FrameWriter, send: Callable[[bytes], None]) -> None:
        self._runner = runner
        self.frames = frames
        self.send = send

    def run(self, plan: Plan) -> Logits:
        self.send(self.frames.frame(plan))
        return self._runner.run(plan)


class StagedRunner:
    """Sends each step's frame to followers, and computes the first stage of a pipeline; implements
    PipelinedRunner.

    What the first stage computed is passed on when the last one has room for its answer: a step's logits may
    wait to be fetched, and then the stages before cannot go on. So there are fewer steps behind the first
    stage than stages.
    """

    def __init__(
        self, runner: ModelRunner, stage: Stage, frames: FrameWriter, send: Callable[[bytes], None]
    ) -> None:
        """stage: the model of `runner`."""
        self.stages = stage.plan.line.size
        self._runner, self._stage, self._frames, self._send = runner, stage, frames, send
        self._begun: deque[BegunStep | None] = deque()

    def run(self, plan: Plan) -> Logits:
        self.begin(plan)
        return self.finish()

    def begin(self, plan: Plan) -> None:
        self._send(self._frames.frame(plan))
        self._begun.append(self._runner.begin(plan))
        if sum(each is not None for each in self._begun) < self.stages:
            self._stage.pass_on()

    def finish(self) -> Logits:
        logits = self._runner.finish(self._begun.popleft())
        self._stage.pass_on()
        return logits
