"""How ``turnout chat`` shows answers, reasoning and tool calls, and how it asks."""

from __future__ import annotations

import json
import os
import sys

import click

from turnout.cli.chat.answer import Call
from turnout.cli.terminal.printable import printable

__all__ = ["Terminal"]

MOST_SHOWN = 300
"""Characters of a call or of a result that are shown."""
CUTS = {
    "length": "cut off: max_tokens or the context is reached",
    "content_filter": "cut off: by the server's content filter",
}
"""What `finish_reason` means."""


class Terminal:
    """The terminal, or a pipe, which gets the answer's text alone."""

    def __init__(self, *, always: bool = False) -> None:
        """always: calls run without a question."""
        self._always = always
        self._shown = ""
        """What the line ends in, and of which kind."""
        self._over = False
        """The answer's line is ended."""

    @property
    def interactive(self) -> bool:
        return sys.stdout.isatty()

    def text(self, piece: str) -> None:
        if self._shown == "thought":
            click.echo("\n")
        self._write(printable(piece) if self.interactive else piece)
        self._shown, self._over = "text", False

    def thought(self, piece: str) -> None:
        if self.interactive:
            self._write(_styled(printable(piece), dim=True))
            self._shown = "thought"

    def allows(self, call: Call) -> bool:
        self._beside(f"{call.name}({_arguments(call)})", bold=True)
        if self._always:
            return True
        while True:
            reply = self._reply()
            if reply in ("y", "yes", "a", "always"):
                self._always = reply[0] == "a"
                return True
            if reply in ("n", "no"):
                return False

    def _reply(self) -> str:
        click.echo("run it? [y]es, [n]o, [a]lways: ", nl=False, err=not self.interactive)
        try:
            return input().strip().lower()
        except EOFError:
            return "no"

    def result(self, text: str) -> None:
        self._beside(f"→ {_shortened(text)}", dim=True)

    def gave_up(self, rounds: int) -> None:
        self._beside(f"(stopped after {rounds} rounds of calls)")

    def cut(self, reason: str) -> None:
        self.end_line()
        click.echo(printable(f"({CUTS.get(reason, f'the answer ended: {reason}')})"), err=True)

    def begin(self) -> None:
        """An answer begins."""
        self._shown, self._over = "", False

    def end_line(self) -> None:
        """What follows is not of the answer."""
        if self._shown:
            click.echo()
            self._shown, self._over = "", True

    def end(self, note: str = "") -> None:
        """The answer is over; it has a line, even where it is empty."""
        if note or not self._over:
            click.echo(note)

    def _beside(self, line: str, **style: bool) -> None:
        """A line beside the answer; in a pipe, to standard error."""
        if not self.interactive:
            click.echo(printable(line), err=True)
            return
        if self._shown:
            click.echo()
        click.echo(_styled(printable(line), **style))
        self._shown = ""

    def _write(self, text: str) -> None:
        click.echo(text, nl=False)
        sys.stdout.flush()


def _styled(text: str, **style: bool) -> str:
    """The text in a style, unless the user wants none, or the terminal knows none."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return text if plain else click.style(text, **style)


def _arguments(call: Call) -> str:
    """As Python would write them."""
    try:
        arguments = json.loads(call.arguments or "{}")
        return _shortened(", ".join(f"{name}={value!r}" for name, value in arguments.items()))
    except (ValueError, AttributeError, RecursionError):
        return _shortened(call.arguments)


def _shortened(text: str) -> str:
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"
