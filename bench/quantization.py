"""The figures of docs/explanation/quantization.md: what each scheme saves, costs and changes.

\b
    quality  perplexity, agreement and KL divergence of the embedded model, on the modules of the standard
             library that it was not trained on
    speed    memory, the time it takes to load, and forwards
    serving  time per token of one request, and throughput of 32 at once, by engines

Memory, speed and serving are of `--model`, with any weights. All schemes are in memory together and take
turns, so that other work on the machine slows all of them alike.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import click
import torch
from engines.quantized import HEADINGS, conditions, serve
from torch import nn

from turnout.core.interfaces.compute import ComputeContext
from turnout.core.registry.registry import Registry
from turnout.kernels import choose_kernels
from turnout.kernels.attention.dense import DenseAttention
from turnout.lab.quality.models import ModelComparison
from turnout.lab.results.markdown import markdown_table, read_marked, write_marked
from turnout.models.tiny.corpus import load_corpus
from turnout.runner.checkpoint import open_checkpoint
from turnout.runner.memory.budget import weight_bytes
from turnout.runner.weights import load_weights
from turnout.scripts.tiny.tokenizer import encode_documents
from turnout.scripts.tiny.tokenizer import load_tokenizer as load_tiny_tokenizer

TABLE = "lm_head=true,embeddings=true"
"""Head and embedding, too."""
OWN = ("int8", f"int8:{TABLE}", "int8wo", f"int8wo:{TABLE}", "int4wo", f"int4wo:{TABLE}", "fp8")
EXTRA = ("bnb-int8", "bnb-nf4", "bnb-fp4")
SCHEMES = (*OWN, *EXTRA) if find_spec("bitsandbytes") else OWN
KINDS = ("quality", "speed", "serving")
MIB = 2**20


def named(scheme: str) -> str:
    name, _, options = scheme.partition(":")
    return f"`{name}`, head too" if options == TABLE else f"`{scheme}`"


# ------------------------------------------------------------------ answers


def quality(tokens: int, schemes: Sequence[str]) -> str:
    evaluation = ModelComparison.of(Registry.load(), "turnout-tiny", None, "float32", "cpu")
    tokenizer = load_tiny_tokenizer(evaluation.checkpoint.folder)
    texts = [document.text for document in load_corpus().held_out]
    text = encode_documents(tokenizer, texts)[:tokens]
    base = evaluation.base(text, 1024)
    rows = [("`none`", f"{base.perplexity:.2f}", "", "", "")]
    for scheme in schemes:
        found = evaluation.deviation(scheme, text, 1024)
        rows.append(
            (
                named(scheme),
                f"{found.own.perplexity:.2f}",
                f"{100 * found.change:+.2f}%",
                f"{100 * found.agreement:.1f}%",
                f"{found.divergence:.5f}",
            )
        )
    return markdown_table(("scheme", "perplexity", "change", "agreement", "KL (nats)"), rows)


# ------------------------------------------------------------------ memory and speed

COUNTS = {1: "1 token", 8: "8 tokens", 32: "32 tokens", 128: "128 tokens"}
"""Computed together: of one request, of several that decode, of a prompt."""
DECODING = 32
"""Up to so many tokens are each of another request, and want logits."""
ROUNDS = 3


@dataclass
class Loaded:
    module: nn.Module
    load: float
    """Seconds."""
    peak: int
    """Bytes resident while loading, beyond those before."""
    times: dict[int, float] = field(default_factory=dict)
    """Seconds of a forward, by how many tokens it computes; the shortest that was seen."""


def speeds(model: str, schemes: Sequence[str]) -> str:
    models = {name: load(model, name) for name in ("none", *schemes)}
    for _ in range(ROUNDS):
        for count in COUNTS:
            for loaded in models.values():  # in turns: a machine's speed drifts
                found = forward(loaded.module, count)
                loaded.times[count] = min(found, loaded.times.get(count, found))
    headings = ("scheme", "weights", "peak", "load", *COUNTS.values())
    return markdown_table(headings, (_speed_row(name, models[name], models["none"]) for name in models))


def load(model: str, quantization: str) -> Loaded:
    registry = Registry.load()
    checkpoint = open_checkpoint(registry, model)
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak until here
    before, start = _status("VmRSS"), time.perf_counter()
    device, dtype = torch.device("cpu"), torch.float32
    module = load_weights(
        registry,
        checkpoint,
        quantization,
        ComputeContext(device, dtype, choose_kernels("auto", device, dtype).kernels),  # as it would be served
        progress=False,
    )
    click.echo(f"{quantization} is loaded", err=True)
    return Loaded(module, time.perf_counter() - start, _status("VmHWM") - before)


@torch.inference_mode()
def forward(module: nn.Module, count: int) -> float:
    """Seconds, with logits of each token, of a prompt only of the last."""
    tokens, start = torch.arange(count) + 100, time.perf_counter()
    hidden = module(tokens, torch.arange(count), DenseAttention())
    wanted = hidden if count <= DECODING else hidden[-1:]
    module.logits(wanted)  # type: ignore[operator]  # nn.Module's methods are untyped
    return time.perf_counter() - start


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{key}:"))


def _speed_row(name: str, found: Loaded, plain: Loaded) -> tuple[str, ...]:
    times = (f"{1e3 * found.times[c]:,.0f} ms ({found.times[c] / plain.times[c]:.2f})" for c in COUNTS)
    return (
        named(name),
        f"{weight_bytes(found.module) / MIB:,.0f} MiB",
        f"{found.peak / MIB:,.0f} MiB",
        f"{found.load:.1f} s",
        *times,
    )


# ------------------------------------------------------------------ serving


def serving(model: str, schemes: Sequence[str], rounds: int) -> str:
    found = serve(model, ("none", *schemes), rounds)
    rows = ((named(scheme), *cells) for scheme, cells in found.items())
    return f"{conditions(rounds)}\n\n{markdown_table(('scheme', *HEADINGS), rows)}"


# ------------------------------------------------------------------ documents


def with_others(before: str, content: str) -> str:
    """`content`, a table with or without words above it, and the rows of the table before that it lacks.

    Raises ClickException where the two have different columns.
    """
    words, found = _parted(content)
    _, known = _parted(before)
    if not known:
        return content
    if known[0] != found[0]:
        raise click.ClickException(
            f"the document's table has the columns {known[0]}, not {found[0]}; measure all schemes, and "
            "empty it first"
        )
    rows = {_first(row): row for row in [*known[2:], *found[2:]]}
    order = [named(each) for each in ("none", *OWN, *EXTRA)]
    names = [name for name in order if name in rows] + [name for name in rows if name not in order]
    return "\n".join([*words, *found[:2], *(rows[name] for name in names)])


def _parted(text: str) -> tuple[list[str], list[str]]:
    """The lines above a table, and its own."""
    lines = text.strip().splitlines()
    start = next((number for number, line in enumerate(lines) if line.startswith("|")), len(lines))
    return lines[:start], lines[start:]


def _first(row: str) -> str:
    return row.split("|")[1].strip()


@click.command(help=__doc__)
@click.option("--model", help="For memory, speed and serving; without it only answers are judged.")
@click.option(
    "--kind", "kinds", multiple=True, type=click.Choice(KINDS), help="Only this table; may be repeated."
)
@click.option("--scheme", multiple=True, help="Only this one, beside none; may be repeated.")
@click.option(
    "--tokens", default=8_192, show_default=True, help="Held-out tokens that answers are judged by."
)
@click.option("--rounds", default=3, show_default=True, help="Turns of each engine that serves.")
@click.option(
    "--write",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Document to write the tables into, between marks; rows of other schemes stay.",
)
def main(
    model: str | None,
    kinds: tuple[str, ...],
    scheme: tuple[str, ...],
    tokens: int,
    rounds: int,
    write: Path | None,
) -> None:
    schemes = scheme or SCHEMES
    for kind in kinds or (KINDS if model else ("quality",)):
        content = _measured(kind, model, schemes, tokens, rounds)
        click.echo(f"{content}\n")
        if write is not None:
            write_marked(write, kind, with_others(read_marked(write, kind), content))


def _measured(kind: str, model: str | None, schemes: Sequence[str], tokens: int, rounds: int) -> str:
    if kind == "quality":
        return quality(tokens, schemes)
    if model is None:
        raise click.UsageError(f"--kind {kind} needs --model")
    return speeds(model, schemes) if kind == "speed" else serving(model, schemes, rounds)


if __name__ == "__main__":
    main()
