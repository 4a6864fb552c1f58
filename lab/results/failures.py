"""What is said of requests that failed."""

from __future__ import annotations

from turnout.lab.results.record import Record

__all__ = ["tell_failures"]


def tell_failures(arm: str, failed: int, requests: int, first: Record) -> str:
    """A sentence without its full stop, with the reason of the `first` that failed."""
    return (
        f"{arm}: {failed} of {requests} requests failed, the first of them (job {first.index}) "
        f"because: {first.error}"
    )
