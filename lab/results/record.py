"""The record of one request, on a real clock or a virtual one: all figures are computed from records."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from turnout.lab.jobs.job import Job

__all__ = ["Record"]


@dataclass(slots=True)
class Record:
    """Times are in seconds after the run's beginning."""

    job: Job
    index: int
    """The job's index in its workload, which pairs the records of two runs."""
    due: float
    """When the request should have been sent."""
    sent: float
    token_times: list[float] = field(default_factory=list)
    """When each output token arrived; tokens of one message have the same time."""
    finished: float = 0.0
    prompt_tokens: int = 0
    """As the server counted them."""
    output_tokens: int = 0
    """As the server counted them."""
    digest: str = ""
    """A digest of the output: equal outputs have equal digests; "" where none was asked for."""
    error: str = ""
    """Why it failed; "" where it did not."""

    @property
    def served(self) -> bool:
        """It got an answer, and did not fail: then it has latencies."""
        return bool(self.token_times) and not self.error

    @property
    def ttft(self) -> float:
        """Time to first token, from sending; of a request that generates nothing, to its answer."""
        return (self.token_times[0] if self.token_times else self.finished) - self.sent

    @property
    def tpot(self) -> float:
        """Time per output token after the first; 0 where there is but one."""
        later = self.output_tokens - 1
        return (self.token_times[-1] - self.token_times[0]) / later if later > 0 else 0.0

    @property
    def e2el(self) -> float:
        """End-to-end latency."""
        return self.finished - self.sent

    @property
    def itl(self) -> list[float]:
        """Inter-token latencies: gaps between messages that brought tokens."""
        times = sorted(set(self.token_times))
        return [later - earlier for earlier, later in pairwise(times)]
