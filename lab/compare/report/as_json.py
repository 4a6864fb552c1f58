"""Writes a comparison as JSON: everything that was measured, and what was computed from it."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from turnout.lab.compare.comparison import Comparison, MetricRow
from turnout.lab.compare.runs.run import Run
from turnout.lab.results.record import Record

__all__ = ["as_json", "row_as_json"]


def as_json(comparison: Comparison) -> bytes:
    """UTF-8; numbers that do not exist (an interval of one repeat, a change from 0) are null."""
    return msgspec.json.encode(_document(comparison)) + b"\n"


def _document(comparison: Comparison) -> dict[str, Any]:
    spec = comparison.spec
    return {
        "workload": spec.workload,
        "seed": spec.seed,
        "repeats": len(comparison.repeats),
        "warm_up": spec.warm_up,
        "temperature": spec.request_temperature,
        "simulated": spec.simulated or None,
        "goodput": dict(spec.goodput.limits) if spec.goodput else None,
        "arms": [
            {
                "name": arm.name,
                "changes": dict(arm.changes),
                "config": arm.config.model_dump(mode="json", exclude_unset=True),
            }
            for arm in spec.arms
        ],
        "sound": comparison.sound,
        "findings": [finding._asdict() for finding in comparison.findings],
        "differences": {arm: [row_as_json(row) for row in rows] for arm, rows in comparison.rows.items()},
        "quality": _quality(comparison),
        "figures": [{arm: dict(of) for arm, of in repeat.items()} for repeat in comparison.figures],
        "runs": [_run(run) for repeat in comparison.repeats for run in repeat.values()],
    }


def _quality(comparison: Comparison) -> dict[str, Any] | None:
    """The quality of the arms that may predict something else than the first."""
    text = comparison.spec.text
    if text is None or not comparison.quality:
        return None
    return {
        "text": text.name,
        "arms": {
            arm: {
                "tokens": found.own.tokens,
                "perplexity": found.own.perplexity,
                "base_perplexity": found.reference.perplexity,
                "perplexity_change": found.change,
                "agreement": found.agreement,
                "kl_divergence": found.divergence,
            }
            for arm, found in comparison.quality.items()
        },
    }


def row_as_json(row: MetricRow) -> dict[str, Any]:
    metric, difference = row.metric, row.difference
    numbers = dict(vars(difference)) if difference else {}
    means = numbers.pop("means", None)
    return {
        "metric": metric.name,
        "unit": metric.unit,
        "higher_is_better": metric.higher_is_better,
        **{name: _number(value) for name, value in {"base": row.base, "other": row.other, **numbers}.items()},
        **({"judged_by": "ratio" if means is None else "difference"} if difference else {}),
        "verdict": row.verdict,
    }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _run(run: Run) -> dict[str, Any]:
    return {
        "arm": run.arm,
        "repeat": run.repeat,
        "preemptions": run.preemptions,
        "policy_faults": run.policy_faults,
        "engine": run.described,
        "requests": [_request(record) for record in run.records],
        "samples": {
            name: [getattr(sample, name) for sample in run.samples]
            for name in ("at", "running", "waiting", "kv_used")
        },
    }


def _request(record: Record) -> dict[str, Any]:
    served = record.served
    return {
        "job": record.index,
        "client": record.job.client,
        "sent": record.sent,
        "ttft": record.ttft if served else None,
        "tpot": record.tpot if served else None,
        "e2el": record.e2el if served else None,
        "prompt_tokens": record.prompt_tokens,
        "output_tokens": record.output_tokens,
        "digest": record.digest,
        "error": record.error or None,
    }
