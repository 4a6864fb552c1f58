"""Speed-up by speculative decoding over plain decoding, on code that the embedded models were not trained on.

Prompts are pieces of the modules held out from the training of turnout-tiny. Every engine serves the same
prompts, one after the other, in alternating order, since a machine's speed drifts: a speed-up is the median
over the rounds of plain seconds / speculative seconds for the same prompts.

--widen N makes the model N times as expensive and no different (scripts/widen_model.py), to stand for what a
model is that is large beside its draft.
"""

from __future__ import annotations

import importlib.util
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

from turnout.core.clock import Clock
from turnout.core.config import EngineConfig
from turnout.core.request import RequestSpec, SamplingParams
from turnout.models.resolve import resolve_model
from turnout.models.tiny.corpus import load_corpus
from turnout.runner.assembly import build_engine
from turnout.text.tokenizer import load_tokenizer

Prompts = list[list[int]]


@dataclass
class Arm:
    """An engine, and what it took for each round."""

    name: str
    config: EngineConfig
    clock: Clock
    seconds: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.engine = build_engine(self.config, clock=self.clock).engine
        self.served = 0

    def run(self, prompts: Prompts, params: SamplingParams) -> float:
        started = self.clock()
        for prompt in prompts:
            self.served += 1
            self.engine.add(RequestSpec(id=str(self.served), prompt=prompt, params=params, seed=self.served))
        while self.engine.busy:
            self.engine.step()
        return self.clock() - started

    def counted(self) -> dict[str, float]:
        stats = self.engine.stats()
        return {**stats.counters, "steps": stats.steps, "output": stats.output_tokens}


@dataclass(frozen=True)
class Result:
    model: str
    decoding: str
    concurrency: int
    tokens_per_second: float
    speedup: float
    """Median over the rounds; 1 is plain decoding."""
    acceptance: float | None
    """Of guesses; None: nothing was guessed."""
    tokens_per_step: float
    """And sequence."""


@click.command(help=__doc__)
@click.option("--model", default="turnout-tiny", show_default=True)
@click.option("--widen", default=1, show_default=True, help="Times as wide the MLPs of the model.")
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
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write all figures there.")
def main(
    model: str,
    widen: int,
    spec: tuple[str, ...],
    concurrency: tuple[int, ...],
    rounds: int,
    prompt_length: int,
    output: int,
    temperature: float,
    dtype: str,
    cpu_time: bool,
    json_file: Path | None,
) -> None:
    clock = time.process_time if cpu_time else time.perf_counter
    params = SamplingParams(temperature=temperature, max_tokens=output, ignore_eos=True)
    results: list[Result] = []
    with widened(model, widen) as folder:
        make = code_prompts(resolve_model(model), prompt_length)
        click.echo(f"{model} x {widen}, temperature {temperature}, {prompt_length} tokens in, {output} out")
        click.echo(
            f"{'decoding':<44}{'at once':>8}{'tokens/s':>10}{'speed-up':>10}{'accepted':>10}{'a step':>8}"
        )
        for count in concurrency:
            options: dict[str, Any] = {"model": folder, "dtype": dtype, "kv_memory": "512MiB"}
            arms = [Arm("plain", EngineConfig(**options), clock)]
            arms += [Arm(s, EngineConfig(decoding=f"speculative:{s}", **options), clock) for s in spec]
            measure(arms, lambda: [make() for _ in range(count)], params, rounds)  # noqa: B023
            for arm in arms:
                results.append(summed(arm, arms[0], f"{model} x {widen}", count, count * output))
                click.echo(line(results[-1]))
    if json_file:
        json_file.write_text(json.dumps([vars(result) for result in results], indent=2) + "\n")


def measure(arms: list[Arm], make: Callable[[], Prompts], params: SamplingParams, rounds: int) -> None:
    """The first two rounds warm up: they count for what is learnt, not for the seconds."""
    for number in range(rounds + 2):
        prompts = make()
        order = arms if number % 2 else arms[::-1]
        for arm in order:
            seconds = arm.run(prompts, params)
            if number >= 2:
                arm.seconds.append(seconds)


def summed(arm: Arm, plain: Arm, model: str, count: int, tokens: int) -> Result:
    counted = arm.counted()
    guessed = counted.get("spec_decode_num_draft_tokens", 0)
    accepted = counted.get("spec_decode_num_accepted_tokens", 0)
    ratios = [ours / theirs for ours, theirs in zip(plain.seconds, arm.seconds, strict=True)]
    return Result(
        model,
        arm.name,
        count,
        tokens / statistics.median(arm.seconds),
        statistics.median(ratios),
        accepted / guessed if guessed else None,
        counted["output"] / (counted["output"] - accepted),
    )


def line(result: Result) -> str:
    accepted = "-" if result.acceptance is None else f"{result.acceptance:.0%}"
    return (
        f"{result.decoding:<44}{result.concurrency:>8}{result.tokens_per_second:>10.1f}"
        f"{result.speedup:>10.2f}{accepted:>10}{result.tokens_per_step:>8.2f}"
    )


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
def widened(model: str, times: int) -> Iterator[str]:
    if times == 1:
        yield model
        return
    script = Path(__file__).parent.parent / "scripts" / "widen_model.py"
    spec = importlib.util.spec_from_file_location("widen_model", script)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with tempfile.TemporaryDirectory() as folder:
        module.widen(resolve_model(model), Path(folder), mlp=times)
        yield folder


if __name__ == "__main__":
    main()
