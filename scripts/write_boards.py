"""Writes the Grafana dashboards of deploy/observability/ from the metrics that the code has.

python scripts/write_boards.py               # after a metric or a board has changed
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from turnout.scripts.boards.boards import boards

FOLDER = Path(__file__).parent.parent / "deploy" / "observability" / "grafana" / "dashboards"


def contents() -> dict[Path, str]:
    """What each file is to hold."""
    return {
        FOLDER / f"{board.uid}.json": json.dumps(board.json(), indent=1, ensure_ascii=False) + "\n"
        for board in boards()
    }


@click.command()
@click.option("--check", is_flag=True, help="Write nothing, and fail if a file is out of date.")
def main(check: bool) -> None:
    """Write the Grafana dashboards of deploy/observability/."""
    wanted = contents()
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    stale += [path for path in FOLDER.glob("*.json") if path not in wanted]
    for path in () if check else stale:
        if path in wanted:
            path.write_text(wanted[path], encoding="utf-8")
        else:
            path.unlink()
    if stale:
        names = ", ".join(path.name for path in stale)
        click.echo(f"{'out of date' if check else 'written'}: {names}")
    sys.exit(1 if check and stale else 0)


if __name__ == "__main__":
    main()
