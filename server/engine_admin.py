"""Carrying out admin commands, in the engine's process, between two steps."""

from __future__ import annotations

import logging
from typing import Protocol

from turnout.core.engine import Engine
from turnout.core.errors import TurnoutError
from turnout.core.messages import AdminCommand, Ready, Reply, SchedulerState, SetScheduler

__all__ = ["Assembled", "carry_out"]

logger = logging.getLogger(__name__)


class Assembled(Protocol):
    """What a factory returns; `turnout.runner.assembly.AssembledEngine` says more."""

    @property
    def engine(self) -> Engine: ...
    @property
    def ready(self) -> Ready: ...
    @property
    def scheduler(self) -> str: ...
    def set_scheduler(self, spec: str) -> str: ...


def carry_out(assembled: Assembled, command: AdminCommand) -> Reply:
    """Whatever goes wrong is in the reply: no command harms the requests being served."""
    try:
        if isinstance(command, SetScheduler):
            spec = assembled.set_scheduler(command.spec)
            logger.info("the scheduling policy is now %s", spec)
        return Reply(id=command.id, value=_state(assembled))
    except TurnoutError as error:
        return Reply(id=command.id, error=str(error), error_kind="invalid")
    except Exception as error:
        logger.exception("an admin command failed")
        return Reply(id=command.id, error=f"{type(error).__name__}: {error}", error_kind="internal")


def _state(assembled: Assembled) -> SchedulerState:
    stats = assembled.engine.stats()
    return SchedulerState(
        scheduler=assembled.scheduler,
        policy_faults=stats.policy_faults,
        preemptions=stats.preemptions,
        running=stats.running,
        waiting=stats.waiting,
    )
