"""``turnout chat``: a conversation with a server, in the terminal or from a pipe."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from turnout.cli.chat.client import ChatClient, ChatError, ContextExceeded
from turnout.cli.chat.conversation import Conversation
from turnout.cli.chat.prompt import MULTILINE_HELP, read_prompt
from turnout.cli.chat.terminal import Terminal
from turnout.cli.chat.toolbox import load_tools
from turnout.cli.terminal.printable import printable
from turnout.core.errors import ConfigError

__all__ = ["command"]

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
@click.option(
    "--tools",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Python file whose functions the model may call; each call runs after a question.",
)
@click.option("--yes", is_flag=True, help="Run calls without a question.")
def command(
    url: str,
    api_key: str | None,
    model: str | None,
    system: str | None,
    tools: Path | None,
    yes: bool,
    **parameters: object,
) -> None:
    """Talk to a server in the terminal.

    Answers are streamed. In a pipe, each line of input is a prompt, and each answer is printed.
    """
    toolbox = None if tools is None else load_tools(tools)
    if toolbox is not None and not yes and not sys.stdin.isatty():
        raise ConfigError("nobody can be asked whether calls may run: there is no terminal; give --yes")
    client = ChatClient(url, api_key)
    served = client.models()
    chosen = model or next(iter(served), None)
    if chosen is None:
        raise ChatError(f"the server at {client.url} serves no model")
    given = {name: value for name, value in parameters.items() if value is not None}
    conversation = Conversation(client, {"model": chosen, **given}, system, toolbox)
    screen = Terminal(always=yes)
    if sys.stdin.isatty():
        click.echo(f"{printable(chosen)} at {client.url}; /help for help")
        _converse(conversation, screen)
    else:
        _answer_lines(conversation, screen)


def _converse(conversation: Conversation, screen: Terminal) -> None:
    while True:
        try:
            prompt = read_prompt()
        except EOFError:
            click.echo()
            return
        except KeyboardInterrupt:
            click.echo("\n(Ctrl-D or /exit leaves)")
            continue
        if prompt.command in ("/exit", "/quit"):
            return
        if prompt.command:
            click.echo(_obey(conversation, prompt.command))
        elif prompt.text.strip():
            _show_answer(conversation, prompt.text, screen)


def _obey(conversation: Conversation, order: str) -> str:
    if order == "/reset":
        conversation.reset()
        return "(forgotten)"
    return HELP if order == "/help" else f"there is no command {order!r}; {HELP}"


def _show_answer(conversation: Conversation, prompt: str, screen: Terminal) -> None:
    screen.begin()
    try:
        complete = conversation.ask(prompt, screen)
    except ChatError as error:
        screen.end_line()
        click.echo(f"Error: {printable(str(error))}", err=True)
        if isinstance(error, ContextExceeded) and conversation.history:
            click.echo("(/reset begins a new conversation)", err=True)
    else:
        screen.end("" if complete else " (stopped)")


def _answer_lines(conversation: Conversation, screen: Terminal) -> None:
    try:
        for line in sys.stdin:
            if prompt := line.strip():
                screen.begin()
                if not conversation.ask(prompt, screen):
                    raise KeyboardInterrupt
                screen.end()
    except ChatError:
        screen.end_line()
        raise
    except UnicodeDecodeError as error:
        raise ChatError(f"the input is not {error.encoding} text: {error.reason}") from None
