"""The engines behind the port: a single one, or the two arms of an A/B test."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from turnout.config import EngineConfig
from turnout.core.interfaces.trial import Trial
from turnout.core.types.messages import ModelFacts, Ready
from turnout.server.fleet.assignment import named_session, session_position
from turnout.server.fleet.fleet import Fleet
from turnout.server.http.errors import ApiError
from turnout.text.model_format import ModelFormat
from turnout.text.tokenizer import Tokenizer

__all__ = ["Arms", "ServedArm", "State"]

logger = logging.getLogger(__name__)

MAX_TRIED = 2000
POLL_SECONDS = 0.02
"""How often to look whether an arm has finished its requests."""

State = Literal["serving", "draining", "stopped", "failed"]


@dataclass
class ServedArm:
    """An engine, and its part in the test."""

    client: Fleet
    tokenizer: Tokenizer
    name: str = ""
    config: EngineConfig = field(default_factory=EngineConfig)
    changes: Mapping[str, str] = field(default_factory=dict)
    """What the arm changes of the server's own configuration, by field."""
    share: float = 1.0
    """Share of the sessions, from 0 to 1."""
    state: State = "serving"
    reason: str | None = None
    """Why the arm failed."""
    facts: ModelFacts = field(default_factory=ModelFacts)
    """What the model's files tell, until an engine tells more."""
    _held: int = field(default=0, init=False)

    @property
    def known(self) -> Ready:
        """What its engine has told, or what is known without one: a length or size of 0 is not known."""
        if self.client.described:
            return self.client.ready
        return Ready(
            model=self.config.model,
            max_model_len=self.config.max_model_len or 0,
            vocab_size=0,
            defaults={},
            kv=self.config.kv or "",
            kv_bytes_per_token=0,
            facts=self.facts,
            summary=[],
        )

    @cached_property
    def format(self) -> ModelFormat:
        """How the model writes its outputs. The engine must be ready."""
        ready = self.client.ready
        return ModelFormat(self.tokenizer, ready.output_format, ready.eos_token_ids)

    @property
    def serves(self) -> bool:
        """The arm takes new requests."""
        return self.state == "serving" and self.client.failure is None

    @property
    def active(self) -> bool:
        """The arm's engine has not been given up: it serves, or finishes its last requests."""
        return self.state in ("serving", "draining")

    @property
    def idle(self) -> bool:
        """No handler holds the arm, and its engine has nothing to do."""
        return self._held == 0 and self.client.idle

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep the engine running while a handler is about to send it something."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1


