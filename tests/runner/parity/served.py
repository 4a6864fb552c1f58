"""What the served tokens of a random checkpoint are compared with: transformers' greedy ones, in fp32."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from turnout.config import EngineConfig
from turnout.core.engine.engine import Engine
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.models.checkpoints.checkpoint import read_config
from turnout.runner.assembly import build_engine

TOKENS = 64
LENGTHS = (12, 1, 33, 5, 62, 17, 48, 2, 29, 9, 55, 16, 21, 40, 3, 31)
"""Of 16 prompts; with their outputs most go beyond the 64 positions before rope scaling."""

TIE = 2e-5
"""A lead that rounding in fp32 could turn around."""

Decoded = tuple[list[int], float]
"""transformers' greedy output, and the least lead of a chosen token over the next best."""


class Checkpoint(NamedTuple):
    folder: Path
    prompts: Sequence[list[int]]
    expected: Sequence[list[int]]


def decided(folder: Path, token_by_token: bool) -> Checkpoint:
    """16 prompts for the model in `folder`, and what transformers makes of them.

    token_by_token: transformers generates; otherwise it confirms all that an engine generated in one step.
    """
    model = _load(folder)
    if token_by_token:
        return Checkpoint(folder, *zip(*_decided(partial(_generate, model)), strict=True))
    engine = build(folder, kv_memory="64MiB")
    return Checkpoint(folder, *zip(*_decided(partial(_confirm, model, engine)), strict=True))


def _load(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM, Mxfp4Config

    stored = read_config(folder).get("quantization_config")
    options = {"quantization_config": Mxfp4Config(dequantize=True)} if stored else {}
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **options).eval()


def _decided(decode: Callable[[list[int]], Decoded]) -> Iterator[tuple[list[int], list[int]]]:
    """Prompts and outputs, passing over prompts on whose way two tokens tie but for rounding."""
    generator = torch.Generator().manual_seed(1)
    for length in LENGTHS:
        gap = 0.0
        while gap < TIE:
            prompt = torch.randint(160, (length,), generator=generator).tolist()
            output, gap = decode(prompt)
        yield prompt, output


@torch.inference_mode()
def _confirm(model: Any, engine: Engine, prompt: list[int]) -> Decoded:
    """What the engine makes of it, where transformers finds each token the most likely after those before it.

    Then greedy decoding gives them; and one step of transformers says so of all of them.
    """
    (output,) = serve(engine, [prompt])
    best = model(torch.tensor([prompt + output[:-1]])).logits[0, len(prompt) - 1 :].topk(2)
    gap = float((best.values[:, 0] - best.values[:, 1]).min())
    assert gap < TIE or best.indices[:, 0].tolist() == output
    return output, gap


@torch.inference_mode()
def _generate(model: Any, prompt: list[int]) -> Decoded:
    """A token at a time."""
    ids = torch.tensor([prompt])
    out = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=TOKENS,
        min_new_tokens=TOKENS,
        do_sample=False,
        pad_token_id=0,
        return_dict_in_generate=True,
        output_logits=True,
    )
    best = torch.cat(out.logits).topk(2).values
    return out.sequences[0, len(prompt) :].tolist(), float((best[:, 0] - best[:, 1]).min())


def build(folder: Path, **options: Any) -> Engine:
    options = {"max_model_len": 192, **options}
    config = EngineConfig(model=str(folder), dtype="float32", device="cpu", **options)
    return build_engine(config).engine


def serve(engine: Engine, prompts: Sequence[list[int]]) -> list[list[int]]:
    params = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True)
    for i, prompt in enumerate(prompts):
        engine.add(RequestSpec(id=str(i), prompt=prompt, params=params, seed=i))
    outputs: list[list[int]] = [[] for _ in prompts]
    while engine.busy:
        for delta in engine.step():
            outputs[int(delta.request_id)] += delta.tokens
    assert engine.scheduler.kv.free == engine.scheduler.kv.capacity
    return outputs
