"""The options that say which plugins there are, given before a command of ``turnout plugins`` or after it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path

import click

from turnout.cli.options.config_file import build_configs
from turnout.core.registry.registry import Registry

__all__ = ["registry_options"]

_OPTIONS = (
    click.option(
        "--config",
        "config_file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Config file of `serve`, which may disable plugins; its folder may hold a turnout_plugins.py.",
    ),
    click.option(
        "--plugins-folder",
        type=click.Path(path_type=Path, exists=True, file_okay=False),
        metavar="FOLDER",
        help="Folder whose turnout_plugins.py is loaded as a plugin.",
    ),
    click.option(
        "--disable-plugin",
        "disabled",
        multiple=True,
        metavar="NAME",
        help="Plugin not to load, by its own or its package's name; separate several by commas, or repeat "
        "the flag.",
    ),
)


def registry_options(function: Callable[..., None]) -> Callable[..., None]:
    """Adds the options; the command is called with click's context and the `Registry` that they lead to.

    A group leaves what it was given to its command, if it is called for one; the command's own come first.
    """

    @wraps(function)
    def run(
        ctx: click.Context,
        /,
        config_file: Path | None,
        plugins_folder: Path | None,
        disabled: tuple[str, ...],
        **arguments: object,
    ) -> None:
        if ctx.invoked_subcommand is not None:
            return
        before = ctx.parent.params if ctx.parent else {}
        file, folder = (
            config_file or before.get("config_file"),
            plugins_folder or before.get("plugins_folder"),
        )
        unwanted = (*before.get("disabled", ()), *disabled)
        flags = {"plugins_folder": folder and str(folder), "disable_plugin": unwanted or None}
        config, _ = build_configs(file, flags)
        # Never strict: the list also shows broken plugins.
        registry = Registry.load(config_folder=config.plugins_path, disabled=config.disable_plugin)
        function(ctx, registry, **arguments)

    for option in reversed(_OPTIONS):  # click lists first what was applied last
        run = option(run)
    return click.pass_context(run)
