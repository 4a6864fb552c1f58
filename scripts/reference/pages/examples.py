"""docs/reference/plugins: the complete example of each kind, which is what ``turnout plugins new`` writes."""

from __future__ import annotations

from functools import partial

from turnout.cli.plugins.new import rendered
from turnout.cli.plugins.skeletons import SKELETONS
from turnout.scripts.reference.blocks import Blocks

NAMES = {
    "scheduler": "shortest-first",
    "length_predictor": "moving-average",
    "kv": "positions",
    "kv_eviction": "most-recent",
    "quantization": "eight-bits",
    "decoding": "sure-or-drawn",
    "proposer": "stutter",
    "pooling": "largest",
    "admission": "few-each",
    "router": "short-apart",
    "launcher": "nice",
    "logits_processor": "no-digits",
    "format": "angle-calls",
    "model": "mimic",
    "observer": "log-slow",
}
"""Of the examples, by kind."""


def blocks() -> Blocks:
    return {f"example of {kind}": partial(_example, kind, name) for kind, name in NAMES.items()}


def _example(kind: str, name: str) -> str:
    return (
        f"`turnout plugins new {name} --kind {kind}` writes this plugin and a test of it with "
        f"[`{SKELETONS[kind].suite}`](testing.md):\n\n"
        f"```python\n{rendered(f'{kind}.py', name, kind).rstrip()}\n```"
    )
