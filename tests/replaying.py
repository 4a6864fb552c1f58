"""Captured steps on a machine without graphs."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

__all__ = ["Recorder"]


class Recorder:
    """Captures by running, and replays by running again, into the same memory. Implements Capture."""

    def __init__(self) -> None:
        self.captured = self.replayed = 0

    def capture(self, work: Callable[[], Tensor]) -> Callable[[], Tensor]:
        self.captured += 1
        out = work()

        def replay() -> Tensor:
            self.replayed += 1
            return out.copy_(work())

        return replay
