"""``turnout eval``: how good a model's predictions are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from turnout.cli.options.text_file import utf8
from turnout.cli.terminal.table import aligned
from turnout.core.registry.registry import Registry
from turnout.plugins.defaults import UNQUANTIZED

if TYPE_CHECKING:
    from turnout.lab.quality.models import ModelComparison

__all__ = ["command"]


@click.group(name="eval")
def command() -> None:
    """Measure how good a model's predictions are."""


@command.command()
@click.argument("model")
@click.option(
    "--text",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Text to predict, in UTF-8; best one that the model has not seen.",
)
@click.option(
    "--quantization",
    multiple=True,
    metavar="NAME",
    help="Quantizer to compare with the unchanged model, as NAME or NAME:option=value,…; may be repeated.",
)
@click.option("--reference", metavar="MODEL", help="Model to compare with; default: MODEL, unchanged.")
@click.option("--window", default=512, show_default=True, help="Tokens of context that are read together.")
@click.option(
    "--max-tokens",
    type=click.IntRange(2),
    default=50_000,
    show_default=True,
    help="Most tokens of the text to read.",
)
@click.option("--dtype", default="auto", show_default=True, help="Dtype to compute in, as of turnout serve.")
@click.option(
    "--device", default="auto", show_default=True, help="Device to compute on, as of turnout serve."
)
def perplexity(
    model: str,
    text: Path,
    quantization: tuple[str, ...],
    reference: str | None,
    window: int,
    max_tokens: int,
    dtype: str,
    device: str,
) -> None:
    """Print the perplexity of MODEL on a text, and what quantization does to it.

    Also prints how often both models find the same token most likely, and the KL divergence between their
    predictions, in nats per token. Both models are in memory at once.
    """
    registry = Registry.load()
    for spec in quantization:
        registry.check("quantization", spec)
    from turnout.lab.quality.models import ModelComparison  # only now: a mistake above should not wait for it

    evaluation = ModelComparison.of(registry, model, reference, dtype, device)
    tokens = evaluation.read(utf8(text), max_tokens)
    rows = list(_rows(evaluation, tokens, window, quantization))
    click.echo("\n".join(aligned([("QUANTIZATION", "PERPLEXITY", "CHANGE", "AGREEMENT", "KL"), *rows])))


def _rows(
    evaluation: ModelComparison, tokens: list[int], window: int, quantization: tuple[str, ...]
) -> Iterator[tuple[str, ...]]:
    base = evaluation.base(tokens, window)
    yield evaluation.reference_name, f"{base.perplexity:.3f}", "", "", ""
    others = quantization or ((UNQUANTIZED,) if evaluation.differs else ())
    for spec in others:
        yield evaluation.name(spec), *evaluation.deviation(spec, tokens, window).cells
