"""Speed-up by speculative decoding over plain decoding, on code that the embedded models were not trained on.

Prompts are pieces of the modules held out from the training of turnout-tiny. Every engine serves the same
prompts, one after the other, in alternating order, since a machine's speed drifts: a speed-up is the median
over the rounds of plain seconds / speculative seconds for the same prompts. The prompts' own steps are the
same for all, and nothing that drafts could save: the column "decoding" leaves them out, and counts from when
all requests of a round have had their first token.

On a machine that others use too, run it with --threads 1 --cpu-time: the wall clock measures them, too.

--widen and --deepen make the model more expensive and no different (scripts/widen_model.py), to stand for one
that is large beside its draft.
"""

from __future__ import annotations

import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import torch

from turnout.config import EngineConfig
from turnout.core.clock import Clock
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.lab.results.markdown import markdown_table, write_marked
from turnout.models.hub.resolve import resolve_model
from turnout.models.tiny.corpus import load_corpus
from turnout.runner.assembly import build_engine
from turnout.scripts.widen_model import widen
from turnout.text.tokenizer import load_tokenizer

Prompts = list[list[int]]
Answers = dict[str, list[int]]
"""Tokens by the number of the prompt."""


@dataclass
class DraftArm:
    """An engine, and what it took for each round."""

    name: str
    config: EngineConfig
    clock: Clock
    seconds: list[float] = field(default_factory=list)
    decoding: list[float] = field(default_factory=list)
    """Of these, from when each request of the round had its first token."""
    answers: Answers = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.engine = build_engine(self.config, clock=self.clock).engine

    def run(self, prompts: Prompts, params: SamplingParams) -> tuple[float, float]:
        """Seconds in all, and from when each request had its first token."""
        started, begun = self.clock(), 0.0
        silent = {str(len(self.answers) + number): prompt for number, prompt in enumerate(prompts)}
        for name, prompt in silent.items():
            self.answers[name] = []
            self.engine.add(RequestSpec(id=name, prompt=prompt, params=params, seed=int(name)))
        while self.engine.busy:
            for delta in self.engine.step():
                self.answers[delta.request_id] += delta.tokens
                silent.pop(delta.request_id, None)
            if not silent and not begun:
                begun = self.clock()
        return self.clock() - started, self.clock() - begun

    def counted(self) -> dict[str, float]:
        stats = self.engine.stats()
        return {**stats.counters, "steps": stats.steps, "output": stats.output_tokens}


@dataclass(frozen=True)
class SpeculationResult:
    model: str
    decoding: str
    concurrency: int
    tokens_per_second: float
    speedup: float
    """Median over the rounds; 1 is plain decoding."""
    decoding_speedup: float
    """The same without the prompts' steps."""
    acceptance: float | None
    """Of draft tokens; None: nothing was drafted."""
    tokens_per_step: float
    """And sequence."""
    prompts: int
    same: int
    """Prompts whose answers are those of plain decoding."""

    def cells(self) -> tuple[str, ...]:
        return (
            self.decoding,
            str(self.concurrency),
            f"{self.tokens_per_second:.0f}",
            f"{self.speedup:.2f} ×",
            f"{self.decoding_speedup:.2f} ×",
            "–" if self.acceptance is None else f"{self.acceptance:.0%}",
            f"{self.tokens_per_step:.2f}",
            f"{self.same} of {self.prompts}",
        )


HEADINGS = (
    "strategy",
    "at once",
    "tokens/s",
    "speed-up",
    "decoding",
    "accepted",
    "tokens a step",
    "same answers",
)


