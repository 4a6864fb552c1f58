"""Fits a cost model's coefficients to measured steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from turnout.core.errors import TurnoutError
from turnout.lab.simulation.cost import Fit, Seconds, Work

__all__ = ["StepSample", "fit"]

Floats = NDArray[np.float64]

DEVICE = {
    "sequence": "sequences",
    "row": "rows",
    "group": "groups",
    "prompt": "prompts",
    "read": "context",
    "pair": "pairs",
}
"""Coefficient to what it multiplies, of the time in the runner."""
KNOTS = (0, 4, 8, 16, 32, 64, 256)
"""Numbers of tokens beyond which another one may take less, or more."""
FAR = (1024, 4096, 16_384, 65_536)
"""Positions beyond which another one may take more."""
HOST = {"runner": "running", "waiter": "waiting", "beginner": "prompts", "request": "begun"}
"""The same for the rest of a step, on the host."""
ROUNDS = 4
"""Rounds of fitting, each weighted by what the round before expects. The second matters most."""
MAX_OVERRUN = 2.0
"""A step that took longer than so many of its kind was held up by something else: memory that the system
hands out, another process."""
HELD_UP = 10.0
"""One that took longer than so many of its kind says nothing of its kind, and counts as what is expected."""
MIN_STEPS = 40
"""Different steps that must have been measured."""


@dataclass(frozen=True)
class StepSample:
    """A step that was taken."""

    work: Work
    device: float
    """Seconds in the runner."""
    host: float
    """Seconds in the rest of the step."""


def fit(samples: Sequence[StepSample], move: float = 0.0) -> tuple[Seconds, Fit]:
    """Coefficients that are not negative, by least squares of relative errors.

    `move`: seconds, of a position. Errors are relative to what is expected of a step (iteratively reweighted
    least squares). Relative to what it took, a step that happened to be fast would count for more than one
    that happened to be slow, and all together would come out too fast. No step counts for more than
    `MAX_OVERRUN` times what is expected of it (Huber's way with outliers), and none that took more than
    `HELD_UP` times as long for more than once.
    """
    if len(samples) < MIN_STEPS:
        raise TurnoutError(
            f"{len(samples)} different steps are too few to fit a cost model, {MIN_STEPS} are needed; "
            "measure for longer"
        )
    works = [sample.work for sample in samples]
    host = np.array([sample.host for sample in samples])
    knots = [knot for knot in KNOTS if any(work.tokens > knot for work in works)]
    segments = [[float(_within(work.tokens, knot, knots)) for work in works] for knot in knots]
    beyond = [far for far in FAR if any(work.context > far for work in works)]
    segments += [[max(0.0, work.context - far) for work in works] for far in beyond]
    whole = scale = host + np.array([sample.device for sample in samples])
    kept = np.ones(len(works))
    for _ in range(ROUNDS):
        # By the whole step in both, so that an error counts for what it is of the step.
        planning, _, planned = _fit_part(works, "host", HOST, kept * host, scale, [])
        # Planning takes longer behind a step that read more, as caches then hold less of what it needs; those
        # terms are the runner's, so it is fitted to all that planning leaves.
        found, rates, _ = _fit_part(works, "fixed", DEVICE, kept * whole - planned, scale, segments)
        tokens, far = zip(knots, rates, strict=False), zip(beyond, rates[len(knots) :], strict=True)
        seconds = Seconds(**found, **planning, tokens=tuple(tokens), far=tuple(far), move=move)
        scale = np.array([seconds.of(work) for work in works])
        expected = scale / whole
        kept = np.where(HELD_UP * expected < 1.0, expected, np.minimum(1.0, MAX_OVERRUN * expected))
    return seconds, _quality(seconds, works, whole)


def _within(tokens: int, knot: int, knots: Sequence[int]) -> int:
    """How many of the tokens lie between a knot and the next."""
    end = min((other for other in knots if other > knot), default=tokens)
    return max(0, min(tokens, end) - knot)


def _fit_part(
    works: Sequence[Work],
    constant: str,
    terms: Mapping[str, str],
    target: Floats,
    scale: Floats,
    others: Sequence[Sequence[float]],
) -> tuple[dict[str, float], list[float], Floats]:
    """Coefficients of `constant` and `terms` by name, those of the columns `others`, and what all say.

    `scale`: what each step's error is divided by.
    """
    columns = [[1.0] * len(works), *([float(getattr(w, name)) for w in works] for name in terms.values())]
    matrix = np.column_stack([*columns, *others]) / scale[:, None]
    coefficients, _ = nnls(matrix, target / scale)
    values = [float(value) for value in coefficients]
    said = scale * (matrix @ coefficients)
    return dict(zip((constant, *terms), values, strict=False)), values[len(columns) :], said


def _quality(seconds: Seconds, works: Sequence[Work], whole: Floats) -> Fit:
    said = np.array([seconds.of(work) for work in works])
    errors = np.abs(said - whole) / whole
    return Fit(
        steps=len(works),
        mean=float(errors.mean()),
        p90=float(np.percentile(errors, 90)),
        worst=float(errors.max()),
        bias=float(said.sum() / whole.sum() - 1),
    )
