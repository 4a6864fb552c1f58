"""Replaces all engines of a fleet by those of another configuration, one by one, while the server serves.

::

    rolling ──▶ done          each step: start a new one, wait until it is ready, drain an old one, end it
      │  │
      │  └────▶ paused ──▶ rolling, or undoing
      └───────▶ undoing ──▶ undone        a new one did not start, or an operator wants the old ones back

A step that fails leaves the old engine serving. A rollout whose way back fails too has `failed`, and can be
resumed or undone. What was drained before gets an engine that is drained, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from turnout.core.clock import monotonic
from turnout.core.errors import ConfigError, EngineGone, TurnoutError
from turnout.core.types.messages import Ready
from turnout.server.fleet.generation import Generation
from turnout.server.fleet.replica import REPLACED, FleetReplica
from turnout.text.tokenizer import template_source
from turnout.text.vocabulary import vocabulary_difference

if TYPE_CHECKING:
    from turnout.server.fleet.replicas import Replicas

__all__ = ["FleetError", "Rollout", "RolloutState"]

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.02

RolloutState = Literal["rolling", "paused", "undoing", "done", "undone", "failed"]


class FleetError(TurnoutError):
    """A change of the replicas that cannot be made; the message says what to do instead."""


class Rollout:
    """One rollout, from its start to its end or its undoing."""

    def __init__(self, fleet: Replicas, new: Generation, drain_seconds: float) -> None:
        """`drain_seconds`: how long requests may take to end that cannot move to a new engine."""
        assert fleet.generation is not None
        self.old, self.new = fleet.generation, new
        # The engines of both that start later are told what was commanded of either, however late it came.
        self.old.journal.beside, new.journal.beside = new.journal, self.old.journal
        self.drain_seconds = drain_seconds
        self.state: RolloutState = "rolling"
        self._backwards = False
        """It brings the engines of before back."""
        self.reason: str | None = None
        """Why it was undone or has failed."""
        self._fleet = fleet
        self._steps: list[asyncio.Task[None]] = []
        """What replaces replicas, the latest last; what was stopped may take a while to end."""

    @property
    def busy(self) -> bool:
        """It is replacing replicas now."""
        return not all(step.done() for step in self._steps)

    @property
    def target(self) -> Generation:
        """The generation that replicas are replaced by."""
        return self.old if self._backwards else self.new

    @property
    def replaced(self) -> int:
        """Replicas of the target's generation that have served."""
        there = [each for each in self._fleet.replicas if each.started and not each.replaced]
        return sum(each.generation is self.target for each in there)

    # -------------------------------------------------------------- commands

    def begin(self) -> None:
        self._go("rolling")

    def pause(self) -> None:
        """Stop where it is; a replica that has begun to drain serves again. Raises FleetError."""
        if self.state not in ("rolling", "undoing"):
            raise FleetError(f"the rollout is {self.state}; there is nothing to pause")
        self._stop()
        self.state = "paused"

    def resume(self) -> None:
        """Go on from where it stands, in the direction that it had. Raises FleetError."""
        if self.state not in ("paused", "failed"):  # the step that was stopped may not have ended yet
            raise FleetError(
                f"the rollout is {self.state}; only one that is paused or has failed can be resumed"
            )
        self._go("undoing" if self._backwards else "rolling")

    def undo(self) -> None:
        """Bring the engines of the configuration before back, one by one. Raises FleetError."""
        if self._backwards:
            how = "being undone, and paused; resume it" if self.state == "paused" else f"{self.state} already"
            raise FleetError(f"the rollout is {how}")
        self._stop()
        self.reason = None
        self._go("undoing")

    def _stop(self) -> None:
        if self._steps:
            self._steps[-1].cancel()

    def _go(self, state: RolloutState) -> None:
        self.state, before = state, [step for step in self._steps if not step.done()]
        self._backwards = state == "undoing"
        self._steps = [*before, self._fleet.in_background(self._run(before))]

    # -------------------------------------------------------------- the steps

    async def _run(self, before: Sequence[asyncio.Task[None]]) -> None:
        if before:
            await asyncio.wait(before)
        try:
            try:
                await self._replace_all(self.target)
            except (TurnoutError, OSError) as error:
                if self.state == "undoing":
                    raise
                self.reason, self.state, self._backwards = str(error), "undoing", True
                logger.error("the rollout is undone: %s", error)
                await self._replace_all(self.target)
        except (TurnoutError, OSError) as error:
            self.reason, self.state, self._backwards = str(error), "failed", False
            logger.error("the rollout has failed: %s", error)
            return
        except Exception:
            self.reason, self.state = "internal error; the server's log has the details", "failed"
            logger.exception("the rollout has failed")
            return
        self.state = "done" if self.state == "rolling" else "undone"
        logger.info("the rollout is %s", self.state)

    async def _replace_all(self, target: Generation) -> None:
        if target is self.new:
            await asyncio.to_thread(_check_text, self.old, self.new)
        await self._fleet.settled()  # or one would be replaced twice
        for old in list(self._fleet.replicas):
            if old.generation is target or old not in self._fleet.replicas:
                continue
            if old.client.place:
                await self._replace_in_place(old, target)
                continue
            new = await self._started(target, drained=old.draining)
            logger.info("replica %s takes the place of %s", new.name, old.name)
            await self._drain(old)
            await self._fleet.end(old, REPLACED)
        self._fleet.generation = target
        newest = next(each for each in self._fleet.replicas if each.generation is target)
        self._fleet.describe(newest.client.ready)

    async def _replace_in_place(self, old: FleetReplica, target: Generation) -> None:
        """Drain the replica of a worker, which has one engine at a time, and have it start another engine.

        Where that does not start, or the step is stopped, the worker's engine is what it was before.
        """
        await self._until_it_can_go(old)
        drained = old.draining
        await self._drain(old)
        ending = self._fleet.in_background(self._fleet.end_for_another(old))
        try:
            await asyncio.shield(ending)
            await self._started(target, like=old, drained=drained)
            logger.info("the worker of replica %s has another engine", old.name)
        except BaseException:
            await asyncio.shield(self._fleet.in_background(self._bring_back(old, ending, drained)))
            raise

    async def _until_it_can_go(self, old: FleetReplica) -> None:
        """Wait while no other replica serves, and while `old` has lost its engine: ending such a replica ends
        the attempts to get its engine back."""
        if old.lost:
            logger.warning("the rollout waits until replica %s has an engine again", old.name)
        while old.lost or not any(other.serves for other in self._fleet.replicas if other is not old):
            await asyncio.sleep(POLL_SECONDS)

    async def _bring_back(self, old: FleetReplica, ending: asyncio.Task[None], drained: bool) -> None:
        await asyncio.wait({ending})
        if not self._fleet.closed:  # else the step was stopped by that
            await self._fleet.bring_back(old, drained=drained)

    async def _started(
        self, target: Generation, like: FleetReplica | None = None, *, drained: bool
    ) -> FleetReplica:
        """A replica of the target, which serves unless it is to be `drained`. Raises what kept it from
        starting, and ends it then."""
        new = self._fleet.launch(target, like)
        new.draining = drained
        try:
            ready = await self._fleet.start_replica(new)
            _check_ready(self._fleet.ready, ready)
        except BaseException:
            new.draining, new.replaced = True, like is not None
            reason = "its engine cannot be used"
            work = self._fleet.discard(new, reason) if like is None else self._fleet.make_room(new, reason)
            await asyncio.shield(self._fleet.in_background(work))
            raise
        target.follow(ready)
        return new

    async def _drain(self, old: FleetReplica) -> None:
        """Drain a replica; those of its requests that cannot move have a while to end."""
        until = monotonic() + self.drain_seconds
        drained, old.draining = old.draining, True
        try:
            self._fleet.move_away(old)
            while not old.client.idle and old.client.failure is None and monotonic() < until:
                await asyncio.sleep(POLL_SECONDS)
                self._fleet.move_away(old)
        except asyncio.CancelledError:
            old.draining = drained
            raise
        if not old.client.idle and old.client.failure is None:
            seconds = f"{self.drain_seconds:g} s"
            old.client.streams.fail(
                EngineGone(f"the engine was replaced, and the request took over {seconds}")
            )


