"""Pinned prefixes of the paged backend."""

from __future__ import annotations

from collections.abc import Sequence

from turnout.core.errors import ConfigError
from turnout.core.types.messages import PinnedPrefix
from turnout.plugins.kv_backends.paged.host.block_hashes import extend_chain
from turnout.plugins.kv_backends.paged.host.blocks import Blocks

__all__ = ["PagedPins"]


class PagedPins:
    """Prefixes by name; implements PrefixPins.

    A pin is soft: its blocks are taken when nothing else that is idle is left, so that no pin can keep a
    running request from its memory. Whoever computes them again has them pinned again.
    """

    def __init__(self, blocks: Blocks, block_size: int) -> None:
        self._blocks = blocks
        self._size = block_size
        self._keys: dict[str, list[bytes]] = {}

    def pin(self, name: str, tokens: Sequence[int], salt: str) -> PinnedPrefix:
        count = len(tokens) // self._size
        if not count:
            raise ConfigError(
                f"prefix {name!r} has {len(tokens)} tokens, less than one block of {self._size}: there is "
                "nothing to keep; pin a longer prefix or use a smaller block_size"
            )
        keys = extend_chain([], tokens, salt, self._size, count)
        self._check_room(name, keys)
        self.unpin(name)
        self._keys[name] = keys
        self._blocks.pin(reversed(keys))
        return self._describe(name)

    def unpin(self, name: str) -> bool:
        keys = self._keys.pop(name, None)
        if keys is None:
            return False
        others = self.keys()
        self._blocks.unpin(key for key in reversed(keys) if key not in others)
        return True

    def pinned(self) -> list[PinnedPrefix]:
        return [self._describe(name) for name in self._keys]

    def keys(self) -> dict[bytes, None]:
        """Of all pinned blocks, each once."""
        return dict.fromkeys(key for keys in self._keys.values() for key in keys)

    def _describe(self, name: str) -> PinnedPrefix:
        keys = self._keys[name]
        present = sum(key in self._blocks.block_of for key in keys)
        return PinnedPrefix(name=name, tokens=len(keys) * self._size, cached=present * self._size)

    def _check_room(self, name: str, keys: list[bytes]) -> None:
        others = dict.fromkeys(key for other, have in self._keys.items() if other != name for key in have)
        together, pool = len(others | dict.fromkeys(keys)), len(self._blocks.holders)
        if together < pool:
            return
        size = self._size
        raise ConfigError(
            f"prefix {name!r} needs {len(keys) * size} tokens of KV memory, {together * size} together with "
            f"those pinned already, but the pool holds {pool * size} and a block of {size} must be left to "
            "work with; unpin another prefix, pin a shorter one or raise --kv-memory"
        )
