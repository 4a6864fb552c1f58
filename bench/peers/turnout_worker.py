"""Turnout's engine. Arguments: model, dtype, cpu_kernels, quantization, threads."""

from __future__ import annotations

import itertools
import sys

import torch
from worker import Jobs, serve

from turnout.config import EngineConfig
from turnout.core.process import freeze_garbage
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.runner.assembly import build_engine

model, dtype, kernels, quantization, threads = sys.argv[1:]
torch.set_num_threads(int(threads))
engine = build_engine(
    EngineConfig(
        model=model,
        dtype=dtype,
        cpu_kernels=kernels,
        quantization=quantization,
        max_model_len=1024,
        kv_memory="1GiB",
    )
).engine
numbers = itertools.count()


def run(jobs: Jobs) -> int:
    for prompt, output in jobs:
        params = SamplingParams(temperature=0, max_tokens=output, ignore_eos=True)
        engine.add(RequestSpec(id=str(next(numbers)), prompt=prompt, params=params, seed=0))
    tokens = 0
    while engine.busy:
        tokens += sum(len(delta.tokens) for delta in engine.step())
    return tokens


with freeze_garbage():  # as the server has it
    serve(run)
