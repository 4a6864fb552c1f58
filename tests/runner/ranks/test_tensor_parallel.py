"""Engines of several processes give the tokens of one: with real followers, through `LLM`."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from family_checkpoints import write_checkpoint
from ranked_engines import KV_BYTES, answers, children, engine, kill_the_follower, prompts

from turnout import LLM, SamplingParams
from turnout.config import EngineConfig
from turnout.core.errors import ConfigError, RankLost
from turnout.core.types.structured_outputs import StructuredOutputs
from turnout.models.families import Llama
from turnout.models.random.shapes import Shape, config_of
from turnout.runner.ranks import rank_zero
from turnout.runner.ranks.processes import Ranks
from turnout.runner.ranks.rank_zero import check_ranks


def test_two_processes_give_the_tokens_of_one(model):
    """Sampling, choices, log-probabilities and beams, preempted for lack of memory, with prefix hits."""
    alone, together = engine(model, 1), engine(model, 2)
    expected = answers(alone)
    assert answers(together) == expected
    assert together.engine.stats().preemptions > 0, "the pool is too small for all of them"
    assert "tensor parallel: 2 ranks" in "\n".join(together.ready.summary)
    assert together.ready.facts.weight_bytes == pytest.approx(alone.ready.facts.weight_bytes, rel=0.1)
    assert answers(together) == expected, "and again, from cached prefixes"
    assert together.engine.scheduler.kv.snapshot().hits > 0
    kill_the_follower(together)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"swap_memory": 900 * KV_BYTES, "preemption": "swap"},
        {"preemption": "auto", "swap_memory": 900 * KV_BYTES},
        {"spec_ngram": True},
        {"kv": "contiguous"},
        {"scheduler": "srpt"},
        {"cpu_kernels": "torch"},
        {"max_num_batched_tokens": 16},
        {"draft": True},
    ],
    ids=lambda options: next(iter(options)),
)
def test_whatever_else_is_on_tokens_stay(options, model):
    if options.get("draft"):
        # Room to draft, always as many tokens: a draft model as large as its target would not pay.
        options = {"decoding": f"speculative:draft={model},k=3,adaptive=false", "tokens": 4000}
    expected = answers(engine(model, 1))
    together = engine(model, 2, **options)
    assert answers(together) == expected
    if options.get("preemption") == "swap":
        assert together.engine.stats().swap_outs > 0
    if "spec_ngram" in options or "decoding" in options:
        assert sum(n for name, n in together.engine.stats().counters.items() if "draft" in name) > 0


@pytest.mark.slow
def test_four_ranks_with_two_kv_heads(model):
    assert answers(engine(model, 4, 1400)) == answers(engine(model, 1))


@pytest.mark.slow
@pytest.mark.parametrize("quantization", ["none", "int8"])
@pytest.mark.parametrize("divided", [{"ranks": 2}, {"pipeline_parallel_size": 2}], ids=str)
def test_transformers_modules(divided, quantization, model, tmp_path):
    for file in model.iterdir():
        if "token" in file.name:
            (tmp_path / file.name).write_bytes(file.read_bytes())
    write_checkpoint("gemma2", tmp_path)
    alike = {"tokens": 6000, "model_impl": "transformers", "quantization": quantization}
    assert answers(engine(tmp_path, **divided, **alike)) == answers(engine(tmp_path, **alike))


@pytest.mark.slow
def test_a_decoder_that_embeds(model):
    vectors = [np.array(engine(model, ranks, 4000).embed(prompts(5))) for ranks in (1, 2)]
    np.testing.assert_allclose(vectors[1], vectors[0], atol=1e-5)


def test_encoders_are_refused_by_name():
    config = EngineConfig(model="x", tensor_parallel_size=2)
    encoder = replace(Llama().spec(config_of(Shape(64, 2, 4, 2, 96, 160), "llama")), encoder=True)
    with pytest.raises(
        ConfigError, match="tensor_parallel_size=2 cannot divide LlamaForCausalLM, an encoder"
    ):
        check_ranks(config, encoder, torch.device("cpu"))


@pytest.mark.slow
def test_structured_output():
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    params = SamplingParams(
        temperature=0.8, seed=1, max_tokens=40, structured_outputs=StructuredOutputs(json=schema)
    )
    texts = []
    for ranks in (1, 2):
        llm = LLM(tensor_parallel_size=ranks, kv_memory="64MiB")
        texts.append(llm.generate("Give me a number:", params)[0].outputs[0].text)
    assert texts[0] == texts[1]


@pytest.mark.slow
@pytest.mark.parametrize("quantization", ["int8", "int8wo"])
def test_quantized_tokens_are_those_of_one_device_and_of_any_batch(quantization, model):
    together, alone = (engine(model, ranks, quantization=quantization) for ranks in (2, 1))
    params = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
    joint = [each.outputs[0].token_ids for each in together.generate(prompts(), params)]
    assert joint == [each.outputs[0].token_ids for each in alone.generate(prompts(), params)]
    assert joint == [together.generate([each], params)[0].outputs[0].token_ids for each in prompts()]


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "stages"), [(2, 1), (4, 1), (2, 2)])
def test_tokens_do_not_depend_on_the_batch(ranks, stages, model):
    together = engine(model, ranks, 4000, dtype="bfloat16", pipeline_parallel_size=stages)
    params = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
    joint = [each.outputs[0].token_ids for each in together.generate(prompts(), params)]
    assert joint == [together.generate([each], params)[0].outputs[0].token_ids for each in prompts()]


@pytest.mark.slow
def test_followers_end_with_their_engine(model):
    before = set(children(os.getpid()))
    together = engine(model, 2)
    (follower,) = set(children(os.getpid())) - before
    del together
    deadline = time.monotonic() + 20
    while follower in children(os.getpid()):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pipeline_parallel_size": 3}, "it has 2 layers, and each stage needs one"),
        ({"pipeline_parallel_size": 2, "pipeline_layers": "1,1,1"}, "is for 3 stages; .* is 2"),
        ({"enable_expert_parallel": True}, "enable_expert_parallel: .* is no family of Turnout's that has"),
        ({"tensor_parallel_size": 3}, r"attention heads are 4, which 3 does not divide; take 1 or 2 or 4"),
        ({"tensor_parallel_size": 2, "async_scheduling": True}, "does not go with async_scheduling"),
    ],
)
def test_what_ranks_cannot_do_is_refused_by_name(options, message, model):
    before = children(os.getpid())
    with pytest.raises(ConfigError, match=message):
        LLM(model=str(model), **options)
    assert children(os.getpid()) == before, "no process was started"


DIES_LOADING = """
import os, signal
from turnout.runner.follower import main as follower
follower.load_weights = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
follower.main()
"""
"""A follower that the system ends while it loads its weights: it has met the others by then."""


class DyingLoading(Ranks):
    @classmethod
    def start(cls, *given: Any, **named: Any) -> DyingLoading:
        return super().start(*given, **{**named, "module": "dies_loading"})


@pytest.mark.parametrize("quantization", ["none", pytest.param("int8", marks=pytest.mark.slow)])
def test_a_rank_that_is_lost_while_weights_are_loaded_is_named(quantization, model, monkeypatch, tmp_path):
    """Where ranks exchange the largest numbers of a layer, it was said that "another rank" is gone."""
    (tmp_path / "dies_loading.py").write_text(DIES_LOADING)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setattr(rank_zero, "Ranks", DyingLoading)
    with pytest.raises(RankLost, match="rank 1 of the engine was ended by SIGKILL"):
        engine(model, 2, quantization=quantization)
