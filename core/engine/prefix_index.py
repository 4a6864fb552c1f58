"""Which engines have which prefixes in memory, as far as their events tell: what `Replica.cached` looks up.

Events that are lost or late make an answer wrong, and a request compute what it could have found; the engine
that gets it looks for itself.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile

from turnout.core import limits
from turnout.core.engine.packed_prompt import PackedPrompt, chained, packed
from turnout.core.interfaces.router import Routable
from turnout.core.types.block_events import BlockEvent, BlockRemoved, BlockStored, marks

__all__ = ["PrefixIndex"]

Key = int
"""Of all tokens up to a mark, and a salt. Two prefixes may have the same: then a request goes where nothing
is cached."""


class PrefixIndex:
    """Finds the longest prefix of a prompt that each of several engines has, in steps of marks."""

    def __init__(self) -> None:
        self._holders: dict[Key, int] = {}
        """The engines that have a mark, a bit each."""
        self._keys: dict[str, dict[bytes, Key]] = {}
        """Of each engine: the marks that it has."""
        self._bits: dict[str, int] = {}
        self._engines: dict[int, str] = {}
        """By the number of their bit."""
        self._block_size = 0
        self._positions: list[int] = [0]
        """The first marks, from 0 on; as many as have been needed."""
        self._next_mark: Callable[[], int] = int
        self._asked: Routable | None = None
        self._found: Mapping[str, int] = {}

    def note(self, engine: str, events: Iterable[BlockEvent]) -> None:
        """Takes what an engine tells."""
        self._asked = None
        for event in events:
            if isinstance(event, BlockStored):
                self._store(engine, event)
            elif isinstance(event, BlockRemoved):
                for block_hash in event.block_hashes:
                    self._remove(engine, block_hash)
            else:
                self.forget(engine)

    def forget(self, engine: str) -> None:
        """Forgets an engine, whose memory is gone."""
        self._asked = None
        for block_hash in list(self._keys.get(engine, ())):
            self._remove(engine, block_hash)
        self._keys.pop(engine, None)
        if bit := self._bits.pop(engine, 0):
            del self._engines[_number(bit)]

    def packed(self, prompt: Sequence[int]) -> PackedPrompt:
        """A prompt in which `find` looks up least; may be called in any thread."""
        size = self._block_size
        positions = [0, *takewhile(len(prompt).__ge__, marks(size))] if size else ()
        return PackedPrompt(prompt, positions)

    def find(self, request: Routable) -> Mapping[str, int]:
        """Returns how many leading tokens of a prompt engines have; those that have none may be missing."""
        if request is not self._asked:
            self._found = self._longest(request.prompt, request.cache_salt) if self._holders else {}
            self._asked = request
        return self._found

    # -------------------------------------------------------------- details

    def _store(self, engine: str, event: BlockStored) -> None:
        if engine not in self._bits:
            self._keys[engine] = {}
            bit = self._bits[engine] = _lowest_free(self._bits.values())
            self._engines[_number(bit)] = engine
        keys = self._keys[engine]
        if len(keys) >= limits.PREFIX_MARKS.most or event.block_size < 1:
            return
        salt = hash(event.cache_salt)
        if event.parent_block_hash is None:
            parent = 0
        elif event.parent_block_hash in keys:
            parent = keys[event.parent_block_hash] ^ salt
        else:
            return  # what came before was lost, or has gone
        if event.block_size != self._block_size:
            self._block_size, self._positions = event.block_size, [0]
            self._next_mark = marks(event.block_size).__next__
        (unsalted,) = chained(packed(event.token_ids), (0, len(event.token_ids)), parent)
        key = keys[event.block_hash] = unsalted ^ salt
        others, mine = self._holders.get(key), self._bits[engine]
        # Nearly always one engine's: its bit is then one object, however many marks it has.
        self._holders[key] = mine if others is None else others | mine

    def _remove(self, engine: str, block_hash: bytes) -> None:
        key = self._keys[engine].pop(block_hash, None) if engine in self._keys else None
        if key is None:
            return
        left = self._holders.get(key, 0) & ~self._bits[engine]
        if left:
            self._holders[key] = left
        else:
            self._holders.pop(key, None)

    def _longest(self, prompt: Sequence[int], salt: str) -> Mapping[str, int]:
        lengths: list[tuple[int, int]] = []
        """Sets of engines, and how far they go; each set is part of the one before."""
        positions = self._marks_up_to(len(prompt))
        salted, having, begin, holders = hash(salt), -1, 0, self._holders
        for place, key in enumerate(_chain(prompt, positions), 1):
            left = having & holders.get(key ^ salted, 0)
            if left != having:
                if begin:
                    lengths.append((having, begin))
                having = left
                if not left:
                    break
            begin = positions[place]
        else:
            lengths.append((having if begin else 0, begin))
        engines = self._engines
        return {engines[number]: end for having, end in lengths for number in _numbers(having)}

    def _marks_up_to(self, length: int) -> Sequence[int]:
        """The marks of a prompt, from 0 on."""
        while self._positions[-1] <= length:
            self._positions.append(self._next_mark())
        return self._positions[: bisect_right(self._positions, length)]


def _chain(prompt: Sequence[int], positions: Sequence[int]) -> Iterable[int]:
    """Keys of a prompt up to each mark."""
    if isinstance(prompt, PackedPrompt) and len(prompt.chain) == len(positions) - 1:
        return prompt.chain
    ids = packed(prompt)
    return chained(ids, positions) if ids else ()


def _lowest_free(bits: Iterable[int]) -> int:
    taken = 0
    for bit in bits:
        taken |= bit
    return ~taken & (taken + 1)


def _number(bit: int) -> int:
    return bit.bit_length() - 1


def _numbers(bits: int) -> Iterator[int]:
    """The numbers of the bits that are set."""
    digits = bin(bits)[:1:-1]
    number = digits.find("1")
    while number >= 0:
        yield number
        number = digits.find("1", number + 1)
