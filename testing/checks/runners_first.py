"""Checks what a scheduling policy declares by `runners_first`, in every step that it orders."""

from __future__ import annotations

from turnout.core.interfaces.scheduling import Entry, SchedulingPolicy
from turnout.core.types.request import RequestView
from turnout.core.types.views import View

__all__ = ["RunnersFirstPolicy", "declares_runners_first"]


def declares_runners_first(policy: SchedulingPolicy) -> bool:
    """Whether the class that defines `order` declares it."""
    ordering = next(base for base in type(policy).__mro__ if "order" in vars(base))
    return bool(vars(ordering).get("runners_first", False))


class RunnersFirstPolicy(SchedulingPolicy):
    """Passes every call on to `policy`, and asks its `twin` for an order without those that only decode.

    That is what a simulation asks that skips steps.
    """

    def __init__(self, policy: SchedulingPolicy, twin: SchedulingPolicy) -> None:
        self.policy = policy
        self.twin = twin
        self.head_of_line = policy.head_of_line  # type: ignore[misc]
        self.decoded = 0
        """Requests that only decoded, over all steps."""

    def order(self, view: View) -> list[Entry]:
        name, entries = type(self.policy).__name__, list(self.policy.order(view))
        decoding = {request for request in view.running if request.decoding}
        self.decoded += len(decoding)
        for before, entry in enumerate(entries):
            request = entry if isinstance(entry, RequestView) else entry.request
            if request not in decoding:
                continue
            assert entry is request, (
                f"{name} declares `runners_first`, but ordered {entry}: a running request that needs only "
                "its next token must have no limit"
            )
            earlier = decoding.union(view.running[: view.running.index(request)])
            late = [each for each in entries[:before] if each not in earlier]
            assert not late, (
                f"{name} declares `runners_first`, but ordered {late} before {request}, which runs, needs "
                "only its next token and was admitted earlier"
            )
        missing = decoding.difference(entries)
        assert not missing, f"{name} declares `runners_first`, but its order lacks {sorted(missing, key=str)}"
        others = [entry for entry in entries if entry not in decoding]
        reduced = view._replace(running=tuple(r for r in view.running if r not in decoding))
        alone = list(self.twin.order(reduced))
        assert alone == others, (
            f"{name} declares `runners_first`, but orders the other requests as {others} beside "
            f"{len(decoding)} that need only their next token, and as {alone} without them"
        )
        return entries
