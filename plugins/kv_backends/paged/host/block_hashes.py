"""Block hashes: each covers all tokens up to the end of its block, so that equal hashes mean equal KV."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b

__all__ = ["extend_hashes", "key_of"]

HASH_BYTES = 16


def extend_hashes(
    hashes: list[bytes], tokens: Sequence[int], salt: str, block_size: int, blocks: int
) -> list[bytes]:
    """Appends to `hashes` until it has those of the first `blocks` blocks of `tokens`; returns it.

    Each hash is of its block's tokens, keyed with the hash before; the first is keyed with `salt`, so that
    sequences with different salts share no block. Unlike Python's `hash`, it is the same in all processes and
    on all machines of one byte order.
    """
    for index in range(len(hashes), blocks):
        block = array("q", tokens[index * block_size : (index + 1) * block_size]).tobytes()
        previous = hashes[-1] if hashes else _seed(salt)
        hashes.append(blake2b(block, key=previous, digest_size=HASH_BYTES).digest())
    return hashes


def key_of(block_hash: bytes, group: int) -> bytes:
    """What a block with these tokens is found by, in layers of a group: the hash itself in the first."""
    return block_hash + _SUFFIXES[group] if group else block_hash


_SUFFIXES = [bytes([group]) for group in range(256)]


@lru_cache(maxsize=1024)
def _seed(salt: str) -> bytes:
    # Personalized: otherwise a salt with the bytes of a block's tokens would have that block's hash.
    return blake2b(salt.encode(errors="surrogatepass"), digest_size=HASH_BYTES, person=b"cache salt").digest()
