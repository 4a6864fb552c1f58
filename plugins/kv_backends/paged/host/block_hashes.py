"""Keys of blocks: a hash of all tokens up to a block's end, so that equal keys mean equal KV."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b

__all__ = ["extend_chain"]

KEY_BYTES = 16


def extend_chain(
    chain: list[bytes], tokens: Sequence[int], salt: str, block_size: int, blocks: int
) -> list[bytes]:
    """Append the keys that `chain` lacks of the first `blocks` blocks of `tokens`.

    Each key hashes its block's tokens keyed with the one before, the first with `salt`: prefixes of
    different salts never meet. Stable over processes and machines of one byte order, unlike Python's hash.
    """
    for index in range(len(chain), blocks):
        block = array("q", tokens[index * block_size : (index + 1) * block_size]).tobytes()
        previous = chain[-1] if chain else _seed(salt)
        chain.append(blake2b(block, key=previous, digest_size=KEY_BYTES).digest())
    return chain


@lru_cache(maxsize=1024)
def _seed(salt: str) -> bytes:
    # Personalised, or a salt that spells the tokens of a block would stand for that block.
    return blake2b(salt.encode(errors="surrogatepass"), digest_size=KEY_BYTES, person=b"cache salt").digest()
