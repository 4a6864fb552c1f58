"""``turnout plugins check``: runs the conformance suite of a plugin's kind and prints a verdict."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from turnout.cli.plugins.find import find_plugin
from turnout.cli.plugins.registry_options import registry_options
from turnout.core.errors import as_plugin_errors
from turnout.core.registry.registry import PluginEntry, Registry

if TYPE_CHECKING:
    from turnout.testing.suite_runner import CheckResult

__all__ = ["check_plugin"]

MOST_NUMBERS = 2**26
"""Tokens times width times layers of a model that is built for its tests in seconds."""
WORDS = {"ok": "ok", "failed": "FAILED", "skipped": "skipped", "not for it": "not for it"}


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
@click.option(
    "--model-config",
    "model_config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="For a model family: config.json of a small model, which is built with random weights.",
)
@click.option(
    "--allow-skipped",
    is_flag=True,
    help="Exit with 0 although a test that applies was skipped. Slow tests may be skipped anyway.",
)
@registry_options
def check_plugin(
    ctx: click.Context,
    registry: Registry,
    target: str,
    as_json: bool,
    slow: bool,
    claims: tuple[str, ...],
    model_config: Path | None,
    allow_skipped: bool,
) -> None:
    """Run the conformance suite of its kind against an installed plugin.

    The exit code is 1 if a test fails, or if one that applies to the plugin was skipped.
    """
    if not __debug__:
        raise click.UsageError("the suites are assertions, which python -O removes; run Python without -O")
    name, colon, options = target.partition(":")
    entry = find_plugin(registry, name)
    if not entry.hooked:
        registry.check(entry.kind, entry.name + colon + options)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # the toy's tensors are too small to be shared out
    from turnout.testing.suite_runner import run_suite, set_claim, suite_for  # only now: may import torch

    suite = suite_for(entry.kind, entry.name + colon + options, registry)
    for claim in claims:
        set_claim(suite, *_parsed(claim))
    if model_config is not None:
        set_claim(suite, "config", _small_config(registry, model_config, entry))
    findings = run_suite(suite, slow=slow)
    title = f"{entry.kind}/{entry.name}{colon}{options}, from {entry.origin}"
    verdict = _print_json(title, findings) if as_json else _print(title, findings)
    ctx.exit(0 if verdict.conforms or (allow_skipped and not verdict.failed) else 1)


def _small_config(registry: Registry, file: Path, entry: PluginEntry) -> dict[str, Any]:
    """Reads ``config.json``. Raises UsageError for one whose model takes too long to build here."""
    from turnout.models.checkpoints.checkpoint import read_json

    if entry.kind != "model":
        raise click.UsageError(
            f"--model-config is for model families; {entry.name} is of the kind {entry.kind}"
        )
    config, family = read_json(file), registry.create("model", entry.name)
    with as_plugin_errors(f"{entry.title}: spec"):
        spec = family.spec(config)
    if spec.vocab_size * spec.hidden_size * spec.layers > MOST_NUMBERS:
        raise click.UsageError(
            f"{file} describes too large a model for the tests ({spec.layers} layers of {spec.hidden_size}, "
            f"{spec.vocab_size:,} tokens); give a copy with a few layers, a hidden_size of 64 and 500 tokens"
        )
    return config


def _parsed(claim: str) -> tuple[str, object]:
    name, sign, value = claim.partition("=")
    if not sign:
        raise click.BadParameter(f"{claim!r} is not a claim; expected NAME=VALUE, such as bound=60")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


@dataclass(frozen=True)
class Verdict:
    """How many tests came out how."""

    passed: int
    failed: int
    slow: int
    """Slow tests that were skipped."""
    skipped: int
    """Other tests that apply to the plugin and were skipped."""
    not_for_it: int

    @classmethod
    def of(cls, findings: Sequence[CheckResult]) -> Verdict:
        from turnout.testing.suite_runner import SLOW

        states = Counter(finding.state for finding in findings)
        slow = sum(finding.message == SLOW for finding in findings if finding.state == "skipped")
        skipped = states["skipped"] - slow
        return cls(states["ok"], states["failed"], slow, skipped, states["not for it"])

    @property
    def conforms(self) -> bool:
        return not self.failed and not self.skipped

    def __str__(self) -> str:
        counts = {
            f"{self.passed} passed": True,
            f"{self.failed} failed": self.failed,
            f"{self.skipped} skipped, which apply": self.skipped,
            f"{self.slow} slow not run (--slow)": self.slow,
            f"{self.not_for_it} do not apply": self.not_for_it,
        }
        judged = "does not conform" if self.failed else "not shown to conform"
        said = "conforms" if self.conforms else judged
        return f"{said}: {', '.join(text for text, shown in counts.items() if shown)}"


def _print(title: str, findings: Iterator[CheckResult]) -> Verdict:
    click.echo(f"{title}\n")
    seen = []
    for finding in findings:
        seen.append(finding)
        why = f": {finding.message}" if finding.message else ""
        click.echo(f"{WORDS[finding.state]:<10}  {finding.test}{why}")
    verdict = Verdict.of(seen)
    click.echo(f"\n{verdict}")
    return verdict


def _print_json(title: str, findings: Iterator[CheckResult]) -> Verdict:
    seen = list(findings)
    verdict = Verdict.of(seen)
    listed = [{"test": f.test, "state": f.state, "message": f.message} for f in seen]
    report = {"plugin": title, "conforms": verdict.conforms, "verdict": str(verdict), "findings": listed}
    click.echo(json.dumps(report, indent=2))
    return verdict
