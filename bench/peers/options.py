"""The options of benchmarks beside peers, and where their tables go."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

import click

from turnout.lab.results.markdown import write_marked

__all__ = ["options", "publish"]


def options(known: Collection[str], default: str) -> list[click.Parameter]:
    """`known`: peers that there are; `default`: some of them, with commas between."""
    folder = Path.home() / ".cache" / "turnout" / "peers"
    return [
        click.Option(["--model"], default="turnout-tiny", show_default=True),
        click.Option(["--peers"], default=default, show_default=True, callback=_among(known),
                     help=f"Of {', '.join(known)}."),
        click.Option(["--dtype"], default="float32", show_default=True,
                     help="Of Turnout, transformers and vLLM."),
        click.Option(["--int8", "quantized"], is_flag=True, help="Weights in 8 bits, where a peer has them."),
        click.Option(["--folder"], default=folder, show_default=True, type=click.Path(path_type=Path),
                     help="For environments, models, logs."),
        click.Option(["--write"], type=click.Path(path_type=Path), help="Document to write the table into."),
        click.Option(["--mark"], default="", help="Between which marks; default: by the model's name."),
    ]  # fmt: skip


def publish(text: str, write: Path | None, mark: str) -> None:
    click.echo(text)
    if write:
        write_marked(write, mark, text)


def _among(known: Collection[str]) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Reads names with commas between, which are to be known."""

    def chosen(_context: click.Context, _parameter: click.Parameter, value: str) -> list[str]:
        names = [name for name in value.split(",") if name]
        for name in names:
            if name not in known:
                raise click.BadParameter(f"there is no {name!r}; there are {', '.join(known)}")
        return names

    return chosen
