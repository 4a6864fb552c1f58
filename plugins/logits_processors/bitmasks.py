"""Which tokens may come, as bits: 32 tokens a word, one row of words for each place in a grammar."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from llguidance import LLExecutor, LLMatcher
from torch import Tensor

__all__ = ["Bitmasks", "Chain", "chains", "forbid"]

EVERYTHING = -1
"""A word that allows all of its tokens."""
MANY = 16
"""Chains that are worth waking other threads for: a mask takes some tens of microseconds."""
CHUNK = 2**18
"""Logits that a CPU changes at a time: what is made of their masks stays in its cache."""

Guesses = tuple[int, ...]


@dataclass
class Chain:
    """Places in a grammar behind more and more guesses, each beginning with those before it."""

    matcher: LLMatcher
    places: list[Guesses]
    first: int = 0
    """The mask of the first place; a mask for each further guess follows."""
    taken: int = 0
    """Guesses that the matcher took to go to the first place."""

    @property
    def drafts(self) -> list[int]:
        """The guesses between the first place and the last."""
        return list(self.places[-1][len(self.places[0]) :])

    @property
    def masks(self) -> dict[Guesses, int]:
        """Which mask belongs to each place."""
        return {place: self.first + len(place) - len(self.places[0]) for place in self.places}

    def enter(self) -> bool:
        """Go to the first place. False: its guesses have left the grammar, so that no output gets there."""
        start = list(self.places[0])
        self.taken = self.matcher.try_consume_tokens(start) if start else 0
        return self.taken == len(start) or self.matcher.is_stopped()

    def leave(self) -> None:
        """Undo `enter`."""
        if self.taken:
            self.matcher.rollback(self.taken)


def chains(matcher: LLMatcher, places: Iterable[Guesses]) -> list[Chain]:
    """As few as have all `places`. Each has a matcher to itself, at the place without guesses."""
    found: list[Chain] = []
    for place in sorted(set(places), key=len):
        for chain in found:
            if place[: len(chain.places[-1])] == chain.places[-1]:
                chain.places.append(place)
                break
        else:
            found.append(Chain(matcher.deep_copy() if found else matcher, [place]))
    return found


class Bitmasks:
    """Fills in masks, several at a time."""

    def __init__(self, vocab_size: int) -> None:
        self._words = (vocab_size + 31) // 32
        threads = torch.get_num_threads()
        self._executor = LLExecutor(threads)
        self._parallel = threads > 1

    def of(self, chains: Sequence[Chain]) -> Tensor:
        """int32 [masks, words]; says in each chain which are its own.

        The first mask is nobody's, and allows everything.
        """
        count = 1
        for chain in chains:
            chain.first, count = count, count + 1 + len(chain.drafts)
        masks = torch.full((count, self._words), EVERYTHING, dtype=torch.int32)
        self._fill(masks, [chain for chain in chains if chain.enter()])
        for chain in chains:
            chain.leave()
        return masks

    def _fill(self, masks: Tensor, chains: Sequence[Chain]) -> None:
        where = masks.data_ptr(), masks.element_size() * self._words, len(masks)
        plain = [(chain.matcher, chain.first) for chain in chains if not chain.drafts]
        drafted = [(chain.matcher, chain.first, chain.drafts) for chain in chains if chain.drafts]
        # One by one they are done in this thread.
        at_once = len(chains) if self._parallel and len(chains) >= MANY else 1
        for start in range(0, len(plain), at_once):
            self._executor.unsafe_compute_mask_ptr(plain[start : start + at_once], *where)
        for start in range(0, len(drafted), at_once):
            self._executor.unsafe_compute_mask_ptr_with_draft_token(drafted[start : start + at_once], *where)


def forbid(logits: Tensor, masks: Tensor) -> None:
    """Minus infinity for every token whose bit is 0.

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
    # By arithmetic: masked_fill takes five times as long where allowed and forbidden tokens alternate.
    logits -= forbidden.mul_(torch.finfo(logits.dtype).max).mul_(2)
