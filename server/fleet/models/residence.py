"""Whether a model's engines are loaded, since when, and who waits for them.

::

    unloaded ──▶ loading ──▶ loaded ──▶ unloading ──▶ unloaded
        ▲           │           │
        └─ failed ◀─┴───────────┘     after a pause that grows, the next request tries again
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from turnout.core import limits
from turnout.core.clock import Clock, monotonic
from turnout.server.fleet.arms import Arms
from turnout.server.fleet.fleet import Fleet
from turnout.server.fleet.models.waiting import Entry, WaitingRequests
from turnout.server.http.errors import ApiError

__all__ = ["Residence", "Stay"]

RETRY_SECONDS, LONGEST_RETRY_SECONDS = 5.0, 300.0
"""How soon a load that failed is tried again: twice as long after each failure."""
LEAST_STAY_SECONDS = 1.0
IDLE_STAYS, BUSY_STAYS = 1, 4
"""How many times as long as its load took a model stays while others wait for its room."""
QUIET_SECONDS = 0.02
"""A request of many prompts may have none at the engine for a moment."""

LoadState = Literal["unloaded", "loading", "loaded", "unloading", "failed"]


@dataclass(frozen=True)
class Stay:
    """When a model's engines are loaded, and what they take."""

    on_demand: bool = False
    """The first request loads it, and one after it has failed or was unloaded."""
    unload_after: float | None = None
    """Idle seconds; None: it stays."""
    pinned: bool = False
    """It stays, whatever waits."""
    share: float = 1.0
    """Of the machine's memory."""
    host_memory: int = 0
    """Bytes of host memory that it takes at least; 0: not known."""
    load_seconds: float = limits.LOAD_SECONDS.most
    """That a load may take, and that a request waits for it."""


