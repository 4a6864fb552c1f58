"""How a server reaches an engine, wherever that runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from turnout.core.types.messages import AdminCommand, Delta, Ready, Reply, Stats
from turnout.core.types.request import RequestSpec

__all__ = ["EngineClient"]


class EngineClient(Protocol):
    """An engine in this process, in a child process, or elsewhere."""

    @property
    def ready(self) -> Ready:
        """What the engine said when it had been assembled."""
        ...

    @property
    def stats(self) -> Stats | None:
        """The latest the engine sent; None before its first step."""
        ...

    @property
    def failure(self) -> str | None:
        """Why the engine is gone; None while it serves."""
        ...

    @property
    def restarting(self) -> bool:
        """The engine was lost, and another one is on its way; requests wait for it."""
        ...

    @property
    def restarts(self) -> int:
        """How often that was so."""
        ...

    @property
    def silence(self) -> float:
        """Seconds for which it has owed somebody an answer and said nothing, not even how it stands."""
        ...

    @property
    def idle(self) -> bool:
        """The engine has nothing to do for anybody."""
        ...

    def submit(self, request: RequestSpec) -> AsyncGenerator[Delta, None]:
        """Serve a request; the generator ends when all its choices have.

        Leaving it early (``aclose``) aborts what still runs. Raises RequestError for a request
        that the engine refuses, EngineGone when the engine is gone, EngineError when it failed at this one.
        """
        ...

    def abort(self, request_id: str, index: int | None = None) -> None:
        """Stop a request, or one of its choices; the generator then yields no more of it.

        Of a request that asked for its timing, the generator still yields the delta that carries it, if the
        engine knows one.
        """
        ...

    async def admin(self, command: AdminCommand) -> Reply:
        """Have a command carried out between two steps.

        Raises EngineGone when the engine is gone, TimeoutError when it does not answer in time; the
        command may then still be carried out.
        """
        ...

    async def gone(self) -> None:
        """Returns when the engine is, for good."""
        ...

    async def close(self) -> None:
        """End the engine, and with an error what it still serves."""
        ...
