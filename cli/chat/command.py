"""``turnout chat``: a conversation with a server, in the terminal or from a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import click

from turnout.cli.chat.client import ChatClient, ChatError, Message
from turnout.cli.chat.prompt import MULTILINE_HELP, read_prompt
from turnout.cli.terminal.printable import printable

__all__ = ["Conversation", "command"]

HELP = f"/reset forgets the conversation, /exit or Ctrl-D leaves, Ctrl-C stops an answer.\n{MULTILINE_HELP}"


@click.command(name="chat")
@click.option("--url", default="http://127.0.0.1:8000", show_default=True, help="URL of the server.")
@click.option("--api-key", envvar="TURNOUT_API_KEY", show_envvar=True, help="Key that the server requires.")
@click.option("--model", help="Model to talk to; default: the first that the server lists.")
@click.option("--system", help="System message that begins the conversation.")
@click.option("--temperature", type=float, help="Randomness of sampling; 0: always the most likely token.")
@click.option("--top-p", type=float, help="Sample from the most likely tokens that make up this share.")
@click.option("--max-tokens", type=int, help="Most tokens of an answer.")
@click.option("--seed", type=int, help="Seed that makes answers repeatable.")
def command(
    url: str, api_key: str | None, model: str | None, system: str | None, **parameters: object
) -> None:
    """Talk to a server in the terminal.

    Answers are streamed. In a pipe, each line of input is a prompt, and each answer is printed.
    """
    client = ChatClient(url, api_key)
    served = client.models()
    chosen = model or next(iter(served), None)
    if chosen is None:
        raise ChatError(f"the server at {client.url} serves no model")
    given = {name: value for name, value in parameters.items() if value is not None}
    conversation = Conversation(client, {"model": chosen, **given}, system)
    if sys.stdin.isatty():
        click.echo(f"{printable(chosen)} at {client.url}; /help for help")
        _converse(conversation)
    else:
        _answer_lines(conversation)


@dataclass
class Conversation:
    """The messages so far, and the server that answers."""

    client: ChatClient
    parameters: Mapping[str, Any]
    system: str | None = None
    history: list[Message] = field(default_factory=list)

    def reset(self) -> None:
        self.history.clear()

    def ask(self, prompt: str, show: Callable[[str], None]) -> bool:
        """Shows the answer as it arrives. Returns False if Ctrl-C cut it short.

        The prompt and its answer, even a cut one, join the history. An error leaves the history unchanged.
        """
        question = {"role": "user", "content": prompt}
        begin = [{"role": "system", "content": self.system}] if self.system else []
        pieces: list[str] = []
        complete = False
        try:
            with closing(self.client.answer([*begin, *self.history, question], self.parameters)) as answer:
                for piece in answer:
                    pieces.append(piece)
                    show(piece)
            complete = True
        except KeyboardInterrupt:
            pass
        self.history += [question, {"role": "assistant", "content": "".join(pieces)}]
        return complete


def _converse(conversation: Conversation) -> None:
    while True:
        try:
            prompt = read_prompt()
        except EOFError:
            click.echo()
            return
        except KeyboardInterrupt:
            click.echo("\n(Ctrl-D or /exit leaves)")
            continue
        if prompt.strip() in ("/exit", "/quit"):
            return
        if prompt.startswith("/"):
            click.echo(_obey(conversation, prompt.strip()))
        elif prompt.strip():
            _show_answer(conversation, prompt)


def _obey(conversation: Conversation, order: str) -> str:
    if order == "/reset":
        conversation.reset()
        return "(forgotten)"
    return HELP if order == "/help" else f"there is no command {order!r}; {HELP}"


def _show_answer(conversation: Conversation, prompt: str) -> None:
    try:
        complete = conversation.ask(prompt, _show)
    except ChatError as error:
        click.echo(f"Error: {printable(str(error))}", err=True)
    else:
        click.echo("" if complete else " (stopped)")


def _answer_lines(conversation: Conversation) -> None:
    try:
        for line in sys.stdin:
            if prompt := line.strip():
                if not conversation.ask(prompt, _show):
                    raise KeyboardInterrupt
                click.echo()
    except UnicodeDecodeError as error:
        raise ChatError(f"the input is not {error.encoding} text: {error.reason}") from None


def _show(piece: str) -> None:
    click.echo(printable(piece) if sys.stdout.isatty() else piece, nl=False)
    sys.stdout.flush()
