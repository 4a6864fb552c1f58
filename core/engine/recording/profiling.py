"""When an engine's process is profiled: between two commands, and never for ever."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from turnout.core.clock import Clock
from turnout.core.errors import TurnoutError, describe_error
from turnout.core.types.messages import ProfileFiles, Reply, StartProfile, StopProfile

__all__ = ["Profile", "Profiling"]

logger = logging.getLogger(__name__)

MAX_SECONDS = 300.0
"""How long a profile goes on that nothing stops: it grows all the time."""


class Profile(Protocol):
    """A profile that is being taken; see `turnout.runner.execution.profiler.EngineProfile`."""

    def step(self) -> AbstractContextManager[object]: ...
    def stop(self) -> ProfileFiles: ...


class Profiling:
    """The one profile that an engine may have."""

    def __init__(self, begin: Callable[[str, str], Profile], clock: Clock) -> None:
        """`begin`: starts a profile, for a folder and a name of the engine."""
        self._begin, self._clock = begin, clock
        self._profile: Profile | None = None
        self._ends = 0.0
        self.name = "engine"
        """Of the engine, in the names of its files."""

    def carry_out(self, command: StartProfile | StopProfile) -> Reply:
        """Start, or stop and write. What is wrong goes into the reply."""
        try:
            if isinstance(command, StartProfile):
                return self._start(command)
            return self._stop(command)
        except TurnoutError as error:
            return Reply(id=command.id, error=str(error), error_kind="invalid")
        except Exception as error:
            logger.exception("a profile failed")
            return Reply(id=command.id, error=describe_error(error), error_kind="internal")

    def step(self) -> AbstractContextManager[object]:
        """Around a step."""
        return nullcontext() if self._profile is None else self._profile.step()

    @property
    def active(self) -> bool:
        return self._profile is not None

    def check(self) -> None:
        """End a profile that nothing has stopped; to be called now and then."""
        if self._profile is not None and self._clock() >= self._ends:
            self._write(f"after {MAX_SECONDS:.0f} s, since nothing stopped it")

    def close(self, why: str = "at the end of the engine") -> None:
        """End a profile, if one is being taken."""
        if self._profile is not None:
            self._write(why)

    def _start(self, command: StartProfile) -> Reply:
        if self._profile is not None:
            return _conflict(command, "a profile is being taken already; POST /stop_profile ends it")
        self._profile = self._begin(command.folder, self.name)
        self._ends = self._clock() + MAX_SECONDS
        return Reply(id=command.id, value=ProfileFiles([], []))

    def _stop(self, command: StopProfile) -> Reply:
        if self._profile is None:
            return _conflict(command, "no profile is being taken; POST /start_profile begins one")
        profile, self._profile = self._profile, None
        return Reply(id=command.id, value=profile.stop())

    def _write(self, why: str) -> None:
        assert self._profile is not None
        profile, self._profile = self._profile, None
        try:
            files = profile.stop().files
        except Exception as error:
            logger.error("the profile cannot be written: %s", describe_error(error))
        else:
            logger.warning("the profile ended %s: %s", why, ", ".join(files))


def _conflict(command: StartProfile | StopProfile, message: str) -> Reply:
    return Reply(id=command.id, error=message, error_kind="conflict")
