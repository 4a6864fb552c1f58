"""docs/reference/commands.md: the options of each command beside those of `turnout serve`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import click

from turnout.cli.main import COMMANDS
from turnout.config import EngineConfig
from turnout.scripts.reference.blocks import Blocks
from turnout.scripts.reference.pages.configuration import DEFAULT
from turnout.scripts.reference.tables import code, listed, markdown, table

SETTINGS = {f"--{name.replace('_', '-')}" for name in EngineConfig.model_fields}
"""An engine's options, which configuration.md describes for the commands that take all of them."""
KINDS = {
    "integer range": "integer",
    "float": "number",
    "float range": "number",
    "path": "file",
    "filename": "file",
}
"""Of values, where click's name for them says less."""


def blocks() -> Blocks:
    return {f"options of {name}": partial(_options, options) for name, options in _commands()}


def _commands() -> Iterator[tuple[str, list[click.Option]]]:
    """Commands that have options of their own, as ``bench serve``."""
    for name, lazy in COMMANDS.items():
        for path, command in _leaves(name, lazy.load()):
            if name != "serve" and (options := _own(command)):
                yield path, options


def _leaves(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """A command, or all below a group, by what is typed."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None and not below.hidden:
                yield from _leaves(f"{path} {name}", below)


def _own(command: click.Command) -> list[click.Option]:
    options = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
    named = {name for option in options for name in option.opts}
    described = SETTINGS if named >= SETTINGS else set()
    return [option for option in options if not ({"--help", *described} & set(option.opts))]


def _options(options: list[click.Option]) -> str:
    return table(("option", "value", "default", "meaning"), map(_row, options))


def _row(option: click.Option) -> tuple[str, str, str, str]:
    flags = ", ".join(map(code, (*option.opts, *option.secondary_opts)))
    meaning, _, default = (option.help or "").partition("  [default")[0].partition(DEFAULT)
    said = default.removesuffix(".") or _default(option)
    return flags, _value(option), said, markdown(f"{meaning.removesuffix('.')}.")


def _value(option: click.Option) -> str:
    if option.is_flag:
        return ""
    if option.metavar:
        return code(option.metavar)
    if isinstance(option.type, click.Choice):
        return listed([code(str(choice)) for choice in option.type.choices])
    return KINDS.get(option.type.name, option.type.name)


def _default(option: click.Option) -> str:
    if isinstance(option.show_default, str):
        return option.show_default
    if option.required:
        return "required"
    if isinstance(option.envvar, str):
        return code(f"${option.envvar}")
    if option.secondary_opts:
        return code((option.opts if option.default else option.secondary_opts)[0])
    value = option.to_info_dict()["default"]
    return "" if option.is_flag or value in (None, ()) else code(str(value).removesuffix(".0"))
