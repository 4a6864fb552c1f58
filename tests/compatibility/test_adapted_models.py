"""Every feature works on a model that runs by transformers' modules, and changes no other token."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import torch
from features import BY_NAME, FEATURES, LENGTH, Feature
from one_in import one_in
from small_engines import PLAIN
from test_compatibility import FEW, expected, merged, serve, tokens
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from turnout import LLM, SamplingParams
from turnout.models.checkpoints.checkpoint import read_config
from turnout.models.hub.resolve import resolve_model
from turnout.models.transformers_adapter.small import shrunk
from turnout.models.transformers_adapter.trial import spread_weights

KIND = "cohere2"
"""Windows in three of four layers, a layer norm, attention beside the MLP: nothing of Llama's shape."""


@pytest.fixture(scope="module")
def adapted(folder: Path) -> Path:
    """A model of transformers, with the draft model and the policy of `folder` beside it."""
    embedded = resolve_model("turnout-tiny")
    given = read_config(embedded)
    config = shrunk(CONFIG_MAPPING[KIND](), vocab_size=given["vocab_size"])
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    spread_weights(model)
    model.save_pretrained(folder / KIND)
    for file in embedded.glob("token*"):
        (folder / KIND / file.name).write_bytes(file.read_bytes())
    return folder


@pytest.fixture(scope="module")
def make_adapted(adapted: Path) -> Callable[[Mapping[str, Any]], LLM]:
    def make(options: Mapping[str, Any]) -> LLM:
        given = {name: value for name, value in options.items()}
        if "decoding" in given:
            given["decoding"] = given["decoding"].replace("DRAFT", str(adapted / KIND))
        return LLM(str(adapted / KIND), plugins_folder=str(adapted), **PLAIN, **given)

    return make


@pytest.fixture(scope="module")
def plain_of(make_adapted: Callable[[Mapping[str, Any]], LLM]) -> Callable[[str], LLM]:
    return cache(lambda quantization: make_adapted({"quantization": quantization}))


@pytest.mark.parametrize("feature", one_in(2, FEATURES, attrgetter("name")))
def test_a_feature_works_on_it(
    feature: Feature,
    make_adapted: Callable[[Mapping[str, Any]], LLM],
    plain_of: Callable[[str], LLM],
) -> None:
    fields, engine = merged(BY_NAME["streaming"], feature)
    if feature is BY_NAME["n-gram drafts"]:
        fields["allowed_token_ids"] = FEW  # else hardly anything is repeated
    plain = plain_of(engine.get("quantization", "none"))
    llm = make_adapted(engine) if engine else plain
    params = SamplingParams(**{"max_tokens": LENGTH, **fields})
    served = serve(llm, params, plain, tolerance=feature.tolerance)
    feature.check(served)
    if feature.exact:
        assert tokens(served) == expected(served.params, served.plain)
