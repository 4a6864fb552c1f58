"""Turnout's engine. Arguments: model, dtype, cpu_kernels, quantization, threads, model_impl, kv."""

from __future__ import annotations

import itertools
import sys
from unittest.mock import patch

import torch
from worker import Jobs, serve

from turnout.config import EngineConfig
from turnout.core.process import freeze_garbage
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.models.transformers_adapter import family
from turnout.runner.assembly import build_engine

model, dtype, kernels, quantization, threads, implementation, kv = sys.argv[1:]
torch.set_num_threads(int(threads))
patch.object(family, "recall", lambda config: None).start()  # the adapter's start is a model's first one
engine = build_engine(
    EngineConfig(
        model=model,
        dtype=dtype,
        cpu_kernels=kernels,
        quantization=quantization,
        model_impl=implementation,
        kv=kv,
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
