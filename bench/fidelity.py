"""Measures how true the simulator is: the engine with its model beside the same engine, simulated.

Both serve the same workload at loads below and above what the machine can do. The real engine runs in this
process, without a server, so that what is compared is the simulator alone: requests are sent when they are
due, and time in which there is nothing to do is skipped. The cost model is measured in turns with the real
run, half a second each, on a second engine with the same weights in memory: machines that others use too are
a third faster in one minute than in the next, and a cost model is of the minutes that it was measured in.
With ``--clock thread`` time is the CPU time of the engine's thread, so that what else the machine does counts
less; set OMP_NUM_THREADS=1 for that.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import click
import msgspec
import torch

from turnout.cli.profile import CLOCKS
from turnout.config import EngineConfig
from turnout.core.clock import Clock
from turnout.core.process import freeze_garbage
from turnout.core.types.messages import Delta
from turnout.lab.jobs.job import Job, Workload
from turnout.lab.results.markdown import markdown_table, write_marked
from turnout.lab.results.record import Record
from turnout.lab.results.summary import Summary, summarize
from turnout.lab.simulation import CostModel, run_simulated
from turnout.lab.simulation.fleet import Mix
from turnout.lab.simulation.profiling.fit import StepSample, fit
from turnout.lab.simulation.profiling.profile import Profiler, profile, touch
from turnout.lab.simulation.profiling.stage import TimedRunner
from turnout.lab.workloads.source import load_workload
from turnout.runner.assembly import build_engine

COMPARED = ("output_throughput", "mean_ttft_ms", "p99_ttft_ms", "mean_tpot_ms", "p99_tpot_ms")
DOC = Path(__file__).parent.parent / "docs" / "explanation" / "simulation.md"
TURN = 0.5
"""Seconds that the real run goes on before the profile has its turn."""
LONGEST = 1024
"""Tokens of a request."""


class Skipping:
    """A clock that jumps over the time in which there is nothing to do, and can be stopped."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._skipped = -clock()

    def __call__(self) -> float:
        return self._clock() + self._skipped

    def skip_to(self, time: float) -> None:
        self._skipped += max(0.0, time - self())

    @contextmanager
    def stopped(self) -> Iterator[None]:
        since = self()
        yield
        self._skipped += since - self()


class RealTurns:
    """Takes a profile in turns with something else: about as many seconds of each."""

    def __init__(self, shares: Iterator[float], clock: Skipping) -> None:
        self._shares, self._clock = shares, clock
        self._due = clock() + TURN
        self._ahead = 0.0
        """Seconds that the profile had more than its turns."""

    def maybe(self) -> None:
        """To be called often."""
        if self._clock() < self._due:
            return
        began, allowed = time.perf_counter(), TURN - self._ahead
        with self._clock.stopped():
            while time.perf_counter() - began < allowed and next(self._shares, None) is not None:
                pass
        self._ahead = max(0.0, time.perf_counter() - began - allowed)
        self._due = self._clock() + TURN

    def rest(self) -> None:
        for _ in self._shares:
            pass


def run_real(
    config: EngineConfig, workload: Workload, clock: Clock, seed: int, profiler: Profiler, seconds: float
) -> tuple[list[Record], list[StepSample]]:
    """An open loop of requests, in turns with `seconds` of profiling; also what each step took."""
    skipping = Skipping(clock)
    assembled = build_engine(config, clock=skipping)
    engine = assembled.engine
    profiler.lend_weights(engine)
    touch(engine)
    engine.runner = timed = TimedRunner(engine.runner, engine, assembled.device, skipping)
    mix = Mix(workload, seed, engine.limits.vocab_size)
    specs = [mix.spec(index) for index in range(len(workload.jobs))]
    records: list[Record] = []
    samples: list[StepSample] = []
    turns = RealTurns(profiler.measure(seconds), skipping)
    with freeze_garbage():
        began = since = skipping()
        while len(records) < len(specs) or engine.busy:
            turns.maybe()
            if not engine.busy:
                skipping.skip_to(began + workload.jobs[len(records)].at)
                since = skipping()
            while len(records) < len(specs) and began + workload.jobs[len(records)].at <= skipping():
                job, spec = workload.jobs[len(records)], specs[len(records)]
                records.append(Record(job, len(records), job.at, job.at, prompt_tokens=job.prompt))
                engine.add(msgspec.structs.replace(spec, arrival=began + job.at))
            deltas, now = engine.step(), skipping()
            # From the end of the step before: taking requests in is the engine's work too.
            samples.append(timed.sample(now - since))
            since = now
            with skipping.stopped():
                note(records, deltas, now - began)
        turns.rest()
    return records, samples


def note(records: list[Record], deltas: list[Delta], now: float) -> None:
    for delta in deltas:
        record = records[int(delta.request_id)]
        record.token_times += [now] * len(delta.tokens)
        if delta.finish_reason:
            record.finished, record.output_tokens = now, len(record.token_times)
            record.error = delta.error


