"""Speculation is asked for by flags or as a strategy; what cannot work is refused with the reason."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from random_drafts import SHAPE, VOCABULARY, write_draft, write_tokenizer
from speculating import drain, speculative

from turnout.config import EngineConfig
from turnout.core.errors import ConfigError, ModelError, UnknownPlugin
from turnout.core.registry.registry import Registry
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.models.random.random_weights import write_random_checkpoint
from turnout.models.random.shapes import config_of
from turnout.plugins.proposers.draft_model import DraftModel
from turnout.plugins.proposers.ngram import NGram
from turnout.runner.assembly import AssembledEngine
from turnout.runner.policies import build_policies
from turnout.text.vocabulary import vocabulary_difference

Assemble = Callable[..., AssembledEngine]


def strategies(**fields: Any) -> list[str]:
    policies = build_policies(Registry.load(), EngineConfig(**fields))
    return [type(decoding).__name__ for decoding in policies.decodings]


# ------------------------------------------------------------------ how it is asked for


def test_without_being_asked_for_it_is_not_on_offer() -> None:
    assert "Speculative" not in strategies()


@pytest.mark.parametrize(
    "fields",
    [
        {"spec_ngram": True},
        {"spec_draft": "turnout-tiny-draft", "spec_tokens": 3},
        {"decoding": "speculative"},
        {"decoding": "speculative:draft=turnout-tiny-draft", "spec_tokens": 3},
        {"decoding": "greedy", "spec_ngram": True},
    ],
    ids=str,
)
def test_it_is_asked_first_who_serves_a_request(fields: dict[str, Any]) -> None:
    assert strategies(**fields)[0] == "Speculative"


def test_the_flags_leave_the_default_decoding_its_say() -> None:
    config = EngineConfig(decoding="sampling:temperature=0.3", spec_ngram=True)
    assert build_policies(Registry.load(), config).defaults == {"temperature": 0.3}
    config = EngineConfig(decoding="greedy", spec_ngram=True)
    assert build_policies(Registry.load(), config).defaults == {"temperature": 0.0}


@pytest.mark.parametrize(
    ("spec", "proposer"),
    [
        ("speculative", NGram),
        ("speculative:ngram=true", NGram),
        ("speculative:draft=turnout-tiny-draft", DraftModel),
        ("speculative:proposer=ngram", NGram),
        ("speculative:proposer='ngram:longest=6,shortest=3',k=8,verify=exact", NGram),
        ("speculative:proposer=draft-model:model=turnout-tiny-draft", DraftModel),
    ],
)
def test_a_proposer_is_named_as_any_plugin_is(spec: str, proposer: type) -> None:
    strategy: Any = Registry.load().create("decoding", spec)
    assert type(strategy._proposer) is proposer


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"spec_tokens": 3}, ConfigError, "spec_tokens=3 .*nothing drafts; give spec_draft or spec_ngram"),
        ({"spec_draft": "x", "spec_ngram": True}, ConfigError, "draft and ngram are given.*choose one"),
        ({"spec_draft": ""}, ConfigError, "spec_draft: String should have at least 1 character"),
        ({"decoding": "speculative:k=3", "spec_tokens": 4}, ConfigError, "k given twice"),
        ({"spec_tokens": 33, "spec_ngram": True}, ConfigError, "spec_tokens: .*less than or equal to 32"),
        ({"decoding": "speculative:verify=maybe"}, ConfigError, "verify: Input should be 'auto', 'exact'"),
        ({"decoding": "speculative:proposer=ngrm"}, UnknownPlugin, "no proposer is called 'ngrm'.*'ngram'"),
        ({"decoding": "speculative:proposer='ngram:longest=1'"}, ConfigError, "shortest=2 must not exceed"),
        ({"decoding": "speculative:proposer=fcfs"}, UnknownPlugin, "no proposer is called 'fcfs'"),
    ],
    ids=str,
)
def test_what_cannot_work_is_refused_before_anything_is_loaded(
    fields: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        build_policies(Registry.load(), EngineConfig(**fields))


# ------------------------------------------------------------------ the draft model


def test_the_sums_of_the_draft_are_printed(assemble: Assemble, draft_model: Path) -> None:
    assembled = assemble(tokens=4096, spec_draft=str(draft_model), spec_tokens=2)
    (policies,) = (line for line in assembled.ready.summary if "decoding" in line)
    sums, beside = (line for line in assembled.ready.summary if "KV pool" in line)
    assert f"decoding sampling by default, speculative:draft={draft_model},k=2" in policies
    assert beside.startswith(f"beside it {draft_model}: weights ")
    assert "KV pool 2.0 MiB = 4,096 tokens" in sums and "KV pool 2.0 MiB = 4,096 tokens" in beside


def test_its_pool_can_be_given_a_size_of_its_own(assemble: Assemble, draft_model: Path) -> None:
    proposer = f"draft-model:model={draft_model},memory=256KiB"
    assembled = assemble(tokens=4096, decoding=f"speculative:proposer='{proposer}'")
    (beside,) = (line for line in assembled.ready.summary if line.startswith("beside it"))
    assert beside.endswith("KV pool 256 KiB = 512 tokens")
    with pytest.raises(ConfigError, match=f"the KV pool of {re.escape(str(draft_model))} asks for 1.0 TiB"):
        assemble(decoding=f"speculative:proposer='draft-model:model={draft_model},memory=1TiB'")


def test_a_pool_that_holds_no_token_is_refused(assemble: Assemble, draft_model: Path) -> None:
    """It was a division by zero in the backend."""
    none = f"the KV pool of {re.escape(str(draft_model))} holds no token, since the first .* takes 8.0 KiB;"
    with pytest.raises(ConfigError, match=none):
        assemble(decoding=f"speculative:proposer='draft-model:model={draft_model},memory=1KiB'")


def test_where_no_size_is_given_both_pools_share_what_there_is(assemble: Assemble, draft_model: Path) -> None:
    alone = assemble(kv_memory=None, max_num_seqs=4096)
    both = assemble(kv_memory=None, max_num_seqs=4096, spec_draft=str(draft_model))
    tokens = speculative(both.engine)._proposer._memory.kv.capacity
    assert tokens == pytest.approx(alone.engine.scheduler.kv.capacity / 2, rel=0.3)


def test_a_draft_of_another_vocabulary_is_refused_with_the_difference(
    assemble: Assemble, random_model: Path, tmp_path: Path
) -> None:
    stranger = write_draft(random_model, tmp_path / "stranger", noise=0.0)
    write_tokenizer(stranger, [f"w{token}" for token in range(42)] + ["y", "z"])
    with pytest.raises(
        ConfigError,
        match=r"stranger does not have .* vocabulary: token 42 is 'w42' in one and 'y'",
    ):
        assemble(spec_draft=str(stranger))
    (stranger / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match="holds no tokenizer"):
        assemble(spec_draft=str(stranger))


def test_a_draft_that_is_not_there_is_named(assemble: Assemble) -> None:
    with pytest.raises(ModelError, match="cannot find the model '/no/such/draft'"):
        assemble(spec_draft="/no/such/draft")


def test_vocabularies_are_compared_token_by_token(tmp_path: Path) -> None:
    folders = {}
    for name, words in {"one": "abc", "same": "abc", "more": "abcd"}.items():
        folders[name] = tmp_path / name
        folders[name].mkdir()
        write_tokenizer(folders[name], list(words))
    file = folders["same"] / "tokenizer.json"
    file.write_text(file.read_text() + "\n")  # another file, the same vocabulary
    assert vocabulary_difference(folders["one"], folders["same"]) is None
    difference = vocabulary_difference(folders["one"], folders["more"])
    assert difference == "token 3 is unknown in one and 'd' in the other"


@pytest.mark.parametrize("columns", [VOCABULARY - 16, VOCABULARY + 16])
def test_logits_may_be_padded_differently(
    columns: int, assemble: Assemble, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As in Qwen2.5, whose larger models have more columns for the same tokens."""
    draft, shape = tmp_path / "padded", replace(SHAPE, vocab=columns)
    write_random_checkpoint(draft, config_of(shape, "qwen2", dtype="float32"), seed=5)
    write_tokenizer(draft)
    engine = assemble(decoding=f"speculative:draft={draft},adaptive=false").engine
    params = SamplingParams(max_tokens=30, ignore_eos=True)
    for number in range(10):
        engine.add(RequestSpec(id=str(number), prompt=[1, 2, 3 + number], params=params, seed=number))
    tokens = [token for delta in drain(engine) for token in delta.tokens]
    assert len(tokens) == 300 and max(tokens) >= VOCABULARY - 16, "tokens that only one of them has"
    assert engine.stats().counters["spec_decode_num_draft_tokens"] > 100
    assert not caplog.records


