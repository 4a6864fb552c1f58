"""What is said of requests and policies that failed."""

from __future__ import annotations

from turnout.lab.results.record import Record

__all__ = ["tell_failures", "tell_policy_faults"]


def tell_failures(arm: str, failed: int, requests: int, first: Record) -> str:
    """A sentence without its full stop, with the reason of the `first` that failed."""
    return (
        f"{arm}: {failed} of {requests} requests failed, the first of them (job {first.index}) "
        f"because: {first.error}"
    )


def tell_policy_faults(arm: str, faults: int) -> str:
    """A sentence without its full stop."""
    answers = "answer" if faults == 1 else "answers"
    return (
        f"{arm}: {faults:,} {answers} of its scheduling policy could not be carried out, and requests were "
        "served in arrival order instead; the log says why"
    )
