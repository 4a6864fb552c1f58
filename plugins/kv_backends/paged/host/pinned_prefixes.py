"""Pinned prefixes of the paged backend."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from turnout.core.errors import ConfigError
from turnout.core.types.messages import PinnedPrefix
from turnout.plugins.kv_backends.paged.host.block_hashes import extend_hashes, key_of
from turnout.plugins.kv_backends.paged.host.block_tables import SequenceTables
from turnout.plugins.kv_backends.paged.host.blocks import BlockPool

__all__ = ["PagedPrefixPins"]


class PagedPrefixPins:
    """Pinned prefixes by name; implements PrefixPins.

    A pin is soft: its blocks are evicted when no others are available, so that no pin can keep a running
    request from its memory. When a request computes them again, they are pinned again.
    """

    def __init__(self, blocks: BlockPool, block_size: int, groups: Sequence[SequenceTables]) -> None:
        self._blocks = blocks
        self._size = block_size
        self._groups = groups
        self._hashes: dict[str, list[bytes]] = {}
        """The keys of a prefix's blocks: of layers with a window, of those that its continuation sees."""
        self._lengths: dict[str, int] = {}

    def pin(self, name: str, tokens: Sequence[int], salt: str) -> PinnedPrefix:
        count = len(tokens) // self._size
        if not count:
            raise ConfigError(
                f"prefix {name!r} has {len(tokens)} tokens, less than one block of {self._size}: there is "
                "nothing to keep; pin a longer prefix or use a smaller block_size"
            )
        chain = extend_hashes([], tokens, salt, self._size, count)
        hashes = [
            key_of(chain[index], each.group)
            for each in self._groups
            for index in range(each.first_seen(count * self._size), count)
        ]
        self._check_room(name, hashes)
        self.unpin(name)
        self._hashes[name], self._lengths[name] = hashes, count * self._size
        self._blocks.pin(reversed(hashes))
        return self._describe(name)

    def unpin(self, name: str) -> bool:
        hashes = self._hashes.pop(name, None)
        if hashes is None:
            return False
        others = self.hashes()
        self._blocks.unpin(block_hash for block_hash in reversed(hashes) if block_hash not in others)
        return True

    def pinned(self) -> list[PinnedPrefix]:
        return [self._describe(name) for name in self._hashes]

    def hashes(self) -> dict[bytes, None]:
        """The hashes of all pinned blocks, each once."""
        return dict.fromkeys(block_hash for hashes in self._hashes.values() for block_hash in hashes)

    def blocks(self) -> Iterator[tuple[str, list[int]]]:
        """The blocks of each prefix that are in memory."""
        block_of = self._blocks.block_of
        for name, hashes in self._hashes.items():
            yield name, [block_of[block_hash] for block_hash in hashes if block_hash in block_of]

    def _describe(self, name: str) -> PinnedPrefix:
        hashes = self._hashes[name]
        present = sum(block_hash in self._blocks.block_of for block_hash in hashes)
        tokens = self._lengths[name]
        return PinnedPrefix(name=name, tokens=tokens, cached=tokens * present // len(hashes))

    def _check_room(self, name: str, hashes: list[bytes]) -> None:
        others = dict.fromkeys(each for other, have in self._hashes.items() if other != name for each in have)
        together, pool = len(others | dict.fromkeys(hashes)), len(self._blocks.holders)
        if together < pool:
            return
        size, (need, all_need, have) = self._size, map(self._positions, (len(hashes), together, pool))
        raise ConfigError(
            f"prefix {name!r} needs {need} tokens of KV memory, {all_need} together "
            f"with those pinned already, but the pool holds {have} and a block of {size} must be "
            "left to work with; unpin another prefix, pin a shorter one or raise --kv-memory"
        )

    def _positions(self, blocks: int) -> int:
        return blocks * self._size // len(self._groups)