# ------------------------------------------------------------------ accounts


def test_counters_are_part_of_the_stats(assemble: Assemble) -> None:
    assert assemble().engine.stats().counters == {}
    engine = assemble(decoding="speculative:adaptive=false").engine
    params = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
    engine.add(RequestSpec(id="r", prompt=[5, 6, 7] * 5, params=params, seed=1))
    drain(engine)
    counters = engine.stats().counters
    assert list(counters) == [
        "spec_decode_num_drafts",
        "spec_decode_num_draft_tokens",
        "spec_decode_num_accepted_tokens",
    ]
    drafts, drafted, accepted = counters.values()
    assert 0 < drafts <= drafted <= 5 * drafts and accepted <= drafted
    assert engine.stats().output_tokens == 20


def test_a_proposer_that_fails_costs_its_drafts_and_no_more(
    assemble: Assemble, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    params = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
    spec = RequestSpec(id="r", prompt=[5, 6, 7] * 5, params=params, seed=1)
    plain = assemble().engine
    plain.add(spec)
    expected = [token for delta in drain(plain) for token in delta.tokens]

    def broken(self, requests):
        raise ZeroDivisionError("no idea")

    monkeypatch.setattr(NGram, "propose", broken)
    engine = assemble(decoding="speculative:adaptive=false").engine
    engine.add(spec)
    assert [token for delta in drain(engine) for token in delta.tokens] == expected
    (record,) = caplog.records
    assert record.message.startswith("decoding 'speculative' of turnout ")
    assert "draft failed: ZeroDivisionError: no idea; no tokens are drafted" in record.message


def test_drafts_that_were_not_asked_for_are_its_fault(
    assemble: Assemble, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from turnout.core.interfaces.proposer import Proposal

    def eager(self, requests):
        for request in requests:
            yield Proposal(request.sequence, [1] * (request.tokens + 1))

    monkeypatch.setattr(NGram, "propose", eager)
    engine = assemble(decoding="speculative:adaptive=false").engine
    params = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)
    engine.add(RequestSpec(id="r", prompt=[5, 6, 7], params=params, seed=1))
    drain(engine)
    assert "NGram drafted what was not asked for" in caplog.records[0].message
