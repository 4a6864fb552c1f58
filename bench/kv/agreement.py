"""How far storing KV in fewer bytes changes greedy outputs, on Python source of the standard library.

Two figures for each dtype. Teacher-forced: both models are given the same tokens, those that the reference
produced, and are asked for the most likely next token at each. Free-running: each goes on with its own.
"""

from __future__ import annotations

import inspect
import json.decoder
import statistics
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

import click
import torch
from torch import Tensor

from turnout.config import EngineConfig
from turnout.core.engine.engine import Engine
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.lab.quality.served import of_engine
from turnout.runner.assembly import AssembledEngine, build_engine
from turnout.text.tokenizer import load_tokenizer

MODULES = (json.decoder, inspect, statistics, textwrap)


@dataclass(frozen=True)
class Agreement:
    """With the reference, in shares of all tokens."""

    forced: float
    """Positions whose most likely token is the same."""
    free: float
    """Tokens before the first that differs."""
    whole: float
    """Outputs that are the same from beginning to end."""
    nats: float
    """What a token costs more, by the log-probability of the reference's tokens."""


def prompts(assembled: AssembledEngine, count: int, length: int) -> list[list[int]]:
    tokenizer = load_tokenizer(assembled.folder)
    texts = [inspect.getsource(module) for module in MODULES]
    tokens = [token for text in texts for token in tokenizer.encode(text)]
    stride = (len(tokens) - length) // count
    return [tokens[i * stride : i * stride + length] for i in range(count)]


def generate(engine: Engine, prompts: Sequence[list[int]], output: int) -> list[list[int]]:
    params = SamplingParams(temperature=0, max_tokens=output, ignore_eos=True)
    for i, prompt in enumerate(prompts):
        engine.add(RequestSpec(id=str(i), prompt=prompt, params=params, seed=0))
    outputs: list[list[int]] = [[] for _ in prompts]
    while engine.busy:
        for delta in engine.step():
            outputs[int(delta.request_id)] += delta.tokens
    return outputs


def score(engine: Engine, prompt: list[int], output: list[int]) -> Tensor:
    """Log-probabilities at each position of `output`, all of it given: [tokens, vocab_size]."""
    logits = torch.cat(list(of_engine(engine)([*prompt, *output])))
    return logits[len(prompt) - 1 : -1].float().log_softmax(-1)


def compare(reference: Engine, other: Engine, prompts: Sequence[list[int]], output: int) -> Agreement:
    expected, given = (generate(engine, prompts, output) for engine in (reference, other))
    forced, nats = [], []
    for prompt, tokens in zip(prompts, expected, strict=True):
        ours, theirs = (score(engine, prompt, tokens) for engine in (reference, other))
        forced.append((ours.argmax(-1) == theirs.argmax(-1)).float().mean().item())
        chosen = torch.tensor(tokens)[:, None]
        nats.append((ours - theirs).gather(1, chosen).mean().item())
    same = [common(a, b) for a, b in zip(expected, given, strict=True)]
    return Agreement(
        statistics.mean(forced),
        sum(same) / (output * len(prompts)),
        sum(count == output for count in same) / len(prompts),
        statistics.mean(nats),
    )


def common(a: list[int], b: list[int]) -> int:
    """Length of what two lists start with alike."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), len(a))


@click.command()
@click.option("--model", default="turnout-tiny", show_default=True)
@click.option("--kv", default="paged", show_default=True)
@click.option("--dtype", default="float32", show_default=True, help="What to compute in, and the reference.")
@click.option("--stored", multiple=True, default=("bfloat16", "int8", "fp8"), show_default=True)
@click.option("--prompts", "count", default=64, show_default=True)
@click.option("--prompt", "length", default=192, show_default=True, help="Tokens.")
@click.option("--output", default=64, show_default=True, help="Tokens.")
def main(
    model: str, kv: str, dtype: str, stored: tuple[str, ...], count: int, length: int, output: int
) -> None:
    """Compare KV memory as computed with the dtypes of --stored."""
    reference = build_engine(EngineConfig(model=model, kv=kv, dtype=dtype))
    texts = prompts(reference, count, length)
    click.echo(f"{model}, {dtype}, {count} prompts of {length}, {output} tokens out")
    click.echo(f"{'stored as':<12}{'forced':>10}{'free':>10}{'whole':>10}{'nats':>12}")
    for name in stored:
        other = build_engine(EngineConfig(model=model, kv=f"{kv}:dtype={name}", dtype=dtype))
        result = compare(reference.engine, other.engine, texts, output)
        shares = "".join(f"{share:>10.2%}" for share in (result.forced, result.free, result.whole))
        click.echo(f"{name:<12}{shares}{result.nats:>12.5f}")


if __name__ == "__main__":
    main()
