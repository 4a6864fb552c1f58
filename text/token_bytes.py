"""The bytes that a token of a byte-level vocabulary stands for."""

from __future__ import annotations

import json
from collections.abc import Callable

from tokenizers import Tokenizer as Backend

__all__ = ["TokenBytes", "token_bytes"]

TokenBytes = Callable[[int], bytes]
"""From a token id to its bytes. Unknown ids give no bytes, as decoding ignores them."""


def token_bytes(backend: Backend) -> TokenBytes | None:
    """None if the tokenizer is not byte-level: its decoding may depend on neighbouring tokens."""
    decoder = json.loads(backend.decoder.__getstate__()) if backend.decoder else {}
    if decoder.get("type") != "ByteLevel":
        return None
    cache: dict[int, bytes] = {}

    def lookup(id: int) -> bytes:
        found = cache.get(id)
        if found is None:
            found = cache[id] = _to_bytes(backend.id_to_token(id) or "")
        return found

    return lookup


def _to_bytes(token: str) -> bytes:
    """A token with a character that stands for no byte is plain text, as added tokens may be."""
    try:
        return bytes(ALPHABET[character] for character in token)
    except KeyError:
        return token.encode()


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's alphabet: printable bytes stand for themselves; the others have code points from 256 on."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    moved = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + i): byte for i, byte in enumerate(moved)}


ALPHABET = _byte_alphabet()
