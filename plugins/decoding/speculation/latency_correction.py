"""How much longer steps with guesses take than was worked out, which leaves things out."""

from __future__ import annotations

__all__ = ["Surprise"]

LEARNS = 0.1
"""Weight of the latest step that guessed, in how much longer such steps take than was worked out."""
FORGETS = 0.98
"""Of that each time that guessing does not pay: in the end it is tried again."""
LEAST, MOST = 0.25, 4.0
"""What a single step may say."""


class Surprise:
    """Learnt from the steps that were done as was best: for each, what was worked out and what it took."""

    def __init__(self) -> None:
        self.factor = 1.0
        """Times as long as was worked out."""
        self._expected: float | None = None
        """Seconds of the current step and its guesses; None: nothing is to be learnt from it."""
        self._drafting = 0.0

    def expect(self, seconds: float | None) -> None:
        """Of the step to come and its guesses, but for the factor; None: not done as was best."""
        self._expected = seconds

    def drafted(self, seconds: float) -> None:
        """The guesses took so long."""
        self._drafting = seconds

    def withdraw(self) -> None:
        """The step is over, or something else came in between, such as a backlog."""
        self._expected = None

    def saw(self, seconds: float) -> None:
        """The step took so long."""
        if self._expected:
            ratio = (self._drafting + seconds) / self._expected
            self.factor += LEARNS * (min(MOST, max(LEAST, ratio)) - self.factor)

    def fade(self) -> None:
        """Guessing did not pay."""
        self.factor = 1 + FORGETS * (self.factor - 1)
