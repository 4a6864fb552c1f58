"""Tables of docs/reference/models.md: which architectures run, by what, and why others don't."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from turnout.core.interfaces.models import ModelFamily
from turnout.core.registry.hookspecs import PROJECT
from turnout.core.registry.registry import Registry
from turnout.models.text_parts import SERVED
from turnout.scripts.reference.blocks import Blocks
from turnout.scripts.reference.tables import code, listed, table

RESULTS = Path(__file__).parent / "transformers_grid.json"
"""Written by scripts/transformers_grid.py, which tries all of them."""

REASONS = {
    "has an encoder and a decoder": "an encoder and a decoder",
    "recurrent state (": "a recurrent state",
    "(sparse attention)": "attention to chosen tokens",
    "within chunks": "attention within chunks",
    "images or sound": "images or sound beside text",
    "attention code of its own": "attention code of its own",
    "do not use the attention interface": "attention code of its own, or layers without attention",
    "neither causal nor a sliding window": "masks that are neither causal nor a window",
    "changes its attention mask": "masks that it changes, as ALiBi does",
    "attends twice": "more than one attention in a layer",
    "depends on a batch's padding": "masks that are neither causal nor a window",
    "'max_position_embeddings' is missing": "no stated longest context",
    "as one flat batch": "other tokens seen beside attention, in its own code",
    "a flat batch differs": "other tokens seen beside attention, in its own code",
    "use the attention interface of transformers; the others": "attention code of its own",
    "neither a whole text nor": "masks that are neither causal nor a window",
    "in one batch otherwise": "other tokens seen beside attention, in its own code",
    "reads neither the first token": "a head that reads every token",
    "without its weights": "code that needs values where only shapes are known",
}
"""Why a model is refused, in short, by a part of the message."""


def blocks() -> Blocks:
    return {"models that run": _served, "text models": _texts, "models that are refused": _refused}


def _served() -> str:
    native, tried = _native(), _tried()
    by_adapter = {each["architecture"]: each for each in tried if "difference" in each}
    rows = [
        (
            code(name),
            native.get(name, "the adapter"),
            ", ".join(map(code, by_adapter.get(name, {}).get("features", []))),
        )
        for name in sorted({*native, *by_adapter})
    ]
    return table(("architecture", "runs by", "attention beyond plain"), rows)


def _texts() -> str:
    native, found = _native(), json.loads(RESULTS.read_text(encoding="utf-8"))["texts"]
    rows = [
        (code(name), code(found[name]["text"]), native.get(found[name]["text"], "the adapter"))
        for name in sorted(SERVED)
    ]
    return table(("architecture", "its text model", "runs by"), rows)


def _refused() -> str:
    native, reasons = _native(), dict[str, set[str]]()
    for each in _tried():
        if "difference" not in each and each["architecture"] not in {*native, *SERVED}:
            reasons.setdefault(_reason(each), set()).add(each["architecture"])
    rows = [(reason, ", ".join(map(code, sorted(names)))) for reason, names in sorted(reasons.items())]
    return table(("refused because of", "architectures"), rows)


def _reason(tried: dict[str, Any]) -> str:
    refused = tried.get("refused", "")
    return next(
        (short for part, short in REASONS.items() if part in refused), "not tried: no small config of it"
    )


def _native() -> dict[str, str]:
    """Returns the name of the family, by architecture."""
    found: dict[str, list[str]] = {}
    for entry in Registry.load().usable("model"):
        family = entry.resolve()
        assert isinstance(family, type) and issubclass(family, ModelFamily)
        if entry.distribution == PROJECT:
            for name in family.architectures:
                found.setdefault(name, []).append(code(entry.name))
    return {name: listed(families) for name, families in found.items()}


def _tried() -> list[dict[str, Any]]:
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    encoders = [{"architecture": name, **each} for name, each in found["encoders"].items()]
    return [*found["models"].values(), *encoders]
