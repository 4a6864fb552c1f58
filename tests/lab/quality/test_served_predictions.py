"""What an engine predicts is what its model does, but for what its KV memory rounds."""

from __future__ import annotations

import inspect
import json.decoder
from functools import cache

import pytest

from turnout.config import EngineConfig
from turnout.core.registry.registry import Registry
from turnout.lab.quality.models import ModelComparison
from turnout.lab.quality.perplexity import Predict, measure_deviation, measure_quality
from turnout.lab.quality.served import of_engine
from turnout.runner.assembly import AssembledEngine, build_engine
from turnout.text.tokenizer import load_tokenizer

WINDOW = 300
"""Three pieces of logits, the last one not full."""


def engine(**options: object) -> AssembledEngine:
    return build_engine(
        EngineConfig(device="cpu", dtype="float32", max_model_len=512, max_num_seqs=1, **options)
    )


@cache
def reference() -> tuple[Predict, tuple[int, ...]]:
    assembled = engine()
    return of_engine(assembled.engine), tuple(
        load_tokenizer(assembled.folder).encode(inspect.getsource(json.decoder))[:700]
    )


def test_an_engine_predicts_what_eval_says() -> None:
    predict, tokens = reference()
    eval_ = ModelComparison.of(Registry.load(), "turnout-tiny", None, "float32", "cpu")
    assert measure_quality(predict, tokens, window=WINDOW).nats == pytest.approx(
        eval_.base(list(tokens), WINDOW).nats, rel=1e-5
    )


@pytest.mark.parametrize(
    ("kv", "dtype", "least", "most"),
    [
        ("contiguous", "auto", -1e-7, 1e-7),
        ("paged", "int8", 1e-7, 1e-3),
        pytest.param("paged", "auto", -1e-7, 1e-7, marks=pytest.mark.slow),
        pytest.param("contiguous", "int8", 1e-7, 1e-3, marks=pytest.mark.slow),
    ],
)
def test_bits_of_kv_memory_count_and_backends_do_not(kv: str, dtype: str, least: float, most: float) -> None:
    predict, tokens = reference()
    other = of_engine(engine(kv=f"{kv}:dtype={dtype}").engine)
    assert least < measure_deviation(other, predict, tokens, window=WINDOW).divergence < most


def test_memory_is_given_back() -> None:
    assembled = engine()
    kv = assembled.engine.scheduler.kv
    free = kv.free
    for _ in of_engine(assembled.engine)([1, 2, 3] * 60):
        assert kv.free < free
    assert kv.free == free