def _check_ready(old: Ready, new: Ready) -> None:
    """Raise ConfigError unless the server can go on with what it told its clients."""
    if new.max_model_len < old.max_model_len:
        raise ConfigError(
            f"the new engine's context is {new.max_model_len:,} tokens, and that of the others "
            f"{old.max_model_len:,}; give it --max-model-len {old.max_model_len}, or start another server"
        )
    for what, before, now in (
        ("number of tokens", old.vocab_size, new.vocab_size),
        ("tokens that end a text", old.eos_token_ids, new.eos_token_ids),
        ("format of reasoning and calls", old.output_format, new.output_format),
    ):
        if before != now:
            raise ConfigError(f"the new engine has another {what}; start another server for its model")


def _check_text(old: Generation, new: Generation) -> None:
    """Raise ConfigError where the new model has another vocabulary or chat template; finds the model."""
    from turnout.models.hub.resolve import resolve_model

    if not {"model", "revision"} & new.changes.keys():
        return
    before, after = (resolve_model(each.given.model, revision=each.given.revision) for each in (old, new))
    difference = vocabulary_difference(before, after)
    if difference is not None:
        raise ConfigError(
            f"model {new.given.model!r} has another vocabulary than {old.given.model!r} ({difference}); "
            "start another server for it"
        )
    if old.given.chat_template is None and any(
        template_source(before, tools=tools) != template_source(after, tools=tools) for tools in (False, True)
    ):
        raise ConfigError(f"model {new.given.model!r} has another chat template; start another server for it")
