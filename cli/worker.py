"""``turnout worker``."""

from __future__ import annotations

from collections.abc import Mapping

import click
from click.core import ParameterSource

from turnout.cli.options.engine_options import configs_of, engine_options
from turnout.core.logs import LogStyle
from turnout.core.registry.registry import Registry
from turnout.runner.choices import check_policies

__all__ = ["command"]


@click.command(name="worker")
@engine_options
@click.option(
    "--listen",
    default="tcp://127.0.0.1:7000",
    show_default=True,
    help="Address for servers, as tcp://HOST:PORT; tcp://0.0.0.0:7000: all of this machine's.",
)
@click.option(
    "--key-file",
    required=True,
    help="File of the keys that servers must have too; made if there is none.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="Lowest severity to log.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How the log is written; json: an object a line.",
)
@click.option(
    "--ranks",
    is_flag=True,
    help="Take ranks of engines elsewhere, which name this worker by --rank-workers, of any model.",
)
def command(
    listen: str, key_file: str, log_level: str, log_format: str, ranks: bool, **flags: object
) -> None:
    """Run an engine of MODEL for a server on another machine, which names it by --replica."""
    if ranks:
        _check_nothing_else(flags)
        from turnout.server.worker.ranks.run import run_rank_worker

        run_rank_worker(listen, key_file, LogStyle(log_level, log_format))
        return
    engine, _ = configs_of(flags)
    check_policies(Registry.of(engine), engine)
    from turnout.server.worker.run import run_worker  # only now: a mistake above should not wait for it

    run_worker(engine, listen, key_file, LogStyle(log_level, log_format))


def _check_nothing_else(flags: Mapping[str, object]) -> None:
    """Raises UsageError for options of an engine: ranks have those of their rank 0."""
    context = click.get_current_context()
    for name in flags:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--ranks takes no {name}: ranks have the options of their rank 0")
