"""Runs steps on rank 0, and has followers run them too."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

import msgspec

from turnout.core.interfaces.compute import Runner
from turnout.core.interfaces.kv import KVCache
from turnout.core.types.plan import Logits, Plan
from turnout.runner.ranks.frames import DIGEST_EVERY, Frame, digest_of, digest_of_moves, packed
from turnout.runner.ranks.recorded_cache import Recording

__all__ = ["FollowedRunner", "FrameWriter"]


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
        tokens = [chunk.tokens for chunk in chunks]
        single = len(chunks) == plan.tokens
        frame = Frame(
            self._number,
            packed(recorded.ops),
            recorded.entered,
            recorded.pins,
            packed(recorded.victims),
            digest_of_moves(plan.moves),
            None if self._number % DIGEST_EVERY else digest_of(self._cache),
            packed([chunk.sequence.id for chunk in chunks]),
            packed([chunk.start for chunk in chunks]),
            packed([chunk.rows for chunk in chunks]),
            packed(chain.from_iterable(tokens)),
            b"" if single else packed([len(each) for each in tokens]),
            [(at, c.scored.start, c.scored.stop) for at, c in enumerate(chunks) if c.scored],
            [(at, c.pooled.start, c.pooled.stop) for at, c in enumerate(chunks) if c.pooled is not None],
        )
        data = self._encode(frame)
        recorded.clear()
        return data


class FollowedRunner:
    """Sends each step's frame to followers, then runs the step itself; implements Runner."""

    def __init__(self, runner: Runner, frames: FrameWriter, send: Callable[[bytes], None]) -> None:
        self._runner = runner
        self.frames = frames
        self.send = send

    def run(self, plan: Plan) -> Logits:
        self.send(self.frames.frame(plan))
        return self._runner.run(plan)
