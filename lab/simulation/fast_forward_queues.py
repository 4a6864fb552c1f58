"""A scheduler that leaves fast-forwarded requests out of its steps, for simulations (`fast_forward.py`).

A fast-forwarded request runs, and computes its next token in every step, whatever else happens. It keeps its
sequence slots, its order of admission and its share of a step's token budget, but the scheduler and the
policy do not look at it. So a step costs what changes in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

from turnout.core.interfaces.kv import KVCache
from turnout.core.interfaces.scheduling import LengthPredictor, SchedulingPolicy
from turnout.core.scheduling.preemption import Preemption
from turnout.core.scheduling.queues import Queues
from turnout.core.scheduling.scheduler import Capacity, Scheduler
from turnout.core.types.request import Request

__all__ = ["FastForwardQueues", "FastForwardScheduler"]


class FastForwardQueues(Queues):
    """Queues in which some of the running requests are fast-forwarded: they count, and are not listed."""

    def __init__(self) -> None:
        super().__init__()
        self._fast_forwarded: dict[Request, None] = {}
        self._numbers: dict[Request, int] = {}
        """The number of each running request's admission."""
        self._admissions = count()

    def __bool__(self) -> bool:
        return bool(self._fast_forwarded) or super().__bool__()

    @property
    def fast_forwarded(self) -> int:
        """How many requests are fast-forwarded."""
        return len(self._fast_forwarded)

    @property
    def running_count(self) -> int:
        return len(self._running) + len(self._finishing) + len(self._fast_forwarded)

    @property
    def only_finishing(self) -> bool:
        return super().only_finishing and not self._fast_forwarded

    @property
    def must_schedule(self) -> bool:
        return super().must_schedule and not self._fast_forwarded

    def admission(self, request: Request) -> int:
        """Numbers the running requests in the order in which they were admitted."""
        return self._numbers[request]

    # -------------------------------------------------------------- transitions

    def admit(self, request: Request) -> None:
        super().admit(request)
        self._numbers[request] = next(self._admissions)

    def preempt(self, request: Request) -> None:
        super().preempt(request)
        del self._numbers[request]

    def remove(self, request: Request) -> None:
        super().remove(request)
        self._numbers.pop(request, None)

    def fast_forward(self, requests: Iterable[Request]) -> None:
        """Takes running requests out of `running`, until `resume`."""
        for request in requests:
            del self._running[request]
            self._fast_forwarded[request] = None
            self._running_views = None

    def resume(self, requests: Iterable[Request]) -> None:
        """Puts fast-forwarded requests back into `running`, in order of admission."""
        for request in requests:
            del self._fast_forwarded[request]
            self._running[request] = request.view
            self._running_views = None
        if self._running_views is None:
            in_order = sorted(self._running, key=self._numbers.__getitem__)
            self._running = {request: request.view for request in in_order}


class FastForwardScheduler(Scheduler):
    """A scheduler that holds back a token of each step's budget for each fast-forwarded request."""

    queues: FastForwardQueues

    def __init__(
        self,
        policy: SchedulingPolicy,
        kv: KVCache,
        capacity: Capacity,
        predictor: LengthPredictor,
        *,
        preemption: Preemption | None = None,
        strict: bool = False,
        grows_at: int | None = None,
    ) -> None:
        super().__init__(
            policy,
            kv,
            capacity,
            predictor,
            preemption=preemption,
            strict=strict,
            queues=FastForwardQueues(),
            grows_at=grows_at,
        )

    @property
    def token_budget(self) -> int:
        return self.capacity.tokens - self.queues.fast_forwarded