@click.command(help=__doc__)
@click.option("--model", default="turnout-tiny", show_default=True)
@click.option("--widen", default=1, show_default=True, help="Times as wide the MLPs of the model.")
@click.option("--deepen", default=1, show_default=True, help="Times as many its layers.")
@click.option(
    "--spec",
    multiple=True,
    default=("draft=turnout-tiny-draft", "ngram=true"),
    show_default=True,
    help="Options of the strategy.",
)
@click.option("--concurrency", multiple=True, type=int, default=(1, 32), show_default=True)
@click.option("--rounds", default=12, show_default=True, help="Of as many prompts as run at once.")
@click.option("--prompt", "prompt_length", default=128, show_default=True, help="Tokens.")
@click.option("--output", default=128, show_default=True, help="Tokens.")
@click.option("--temperature", default=0.0, show_default=True)
@click.option("--dtype", default="float32", show_default=True)
@click.option(
    "--cpu-time", is_flag=True, help="Count this process's time alone; for one thread on a busy machine."
)
@click.option("--threads", type=int, help="Of the computation.  [default: torch's]")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write all figures there.")
@click.option("--write", type=click.Path(path_type=Path, exists=True), help="Put the table into this file.")
@click.option("--mark", default="alone", show_default=True, help="Name of the table's place in it.")
def main(
    model: str,
    widen: int,
    deepen: int,
    spec: tuple[str, ...],
    concurrency: tuple[int, ...],
    rounds: int,
    prompt_length: int,
    output: int,
    temperature: float,
    dtype: str,
    cpu_time: bool,
    threads: int | None,
    json_file: Path | None,
    write: Path | None,
    mark: str,
) -> None:
    if threads is not None:
        torch.set_num_threads(threads)
    clock = time.process_time if cpu_time else time.perf_counter
    params = SamplingParams(temperature=temperature, max_tokens=output, ignore_eos=True)
    results: list[SpeculationResult] = []
    name = model + (f", MLPs × {widen}" if widen > 1 else "") + (f", layers × {deepen}" if deepen > 1 else "")
    with enlarged(model, widen, deepen) as folder:
        make = code_prompts(resolve_model(model), prompt_length)
        for count in concurrency:
            options: dict[str, Any] = {"model": folder, "dtype": dtype, "kv_memory": "512MiB"}
            arms = [DraftArm("plain", EngineConfig(**options), clock)]
            arms += [DraftArm(s, EngineConfig(decoding=f"speculative:{s}", **options), clock) for s in spec]
            measure(arms, lambda: [make() for _ in range(count)], params, rounds)  # noqa: B023
            results += [summed(arm, arms[0], name, count, count * output) for arm in arms]
    head = f"{name}; temperature {temperature:g}, {prompt_length} tokens in, {output} out, {rounds} rounds"
    text = f"{head}:\n\n{markdown_table(HEADINGS, (result.cells() for result in results))}"
    click.echo(text)
    if json_file:
        json_file.write_text(json.dumps([vars(result) for result in results], indent=2) + "\n")
    if write:
        write_marked(write, mark, text)


def measure(arms: list[DraftArm], make: Callable[[], Prompts], params: SamplingParams, rounds: int) -> None:
    """The first two rounds warm up: they count for what is learnt, not for the seconds."""
    for number in range(rounds + 2):
        prompts = make()
        order = arms if number % 2 else arms[::-1]
        for arm in order:
            seconds, decoding = arm.run(prompts, params)
            if number >= 2:
                arm.seconds.append(seconds)
                arm.decoding.append(decoding)


def summed(arm: DraftArm, plain: DraftArm, model: str, count: int, tokens: int) -> SpeculationResult:
    counted = arm.counted()
    drafted = counted.get("spec_decode_num_draft_tokens", 0)
    accepted = counted.get("spec_decode_num_accepted_tokens", 0)
    return SpeculationResult(
        model,
        arm.name,
        count,
        tokens / statistics.median(arm.seconds),
        speedup(plain.seconds, arm.seconds),
        speedup(plain.decoding, arm.decoding),
        accepted / drafted if drafted else None,
        counted["output"] / (counted["output"] - accepted),
        len(plain.answers),
        sum(arm.answers[number] == answer for number, answer in plain.answers.items()),
    )


def speedup(plain: list[float], ours: list[float]) -> float:
    return statistics.median(theirs / mine for theirs, mine in zip(plain, ours, strict=True))


def code_prompts(folder: Path, length: int) -> Callable[[], list[int]]:
    """Makes prompts from held-out code, each another piece."""
    tokenizer, rng = load_tokenizer(folder), random.Random(0)
    texts = [tokenizer.encode(document.text) for document in load_corpus().held_out]
    texts = [text for text in texts if len(text) > 2 * length]

    def make() -> list[int]:
        text = rng.choice(texts)
        start = rng.randrange(len(text) - length)
        return text[start : start + length]

    return make


@contextmanager
def enlarged(model: str, mlp: int, layers: int) -> Iterator[str]:
    if mlp == layers == 1:
        yield model
        return
    with tempfile.TemporaryDirectory() as folder:
        widen(resolve_model(model), Path(folder), mlp=mlp, layers=layers)
        yield folder


if __name__ == "__main__":
    main()