def capacity(config: EngineConfig, cost: CostModel, jobs: list[Job]) -> float:
    """Requests a second that the simulated machine serves when there is always another one."""
    records = run_simulated(config, Workload("all", [replace(job, at=0.0) for job in jobs]), cost, seed=1)
    # The first and last part do not count: not everything is busy.
    ends = sorted(record.finished for record in records)
    low, high = len(ends) // 5, 4 * len(ends) // 5
    return (high - low) / (ends[high] - ends[low])


def figures(records: list[Record]) -> dict[str, float]:
    summary: Summary = summarize(records, max(record.finished for record in records))
    found = summary.as_json()
    return {name: float(found[name] or 0) for name in COMPARED}


@dataclass(frozen=True)
class FidelityRow:
    load: float
    figure: str
    real: float
    simulated: float
    """By the profile that was taken in turns with the run."""
    own: float
    """By coefficients fitted to the real run's own steps: errors are then not the machine's drift."""

    @property
    def off(self) -> float:
        return self.simulated / self.real - 1

    @property
    def own_off(self) -> float:
        return self.own / self.real - 1


def compare(
    config: EngineConfig, jobs: list[Job], loads: tuple[float, ...], clock: Clock, seconds: float, rounds: int
) -> Iterator[list[FidelityRow]]:
    """For each round, rows of each load. `seconds`: of the profile that says what rate a load is."""
    for seed in range(rounds):
        for load in loads:
            rough = profile(config, seconds=seconds, clock=clock)
            rate = load * capacity(config, rough, jobs)
            first = jobs[0].at
            workload = Workload("paced", [replace(job, at=(job.at - first) / rate) for job in jobs])
            expected = max(record.finished for record in run_simulated(config, workload, rough, seed=seed))
            profiler = Profiler(config, clock)
            records, samples = run_real(config, workload, clock, seed, profiler, expected)
            cost = profiler.cost()
            own = msgspec.structs.replace(cost, seconds=fit(samples)[0])
            real = figures(records)
            simulated, owned = (
                figures(run_simulated(config, workload, model, seed=seed)) for model in (cost, own)
            )
            yield [FidelityRow(load, name, real[name], simulated[name], owned[name]) for name in COMPARED]


def table(rows: list[FidelityRow]) -> str:
    """Medians over the rounds."""
    headings = ("load", "figure", "real", "simulated", "off", "by its own steps", "off")
    lines = []
    for load, name in dict.fromkeys((row.load, row.figure) for row in rows):
        mine = [row for row in rows if (row.load, row.figure) == (load, name)]
        real, simulated, off, own, own_off = (
            statistics.median(getattr(row, part) for row in mine)
            for part in ("real", "simulated", "off", "own", "own_off")
        )
        cells = (f"{real:,.1f}", f"{simulated:,.1f}", f"{off:+.1%}", f"{own:,.1f}", f"{own_off:+.1%}")
        lines.append((f"{load:.0%}", f"`{name}`", *cells))
    return markdown_table(headings, lines, "llrrrrr")


@click.command()
@click.option("--model", default="turnout-tiny", show_default=True)
@click.option("--dtype", default="float32", show_default=True)
@click.option("--scheduler", default="fcfs", show_default=True)
@click.option("--load", "loads", multiple=True, type=float, default=(0.7, 1.3), show_default=True)
@click.option("--requests", default=150, show_default=True)
@click.option("--prompt", default="lognormal:100", show_default=True, help="Tokens.")
@click.option("--output", default="lognormal:60", show_default=True, help="Tokens.")
@click.option("--rounds", default=3, show_default=True, help="Each with a fit and a run of its own.")
@click.option("--seconds", default=25.0, show_default=True, help="To find the rate by, each time.")
@click.option("--clock", type=click.Choice(tuple(CLOCKS)), default="wall", show_default=True)
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write all figures there.")
@click.option(
    "--write", "mark", metavar="MARK", help="Write the table there in docs/explanation/simulation.md."
)
def main(
    model: str,
    dtype: str,
    scheduler: str,
    loads: tuple[float, ...],
    requests: int,
    prompt: str,
    output: str,
    rounds: int,
    seconds: float,
    clock: str,
    json_file: Path | None,
    mark: str | None,
) -> None:
    """Compare what is measured with what is simulated."""
    if clock == "thread":
        torch.set_num_threads(1)
    # The profile is to go over lengths that come up, and no others.
    config = EngineConfig(model=model, dtype=dtype, scheduler=scheduler, max_model_len=LONGEST)
    spec = f"poisson:rate=1,requests={requests},prompt={prompt},output={output},longest={LONGEST}"
    workload = load_workload(spec, seed=0)
    rows: list[FidelityRow] = []
    for found in compare(config, list(workload.jobs), loads, CLOCKS[clock], seconds, rounds):
        rows += found
        for row in found:
            profiled = f"{row.simulated:10.1f} {row.off:+7.1%}"
            owned = f"{row.own:10.1f} {row.own_off:+7.1%}"
            click.echo(f"{row.load:6.0%} {row.figure:>20} {row.real:10.1f} {profiled} {owned}")
    click.echo(table(rows))
    if json_file:
        json_file.write_text(json.dumps([vars(row) for row in rows], indent=2) + "\n")
    if mark:
        write_marked(DOC, mark, table(rows))


if __name__ == "__main__":
    main()
