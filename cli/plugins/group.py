"""``turnout plugins``: lists, describes, checks and creates plugins."""

from __future__ import annotations

import inspect
import json

import click

from turnout.cli.plugins.check import check_plugin
from turnout.cli.plugins.find import find_plugin
from turnout.cli.plugins.new import new_plugin
from turnout.cli.plugins.registry_options import registry_options
from turnout.cli.plugins.use import use_of
from turnout.cli.terminal.table import aligned
from turnout.core.registry.kinds import KINDS
from turnout.core.registry.options import Option
from turnout.core.registry.registry import PluginEntry, Registry

__all__ = ["command"]


@click.group(name="plugins", invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list of objects.")
@registry_options
def command(ctx: click.Context, registry: Registry, as_json: bool) -> None:
    """List the available policies by kind, with the package and the state of each."""
    _tell(registry, as_json)


@command.command(name="list", hidden=True)
@click.option("--json", "as_json", is_flag=True)
@registry_options
def list_plugins(ctx: click.Context, registry: Registry, as_json: bool) -> None:
    """List the available policies, as the group does without a command."""
    _tell(registry, as_json)


command.add_command(new_plugin)
command.add_command(check_plugin)


@command.command()
@click.argument("target", metavar="[KIND/]NAME")
@registry_options
def show(ctx: click.Context, registry: Registry, target: str) -> None:
    """Print a policy's description and options."""
    entry = find_plugin(registry, target)
    parts = [f"{entry.kind}/{entry.name}, from {entry.origin}", inspect.cleandoc(entry.docstring)]
    options = registry.options(entry.kind, entry.name) if entry.kind in KINDS and not entry.hooked else []
    parts += ["\n".join([*_describe(options), f"Use: {use_of(entry, options)}"])]
    click.echo("\n\n".join(part for part in parts if part))


# ------------------------------------------------------------------ the list


def _tell(registry: Registry, as_json: bool) -> None:
    entries = sorted(registry.entries(), key=_order)
    click.echo(_as_json(entries) if as_json else _as_table(entries))


def _order(entry: PluginEntry) -> tuple[int, str, str]:
    kinds = list(KINDS)
    return kinds.index(entry.kind) if entry.kind in kinds else len(kinds), entry.name, entry.distribution


def _as_json(entries: list[PluginEntry]) -> str:
    return json.dumps([entry.summarized() for entry in entries], indent=2)


def _as_table(entries: list[PluginEntry]) -> str:
    rows = [("KIND", "NAME", "DISTRIBUTION", "VERSION", "API", "STATE")]
    rows += [
        (e.kind, e.name, e.distribution, e.version or "-", str(e.hook_api or "-"), e.state) for e in entries
    ]
    problems = dict.fromkeys(f"{entry.title}: {entry.error}" for entry in entries if entry.error)
    return "\n".join([*aligned(rows), *([""] if problems else []), *problems])


# ------------------------------------------------------------------ one of them


def _describe(options: list[Option]) -> list[str]:
    rows = [(option.name, option.type, _default(option), option.help) for option in options]
    return ["Options:", *aligned(rows, indent="  ")] if options else ["Options: none"]


def _default(option: Option) -> str:
    return f"default {option.default}" if option.default else "must be given"
