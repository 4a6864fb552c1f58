"""The admission interface: a policy says of each request that arrives whether to take it on now."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, NamedTuple

from turnout.core.interfaces.figures import Figures
from turnout.core.types.request import RequestView
from turnout.core.types.views import KVView

__all__ = ["AdmissionPolicy", "Load", "Refusal"]


class Load(NamedTuple):
    """What an engine has to do as a request arrives. Its questions change nothing."""

    now: float
    """Seconds on the engine's clock, the one `RequestView.arrival` was read from."""
    running: int
    """How many requests run."""
    waiting: int
    """How many requests wait, without the one that arrives."""
    kv: KVView
    """KV memory."""
    rate: float | None
    """How many of the waiting requests begin in a second, of late; time in which none waits does not count.
    None: none has waited for a second yet. Measurements fade with a half-life of ten seconds of waiting."""
    requests: Callable[[], tuple[RequestView, ...]]
    """The running requests, then those that wait; takes time for each of them."""
    predict: Callable[[RequestView], float]
    """The output tokens that a request will have when it ends, as the chosen `LengthPredictor` guesses."""


class Refusal(NamedTuple):
    """The answer that refuses a request: its client gets status 503."""

    reason: str
    """The message: why, and what to do."""
    retry_after: float = 1.0
    """Seconds after which to try again, at most a day; the header `Retry-After` has them in whole seconds."""


class AdmissionPolicy(ABC):
    """Decides which requests are taken on and which are refused because there is too much to do.

    It is asked after the bound of ``--max-waiting``, and only about requests that could be served.
    """

    watches: ClassVar[bool] = True
    """True: it looks at the load. False: it looks at the request alone, so that the load need not be
    measured, and a simulation may skip steps (fast forward)."""

    @abstractmethod
    def admit(self, request: RequestView, load: Load) -> Refusal | None:
        """Returns why `request` is refused; None: it is taken on.

        Called once for each request, when it arrives and before it is queued, and not again when an engine
        takes over requests of one that died. The others wait meanwhile: it must be fast.
        """

    def observe(self, request: RequestView) -> None:
        """Learns from a request that was taken on and has ended, however it did.

        By default it does nothing.
        """

    def figures(self) -> Figures:
        """Returns counters and gauges for `GET /metrics`, asked for a few times a second. None by default."""
        return Figures()
