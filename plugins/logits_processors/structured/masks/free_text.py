"""Masks where text is free: found once for each state of a marker that may be coming.

The library finds a mask by asking all tokens anew whenever a token has begun or broken off a marker, which
takes milliseconds for a large vocabulary. But where any text may come up to a marker, the mask depends on
nothing but how much of the marker has come. What is not surely such a place has no state here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from turnout.core.types.structured_outputs import FreeText, Pieces
from turnout.plugins.logits_processors.structured.masks.token_bytes import TokenBytes, special
from turnout.plugins.logits_processors.structured.masks.token_starts import TokenStarts

__all__ = ["FreeState", "FreeTextMasks", "KeptMask"]

WHITE_SPACE = b" \t\r\n"
MOST_SPACE = 4
"""White space that a grammar allows before a region or an answer, besides what is text."""
MOST_KEPT = 64
"""Masks that are kept for a grammar: one for each state, about."""
MOST_FORBIDDEN = 1 / 16
"""Part of the vocabulary that a mask forbids, if it is kept."""

NOWHERE, BEGIN, BETWEEN, AFTER, CALL, GIVEN, ANSWER = range(-7, 0)
"""Places besides the regions, which have their numbers, and the free values, whose numbers follow: not free
from here on; before the first text; among headers; behind a region; in a call; in a value of it that is not
free; in the answer."""
PASSING = {NOWHERE, BETWEEN, CALL, GIVEN}
"""Places whose states say too little, or hardly come again."""


class FreeState(NamedTuple):
    """Where an output is."""

    place: int
    held: bytes = b""
    """What may be the beginning of a marker; or all that has come since the place was reached, where no text
    is free yet."""
    cut: bytes = b""
    """The beginning of a character that is not complete."""
    begun: bool = False
    """Text of the place has come."""
    after: bool = False
    """A region came before."""
    path: bytes = b""
    """Of calls, stands for all that has come but the free values."""

    @property
    def is_kept(self) -> bool:
        """Whether the mask depends on this state alone, and it will come again."""
        return self.place not in PASSING and not self.cut


@dataclass
class KeptMask:
    """A mask that forbids few tokens."""

    words: Tensor
    """int32 [words], 32 tokens each."""
    forbidden: Tensor
    """The ids of tokens that it forbids, int64."""

    def forbid(self, logits: Tensor, rows: Sequence[int]) -> None:
        """Forbids these tokens in some rows."""
        if self.forbidden.device != logits.device:
            self.forbidden = self.forbidden.to(logits.device)
        ids = self.forbidden[self.forbidden < logits.shape[1]]
        if len(rows) == len(logits):
            logits[:, ids] = -torch.inf
        else:
            logits[torch.tensor(rows, device=logits.device)[:, None], ids] = -torch.inf


class _Region(NamedTuple):
    open: bytes
    close: tuple[bytes, ...]
    special: bool
    """A special token begins it."""


class FreeTextMasks:
    """Follows outputs of one grammar through its free places, and keeps the masks of these."""

    def __init__(self, free: FreeText, bytes_of: TokenBytes, starts: TokenStarts | None = None) -> None:
        """starts: the same tokens; without, no mask is derived from another."""
        self._bytes_of, self._starts = bytes_of, starts
        self._regions = [
            _Region(_bytes(each.open), tuple(map(_bytes, each.close)), isinstance(each.open[0], int))
            for each in free.regions
        ]
        self._longest = max((len(each.open) for each in self._regions), default=1)
        self._answer = None if free.answer is None else tuple(map(_bytes, free.answer))
        self._between = free.between
        first = BETWEEN if free.between else BEGIN
        if free.between and not all(each.special for each in self._regions):
            first = NOWHERE  # a call's arguments may hold what begins a region
        within = free.within if free.within >= 0 and first != NOWHERE else first
        self.start = FreeState(within)
        """Before the first token."""
        self._values = [(each.open.encode(), each.free) for each in free.values]
        self._reach = max((len(opening) for opening, _ in self._values), default=0)
        self._close = free.close.encode()
        self._kept: OrderedDict[FreeState, KeptMask] = OrderedDict()

    @property
    def memory(self) -> int:
        """Bytes of the masks."""
        return sum(mask.words.nbytes + mask.forbidden.nbytes for mask in self._kept.values())

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, state: FreeState) -> KeptMask | None:
        """The mask of a state, if it is known."""
        found = self._kept.get(state)
        if found is not None:
            self._kept.move_to_end(state)
        return found

    def keep(self, state: FreeState, mask: Tensor) -> None:
        """Keeps the mask of a state, int32 [words], if the state is free."""
        if not state.is_kept:
            return
        forbidden = np.flatnonzero(np.unpackbits(~mask.numpy().view(np.uint8), bitorder="little"))
        if len(forbidden) <= 32 + MOST_FORBIDDEN * 32 * len(mask):
            self._kept[state] = KeptMask(mask.clone(), torch.from_numpy(forbidden))
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)

    def derived(self, state: FreeState, allows: Callable[[int], bool]) -> KeptMask | None:
        """The mask of a state in which a marker may have begun, found from that of the text before it.

        The two differ in nothing but the tokens that complete the marker. allows: whether the grammar allows
        a token in this state. None: the mask cannot be derived.
        """
        free = state.place == ANSWER or state.place >= 0
        if self._starts is None or not (free and state.held and state.begun and state.is_kept):
            return None
        plain = self._kept.get(state._replace(held=b""))
        if plain is None or b"\xff" in state.held:
            return None
        mask = plain.words.clone()
        words = mask.numpy().view(np.uint32)
        for token in self._completing(state):
            bit = np.uint32(1 << token % 32)
            words[token // 32] = words[token // 32] | bit if allows(token) else words[token // 32] & ~bit
        self.keep(state, mask)
        return self.find(state)

    def _completing(self, state: FreeState) -> set[int]:
        """The tokens with which a marker ends that begins in what is held."""
        assert self._starts is not None
        held = state.held
        rests = {
            end[len(held) - at :]
            for end in self._ends(state.place)
            for at in range(len(held))
            if end.startswith(held[at:]) and len(end) > len(held) - at
        }
        return {token for rest in rests for token in self._starts.beginning_with(rest)}

    # -------------------------------------------------------------- the way of an output

    def behind(self, state: FreeState, tokens: Iterable[int]) -> FreeState:
        """The state behind further tokens, which the grammar allows."""
        for token in tokens:
            if state.place == NOWHERE:
                break
            state = self._taken(state, self._bytes_of(token))
        return state

    def _taken(self, state: FreeState, text: bytes) -> FreeState:
        whole = state.cut + text
        cut = b""
        if not text.startswith(b"\xff"):
            try:
                whole.decode()
            except UnicodeDecodeError as error:
                if error.reason != "unexpected end of data":
                    return FreeState(NOWHERE)
                whole, cut = whole[: error.start], whole[error.start :]
        elif state.cut:
            return FreeState(NOWHERE)
        return self._moved(state, whole)._replace(cut=cut)

    def _moved(self, state: FreeState, text: bytes) -> FreeState:
        """The state behind whole characters, or a special token."""
        if not text:
            return state
        if state.place == BETWEEN:
            return self._headed(state.held + text)
        if state.place == BEGIN:
            return self._begun(state.held + text)
        if state.place == AFTER:
            return self._answering(state.held + text, after=True)
        if state.place == CALL:
            return self._calling(state, text)
        if state.place == GIVEN:
            return self._given(state, text)
        return self._within(state, text)

    def _begun(self, text: bytes) -> FreeState:
        """At the start of an output: a region may come, or the answer."""
        rest = text.lstrip(WHITE_SPACE)
        for number, region in enumerate(self._regions):
            if rest.startswith(region.open):
                if not region.special or len(text) - len(rest) > MOST_SPACE:
                    return FreeState(NOWHERE)  # whether the grammar takes it for a region or for text
                return self._moved(FreeState(number), rest[len(region.open) :])
            if region.open.startswith(rest):
                return FreeState(BEGIN, text)
        return self._answering(text, after=False)

    def _answering(self, text: bytes, *, after: bool) -> FreeState:
        """Where an answer begins, behind white space that may be no part of it."""
        if self._answer is None:
            return self._calling(FreeState(CALL), text)
        if len(text) <= MOST_SPACE and not text.strip(WHITE_SPACE):
            return FreeState(AFTER if after else BEGIN, text)
        return self._within(FreeState(ANSWER, after=after), text)

    def _headed(self, text: bytes) -> FreeState:
        """Among headers: one of them begins a region, and another a call."""
        for number, region in enumerate(self._regions):
            if text.endswith(region.open):
                return FreeState(number)
        return FreeState(BETWEEN, text[-self._longest :])

    def _within(self, state: FreeState, text: bytes) -> FreeState:
        """In a region, or in the answer."""
        ends = self._ends(state.place)
        text = state.held + text
        found = [(at, -len(end)) for end in ends if (at := text.find(end)) >= 0]
        if found:
            at, length = min(found)
            return self._ended(state, text[at - length :])
        held = text[len(text) - _held(text, ends) :]
        if b"\xff" in text[: len(text) - len(held)]:
            return FreeState(NOWHERE)  # a special token that is part of no marker: the output has ended
        return state._replace(held=held, begun=True)

    def _ended(self, state: FreeState, rest: bytes) -> FreeState:
        """Behind the marker that ends a place."""
        if state.place == ANSWER:
            return self._calling(FreeState(CALL), rest)
        if state.place >= len(self._regions):
            return self._calling(FreeState(CALL, path=state.path), rest)
        if self._between:
            return self._headed(rest)
        return self._answering(rest, after=True) if rest else FreeState(AFTER)

    def _ends(self, place: int) -> tuple[bytes, ...]:
        if place == ANSWER:
            return self._answer or ()
        if place < len(self._regions):
            return self._regions[place].close
        return b"\n" + self._close, self._close

    # -------------------------------------------------------------- calls

    def _calling(self, state: FreeState, text: bytes) -> FreeState:
        """In a call, between the values that stand as they are."""
        if not self._values:
            return FreeState(NOWHERE)
        text = state.held + text
        found = [
            (at, number)
            for number, (opening, _) in enumerate(self._values)
            if (at := text.find(opening)) >= 0
        ]
        if not found:
            sure = max(0, len(text) - self._reach + 1)
            return FreeState(CALL, text[sure:], path=_path(state.path, text[:sure]))
        at, number = min(found)
        opening, free = self._values[number]
        path = _path(state.path, text[: at + len(opening)])
        place = len(self._regions) + number if free else GIVEN
        return self._moved(FreeState(place, path=path), text[at + len(opening) :])

    def _given(self, state: FreeState, text: bytes) -> FreeState:
        """In a value that stands as it is, but is not free."""
        text = state.held + text
        at = text.find(self._close)
        if at < 0:
            sure = max(0, len(text) - len(self._close) + 1)
            return FreeState(GIVEN, text[sure:], path=_path(state.path, text[:sure]))
        path = _path(state.path, text[:at])
        return self._calling(FreeState(CALL, path=path), text[at:])


def _path(path: bytes, text: bytes) -> bytes:
    """Stands for what `path` stands for, and more."""
    return blake2b(path + text, digest_size=16).digest() if text else path


def _bytes(pieces: Pieces) -> bytes:
    return b"".join(special(piece) if isinstance(piece, int) else piece.encode() for piece in pieces)


def _held(text: bytes, ends: Sequence[bytes]) -> int:
    """The length of the longest suffix that may be the beginning of a marker."""
    lengths = (
        length
        for end in ends
        for length in range(min(len(text), len(end) - 1), 0, -1)
        if text.endswith(end[:length])
    )
    return max(lengths, default=0)
