"""What a step of decoding takes on a CPU where all requests read the same blocks, beside blocks of their own.

The same prompts in both: with prefix caching they share the blocks of what they have in common, without it
each has its own. Rounds take turns; figures are medians over the rounds, of CPU time in one thread.
"""

from __future__ import annotations

import random
import statistics
import time
from pathlib import Path

import click
import torch

from turnout.bench.kv.tensors import VOCABULARY, TimedArm, memory_of
from turnout.core.engine.engine import Engine
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.lab.results.markdown import markdown_table, write_marked

LOADS = ((32, 1024), (16, 1536), (64, 512))
"""Requests, and the tokens that they have in common."""
OWN, STEPS = 16, 24


def step_seconds(engine: Engine, requests: int, common: int, number: int) -> float:
    """Of a step in which every one of `requests` decodes; other prompts in each round."""
    rng = random.Random(f"{requests} {common} {number}")
    prefix = [rng.randrange(5, VOCABULARY) for _ in range(common)]

    def ask(name: str, output: int) -> str:
        params = SamplingParams(temperature=0, max_tokens=output, ignore_eos=True)
        own = [rng.randrange(5, VOCABULARY) for _ in range(OWN)]
        engine.add(RequestSpec(id=name, prompt=prefix + own, params=params, seed=0))
        return name

    ask("first", 1)  # computes what the others find
    while engine.busy:
        engine.step()
    names = [ask(str(index), 2 * requests + STEPS) for index in range(requests)]
    queues = engine.scheduler.queues
    while queues.waiting_count or not all(request.decode_ready for request in queues.running):
        engine.step()
    started = time.process_time()
    for _ in range(STEPS):
        engine.step()
    seconds = time.process_time() - started
    for name in names:
        engine.abort(name)
    return seconds / STEPS


def table(rounds: int) -> str:
    room = max(requests * (common + OWN + 2 * requests + STEPS + 16) for requests, common in LOADS)
    options = {"kv_memory": memory_of(2 * room), "max_num_seqs": 64, "scheduler": "prefill-first"}
    apart = TimedArm("apart", kv="paged:prefix_caching=false", **options).engine
    shared = TimedArm("shared", kv="paged", **options).engine
    rows = []
    for requests, common in LOADS:
        taken: dict[Engine, list[float]] = {apart: [], shared: []}
        for number in range(rounds + 1):
            for engine in random.Random(number).sample(list(taken), 2):
                seconds = step_seconds(engine, requests, common, number)
                if number:  # the first is not counted
                    taken[engine].append(seconds)
        alone, together = (statistics.median(taken[engine]) for engine in (apart, shared))
        rows.append(
            (
                f"{requests} behind {common:,} tokens",
                f"{1e3 * alone:.1f} ms",
                f"{1e3 * together:.1f} ms",
                f"{alone / together:.2f}",
            )
        )
    headings = ("requests", "blocks of their own", "the same blocks", "times as fast")
    return markdown_table(headings, rows, "lrrr")


@click.command(help=__doc__)
@click.option("--rounds", default=7, show_default=True)
@click.option("--write", type=click.Path(path_type=Path, exists=True), help="Put the table into this file.")
def main(rounds: int, write: Path | None) -> None:
    torch.set_num_threads(1)
    text = table(rounds)
    click.echo(text)
    if write is not None:
        write_marked(write, "shared-prefixes", text)


if __name__ == "__main__":
    main()
