"""The quality of arms' answers: how far each arm's predictions are from the first one's, on a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from turnout.lab.arms import Arm
from turnout.lab.compare.runs.predictions import different_predictions
from turnout.lab.quality.deviation import Deviation

__all__ = ["HEADINGS", "QualityText", "arms_to_measure", "held_out", "quality_rows"]

HEADINGS = ("perplexity", "change", "agreement", "KL (nats)")


@dataclass(frozen=True)
class QualityText:
    """The text to be predicted."""

    name: str
    """The name that reports show."""
    content: str
    tokens: int
    """Of it, at most."""


def held_out(tokens: int) -> QualityText:
    """Modules of Python's standard library that the embedded model was not trained on."""
    from turnout.models.tiny.corpus import load_corpus  # it reads them all

    texts = [document.text for document in load_corpus().held_out]
    return QualityText("held-out Python", "\n".join(texts), tokens)


def arms_to_measure(arms: Sequence[Arm]) -> list[Arm]:
    """The arms that may predict something else than the first."""
    base, *others = arms
    return [arm for arm in others if different_predictions(base.config, arm.config)]


def quality_rows(arms: Sequence[Arm], found: Mapping[str, Deviation]) -> list[tuple[str, ...]]:
    """Cells under the arm's name and `HEADINGS`; arms that could not be measured are left out."""
    base, *others = arms
    reference = next(iter(found.values())).reference
    rows: list[tuple[str, ...]] = [(base.name, f"{reference.perplexity:.3f}", "", "", "")]
    for arm in others:
        if arm.name in found:
            rows.append((arm.name, *found[arm.name].cells))
        elif not different_predictions(base.config, arm.config):
            rows.append((arm.name, f"as {base.name}", "", "", ""))
    return rows