class Residence:
    """The state of one model's engines. `Keeper` changes it."""

    def __init__(self, arms: Arms, stay: Stay, clock: Clock = monotonic) -> None:
        self.stay = stay
        self._arms = arms
        self._clock = clock
        engine = arms.first.config
        most = engine.max_waiting + engine.max_num_seqs
        # Those that a load was started for are told why it failed.
        self.requests = WaitingRequests(most, stay.load_seconds + 1, clock)
        asleep = not arms.first.client.replicas
        self.state: LoadState = "unloaded" if asleep else "loaded"
        self.requests.open = not asleep
        self.reason: str | None = None
        """Why it has failed."""
        self.draining = False
        """It is to be unloaded, and requests wait until it has been loaded again."""
        self.wanted_by_admin = False
        self.unloaded_by_admin = False
        """Idle or not, it is to be unloaded now."""
        self.keep: float | None = stay.unload_after
        """Idle seconds until it is unloaded; None: any number. The last request may have said so."""
        self.used = clock()
        """When it was last seen busy."""
        self.since = clock()
        """When its state began."""
        self.loads = 0
        self.load_seconds = 0.0
        """That the last load took."""
        self._failures = 0
        self._quiet_since: float | None = None

    def enter_now(self) -> Entry | None:
        """The entry of a request that need not wait; None: it has to. Raises ApiError."""
        self.used = self._clock()
        if self.requests.open and not self.requests:
            return Entry()
        if self.state == "failed" and (left := self.retry_in) > 0:
            raise load_failed(str(self.reason), left)
        return None

    # -------------------------------------------------------------- what the keeper looks at

    @property
    def pinned(self) -> bool:
        return self.stay.pinned or self._arms.trial is not None

    def pin(self, pinned: bool) -> None:
        self.stay = replace(self.stay, pinned=pinned)

    @property
    def wanted(self) -> bool:
        """It is not loaded, and is to be."""
        return self.state in ("unloaded", "failed") and (self.wanted_by_admin or bool(self.requests))

    @property
    def asked(self) -> float:
        """When it was wanted first."""
        return self.since if self.requests.oldest is None else self.requests.oldest

    @property
    def retry_in(self) -> float:
        """Seconds until another load may be tried."""
        pause = min(LONGEST_RETRY_SECONDS, RETRY_SECONDS * 2 ** (self._failures - 1)) if self._failures else 0
        return max(0.0, self.since + pause - self._clock())

    @property
    def busy(self) -> bool:
        waits = self.requests.open and bool(self.requests)
        return waits or self.requests.entering > 0 or not self._arms.idle or self.changing

    @property
    def changing(self) -> bool:
        """Replicas start or leave by a command, or a rollout has not ended."""
        return any(_changing(arm.client) for arm in self._arms.all)

    @property
    def leaving(self) -> bool:
        """It is to be unloaded, at once or after its last request."""
        return self.draining or self.unloaded_by_admin

    def look(self) -> None:
        """Note whether it is busy."""
        now = self._clock()
        if self.busy:
            self.used, self._quiet_since = now, None
        elif self._quiet_since is None:
            self._quiet_since = now

    @property
    def quiet(self) -> bool:
        return self._quiet_since is not None and self._clock() - self._quiet_since >= QUIET_SECONDS

    @property
    def idle_left(self) -> float:
        """Seconds until it is unloaded if nothing comes; at least as long as its load took."""
        if self.keep is None or self.pinned:
            return math.inf
        return max(0.0, max(self.used + self.keep, self.since + self._stays(IDLE_STAYS)) - self._clock())

    def _stays(self, times: int) -> float:
        """Seconds for which it is loaded at least."""
        return max(LEAST_STAY_SECONDS, self.load_seconds) * times

    @property
    def movable(self) -> bool:
        """It may be unloaded for the sake of another, now or soon."""
        return self.state == "loaded" and not self.pinned and not self.changing

    @property
    def may_go(self) -> bool:
        """It has been loaded for long enough to be unloaded for the sake of another.

        A model stays at least as long as its load took, and longer while it is busy: so clients that ask in
        turn for two models, where one has room, cannot have the server do nothing but load.
        """
        return self._stayed >= self._stays(BUSY_STAYS if self.busy else IDLE_STAYS)

    @property
    def _stayed(self) -> float:
        return self._clock() - self.since

    @property
    def progress(self) -> float | None:
        """Which part of the weights is loaded."""
        if self.state != "loading":
            return None
        return self._arms.first.client.progress or 0.0

    # -------------------------------------------------------------- what the keeper does

    def _turn(self, state: LoadState) -> None:
        self.state, self.since, self.draining, self._quiet_since = state, self._clock(), False, None
        self.requests.open = state == "loaded"

    def begin_loading(self) -> None:
        self.wanted_by_admin = False
        self._turn("loading")

    def loaded(self) -> None:
        self.load_seconds, self._failures, self.reason = self._stayed, 0, None
        self.loads += 1
        self.used, self.keep = self._clock(), self.stay.unload_after
        self._turn("loaded")
        self.requests.let_in()

    def drain(self) -> None:
        """Let no more requests in; it is unloaded once it is quiet."""
        self.draining, self.requests.open = True, False

    def reopen(self) -> None:
        """Go on: nothing waits for its room any more."""
        self.draining, self.requests.open = False, True
        self.requests.let_in()

    def begin_unloading(self) -> None:
        self.unloaded_by_admin = False
        self._turn("unloading")

    def unloaded(self) -> None:
        self._turn("unloaded")

    def fail(self, reason: str) -> None:
        """Note that it could not be loaded, or that its engines were given up; requests that wait end."""
        self._failures, self.reason = self._failures + 1, reason
        self._turn("failed")
        self.requests.refuse(load_failed(reason, self.retry_in))


def load_failed(reason: str, seconds: float) -> ApiError:
    """The answer to a request for a model that could not be loaded."""
    wait = max(1, math.ceil(seconds))
    return ApiError(
        503,
        f"the model could not be loaded: {reason}; a request in {wait} s or later tries again",
        code="model_load_failed",
        headers={"Retry-After": str(wait)},
    )


def _changing(fleet: Fleet) -> bool:
    if fleet.failure is not None:  # a change that was begun does not end any more
        return False
    if fleet.rollout is not None and fleet.rollout.state in ("rolling", "paused", "undoing"):
        return True
    return any(each.leaving or each.draining or not each.started for each in fleet.replicas)
