"""Moves that are not carried out, or not as they should be."""

from __future__ import annotations

from fault import Fault, swaps_out
from stress_case import Case

from turnout.core.types.plan import Move, Way

__all__ = [
    "LateSwapOut",
    "LostCopy",
    "LostSwapIn",
    "LostSwapOut",
    "MisplacedSwapIn",
    "MovesOutOfOrder",
    "RepeatedSwapIn",
    "ShortSwapIn",
]


class LostMove(Fault):
    """A copy, a swap out or a swap in that is not carried out."""

    way: Way

    def suits(self, case: Case) -> bool:
        return self.way == "copy" or swaps_out(case)

    def carried_out(self, moves: list[Move]) -> list[Move]:
        return [move for move in moves if move.way != self.way or not self.now()]


class LostCopy(LostMove):
    way = "copy"


class LostSwapOut(LostMove):
    way = "swap_out"


class LostSwapIn(LostMove):
    way = "swap_in"


class MisplacedSwapIn(Fault):
    """A swap in into other memory than it was meant for."""

    def suits(self, case: Case) -> bool:
        return swaps_out(case)

    def carried_out(self, moves: list[Move]) -> list[Move]:
        return [self._misplaced(move) if move.way == "swap_in" and self.now() else move for move in moves]

    def _misplaced(self, move: Move) -> Move:
        return move._replace(target=max(0, move.target - move.length) or move.target + move.length)


class ShortSwapIn(Fault):
    """A swap in that leaves out the last position."""

    def suits(self, case: Case) -> bool:
        return swaps_out(case)

    def carried_out(self, moves: list[Move]) -> list[Move]:
        return [self._shorter(move) if move.way == "swap_in" and self.now() else move for move in moves]

    def _shorter(self, move: Move) -> Move:
        return move._replace(length=move.length - 1)


class RepeatedSwapIn(Fault):
    """A swap in that is carried out a second time, some steps later."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self._delay = 1 + seed % 6
        self._again: list[Move] = []

    def suits(self, case: Case) -> bool:
        return swaps_out(case)

    def carried_out(self, moves: list[Move]) -> list[Move]:
        if self._again:
            self._delay -= 1
            if not self._delay:
                again, self._again = self._again, []
                self.happened = 1
                return [*moves, *again]
        elif not self.happened:
            self._again = [move for move in moves if move.way == "swap_in"]
        return moves


class LateSwapOut(Fault):
    """What is to be swapped out is copied one step too late, when its memory belongs to another."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self._late: list[Move] = []

    def suits(self, case: Case) -> bool:
        return swaps_out(case)

    def carried_out(self, moves: list[Move]) -> list[Move]:
        late, self._late = self._late, []
        self._late = [move for move in moves if move.way == "swap_out"]
        self.happened += bool(self._late)
        return late + [move for move in moves if move.way != "swap_out"]


class MovesOutOfOrder(Fault):
    """A step's moves, the last one first."""

    def suits(self, case: Case) -> bool:
        return swaps_out(case)

    def carried_out(self, moves: list[Move]) -> list[Move]:
        self.happened += len({move.way for move in moves}) > 1
        return moves[::-1]
