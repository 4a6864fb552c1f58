"""Which bytes a token of a byte-level vocabulary stands for."""

from __future__ import annotations

import json
from collections.abc import Callable

from tokenizers import Tokenizer as Backend

__all__ = ["TokenBytes", "token_bytes"]

TokenBytes = Callable[[int], bytes]
"""Unknown ids are no bytes, as decoding ignores them."""


def token_bytes(backend: Backend) -> TokenBytes | None:
    """None when the tokenizer is not byte-level: its decoding may depend on neighbouring tokens."""
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
    """Added tokens may be written plainly: one character that is no byte's makes the token plain text."""
    try:
        return bytes(ALPHABET[character] for character in token)
    except KeyError:
        return token.encode()


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's: printable bytes stand for themselves, the others are moved up from 256 on."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    moved = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + i): byte for i, byte in enumerate(moved)}


ALPHABET = _byte_alphabet()
