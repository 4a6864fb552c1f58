"""Reads a response's body up to a bound: a server may send without end."""

from __future__ import annotations

import aiohttp

__all__ = ["read_beginning"]

MOST_BYTES = 2**20


async def read_beginning(response: aiohttp.ClientResponse, most: int = MOST_BYTES) -> bytes:
    """The first `most` bytes of a body, or all of it."""
    parts, length = [], 0
    async for part in response.content.iter_any():
        parts.append(part)
        length += len(part)
        if length >= most:
            break
    return b"".join(parts)[:most]
