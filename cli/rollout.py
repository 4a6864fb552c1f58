"""``turnout rollout``."""

from __future__ import annotations

import asyncio
import json
import textwrap
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import aiohttp
import click
import msgspec

from turnout.cli.options.flags import config_options
from turnout.config import EngineConfig
from turnout.core.errors import TurnoutError, describe_error
from turnout.lab.load.address import connector, http_url, server_url
from turnout.lab.load.authorization import authorization
from turnout.lab.load.bounded_read import read_beginning

__all__ = ["command"]

PATH = "/admin/rollout"
POLL_SECONDS = 0.5
TIMEOUT = aiohttp.ClientTimeout(60)
MOST_REASON = 400
"""Characters: a server's nonsense may be repeated in it."""
ENDED = ("done", "undone", "failed", "paused", "none")


class RolloutError(TurnoutError):
    """The server refused, cannot be reached, or has undone the rollout."""


class _Report(msgspec.Struct):
    """What a server says of a rollout: `RolloutReport`, without the server."""

    state: str
    replaced: int
    replicas: int
    changes: dict[str, Any]
    reason: str | None


class _Server(NamedTuple):
    """Where and how to ask."""

    url: str
    headers: Mapping[str, str]
    params: Mapping[str, str]

    def ask(self, body: Mapping[str, object] | None = None) -> Mapping[str, Any]:
        """Where the rollout stands, after the command in `body`. Raises RolloutError."""
        try:
            return asyncio.run(_ask(self, body))
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            reason = textwrap.shorten(describe_error(error), MOST_REASON)
            raise RolloutError(f"no answer from {self.url}: {reason}") from None
        except (ValueError, KeyError, TypeError, RecursionError):
            raise RolloutError(f"the server at {self.url} knows no rollouts") from None


@click.command(name="rollout")
@click.argument("positional_model", metavar="[MODEL]", required=False)
@click.option("--url", default="http://127.0.0.1:8000", show_default=True, help="Server to change.")
@click.option("--api-key", envvar="TURNOUT_ADMIN_KEY", help="Admin key; or the variable TURNOUT_ADMIN_KEY.")
@click.option("--arm", help="Arm of a live test to change.")
@click.option(
    "--drain-timeout",
    type=float,
    default=300.0,
    show_default=True,
    help="Seconds that requests may take to end that cannot move to a new engine.",
)
@click.option("--status", "action", flag_value="status", help="Say where the latest rollout stands.")
@click.option("--pause", "action", flag_value="pause", help="Stop the rollout where it stands.")
@click.option("--resume", "action", flag_value="resume", help="Go on with a rollout.")
@click.option("--undo", "action", flag_value="undo", help="Bring the engines before the rollout back.")
@config_options(EngineConfig)
def command(
    positional_model: str | None,
    url: str,
    api_key: str | None,
    arm: str | None,
    drain_timeout: float,
    action: str | None,
    **flags: object,
) -> None:
    """Replace the engines of a running server, one by one, by those with the options given.

    Options that are not given stay as they are. Ctrl-C leaves the rollout going on.
    """
    changes = {name: value for name, value in flags.items() if value is not None}
    if positional_model is not None:
        if "model" in changes:
            raise click.UsageError(
                f"the model is given twice: {positional_model} and --model {changes['model']}"
            )
        changes["model"] = positional_model
    if bool(changes) == (action is not None):
        raise click.UsageError("give either options of engines to change, or one of --status, --pause, …")
    server = _Server(server_url(url), authorization(api_key), {"arm": arm} if arm else {})
    if action == "status":
        click.echo(_line(server.ask()))
        return
    body: dict[str, object] = {"action": action or "start"}
    if changes:
        body |= {"changes": changes, "drain_timeout": drain_timeout}
    _follow(server, server.ask(body))


def _follow(server: _Server, report: Mapping[str, Any]) -> None:
    """Tell of each step until the rollout has ended. Raises RolloutError unless that is well."""
    wanted, said = report["state"], ""
    try:
        while True:
            if (line := _line(report)) != said:
                click.echo(line)
                said = line
            if report["state"] in ENDED:
                break
            time.sleep(POLL_SECONDS)
            report = server.ask()
    except KeyboardInterrupt:
        click.echo("\nThe rollout goes on in the server: see --status, --pause and --undo.", err=True)
        raise SystemExit(130) from None
    if report["state"] == "failed" or (report["state"] == "undone" and wanted == "rolling"):
        raise RolloutError(f"the rollout is {report['state']}: {report['reason'] or 'by another operator'}")


def _line(report: Mapping[str, Any]) -> str:
    changes = ", ".join(f"{name}={value}" for name, value in report["changes"].items())
    reason = f": {report['reason']}" if report["reason"] else ""
    changed = f"; {changes}" if changes else ""
    return f"{report['state']}, {report['replaced']} of {report['replicas']} replicas{changed}{reason}"


async def _ask(server: _Server, body: Mapping[str, object] | None) -> Any:
    async with (
        aiohttp.ClientSession(
            connector=connector(server.url), timeout=TIMEOUT, headers=server.headers
        ) as session,
        session.request(
            "GET" if body is None else "POST",
            http_url(server.url) + PATH,
            json=body,
            params=server.params,
        ) as response,
    ):
        answer = json.loads(await read_beginning(response))
        if not response.ok:
            raise RolloutError(str(answer["error"]["message"]))
        return msgspec.to_builtins(msgspec.convert(answer, _Report))
