"""``turnout serve``."""

from __future__ import annotations

from pathlib import Path

import click

from turnout.cli.config_file import build_configs
from turnout.cli.options import config_options
from turnout.core.config import EngineConfig, ServerConfig
from turnout.core.plugins import Registry
from turnout.runner.policies import check_policies

__all__ = ["command"]


@click.command(name="serve")
@click.argument("positional_model", metavar="[MODEL]", required=False)
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="YAML file whose keys are these options' names; flags override it.",
)
@config_options(EngineConfig, ServerConfig)
@click.pass_context
def command(
    ctx: click.Context, /, positional_model: str | None, config_file: Path | None, **flags: object
) -> None:
    """Serve MODEL over the OpenAI API.

    MODEL is a folder, a hub name or a short name; without one, the small model that comes with Turnout.
    """
    if positional_model is not None:
        if flags["model"] is not None:
            given = f"{positional_model} and --model {flags['model']}"
            raise click.UsageError(f"the model is given twice: {given}")
        flags["model"] = positional_model
    engine, server = build_configs(config_file, flags)
    check_policies(
        Registry.load(
            config_folder=engine.plugins_path, disabled=engine.disable_plugin, strict=engine.strict_plugins
        ),
        engine,
    )
    from turnout.cli.ab import live_test

    ab = live_test(engine, server)
    from turnout.server.serve import serve  # only now: a mistake above should not wait for it

    ctx.exit(serve(engine, server, ab))
