"""Measures beam search beside sampling as many choices, and beside transformers' own, in one run.

All keep as many sequences alive, for as many tokens. Beams fork and are dropped at every step. Runs
alternate, since a machine's speed drifts; figures are medians over the repeats.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import click
import msgspec
import torch

from turnout.config import EngineConfig
from turnout.core.engine.engine import Engine
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.models.hub.resolve import resolve_model
from turnout.runner.assembly import build_engine

Prompts = list[list[int]]
Run = Callable[[Prompts], float]
"""Seconds it took to serve the prompts together."""


def served(engine: Engine, params: SamplingParams) -> Run:
    def run(prompts: Prompts) -> float:
        for number, prompt in enumerate(prompts):
            engine.add(RequestSpec(id=str(number), prompt=prompt, params=params, seed=number))
        started = time.perf_counter()
        while engine.busy:
            engine.step()
        return time.perf_counter() - started

    return run


def generated(model: Any, width: int, output: int) -> Run:
    @torch.inference_mode()
    def run(prompts: Prompts) -> float:
        ids, started = torch.tensor(prompts), time.perf_counter()
        length = {"max_new_tokens": output, "min_new_tokens": output, "repetition_penalty": 1.0}
        mask = torch.ones_like(ids)
        model.generate(ids, attention_mask=mask, num_beams=width, do_sample=False, pad_token_id=0, **length)
        return time.perf_counter() - started

    return run


def measure(runs: dict[str, Run], count: int, length: int, repeats: int) -> dict[str, float]:
    """Median seconds of each; one warm-up run is not counted."""
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for repeat in range(repeats + 1):
        for number, (name, run) in enumerate(runs.items()):
            # New prompts each time, for another count too: a prefix cache must have nothing to find.
            generator = torch.Generator().manual_seed(1_000_000 * count + 1000 * repeat + number)
            seconds = run(torch.randint(5, 4000, (count, length), generator=generator).tolist())
            if repeat:
                taken[name].append(seconds)
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


@click.command()
@click.option("--model", default="turnout-tiny", show_default=True)
@click.option("--kv", default="paged", show_default=True)
@click.option("--dtype", default="float32", show_default=True)
@click.option("--width", default=4, show_default=True, help="Beams, and choices to sample.")
@click.option("--concurrency", multiple=True, type=int, default=(1, 8), show_default=True)
@click.option("--prompt", "prompt_length", default=128, show_default=True, help="Tokens.")
@click.option("--output", default=128, show_default=True, help="Tokens.")
@click.option("--repeats", default=3, show_default=True)
@click.option("--peer/--no-peer", default=True, help="Run transformers beside it.")
def main(
    model: str,
    kv: str,
    dtype: str,
    width: int,
    concurrency: tuple[int, ...],
    prompt_length: int,
    output: int,
    repeats: int,
    peer: bool,
) -> None:
    """Time WIDTH beams, and what they are compared with."""
    engine = build_engine(EngineConfig(model=model, kv=kv, dtype=dtype)).engine
    sampling = SamplingParams(n=width, max_tokens=output, ignore_eos=True)
    beams = msgspec.structs.replace(sampling, use_beam_search=True, beam_width=width)
    runs = {f"sampling n={width}": served(engine, sampling), f"beam width={width}": served(engine, beams)}
    if peer:
        from transformers import AutoModelForCausalLM

        model_class: Any = AutoModelForCausalLM
        theirs = model_class.from_pretrained(resolve_model(model), dtype=getattr(torch, dtype)).eval()
        runs[f"transformers num_beams={width}"] = generated(theirs, width, output)
    click.echo(
        f"{model}, {dtype}, {kv}, prompts of {prompt_length}, {output} tokens out, median of {repeats}"
    )
    click.echo(f"{'':<28}{'requests':>10}{'seconds':>10}{'ms/token':>10}{'ratio':>8}")
    for count in concurrency:
        seconds = measure(runs, count, prompt_length, repeats)
        base = next(iter(seconds.values()))
        for name, taken in seconds.items():
            figures = f"{taken:>10.3f}{1e3 * taken / output:>10.2f}{taken / base:>8.2f}"
            click.echo(f"{name:<28}{count:>10}{figures}")


if __name__ == "__main__":
    main()
