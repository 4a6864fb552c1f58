"""The engines behind the port: one, or those of an A/B test, each an arm."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Literal

from turnout.config import EngineConfig
from turnout.core.engine.client import EngineClient
from turnout.core.interfaces.trial import Trial
from turnout.server.ab.assignment import place
from turnout.server.http.errors import ApiError
from turnout.text.tokenizer import Tokenizer

__all__ = ["Arms", "ServedArm", "State"]

logger = logging.getLogger(__name__)

POLL = 0.02
"""Seconds between two looks at whether an arm has finished its requests."""

State = Literal["serving", "draining", "stopped", "failed"]


@dataclass
class ServedArm:
    """An engine, and what a test says of it."""

    client: EngineClient
    tokenizer: Tokenizer
    name: str = ""
    config: EngineConfig = field(default_factory=EngineConfig)
    changes: Mapping[str, str] = field(default_factory=dict)
    """What it changes of the server's own configuration."""
    share: float = 1.0
    """Of the sessions."""
    state: State = "serving"
    reason: str | None = None
    """Why it failed."""
    _held: int = field(default=0, init=False)

    @property
    def serves(self) -> bool:
        """Requests may be given to it."""
        return self.state == "serving" and self.client.failure is None

    @property
    def there(self) -> bool:
        """Its engine has not been given up."""
        return self.state in ("serving", "draining")

    @property
    def idle(self) -> bool:
        """Nobody needs its engine."""
        return self._held == 0 and self.client.idle

    @contextmanager
    def held(self) -> Iterator[None]:
        """For a handler that is about to ask the engine for something: it stays until then."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1


class Arms:
    """Says which arm a session belongs to, and sees to it that arms end without losing a request."""

    def __init__(self, arms: Sequence[ServedArm], trial: Trial | None = None) -> None:
        """The first gets whatever share the others leave. `trial`: None for a single engine."""
        self.all = tuple(arms)
        self.trial = trial
        self._draining: set[asyncio.Task[None]] = set()
        self.closing = False
        """The server is told to stop: no arm gets another request."""

    @classmethod
    def of_one(cls, client: EngineClient, tokenizer: Tokenizer) -> Arms:
        """A server that tests nothing."""
        return cls([ServedArm(client, tokenizer)])

    @property
    def first(self) -> ServedArm:
        """What stands for all where they do not differ: the name of the model, its vocabulary and context."""
        return self.all[0]

    @property
    def idle(self) -> bool:
        return all(arm.idle for arm in self.all)

    @property
    def failure(self) -> str | None:
        """Why no arm is there any more; None while one is."""
        reasons = [arm.reason or arm.client.failure for arm in self.all if arm.state != "stopped"]
        return None if None in reasons else next(iter(reasons), None)

    # -------------------------------------------------------------- who gets what

    def assign(self, session: str) -> ServedArm:
        """The arm that a session belongs to, or another if that one gets no more requests.

        Raises ApiError where the server is shutting down.
        """
        if self.closing:
            raise _shutting_down()
        arm = self.first if self.trial is None else self._belonging(session)
        return arm if arm.serves else next((other for other in self.all if other.serves), arm)

    def _belonging(self, session: str) -> ServedArm:
        *small, rest = sorted(self.all, key=lambda arm: arm is self.first)
        where = place(session, small[0].name)
        for arm in small:
            if where < arm.share:
                return arm
            where -= arm.share
        return rest

    def named(self, name: str | None) -> ServedArm:
        """For an admin, who may leave the name out where there is one. Raises ApiError."""
        there = [arm for arm in self.all if arm.there]
        if name is None:
            if len(there) > 1:
                raise ApiError(400, f"two arms serve; say which is meant: {self._known()}", param="arm")
            return there[0] if there else self.first
        arm = self.any_named(name)
        if not arm.there:
            raise ApiError(409, f"arm {name!r} has {_past(arm)}; its engine is gone", code="arm_gone")
        return arm

    def any_named(self, name: str) -> ServedArm:
        """Also one that is gone. Raises ApiError."""
        if self.trial is None:
            raise ApiError(400, f"there is no arm {name!r}: the server was started without --ab", param="arm")
        for arm in self.all:
            if arm.name == name:
                return arm
        raise ApiError(400, f"there is no arm {name!r}; known: {self._known()}", param="arm")

    def _known(self) -> str:
        return " or ".join(f"?arm={arm.name}" for arm in self.all)

    # -------------------------------------------------------------- how arms end

    def stop(self, arm: ServedArm) -> None:
        """It gets no more requests, and its engine ends with the last of those it has. Raises ApiError."""
        if arm.state != "serving":
            return
        if not any(other.serves for other in self.all if other is not arm):
            message = f"arm {arm.name!r} is the only one that serves; stop the server itself instead"
            raise ApiError(409, message, code="last_arm")
        arm.state = "draining"
        logger.info("arm %r gets no more requests; it ends with the last of those it has", arm.name)
        self._end_trial()
        task = asyncio.get_running_loop().create_task(self._drain(arm))
        self._draining.add(task)
        task.add_done_callback(self._draining.discard)

    def promote(self, arm: ServedArm) -> None:
        """It becomes the only one. Raises ApiError."""
        if not arm.serves:
            message = f"arm {arm.name!r} has {_past(arm)}, and cannot be promoted"
            raise ApiError(409, message, code="arm_gone")
        for other in self.all:
            if other is not arm:
                self.stop(other)

    async def _drain(self, arm: ServedArm) -> None:
        while arm.state == "draining" and not arm.idle:
            await asyncio.sleep(POLL)
        if arm.state == "draining":
            arm.state = "stopped"
            await arm.client.close()
            logger.info("arm %r has been stopped: its last request has ended", arm.name)

    async def gone(self) -> None:
        """Returns when no engine is left."""
        await asyncio.gather(*(self._watch(arm) for arm in self.all))

    async def _watch(self, arm: ServedArm) -> None:
        await arm.client.gone()
        if not arm.there:
            return
        arm.state, arm.reason = "failed", arm.client.failure
        self._end_trial()
        if self.trial is not None:
            logger.error("arm %r has failed: %s", arm.name, arm.reason)
        for other in self.all:
            if other.state == "draining" and not any(each.serves for each in self.all):
                logger.warning("arm %r serves again, since no other is left", other.name)
                other.state = "serving"

    async def finish(self, seconds: float) -> None:
        """Take no more requests; returns when those that there are have ended, or after that long."""
        self.closing = True
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self.idle:
                    await asyncio.sleep(POLL)

    async def close(self) -> None:
        """Stop all engines."""
        for task in self._draining:
            task.cancel()
        await asyncio.gather(*(arm.client.close() for arm in self.all))

    def _end_trial(self) -> None:
        if self.trial is not None:
            self.trial.close()


def _shutting_down() -> ApiError:
    message = "the server is shutting down and takes no more requests; ask again, or another server"
    # A load balancer can send only who connects anew to another server.
    return ApiError(503, message, code="shutting_down", headers={"Connection": "close"})


def _past(arm: ServedArm) -> str:
    return {"failed": "failed", "draining": "been told to stop"}.get(arm.state, "been stopped")
