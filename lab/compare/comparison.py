"""What runs of several arms say about the arms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from types import MappingProxyType

from turnout.lab.compare.agreement import Finding, check
from turnout.lab.compare.runs.experiment_spec import Question
from turnout.lab.compare.runs.protocol import Incomparable, Judged
from turnout.lab.compare.runs.run import Run
from turnout.lab.compare.statistics.metrics import Figures, Metric, measure, metrics
from turnout.lab.compare.statistics.statistics import Difference, differences
from turnout.lab.compare.statistics.verdicts import verdict
from turnout.lab.quality.deviation import Deviation

__all__ = ["Comparison", "Judgement", "Row", "compare"]


Judgement = Judged | Incomparable


@dataclass(frozen=True)
class Row:
    """One metric of one arm, beside the first arm's."""

    metric: Metric
    base: float
    """Means over the repeats."""
    other: float
    difference: Difference | None
    """None where there is nothing to compare: a figure is 0 in every repeat."""
    verdict: str

    @property
    def judged(self) -> str:
        """``better`` or ``worse``; "" where no difference is declared."""
        if self.difference is None or not self.difference.declared:
            return ""
        return "better" if (self.difference.change > 0) == self.metric.higher_is_better else "worse"


@dataclass(frozen=True)
class Comparison:
    question: Question
    repeats: Sequence[Mapping[str, Run]]
    """Complete ones: runs by arm."""
    figures: Sequence[Mapping[str, Figures]]
    """The same, measured."""
    findings: Sequence[Finding]
    """What to know before looking at the figures."""
    rows: Mapping[str, Sequence[Row]]
    """By arm; the first has none."""
    quality: Mapping[str, Deviation]
    """From the first arm's model, by arm; those that predict the same have none."""

    @property
    def sound(self) -> bool:
        """The arms did the same work."""
        return not any(finding.serious for finding in self.findings)


def compare(
    question: Question, runs: Sequence[Run], judged: Mapping[str, Judgement] = MappingProxyType({})
) -> Comparison:
    """Of runs in any order, incomplete repeats left out. With no complete one there are no figures.

    judged: by arm, what was measured of its answers.
    """
    repeats = _complete(question, runs)
    figures = [
        {name: measure(run.records, question.goodput) for name, run in repeat.items()} for repeat in repeats
    ]
    wanted = metrics(goodput=question.goodput is not None, clients=_several_clients(runs))
    findings = [*check(question.arms, repeats, greedy=question.greedy), *_not_judged(question, judged)]
    quality = {arm: found.deviation for arm, found in judged.items() if isinstance(found, Judged)}
    return Comparison(question, repeats, figures, findings, _rows(question, wanted, figures), quality)


def _not_judged(question: Question, judged: Mapping[str, Judgement]) -> Iterator[Finding]:
    for arm, found in judged.items():
        if isinstance(found, Incomparable):
            text = f"answers of {arm} are not judged by those of {question.arms[0].name}: {found.reason}"
            yield Finding(text, serious=False)


def _complete(question: Question, runs: Sequence[Run]) -> list[dict[str, Run]]:
    repeats: dict[int, dict[str, Run]] = {}
    for run in runs:
        repeats.setdefault(run.repeat, {})[run.arm] = run
    names = [arm.name for arm in question.arms]
    complete = [repeat for _, repeat in sorted(repeats.items()) if len(repeat) == len(names)]
    return [{name: repeat[name] for name in names} for repeat in complete]


def _several_clients(runs: Sequence[Run]) -> bool:
    return len({record.job.client for run in runs for record in run.records}) > 1


def _rows(
    question: Question, wanted: Sequence[Metric], figures: Sequence[Mapping[str, Figures]]
) -> dict[str, list[Row]]:
    base, *others = (arm.name for arm in question.arms)
    # Judged together, over all arms and metrics: whoever looks at more finds more by chance.
    found = differences(
        {
            (arm, metric.name): [(of[base][metric.name], of[arm][metric.name]) for of in figures]
            for arm in others
            for metric in wanted
        }
    )

    def row(arm: str, metric: Metric) -> Row:
        difference = found.get((arm, metric.name))
        return Row(
            metric,
            _mean([of[base][metric.name] for of in figures]),
            _mean([of[arm][metric.name] for of in figures]),
            difference,
            "not measured" if difference is None else verdict(arm, metric, difference, question.see),
        )

    return {arm: [row(arm, metric) for metric in wanted] for arm in others}


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else 0.0
