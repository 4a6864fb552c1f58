"""The figures of docs/quantization.md: what each scheme saves, costs and changes.

Answers are judged with the embedded model on the modules of the standard library that it was not trained
on. Memory and speed are measured on a larger model, of any weights, with all schemes in memory: forwards are
timed in turns, so that other work on the machine slows all of them alike.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import click
import torch
from torch import nn

from turnout.core.plugins import Registry
from turnout.kernels import choose_kernels
from turnout.lab.marked import write_marked
from turnout.lab.perplexity import one_window
from turnout.lab.quality import Comparison
from turnout.models.tiny.corpus import load_corpus
from turnout.models.tiny.tokenizer import encode_documents
from turnout.models.tiny.tokenizer import load_tokenizer as load_tiny_tokenizer
from turnout.runner.checkpoint import open_checkpoint
from turnout.runner.memory import weight_bytes
from turnout.runner.weights import load_weights

TABLE = "lm_head=true,embeddings=true"
"""Head and embedding, too."""
OWN = ("int8", f"int8:{TABLE}", "int8wo", f"int8wo:{TABLE}", "int4wo", f"int4wo:{TABLE}", "fp8")
SCHEMES = (*OWN, "bnb-int8", "bnb-nf4") if find_spec("bitsandbytes") else OWN
DOCUMENT = Path(__file__).parent.parent / "docs" / "quantization.md"
MIB = 2**20


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The first column is text, the others are numbers."""
    under = "---" + "|--:" * (len(headings) - 1)
    return "\n".join((_row(headings), f"|{under}|", *(_row(cells) for cells in rows)))


def named(scheme: str) -> str:
    name, _, options = scheme.partition(":")
    return f"`{name}`, head too" if options == TABLE else f"`{scheme}`"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


# ------------------------------------------------------------------ answers


def quality(tokens: int, schemes: Sequence[str]) -> str:
    comparison = Comparison.of(Registry.load(), "turnout-tiny", None, "float32", "cpu")
    tokenizer = load_tiny_tokenizer(comparison.checkpoint.folder)
    texts = [document.text for document in load_corpus().held_out]
    text = encode_documents(tokenizer, texts)[:tokens]
    base = comparison.base(text, 1024)
    rows = [("`none`", f"{base.perplexity:.2f}", "", "", "")]
    for scheme in schemes:
        found = comparison.deviation(scheme, text, 1024)
        rows.append(
            (
                named(scheme),
                f"{found.own.perplexity:.2f}",
                f"{100 * found.change:+.2f}%",
                f"{100 * found.agreement:.1f}%",
                f"{found.divergence:.5f}",
            )
        )
    return table(("scheme", "perplexity", "change", "agreement", "KL (nats)"), rows)


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
    return table(headings, (_speed_row(name, models[name], models["none"]) for name in models))


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
        device=device,
        dtype=dtype,
        kernels=choose_kernels("auto", device, dtype).kernels,  # what each would be served with
        progress=False,
    )
    click.echo(f"{quantization} is loaded", err=True)
    return Loaded(module, time.perf_counter() - start, _status("VmHWM") - before)


@torch.inference_mode()
def forward(module: nn.Module, count: int) -> float:
    """Seconds, with logits of each token, of a prompt only of the last."""
    tokens, start = torch.arange(count) + 100, time.perf_counter()
    hidden = module(tokens, torch.arange(count), one_window)
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


@click.command()
@click.option("--model", help="For memory and speed; without it only answers are judged.")
@click.option(
    "--tokens", default=16_384, show_default=True, help="Held-out tokens that answers are judged by."
)
@click.option("--no-quality", is_flag=True, help="Judge no answers.")
@click.option("--scheme", multiple=True, help="Only this one, beside none; may be repeated.")
@click.option("--write", is_flag=True, help="Into docs/quantization.md; rows of other schemes stay.")
def main(model: str | None, tokens: int, no_quality: bool, scheme: tuple[str, ...], write: bool) -> None:
    """Measure the built-in schemes."""
    schemes = scheme or SCHEMES
    tables = {} if no_quality else {"quality": quality(tokens, schemes)}
    if model is not None:
        tables["speed"] = speeds(model, schemes)
    for name, content in tables.items():
        click.echo(f"{content}\n")
        if write:
            write_marked(DOCUMENT, name, with_others(name, content))


def with_others(name: str, content: str) -> str:
    """Beside what was measured now, the rows of the document's table that were not."""
    text = DOCUMENT.read_text(encoding="utf-8")
    before = text.partition(f"<!-- {name}: begin -->")[2].partition("<!--")[0].strip().splitlines()
    head, rows = content.splitlines()[:2], content.splitlines()[2:]
    known = {row.split("|")[1].strip(): row for row in [*before[2:], *rows]}
    order = [named(each) for each in ("none", *SCHEMES)]
    return "\n".join([*head, *(known[each] for each in order if each in known)])


if __name__ == "__main__":
    main()
