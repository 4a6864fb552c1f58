"""Guards an admission policy: its faults are logged, and no request is refused because of them."""

from __future__ import annotations

import logging
import math

from turnout.core.engine.admission_rate import AdmissionRate
from turnout.core.errors import Overloaded, PolicyError
from turnout.core.interfaces.admission import AdmissionPolicy, Load, Refusal
from turnout.core.plugin_faults import PluginFaults, plugin_errors
from turnout.core.scheduling.scheduler import Scheduler
from turnout.core.types.request import Request
from turnout.core.types.views import KVView

__all__ = ["GuardedAdmission"]

logger = logging.getLogger(__name__)

MOST_SECONDS = 86_400
"""That a client may be told to wait."""


class GuardedAdmission:
    """Asks an admission policy, and takes a request on where it fails. Without a policy, takes all on."""

    def __init__(self, policy: AdmissionPolicy | None, scheduler: Scheduler) -> None:
        self.policy = policy
        self.watches = policy is not None and policy.watches
        """Whether the rate is to be measured."""
        self.faults = 0
        self._observes = policy is not None and type(policy).observe is not AdmissionPolicy.observe
        self._scheduler = scheduler
        self._rate = AdmissionRate()
        self._begun = 0
        """Requests that had begun by the latest step."""
        self._plugin_faults = PluginFaults("admission", logger)

    def note_step(self, now: float) -> None:
        """Measures, after a step has been planned."""
        begun = self._scheduler.begun
        self._rate.note(now, begun - self._begun, self._scheduler.queues.waiting_count)
        self._begun = begun

    def check(self, request: Request, now: float) -> None:
        """Raises Overloaded, with the policy's reason, if it refuses a request that arrives."""
        if self.policy is None:
            return
        load = self._load(now)  # outside: a fault of the KV backend is none of the policy's
        try:
            answer = _checked(self.policy.admit(request.view, load))
        except plugin_errors() as error:
            self._fault("admit", error)
            return
        if answer is not None:
            raise Overloaded(answer.reason, retry_after=float(answer.retry_after))

    def observe(self, request: Request) -> None:
        """Tells the policy of a request that has ended."""
        if not self._observes or self.policy is None:
            return
        try:
            self.policy.observe(request.view)
        except plugin_errors() as error:
            self._fault("observe", error)

    def _load(self, now: float) -> Load:
        queues, kv = self._scheduler.queues, self._scheduler.kv
        return Load(
            now=now,
            running=queues.running_count,
            waiting=queues.waiting_count,
            kv=KVView(kv.free, kv.capacity),
            rate=self._rate.per_second,
            requests=lambda: (*queues.running_views, *queues.waiting_views),
            predict=self._scheduler.predictions.predict,
        )

    def _fault(self, method: str, error: BaseException) -> None:
        self.faults += 1
        self._plugin_faults.report(self.policy, method, error)


def _checked(answer: object) -> Refusal | None:
    """Raises PolicyError for an answer that no client can be given."""
    if answer is None:
        return None
    if not isinstance(answer, Refusal) or not isinstance(answer.reason, str) or not answer.reason:
        raise PolicyError(f"answered {answer!r}; expected None, or a Refusal that says why")
    seconds = float(answer.retry_after)
    if not math.isfinite(seconds) or not 0 <= seconds <= MOST_SECONDS:
        raise PolicyError(f"refused with retry_after={seconds}; expected 0 to {MOST_SECONDS:,} seconds")
    return answer
