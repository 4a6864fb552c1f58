"""Whatever the schema: what a model without any sense says under it is JSON, and valid."""

from __future__ import annotations

import json

import pytest
from jsonschema import Draft202012Validator
from random_schemas import random_schema

from turnout import LLM, SamplingParams, StructuredOutputs

BATCH = 100


def asking(seed: int) -> SamplingParams:
    form = StructuredOutputs(json=random_schema(seed))
    temperature = (0.3, 1.0, 2.0)[seed % 3]
    return SamplingParams(temperature=temperature, max_tokens=1000, seed=seed, structured_outputs=form)


def check(llm: LLM, first: int, count: int) -> int:
    """Returns how many were cut by the length."""
    seeds = range(first, first + count)
    outputs = llm.generate([[7, 8, 9]] * count, [asking(seed) for seed in seeds], progress=False)
    cut = 0
    for seed, output in zip(seeds, outputs, strict=True):
        (choice,) = output.outputs
        if choice.finish_reason == "length":
            cut += 1
            continue
        schema = random_schema(seed)
        Draft202012Validator.check_schema(schema)
        Draft202012Validator(schema).validate(json.loads(choice.text))
    return cut


@pytest.mark.parametrize(
    "first",
    [100, *(pytest.param(first, marks=pytest.mark.slow) for first in (0, 200, 300, 400))],
)
def test_every_output_is_valid(llm: LLM, first: int) -> None:
    assert check(llm, first, BATCH) <= BATCH // 20


@pytest.mark.slow
@pytest.mark.parametrize("first", range(500, 4500, 1000))
def test_every_output_is_valid_of_many_more(llm: LLM, first: int) -> None:
    assert check(llm, first, 1000) <= 50
