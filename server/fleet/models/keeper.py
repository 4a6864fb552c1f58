"""Loads models that are asked for, and unloads others to make room, or because they are idle.

The model whose oldest request has waited longest is next, and no other takes the room that is made for it.
Of those that may go, the one goes that was used longest ago, unless the going of others is enough; a busy one
takes no new requests then, and goes when its last one has ended.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any

from turnout.core.errors import EngineGone, TurnoutError
from turnout.runner.memory.host_memory import free_host_memory
from turnout.server.engine.client import SHUTTING_DOWN
from turnout.server.fleet.models.budget import Budget
from turnout.server.fleet.models.hosted_model import HostedModel

__all__ = ["Keeper"]

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.02
"""How often to look whether a model that is to go has become quiet, and one that waits can have its room."""
IDLE_LOOK_SECONDS = 1.0
"""How often to look whether models are idle that are unloaded then."""


class Keeper:
    """Runs while the server serves."""

    def __init__(self, models: Sequence[HostedModel], budget: Budget) -> None:
        self.budget = budget
        self._models = models
        self._news = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loads: set[asyncio.Task[None]] = set()
        """Those of the tasks that load."""
        self._watches: dict[HostedModel, asyncio.Task[None]] = {}
        self._closed = False

    def tell(self) -> None:
        """Have a look soon: a request waits, or a command has come."""
        self._news.set()

    async def run(self) -> None:
        """Return when every model has failed that is not loaded on demand, and none is left that is."""
        try:
            while not self._all_gone():
                self._news.clear()
                self._step()
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._pause()):
                        await self._news.wait()
        finally:
            for model in [model for model, task in self._watches.items() if not task.done()]:
                self._forget_watch(model)

    def refuse(self, reason: str) -> None:
        """Load nothing more, and end the wait of all requests."""
        self._closed = True
        for model in self._models:
            model.residence.requests.close(EngineGone(reason))

    async def close(self) -> None:
        """Return when nothing is being loaded or unloaded. Engines that have been started may be left."""
        self.refuse(SHUTTING_DOWN)
        for task in [*self._loads, *self._watches.values()]:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._watches.values(), return_exceptions=True)

    # -------------------------------------------------------------- one look at all models

    def _step(self) -> None:
        if self._closed:
            return
        for model in self._models:
            if model.residence.state == "loaded":
                self._look_at(model)
        self._make_room()

    def _look_at(self, model: HostedModel) -> None:
        residence = model.residence
        residence.look()
        self._watch(model)
        if residence.unloaded_by_admin and not residence.draining:
            residence.drain()
        if residence.quiet and (residence.draining or not residence.idle_left):
            why = "another needs its room" if residence.draining else f"it was idle for {residence.keep:g} s"
            if residence.unloaded_by_admin:
                why = "by a command"
            residence.begin_unloading()
            self._do(self._unload(model, why))

    def _make_room(self) -> None:
        wanted = sorted(
            (model for model in self._models if model.residence.wanted),
            key=lambda model: model.residence.asked,
        )
        waits = False
        for model in wanted:
            if waits or not self._begin(model):
                waits = True  # what comes after it does not overtake it
        if not waits:
            for model in self._models:
                if model.residence.draining and not model.residence.unloaded_by_admin:
                    model.residence.reopen()

    def _begin(self, model: HostedModel) -> bool:
        """Load a model, or make room for it; returns whether it loads."""
        present = [other for other in self._models if other.residence.state in PRESENT]
        if self._fits(model, present):
            model.residence.begin_loading()
            self._loads.add(self._do(self._load(model)))
            return True
        if not any(other.residence.draining or other.residence.state == "unloading" for other in present):
            victim = next(iter(self._victims(model, present)), None)
            if victim is not None and victim.residence.may_go:
                victim.residence.drain()
        return False

    def _victims(self, model: HostedModel, present: Sequence[HostedModel]) -> list[HostedModel]:
        """The models that are to go for a model, in the order of their last use."""
        movable = sorted((other for other in present if other.residence.movable), key=_last_use)
        chosen: list[HostedModel] = []
        for other in movable:
            chosen.append(other)
            if self._fits_without(chosen, model, present):
                break
        else:
            return movable  # the memory that they leave is known only once they have gone
        # One that was chosen first may not be needed beside a larger one that was chosen after it.
        for other in reversed(chosen):
            rest = [each for each in chosen if each is not other]
            if self._fits_without(rest, model, present):
                chosen = rest
        return chosen

    def _fits_without(
        self, victims: Sequence[HostedModel], model: HostedModel, present: Sequence[HostedModel]
    ) -> bool:
        freed = sum(victim.residence.stay.host_memory for victim in victims)
        return self._fits(model, [other for other in present if other not in victims], freed)

    def _fits(self, model: HostedModel, present: Iterable[HostedModel], freed: int = 0) -> bool:
        """Whether a model has room beside others; freed: bytes of host memory that will be free, too."""
        beside = {other.name: other.residence.stay for other in present}
        if self.budget.lack({**beside, model.name: model.residence.stay}) is not None:
            return False
        # Where nothing can go that would leave it more, the engine itself says what is short.
        movable = any(not other.residence.pinned for other in present)
        return not movable or model.residence.stay.host_memory <= free_host_memory() + freed

    def _pause(self) -> float | None:
        if any(model.residence.wanted or model.residence.draining for model in self._models):
            return LOOK_SECONDS
        left = [model.residence.idle_left for model in self._models if model.residence.state == "loaded"]
        soonest = min(left, default=math.inf)
        return None if soonest == math.inf else max(LOOK_SECONDS, min(IDLE_LOOK_SECONDS, soonest))

    # -------------------------------------------------------------- loads and unloads

    async def _load(self, model: HostedModel) -> None:
        residence, reason = model.residence, ""
        logger.info("model %s is being loaded", model.name)
        try:
            async with asyncio.timeout(residence.stay.load_seconds):
                for arm in model.arms.all:
                    await arm.client.wake(arm.config)
        except TimeoutError:
            reason = f"it was not ready after {residence.stay.load_seconds:g} s (--load-timeout)"
        except (TurnoutError, OSError) as error:
            reason = str(error)
        except Exception:
            logger.exception("model %s", model.name)
            reason = "internal error; the server's log has the details"
        if reason:
            await self._give_up(model, reason)
        else:
            model.arms.revive()
            residence.loaded()
            logger.info("model %s is loaded, after %.1f s", model.name, residence.load_seconds)
        self.tell()

    async def _give_up(self, model: HostedModel, reason: str) -> None:
        logger.error("model %s could not be loaded: %s", model.name, reason)
        await self._sleep(model)
        model.residence.fail(reason)

    async def _unload(self, model: HostedModel, why: str) -> None:
        self._forget_watch(model)
        await self._sleep(model)
        model.residence.unloaded()
        logger.info("model %s is unloaded: %s", model.name, why)
        self.tell()

    async def _sleep(self, model: HostedModel) -> None:
        await asyncio.gather(*(arm.client.sleep() for arm in model.arms.all))

    # -------------------------------------------------------------- models whose engines are given up

    def _watch(self, model: HostedModel) -> None:
        if model not in self._watches:
            self._watches[model] = asyncio.create_task(self._until_gone(model))

    async def _until_gone(self, model: HostedModel) -> None:
        await model.arms.gone()
        if len(self._models) > 1 and not model.arms.dismissed:
            logger.error("model %s has failed: %s", model.name, model.arms.failure)
        if model.residence.stay.on_demand and not self._closed:
            reason = str(model.arms.failure)
            await self._sleep(model)
            model.residence.fail(reason)
            self._watches.pop(model, None)
        self.tell()

    def _forget_watch(self, model: HostedModel) -> None:
        if (task := self._watches.pop(model, None)) is not None:
            task.cancel()

    def _all_gone(self) -> bool:
        return all(
            model in self._watches and self._watches[model].done() and not model.residence.stay.on_demand
            for model in self._models
        )

    def _do(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(self._loads.discard)
        return task


def _last_use(model: HostedModel) -> tuple[bool, float]:
    """The order in which models go: idle ones by their last use, then busy ones by when they were loaded."""
    residence = model.residence
    return residence.busy, residence.since if residence.busy else residence.used


PRESENT = ("loading", "loaded", "unloading")
"""States in which a model takes memory."""