class Arms:
    """Assigns sessions to arms, and ends arms without losing a request."""

    def __init__(self, arms: Sequence[ServedArm], trial: Trial | None = None) -> None:
        """The first arm gets the share that the others leave. `trial`: None for a single engine."""
        self.all = tuple(arms)
        self.trial = trial
        self._draining: set[asyncio.Task[None]] = set()
        self.closing = False
        """The server is shutting down: no arm gets another request."""

    @classmethod
    def of_one(
        cls,
        client: Fleet,
        tokenizer: Tokenizer,
        config: EngineConfig | None = None,
        facts: ModelFacts | None = None,
    ) -> Arms:
        """The arms of a server without an A/B test."""
        config, facts = config or EngineConfig(), facts or ModelFacts()
        return cls([ServedArm(client, tokenizer, config=config, facts=facts)])

    @property
    def first(self) -> ServedArm:
        """Stands for all arms where they are alike: in the model's name, vocabulary and context length."""
        return self.all[0]

    @property
    def idle(self) -> bool:
        return all(arm.idle for arm in self.all)

    @property
    def failure(self) -> str | None:
        """Why no arm is left; None while one is."""
        reasons = [arm.reason or arm.client.failure for arm in self.all if arm.state != "stopped"]
        return None if None in reasons else next(iter(reasons), None)

    @property
    def dismissed(self) -> bool:
        """Whether no arm is left because it was asked for."""
        return all(arm.client.dismissed for arm in self.all)

    # -------------------------------------------------------------- which arm a request gets

    def check_open(self) -> None:
        """Raise ApiError if the server is shutting down."""
        if self.closing:
            raise _shutting_down()

    def assign(self, session: str) -> ServedArm:
        """The arm that a session belongs to, or another arm if that one takes no more requests."""
        arm = self.first if self.trial is None else self._belonging(session)
        return arm if arm.serves else next((other for other in self.all if other.serves), arm)

    def _belonging(self, session: str) -> ServedArm:
        *small, rest = sorted(self.all, key=lambda arm: arm is self.first)
        position = session_position(session, small[0].name)
        for arm in small:
            if position < arm.share:
                return arm
            position -= arm.share
        return rest

    @cached_property
    def sessions(self) -> Mapping[str, str]:
        """A session that belongs to each arm, to try it; none of an arm with hardly any share."""
        found: dict[str, str] = {}
        for number in range(MAX_TRIED):
            name = f"try-{number}"
            found.setdefault(self._belonging(named_session(name)).name, name)
            if len(found) == len(self.all):
                break
        return found

    def named(self, name: str | None) -> ServedArm:
        """The active arm of this name; without a name, the only one. Raises ApiError."""
        active = [arm for arm in self.all if arm.active]
        if name is None:
            if len(active) > 1:
                raise ApiError(400, f"two arms serve; name one: {self._parameters()}", param="arm")
            return active[0] if active else self.first
        arm = self.any_named(name, self._parameters())
        if not arm.active:
            raise ApiError(409, f"arm {name!r} has {_past(arm)}; its engine is gone", code="arm_gone")
        return arm

    def any_named(self, name: str, known: str | None = None) -> ServedArm:
        """The arm of this name, active or not. Raises ApiError.

        known: what may be given instead, in the form of the request; None: the arms' names.
        """
        if self.trial is None:
            raise ApiError(400, f"there is no arm {name!r}: the server was started without --ab", param="arm")
        for arm in self.all:
            if arm.name == name:
                return arm
        raise ApiError(400, f"there is no arm {name!r}; known: {known or self._names()}", param="arm")

    def _names(self) -> str:
        return ", ".join(arm.name for arm in self.all)

    def _parameters(self) -> str:
        return " or ".join(f"?arm={arm.name}" for arm in self.all)

    # -------------------------------------------------------------- how arms end

    def stop(self, arm: ServedArm) -> None:
        """Give an arm no more requests, and end its engine after the last one it has. Raises ApiError."""
        if arm.state != "serving":
            return
        if not any(other.serves for other in self.all if other is not arm):
            message = f"arm {arm.name!r} is the only one that serves; stop the server instead"
            raise ApiError(409, message, code="last_arm")
        arm.state = "draining"
        logger.info("arm %r gets no more requests; its engine ends after the last one it has", arm.name)
        self._end_trial()
        task = asyncio.get_running_loop().create_task(self._drain(arm))
        self._draining.add(task)
        task.add_done_callback(self._draining.discard)

    def promote(self, arm: ServedArm) -> None:
        """Stop all other arms. Raises ApiError."""
        if not arm.serves:
            message = f"arm {arm.name!r} has {_past(arm)}, and cannot be promoted"
            raise ApiError(409, message, code="arm_gone")
        for other in self.all:
            if other is not arm:
                self.stop(other)

    async def _drain(self, arm: ServedArm) -> None:
        while arm.state == "draining" and not arm.idle:
            await asyncio.sleep(POLL_SECONDS)
        if arm.state == "draining":
            arm.state = "stopped"
            await arm.client.close("the arm has been stopped")
            logger.info("arm %r has been stopped: its last request has ended", arm.name)

    async def gone(self) -> None:
        """Return when no engine is left."""
        await asyncio.gather(*(self._watch(arm) for arm in self.all))

    async def _watch(self, arm: ServedArm) -> None:
        await arm.client.gone()
        if not arm.active:
            return
        arm.state, arm.reason = "failed", arm.client.failure
        self._end_trial()
        if self.trial is not None and not arm.client.dismissed:
            logger.error("arm %r has failed: %s", arm.name, arm.reason)
        for other in self.all:
            if other.state == "draining" and not any(each.serves for each in self.all):
                logger.warning("arm %r serves again, since no other is left", other.name)
                other.state = "serving"

    def revive(self) -> None:
        """Have arms serve again that have failed: their engines have been started anew."""
        for arm in self.all:
            if arm.state == "failed":
                arm.state, arm.reason = "serving", None

    async def close(self) -> None:
        """Stop all engines."""
        for task in self._draining:
            task.cancel()
        await asyncio.gather(*(arm.client.close() for arm in self.all))

    def _end_trial(self) -> None:
        if self.trial is not None:
            self.trial.close()


def _shutting_down() -> ApiError:
    message = "the server is shutting down and takes no more requests; retry, or ask another server"
    # A load balancer can send a client to another server only when the client opens a new connection.
    return ApiError(503, message, code="shutting_down", headers={"Retry-After": "1", "Connection": "close"})


def _past(arm: ServedArm) -> str:
    return {"failed": "failed", "draining": "been told to stop"}.get(arm.state, "been stopped")
