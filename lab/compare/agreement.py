"""Checks, before any figure, that the arms did the same work and gave the same answers.

A scheduler, a KV backend or a batch's size must not change the output. Where outputs differ that must be
equal, or one arm served fewer requests, the arms' figures do not compare, however narrow the intervals.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from turnout.config import EngineConfig
from turnout.lab.arms import Arm
from turnout.lab.compare.runs.predictions import different_predictions
from turnout.lab.compare.runs.run import Run
from turnout.lab.results.failures import tell_failures, tell_policy_faults
from turnout.lab.results.record import Record

__all__ = ["Finding", "check"]

SPECULATING = ("spec_draft", "spec_ngram", "spec_tokens")
"""Options that change sampled tokens and not greedy ones: drafts may be accepted by rejection sampling."""

Repeat = Mapping[str, Run]
"""By arm."""


class Finding(NamedTuple):
    text: str
    """A sentence."""
    serious: bool
    """The figures of the comparison do not hold."""


def check(arms: Sequence[Arm], repeats: Sequence[Repeat], *, greedy: bool) -> list[Finding]:
    """What a reader must know before the figures, the worst first."""
    found = [
        *_totals(arms, repeats),
        *_policy_faults(arms, repeats),
        *_lengths(arms, repeats),
        *_outputs(arms, repeats, greedy=greedy),
        *_same_jobs(arms, repeats),
    ]
    return sorted(found, key=lambda finding: not finding.serious)


# ------------------------------------------------------------------ how many


def _totals(arms: Sequence[Arm], repeats: Sequence[Repeat]) -> Iterator[Finding]:
    for arm in arms:
        records = _records(arm, repeats)
        failed = [record for record in records if record.error]
        if failed:
            yield Finding(tell_failures(arm.name, len(failed), len(records), failed[0]), serious=True)
    for name, title in (("prompt_tokens", "prompt tokens"), ("output_tokens", "output tokens")):
        totals = {arm.name: sum(getattr(r, name) for r in _records(arm, repeats)) for arm in arms}
        if len(set(totals.values())) > 1:
            counted = ", ".join(f"{arm} {total:,}" for arm, total in totals.items())
            yield Finding(f"the arms served different numbers of {title}: {counted}", serious=True)


def _policy_faults(arms: Sequence[Arm], repeats: Sequence[Repeat]) -> Iterator[Finding]:
    """An arm that was served in arrival order says nothing of its policy."""
    for arm in arms:
        if faults := sum(repeat[arm.name].policy_faults for repeat in repeats):
            yield Finding(tell_policy_faults(arm.name, faults), serious=True)


def _lengths(arms: Sequence[Arm], repeats: Sequence[Repeat]) -> Iterator[Finding]:
    for arm in arms:
        odd = [r for r in _records(arm, repeats) if not r.error and r.output_tokens != r.job.output]
        if odd:
            yield Finding(
                f"{arm.name}: {len(odd)} answers are not as long as was asked, the first of them "
                f"(job {odd[0].index}) {odd[0].output_tokens} tokens instead of {odd[0].job.output}",
                serious=True,
            )


def _records(arm: Arm, repeats: Sequence[Repeat]) -> list[Record]:
    return [record for repeat in repeats for record in repeat[arm.name].records]


def _same_jobs(arms: Sequence[Arm], repeats: Sequence[Repeat]) -> Iterator[Finding]:
    jobs = [[record.job for record in repeat[arms[0].name].records] for repeat in repeats]
    if len(jobs) > 1 and all(each == jobs[0] for each in jobs):
        yield Finding(
            "every repeat served the same jobs: intervals speak of this workload alone", serious=False
        )


# ------------------------------------------------------------------ what was said


def _outputs(arms: Sequence[Arm], repeats: Sequence[Repeat], *, greedy: bool) -> Iterator[Finding]:
    for one, other in combinations(arms, 2):
        differing = _may_differ(one.config, other.config, greedy=greedy)
        if differing:
            text = f"outputs of {one.name} and {other.name} are not compared: they differ in {differing}"
            yield Finding(text, serious=False)
            continue
        pairs = [
            (repeat, a.index)
            for repeat, runs in enumerate(repeats)
            for a, b in zip(runs[one.name].records, runs[other.name].records, strict=True)
            if a.digest and b.digest and a.digest != b.digest and not (a.error or b.error)
        ]
        if pairs:
            total, (repeat, job) = sum(len(runs[one.name].records) for runs in repeats), pairs[0]
            yield Finding(
                f"{one.name} and {other.name} must say the same, and differ in {len(pairs)} of {total} "
                f"answers, the first in repeat {repeat + 1}, job {job}. One or two may be rounding, where "
                "two tokens were almost equally likely; more is a fault",
                serious=True,
            )


def _may_differ(one: EngineConfig, other: EngineConfig, *, greedy: bool) -> str:
    """The fields in which they differ and that decide over tokens; "" where outputs must be equal."""
    fields = ("decoding",) if greedy else ("decoding", *SPECULATING)
    differing = [field for field in fields if getattr(one, field) != getattr(other, field)]
    return ", ".join([*different_predictions(one, other), *differing])
