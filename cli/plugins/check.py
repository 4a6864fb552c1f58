"""``turnout plugins check``: runs the conformance suite of a plugin's kind and prints a verdict."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from turnout.cli.plugins.find import find_plugin
from turnout.cli.plugins.registry_options import registry_options
from turnout.core.registry.kinds import OBSERVER_KIND
from turnout.core.registry.registry import Registry

if TYPE_CHECKING:
    from turnout.testing.suite_runner import CheckResult

__all__ = ["check_plugin"]

WORDS = {"ok": "ok     ", "failed": "FAILED ", "skipped": "skipped"}


@click.command(name="check")
@click.argument("target", metavar="[KIND/]NAME[:OPTION=VALUE,…]")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@click.option(
    "--slow",
    is_flag=True,
    help="Also run the tests that serve the embedded model, which take about a minute.",
)
@click.option(
    "--claim",
    "claims",
    multiple=True,
    metavar="NAME=VALUE",
    help="Claim of the plugin to test, such as ends_first=false; may be repeated.",
)
@registry_options
def check_plugin(
    ctx: click.Context, registry: Registry, target: str, as_json: bool, slow: bool, claims: tuple[str, ...]
) -> None:
    """Run the conformance suite of its kind against an installed plugin.

    The exit code is 1 if a test fails.
    """
    if not __debug__:
        raise click.UsageError("the suites are assertions, which python -O removes; run Python without -O")
    name, colon, options = target.partition(":")
    entry = find_plugin(registry, name)
    if entry.kind != OBSERVER_KIND:
        registry.check(entry.kind, entry.name + colon + options)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # the toy's tensors are too small to be shared out
    from turnout.testing.suite_runner import run_suite, set_claim, suite_for  # only now: may import torch

    suite = suite_for(entry.kind, entry.name + colon + options, registry)
    for claim in claims:
        set_claim(suite, *_parsed(claim))
    findings = run_suite(suite, slow=slow)
    title = f"{entry.kind}/{entry.name}{colon}{options}, from {entry.origin}"
    failed = _print_json(title, findings) if as_json else _print(title, findings)
    ctx.exit(1 if failed else 0)


def _parsed(claim: str) -> tuple[str, object]:
    name, sign, value = claim.partition("=")
    if not sign:
        raise click.BadParameter(f"{claim!r} is not a claim; expected NAME=VALUE, such as bound=60")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _print(title: str, findings: Iterator[CheckResult]) -> int:
    click.echo(f"{title}\n")
    counts = {"ok": 0, "skipped": 0, "failed": 0}
    for finding in findings:
        counts[finding.state] += 1
        why = f": {finding.message}" if finding.message else ""
        click.echo(f"{WORDS[finding.state]}  {finding.test}{why}")
    said = f"{counts['ok']} passed, {counts['skipped']} skipped, {counts['failed']} failed"
    click.echo(f"\n{'does not conform' if counts['failed'] else 'conforms'}: {said}")
    return counts["failed"]


def _print_json(title: str, findings: Iterator[CheckResult]) -> int:
    listed = [{"test": f.test, "state": f.state, "message": f.message} for f in findings]
    failed = sum(finding["state"] == "failed" for finding in listed)
    click.echo(json.dumps({"plugin": title, "conforms": not failed, "findings": listed}, indent=2))
    return failed
