"""Bitmasks of the allowed tokens: 32 tokens a word, a row of words for each position in a grammar."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from llguidance import LLExecutor, LLMatcher
from torch import Tensor

from turnout.kernels.threads import kernel_threads
from turnout.plugins.logits_processors.structured.masks.free_text import FreeState, FreeTextMasks, KeptMask
from turnout.plugins.logits_processors.structured.masks.mask_time import MaskTime
from turnout.plugins.logits_processors.structured.matchers import Position

__all__ = ["Bitmasks", "DraftPath", "draft_paths", "forbid"]

ALL_ALLOWED = -1
"""A word that allows all of its tokens."""
MIN_PARALLEL = 16
"""Paths from which on threads share the work: a mask takes some tens of microseconds."""
CHUNK = 2**18
"""Logits that a CPU masks at a time, so that their expanded masks stay in its cache."""

DraftTokens = tuple[int, ...]


@dataclass
class DraftPath:
    """Positions in a grammar behind draft tokens, each of which continues those of the one before."""

    matcher: LLMatcher
    positions: list[DraftTokens]
    first: int = 0
    """The mask of the first position; a mask for each further draft token follows."""
    consumed: int = 0
    """Draft tokens that the matcher consumed on the way to the first position."""
    seconds: float = 0.0
    """Processor time that it took, in steps where that is measured."""
    free: FreeTextMasks | None = None
    """Masks of free places that are known."""
    states: list[FreeState] = field(default_factory=list)
    """Where each mask's position is among them."""

    @property
    def further(self) -> list[int]:
        """The draft tokens between the first position and the last."""
        return list(self.positions[-1][len(self.positions[0]) :])

    @property
    def masks(self) -> dict[DraftTokens, int]:
        """The mask of each position."""
        return {
            draft_tokens: self.first + len(draft_tokens) - len(self.positions[0])
            for draft_tokens in self.positions
        }

    @cached_property
    def known(self) -> dict[DraftTokens, KeptMask]:
        """The masks of all positions; empty where one is not known."""
        if self.free is None:
            return {}
        found: dict[DraftTokens, KeptMask] = {}
        before = len(self.positions[0])
        for draft_tokens in self.positions:
            state = self.states[len(draft_tokens) - before]
            mask = self.free.find(state)
            if mask is None and not draft_tokens:  # the matcher is where the mask is asked for
                mask = self.free.derived(state, self._allows)
            if mask is None:
                return {}
            found[draft_tokens] = mask
        return found

    def _allows(self, token: int) -> bool:
        return self.matcher.validate_tokens([token]) == 1

    def keep(self, masks: Tensor) -> None:
        """Keeps those that have been found of all masks of the step."""
        if self.free is not None:
            for number, state in enumerate(self.states, self.first):
                self.free.keep(state, masks[number])

    def enter(self) -> bool:
        """Moves the matcher to the first position.

        Returns False if the grammar does not allow its draft tokens; then no output reaches it.
        """
        start = list(self.positions[0])
        self.consumed = self.matcher.try_consume_tokens(start) if start else 0
        return self.consumed == len(start) or self.matcher.is_stopped()

    def leave(self) -> None:
        """Undoes `enter`."""
        if self.consumed:
            self.matcher.rollback(self.consumed)


def draft_paths(at: Position, positions: Iterable[DraftTokens]) -> list[DraftPath]:
    """The fewest paths with all `positions` behind one, each with its own matcher, at its first position."""
    found: list[DraftPath] = []
    for draft_tokens in sorted(set(positions), key=len):
        for path in found:
            if draft_tokens[: len(path.positions[-1])] == path.positions[-1]:
                path.positions.append(draft_tokens)
                break
        else:
            found.append(DraftPath(at.matcher.deep_copy() if found else at.matcher, [draft_tokens]))
    if at.masks is not None and at.state is not None:
        for path in found:
            path.free = at.masks
            path.states = [at.masks.behind(at.state, path.positions[0])]
            for token in path.further:
                path.states.append(at.masks.behind(path.states[-1], [token]))
    return found


class Bitmasks:
    """Computes masks, several at a time."""

    def __init__(self, vocab_size: int, ends: Collection[int]) -> None:
        """ends: end-of-sequence tokens, all that may come behind one."""
        self._words = (vocab_size + 31) // 32
        self._ends = frozenset(token for token in ends if token < vocab_size)
        self._end_mask = torch.zeros(self._words, dtype=torch.int32)
        words = self._end_mask.numpy().view(np.uint32)
        for token in self._ends:
            words[token // 32] |= np.uint32(1 << token % 32)
        threads = kernel_threads()
        self._executor = LLExecutor(threads)
        self._parallel = threads > 1

    def of(self, paths: Sequence[DraftPath], time: MaskTime) -> Tensor:
        """The masks of all paths, int32 [masks, words]; sets `first` of each path, and `seconds`.

        The first mask belongs to no path, and allows all tokens.
        """
        count = 1
        for path in paths:
            path.first, count = count, count + 1 + len(path.further)
        masks = torch.full((count, self._words), ALL_ALLOWED, dtype=torch.int32)
        if time.measuring:
            self._measure(masks, paths, time)
        else:
            self._fill(masks, [path for path in paths if path.enter()])
        for path in paths:
            path.leave()
        return masks

    def _measure(self, masks: Tensor, paths: Sequence[DraftPath], time: MaskTime) -> None:
        for path in paths:
            begun = time.begin()
            self._fill(masks, [path] if path.enter() else [])
            path.seconds += time.since(begun)

    def _fill(self, masks: Tensor, paths: Sequence[DraftPath]) -> None:
        where = masks.data_ptr(), masks.element_size() * self._words, len(masks)
        plain = [(path.matcher, path.first) for path in paths if not path.further]
        drafted = [(path.matcher, path.first, path.further) for path in paths if path.further]
        # A call with a single path computes its masks in this thread.
        at_once = len(paths) if self._parallel and len(paths) >= MIN_PARALLEL else 1
        for start in range(0, len(plain), at_once):
            self._executor.unsafe_compute_mask_ptr(plain[start : start + at_once], *where)
        for _, first, further in drafted:
            # The executor fills no mask behind an end.
            for number, token in enumerate(further, first + 1):
                if token in self._ends:
                    masks[number : first + 1 + len(further)] = self._end_mask
                    break
        for start in range(0, len(drafted), at_once):
            self._executor.unsafe_compute_mask_ptr_with_draft_token(drafted[start : start + at_once], *where)
        for path in paths:
            path.keep(masks)


def forbid(logits: Tensor, masks: Tensor) -> None:
    """Sets the logit of every token whose bit is 0 to minus infinity.

    logits: fp32 [rows, columns]; masks: int32 [rows, words].
    """
    rows, columns = logits.shape
    step = max(1, CHUNK // columns) if logits.device.type == "cpu" else rows
    for start in range(0, rows, step):
        _forbid(logits[start : start + step], masks[start : start + step])


def _forbid(logits: Tensor, masks: Tensor) -> None:
    shifts = torch.arange(32, dtype=masks.dtype, device=masks.device)
    bits = (~masks).unsqueeze(-1) >> shifts & 1
    forbidden = bits.flatten(1)[:, : logits.shape[1]].to(logits.dtype)
    # `masked_fill` would take five times as long where allowed and forbidden tokens alternate.
    logits -= forbidden.mul_(torch.finfo(logits.dtype).max).mul_(2)
