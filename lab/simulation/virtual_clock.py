"""Time that passes only when it is told to."""

from __future__ import annotations

__all__ = ["VirtualClock"]


class VirtualClock:
    """Implements Clock; whoever owns it moves it on."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now
