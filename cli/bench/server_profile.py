"""Has a server profile its engines while a workload runs, by the endpoints that vLLM has too."""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import aiohttp
import click
import msgspec

from turnout.core.errors import EngineError, describe_error
from turnout.lab.load.address import connector, http_url
from turnout.lab.load.authorization import authorization

__all__ = ["profiled"]

START, STOP = "/start_profile", "/stop_profile"
TIMEOUT = aiohttp.ClientTimeout(300)
"""A profile of a long run takes long to write."""
MOST_REASON = 400
"""Characters: a server's nonsense may be repeated in it."""


class _Report(msgspec.Struct):
    """What our servers answer; vLLM's say nothing."""

    files: list[str] = []
    notes: list[str] = []


@contextmanager
def profiled(url: str, key: str) -> Iterator[None]:
    """Profiles a server while the block runs, and says where the profiles are. Raises EngineError."""
    _post(url, START, key)
    try:
        yield
    finally:
        report = _Report()
        with suppress(msgspec.DecodeError):
            report = msgspec.json.decode(_post(url, STOP, key), type=_Report)
        for line in (*(f"profile: {file}" for file in report.files), *report.notes):
            click.echo(line)


def _post(url: str, path: str, key: str) -> bytes:
    try:
        return asyncio.run(_asked(url, path, authorization(key)))
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        reason = textwrap.shorten(describe_error(error), MOST_REASON)
        raise EngineError(f"POST {path} at {url}: {reason}") from None


async def _asked(url: str, path: str, headers: dict[str, str]) -> bytes:
    async with (
        aiohttp.ClientSession(connector=connector(url), timeout=TIMEOUT, headers=headers) as session,
        session.post(http_url(url) + path) as response,
    ):
        content = await response.read()
        if not response.ok:
            said = textwrap.shorten(content.decode(errors="replace"), MOST_REASON)
            raise EngineError(f"POST {path} at {url} was answered with status {response.status}: {said}")
        return content
