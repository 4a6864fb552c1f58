"""Engines over ranks of one thread each, beside what has as many threads without them.

\b
pipeline   stages, beside as many engines of one thread, each with an equal part of the requests
tensor     ranks that divide each layer, beside one engine of as many threads

W2, as in `cpu_peers`: 32 requests of 128 tokens in and 64 out at once, greedily. Turns alternate; figures are
medians of tokens a second, and the ratio is that of neighbouring turns. Nothing else should be computing.

\b
    python bench/ranks/engines.py pipeline --model FOLDER --write docs/explanation/performance-cpu.md
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click

from turnout import LLM, SamplingParams
from turnout.lab.results.markdown import markdown_table, write_marked

PROMPT, OUTPUT = 128, 64


class Engine:
    """A process with an engine, each rank of which has so many threads."""

    def __init__(self, options: dict[str, Any], threads: int = 1) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--engine", json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": str(threads)},
        )

    def begin(self, prompts: list[list[int]], output: int) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([prompts, output]).encode() + b"\n")
        self._process.stdin.flush()

    def end_turn(self) -> None:
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise click.ClickException("an engine failed; its message is above")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def serve(options: dict[str, Any]) -> None:
    """Serves what standard input asks for, a line of JSON each."""
    llm = LLM(**options)
    for line in sys.stdin:
        prompts, output = json.loads(line)
        llm.generate(prompts, SamplingParams(temperature=0, max_tokens=output, ignore_eos=True))
        print(output, flush=True)


def rate(engines: list[Engine], requests: int, output: int, turn: int) -> float:
    """Tokens a second of all engines together."""
    rng = random.Random(turn)
    prompts = [[rng.randrange(10, 150) for _ in range(PROMPT)] for _ in range(requests)]
    part = -(-requests // len(engines))
    began = time.perf_counter()
    for number, engine in enumerate(engines):
        engine.begin(prompts[number * part : (number + 1) * part], output)
    for engine in engines:
        engine.end_turn()
    return requests * output / (time.perf_counter() - began)


def beside(kind: str, ranks: int, options: dict[str, Any], layers: str | None) -> dict[str, list[Engine]]:
    """What is compared, by its name; the first is what the other is measured by."""
    if kind == "tensor":
        return {
            f"one process, {ranks} threads": [Engine(options, ranks)],
            f"{ranks} ranks, one thread each": [Engine({**options, "tensor_parallel_size": ranks})],
        }
    divided = {"pipeline_parallel_size": ranks, **({"pipeline_layers": layers} if layers else {})}
    return {
        f"{ranks} engines, one thread each": [Engine(options) for _ in range(ranks)],
        f"a pipeline of {ranks} stages, one thread each": [Engine({**options, **divided})],
    }


@click.command(help=__doc__)
@click.argument("kind", type=click.Choice(["pipeline", "tensor"]), default="pipeline")
@click.option("--model", default="turnout-tiny", show_default=True)
@click.option("--dtype", default="bfloat16", show_default=True)
@click.option("--ranks", default=2, show_default=True, type=click.IntRange(2))
@click.option("--layers", help="Of each stage, as --pipeline-layers has them.")
@click.option("--quantization", default="none", show_default=True)
@click.option("--requests", default=32, show_default=True, type=click.IntRange(2))
@click.option("--turns", default=3, show_default=True, type=click.IntRange(1))
@click.option("--write", type=click.Path(exists=True, path_type=Path), help="A page to write the table into.")
@click.option("--engine", hidden=True)
def main(
    kind: str,
    model: str,
    dtype: str,
    ranks: int,
    layers: str | None,
    quantization: str,
    requests: int,
    turns: int,
    write: Path | None,
    engine: str | None,
) -> None:
    if engine is not None:
        serve(json.loads(engine))
        return
    shared = {"model": model, "dtype": dtype, "kv_memory": "1GiB", "max_model_len": 512}
    kinds = beside(kind, ranks, {**shared, "quantization": quantization}, layers)
    for engines in kinds.values():
        rate(engines, requests, 4, 0)
    rates: dict[str, list[float]] = {name: [] for name in kinds}
    for turn in range(1, turns + 1):
        for name, engines in kinds.items():
            rates[name].append(rate(engines, requests, OUTPUT, turn))
    for engines in kinds.values():
        for each in engines:
            each.close()
    first = next(iter(rates.values()))
    rows = [
        (
            name,
            f"{statistics.median(each):,.1f}",
            f"{statistics.median(a / b for a, b in zip(each, first, strict=True)):.2f}",
        )
        for name, each in rates.items()
    ]
    table = markdown_table((f"{requests} requests", "tokens/s", "ratio"), rows)
    click.echo(table)
    if write:
        write_marked(write, "stages" if kind == "pipeline" else "rank-engines", table)


if __name__ == "__main__":
    main()
