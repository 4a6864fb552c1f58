"""Writes the tables of docs/ that say what the code says: fields, flags, types; and its examples.

python scripts/write_reference.py            # after a description in the code changed

A table stands in its page between ``<!-- written by scripts/write_reference.py: NAME -->`` and
``<!-- end -->``. What lies around it is written by hand.
"""

from __future__ import annotations

import sys

import click

from turnout.scripts.reference import (
    commands,
    configuration,
    examples,
    faults,
    http,
    limits,
    metrics,
    parameters,
    policies,
    suites,
    types,
    workloads,
)
from turnout.scripts.reference.blocks import Blocks, pages, written

BLOCKS: Blocks = {
    "engine settings": configuration.engine,
    "server settings": configuration.server,
    **policies.blocks(),
    **http.blocks(),
    "metrics of the server": metrics.server,
    "metrics of the engine": metrics.engine,
    "parameters": parameters.both,
    "parameters of completions": parameters.completions,
    "parameters of chat": parameters.chat,
    "refused parameters": parameters.refused,
    "limits": limits.block,
    **commands.blocks(),
    **examples.blocks(),
    "faults in service": faults.in_service,
    "faults at the start": faults.at_start,
    "suites": suites.suites,
    "claims": suites.claims,
    "generators": workloads.generators,
    "options of generators": workloads.shared,
    "lengths": workloads.lengths,
    "options of trace": workloads.trace,
    "types": types.block,
}


@click.command()
@click.option("--check", is_flag=True, help="Write nothing, and fail if a page is out of date.")
def main(check: bool) -> None:
    """Write the tables of docs/ that say what the code says."""
    stale = []
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if (current := written(text, BLOCKS)) != text:
            stale.append(page.name)
            if not check:
                page.write_text(current, encoding="utf-8")
    if stale:
        click.echo(f"{'out of date' if check else 'written'}: {', '.join(stale)}")
    sys.exit(1 if check and stale else 0)


if __name__ == "__main__":
    main()
