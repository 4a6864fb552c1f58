"""Compares arms by their runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from types import MappingProxyType

from turnout.lab.compare.agreement import Finding, check
from turnout.lab.compare.runs.experiment_spec import ExperimentSpec
from turnout.lab.compare.runs.protocol import Incomparable, QualityResult
from turnout.lab.compare.runs.run import Run
from turnout.lab.compare.statistics.metrics import Figures, Metric, grain, measure, metrics
from turnout.lab.compare.statistics.statistics import Difference, differences
from turnout.lab.compare.statistics.verdicts import verdict
from turnout.lab.quality.deviation import Deviation

__all__ = ["Comparison", "MetricRow", "QualityOutcome", "compare"]


QualityOutcome = QualityResult | Incomparable


@dataclass(frozen=True)
class MetricRow:
    """One metric of one arm, beside the first arm's."""

    metric: Metric
    base: float
    """Means over the repeats; nan where none has the figure."""
    other: float
    difference: Difference | None
    """None where there is nothing to compare: no repeat has both figures."""
    verdict: str

    @property
    def direction(self) -> str:
        """``better`` or ``worse``; "" where no difference is declared."""
        if self.difference is None or not self.difference.declared:
            return ""
        return "better" if (self.difference.change > 0) == self.metric.higher_is_better else "worse"


@dataclass(frozen=True)
class Comparison:
    spec: ExperimentSpec
    repeats: Sequence[Mapping[str, Run]]
    """Complete ones: runs by arm."""
    figures: Sequence[Mapping[str, Figures]]
    """The same, measured."""
    findings: Sequence[Finding]
    """What a reader must know before looking at the figures."""
    rows: Mapping[str, Sequence[MetricRow]]
    """By arm; the first has none."""
    quality: Mapping[str, Deviation]
    """The deviation of each arm's predictions from the first arm's; arms that predict the same have none."""

    @property
    def sound(self) -> bool:
        """The arms did the same work."""
        return not any(finding.serious for finding in self.findings)


def compare(
    spec: ExperimentSpec, runs: Sequence[Run], quality: Mapping[str, QualityOutcome] = MappingProxyType({})
) -> Comparison:
    """Compares runs, in any order, without incomplete repeats; with no complete one there are no figures.

    quality: by arm, what was measured of its answers.
    """
    repeats = _complete(spec, runs)
    figures = [
        {name: measure(run.records, spec.goodput) for name, run in repeat.items()} for repeat in repeats
    ]
    wanted = metrics(goodput=spec.goodput is not None, clients=_several_clients(runs))
    findings = [*check(spec.arms, repeats, greedy=spec.greedy), *_not_measured(spec, quality)]
    deviations = {arm: found.deviation for arm, found in quality.items() if isinstance(found, QualityResult)}
    return Comparison(spec, repeats, figures, findings, _rows(spec, wanted, figures), deviations)


def _not_measured(spec: ExperimentSpec, quality: Mapping[str, QualityOutcome]) -> Iterator[Finding]:
    for arm, found in quality.items():
        if isinstance(found, Incomparable):
            text = f"answers of {arm} are not judged by those of {spec.arms[0].name}: {found.reason}"
            yield Finding(text, serious=False)


def _complete(spec: ExperimentSpec, runs: Sequence[Run]) -> list[dict[str, Run]]:
    repeats: dict[int, dict[str, Run]] = {}
    for run in runs:
        repeats.setdefault(run.repeat, {})[run.arm] = run
    names = [arm.name for arm in spec.arms]
    complete = [repeat for _, repeat in sorted(repeats.items()) if len(repeat) == len(names)]
    return [{name: repeat[name] for name in names} for repeat in complete]


def _several_clients(runs: Sequence[Run]) -> bool:
    return len({record.job.client for run in runs for record in run.records}) > 1


def _rows(
    spec: ExperimentSpec, wanted: Sequence[Metric], figures: Sequence[Mapping[str, Figures]]
) -> dict[str, list[MetricRow]]:
    base, *others = (arm.name for arm in spec.arms)
    # Judged together, over all arms and metrics: who looks at more figures finds more by chance.
    each = [(arm, metric) for arm in others for metric in wanted]
    found = differences(
        {(arm, m.name): [(of[base][m.name], of[arm][m.name]) for of in figures] for arm, m in each},
        {
            (arm, m.name): _mean([grain(m, of[name]) for of in figures for name in (base, arm)])
            for arm, m in each
        },
    )

    def row(arm: str, metric: Metric) -> MetricRow:
        difference = found.get((arm, metric.name))
        return MetricRow(
            metric,
            _mean([of[base][metric.name] for of in figures]),
            _mean([of[arm][metric.name] for of in figures]),
            difference,
            "not measured" if difference is None else verdict(arm, metric, difference, spec.see),
        )

    return {arm: [row(arm, metric) for metric in wanted] for arm in others}


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return fmean(known) if known else math.nan
