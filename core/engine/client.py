"""The interface through which a server reaches an engine, wherever the engine runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Protocol

from turnout.core.types.messages import AdminCommand, Delta, Ready, Reply, Stats
from turnout.core.types.request import RequestSpec

__all__ = ["EngineClient", "TakesAtOnce"]

TakesAtOnce = Callable[[Delta], bool]
"""Takes a delta in the moment in which it comes, unless it returns False."""


class EngineClient(Protocol):
    """An engine in this process, in a child process, or elsewhere."""

    @property
    def ready(self) -> Ready:
        """What the engine reported once it was assembled."""
        ...

    @property
    def stats(self) -> Stats | None:
        """The latest that the engine sent; None before its first step."""
        ...

    @property
    def failure(self) -> str | None:
        """Why the engine is gone; None while it serves."""
        ...

    @property
    def restarting(self) -> bool:
        """Whether the engine was lost and another one is starting, which requests wait for."""
        ...

    @property
    def restarts(self) -> int:
        """How often the engine was restarted."""
        ...

    @property
    def silence(self) -> float:
        """Seconds since the engine last sent anything while it has had requests to serve."""
        ...

    @property
    def idle(self) -> bool:
        """Whether the engine has no requests to serve."""
        ...

    def submit(self, request: RequestSpec, at_once: TakesAtOnce | None = None) -> AsyncGenerator[Delta, None]:
        """Serves a request; the generator ends when all choices of the request have ended.

        at_once: asked for a delta that ends no choice, while the generator waits for one; what it takes is
        not yielded. What it raises is raised by the generator.

        Closing the generator early (``aclose``) aborts what still runs. Raises RequestError if the engine
        rejects the request, EngineGone if the engine is gone, EngineError if it failed at this request.
        """
        ...

    def abort(self, request_id: str, index: int | None = None) -> None:
        """Stops a request, or one of its choices; the generator then yields no more of it.

        For a request that asked for its timing, the generator still yields the delta that carries it.
        """
        ...

    async def admin(self, command: AdminCommand) -> Reply:
        """Has a command carried out between two steps.

        Raises EngineGone if the engine is gone, TimeoutError if it does not answer in time; in that case the
        command may still be carried out.
        """
        ...

    async def gone(self) -> None:
        """Returns when the engine is gone for good."""
        ...

    async def close(self) -> None:
        """Ends the engine; requests that it still serves end with an error."""
        ...
