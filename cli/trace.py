"""``turnout trace``."""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import Mapping
from pathlib import Path

import aiohttp
import click
import msgspec

from turnout.cli.options.output_file import OutputFile, writing
from turnout.core.errors import TurnoutError, describe_error
from turnout.lab.load.address import connector, http_url, server_url
from turnout.lab.load.authorization import authorization

__all__ = ["command"]

PATH = "/admin/trace"
PATIENCE = 60.0
"""Seconds that the answer may take after the record."""
MOST_REASON = 400
"""Characters: a server's nonsense may be repeated in it."""


class TraceError(TurnoutError):
    """The server refused or cannot be reached."""


class _Refusal(msgspec.Struct):
    error: Mapping[str, object]


@click.command(name="trace")
@click.option("--url", default="http://127.0.0.1:8000", show_default=True, help="Server to record.")
@click.option("--api-key", envvar="TURNOUT_ADMIN_KEY", help="Admin key; or the variable TURNOUT_ADMIN_KEY.")
@click.option(
    "--seconds",
    type=click.FloatRange(0.5, 60),
    default=5.0,
    show_default=True,
    help="How long to record.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["perfetto", "live"]),
    default="perfetto",
    show_default=True,
    help="For ui.perfetto.dev and chrome://tracing, or for `turnout view`.",
)
@click.option(
    "--out", type=OutputFile(), default=Path("trace.json"), show_default=True, help="File to write it to."
)
def command(url: str, api_key: str | None, seconds: float, form: str, out: Path) -> None:
    """Record what a running server's engines, requests and policies do."""
    address, headers = server_url(url), authorization(api_key)
    try:
        content = asyncio.run(_ask(address, headers, seconds, form))
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        reason = textwrap.shorten(describe_error(error), MOST_REASON)
        raise TraceError(f"no answer from {address}: {reason}") from None
    with writing(out):
        out.write_bytes(content)
    shown = "open it in ui.perfetto.dev" if form == "perfetto" else f"see it by: turnout view {out}"
    click.echo(f"{out}: {len(content):,} bytes; {shown}")


async def _ask(url: str, headers: Mapping[str, str], seconds: float, form: str) -> bytes:
    timeout = aiohttp.ClientTimeout(seconds + PATIENCE)
    params = {"seconds": f"{seconds:g}", "format": form}
    async with (
        aiohttp.ClientSession(connector=connector(url), timeout=timeout, headers=headers) as session,
        session.get(http_url(url) + PATH, params=params) as response,
    ):
        content = await response.read()
        if not response.ok:
            raise TraceError(_reason(content, response.status))
        return content


def _reason(content: bytes, status: int) -> str:
    try:
        refusal = msgspec.json.decode(content, type=_Refusal)
        return textwrap.shorten(str(refusal.error["message"]), MOST_REASON)
    except (msgspec.DecodeError, KeyError):
        return f"the server records no traces: it answered with status {status}"
