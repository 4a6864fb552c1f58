"""``turnout serve``."""

from __future__ import annotations

import click

from turnout.cli.options.engine_options import config_option, models_argument, served_configs
from turnout.cli.options.flags import config_options
from turnout.config import EngineConfig, ServerConfig
from turnout.core.registry.registry import Registry
from turnout.runner.choices import check_policies

__all__ = ["command"]


@click.command(name="serve")
@models_argument
@config_option
@config_options(EngineConfig, ServerConfig)
@click.pass_context
def command(ctx: click.Context, /, **flags: object) -> None:
    """Serve MODEL, or several models by name, over the OpenAI API.

    MODEL is a folder, a hub name or a short name; without one, the small model that comes with Turnout.
    """
    engine, server, models = served_configs(flags)
    for config in [model.engine for model in models] or [engine]:
        check_policies(Registry.of(config), config)
    from turnout.cli.ab import live_test

    ab = live_test(engine, server)
    from turnout.server.serve import serve  # only now: a mistake above should not wait for it

    ctx.exit(serve(engine, server, ab, models) if models else serve(engine, server, ab))
