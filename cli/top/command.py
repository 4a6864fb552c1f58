"""``turnout top``."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import aclosing

import click
from rich.console import Console

from turnout.cli.top.feed import Feed, Lost, TopError
from turnout.cli.top.rows import SORTS, engine_figures, requests_shown
from turnout.cli.top.screen import View, drawn
from turnout.cli.top.terminal import watch
from turnout.cli.top.watched import Watched
from turnout.lab.load.address import server_url
from turnout.lab.load.authorization import authorization

__all__ = ["command"]

ONCE_SECONDS, ONCE_MOST_SECONDS = 1.5, 10.0
"""How long one table listens, so that there are rates, and at most until a first word."""

PIPE_WIDTH = 160
"""Characters of a line where the output is no terminal."""


@click.command(name="top")
@click.option("--url", default="http://127.0.0.1:8000", show_default=True, help="Server to watch.")
@click.option("--api-key", envvar="TURNOUT_ADMIN_KEY", help="Admin key; or the variable TURNOUT_ADMIN_KEY.")
@click.option(
    "--sort", type=click.Choice(list(SORTS)), default="state", show_default=True, help="Order of requests."
)
@click.option("--filter", "chosen", default="", help="Only requests whose id, client, state, … contain this.")
@click.option("--once", is_flag=True, help="Print one table and end, as where the output is no terminal.")
@click.option("--json", "as_json", is_flag=True, help="Print one table as JSON and end.")
def command(url: str, api_key: str | None, sort: str, chosen: str, once: bool, as_json: bool) -> None:
    """Watch a running server's requests, engines and policies in the terminal.

    Keys: q quits, p pauses, s sorts by something else, f filters.
    """
    address = server_url(url)
    feed = Feed(address, authorization(api_key))
    width = None if sys.stdout.isatty() else PIPE_WIDTH
    console, view = Console(highlight=False, width=width), View(address, sort, chosen)
    if not (once or as_json) and console.is_terminal and not console.is_dumb_terminal:
        sys.exit(asyncio.run(watch(feed, view, console)))
    watched = asyncio.run(_listen(feed))
    if as_json:
        click.echo(json.dumps(_figures(watched, view), indent=2))
    else:
        console.print(drawn(watched, view, watched.at, console.width, None))


async def _listen(feed: Feed) -> Watched:
    """What a server tells for a moment. Raises TopError."""
    watched, heard = Watched(), asyncio.Event()

    async def listen() -> None:
        async with aclosing(feed.events()) as events:
            async for event in events:
                if isinstance(event, Lost):
                    raise TopError(f"the connection was lost: {event}")
                watched.hear(event)
                heard.set()

    listening = asyncio.create_task(listen())
    waiting = asyncio.create_task(heard.wait())
    try:
        await asyncio.wait(
            {listening, waiting}, timeout=ONCE_MOST_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        await asyncio.wait({listening}, timeout=ONCE_SECONDS if heard.is_set() else 0)
        if listening.done():
            listening.result()
        elif not heard.is_set():
            raise TopError(f"the server has said nothing for {ONCE_MOST_SECONDS:g} s")
        return watched
    finally:
        waiting.cancel()
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)


def _figures(watched: Watched, view: View) -> dict[str, object]:
    engines = sorted(watched.engines.values(), key=lambda engine: engine.key)
    return {
        "url": view.url,
        "at": watched.at,
        "engines": [engine_figures(watched, engine, watched.at) for engine in engines],
        "requests": requests_shown(watched, watched.at, view.sort, view.chosen),
    }
