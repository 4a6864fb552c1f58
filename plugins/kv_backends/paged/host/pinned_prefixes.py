"""Pinned prefixes of the paged backend."""

from __future__ import annotations

from collections.abc import Sequence

from turnout.core.errors import ConfigError
from turnout.core.types.messages import PinnedPrefix
from turnout.plugins.kv_backends.paged.host.block_hashes import extend_hashes
from turnout.plugins.kv_backends.paged.host.blocks import BlockPool

__all__ = ["PagedPrefixPins"]


class PagedPrefixPins:
    """Pinned prefixes by name; implements PrefixPins.

    A pin is soft: its blocks are evicted when no others are available, so that no pin can keep a running
    request from its memory. When a request computes them again, they are pinned again.
    """

    def __init__(self, blocks: BlockPool, block_size: int) -> None:
        self._blocks = blocks
        self._size = block_size
        self._hashes: dict[str, list[bytes]] = {}

    def pin(self, name: str, tokens: Sequence[int], salt: str) -> PinnedPrefix:
        count = len(tokens) // self._size
        if not count:
            raise ConfigError(
                f"prefix {name!r} has {len(tokens)} tokens, less than one block of {self._size}: there is "
                "nothing to keep; pin a longer prefix or use a smaller block_size"
            )
        hashes = extend_hashes([], tokens, salt, self._size, count)
        self._check_room(name, hashes)
        self.unpin(name)
        self._hashes[name] = hashes
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

    def _describe(self, name: str) -> PinnedPrefix:
        hashes = self._hashes[name]
        present = sum(block_hash in self._blocks.block_of for block_hash in hashes)
        return PinnedPrefix(name=name, tokens=len(hashes) * self._size, cached=present * self._size)

    def _check_room(self, name: str, hashes: list[bytes]) -> None:
        others = dict.fromkeys(each for other, have in self._hashes.items() if other != name for each in have)
        together, pool = len(others | dict.fromkeys(hashes)), len(self._blocks.holders)
        if together < pool:
            return
        size = self._size
        raise ConfigError(
            f"prefix {name!r} needs {len(hashes) * size} tokens of KV memory, {together * size} together "
            f"with those pinned already, but the pool holds {pool * size} and a block of {size} must be "
            "left to work with; unpin another prefix, pin a shorter one or raise --kv-memory"
        )
