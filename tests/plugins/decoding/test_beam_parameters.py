"""Who gets beams, how many, and what does not go together."""

from __future__ import annotations

from typing import Any

import pytest

from turnout.core.errors import ConfigError, RequestError
from turnout.core.registry.registry import Registry
from turnout.core.types.param_groups import merge_defaults
from turnout.core.types.sampling_params import SamplingParams
from turnout.plugins.decoding.beam.strategy import Beam
from turnout.plugins.decoding.greedy import Greedy
from turnout.plugins.decoding.sampling import Sampling

BEAMS = {"use_beam_search": True}
CHECKPOINT = {"temperature": 0.5, "top_p": 0.9, "repetition_penalty": 1.1}
SERVER = {**CHECKPOINT, **Beam(width=6, early_stopping="never").defaults}


def merged(given: dict[str, Any], defaults: dict[str, Any]) -> SamplingParams:
    return SamplingParams(**merge_defaults(given, defaults))


@pytest.mark.parametrize(
    "given", [{}, {"temperature": 0}, BEAMS, {**BEAMS, "temperature": 0}, {"best_of": 3}]
)
def test_a_request_is_served_by_exactly_one_strategy(given: dict[str, Any]) -> None:
    params = SamplingParams(**given)
    serving = [strategy for strategy in (Beam(), Greedy(), Sampling()) if strategy.accepts(params)]
    assert len(serving) == 1
    assert isinstance(serving[0], Beam) == params.use_beam_search


@pytest.mark.parametrize(
    ("given", "width"),
    [({"beam_width": 3}, 3), ({"n": 3}, 3), ({}, 5), ({"n": 1}, 5), ({"n": 2, "beam_width": 8}, 8)],
)
def test_the_width_is_what_was_given_or_n_or_the_servers(given: dict[str, Any], width: int) -> None:
    assert Beam(width=5).width(SamplingParams(**BEAMS, **given)) == width


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({**BEAMS, "temperature": 0.7}, "temperature"),
        ({**BEAMS, "top_p": 0.9}, "top_p"),
        ({**BEAMS, "top_k": 5}, "top_k"),
        ({**BEAMS, "min_p": 0.1}, "min_p"),
        ({**BEAMS, "best_of": 2}, "best_of"),
        ({**BEAMS, "n": 5, "beam_width": 4}, "n"),
        ({**BEAMS, "beam_width": 0}, "beam_width"),
        ({**BEAMS, "length_penalty": float("nan")}, "length_penalty"),
        ({**BEAMS, "early_stopping": "soon"}, "early_stopping"),
        ({**BEAMS, "early_stopping": 1}, "early_stopping"),
        ({"use_beam_search": 1}, "use_beam_search"),
        ({"beam_width": 4}, "beam_width"),
        ({"length_penalty": 0.5}, "length_penalty"),
        ({"early_stopping": True}, "early_stopping"),
        ({"n": 3, "best_of": 2}, "best_of"),
        ({"best_of": 129}, "best_of"),
    ],
)
def test_what_contradicts_itself_is_refused_by_name(given: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        SamplingParams(**given)
    assert caught.value.param == param and param in str(caught.value)


@pytest.mark.parametrize("given", [{"temperature": 0}, {"temperature": 1.0}, {"top_k": -1}, {"best_of": 1}])
def test_what_changes_nothing_goes_with_beams(given: dict[str, Any]) -> None:
    assert SamplingParams(**BEAMS, **given).use_beam_search


# ------------------------------------------------------------------ defaults


def test_a_search_sets_the_checkpoints_sampling_aside_and_keeps_its_penalty() -> None:
    """No request asked for them, and they would be refused."""
    params = merged(BEAMS, CHECKPOINT)
    assert params.use_beam_search
    assert (params.temperature, params.top_p, params.repetition_penalty) == (1.0, 1.0, 1.1)


def test_with_beams_as_the_servers_default_who_says_nothing_gets_them() -> None:
    for given in ({}, {"max_tokens": 5, "n": 2, "logprobs": 1, "stop": ("x",)}):
        params = merged(given, SERVER)
        assert (params.use_beam_search, params.beam_width, params.early_stopping) == (True, 6, "never")
    assert merged({"length_penalty": 2.0}, SERVER).length_penalty == 2


@pytest.mark.parametrize(
    "given",
    [{"temperature": 1.0}, {"temperature": 0.0}, {"top_p": 0.5}, {"top_k": 3}, {"use_beam_search": False}],
)
def test_and_who_says_something_of_sampling_is_sampled(given: dict[str, Any]) -> None:
    params = merged(given, SERVER)
    assert not params.use_beam_search and params.beam_width is None
    assert params.top_p == given.get("top_p", 0.9), "the checkpoint's defaults hold again"


# ------------------------------------------------------------------ options


def test_options_come_as_text() -> None:
    beam = Registry.load().create("decoding", "beam:width=8,length_penalty=0.5,early_stopping=never")
    assert beam.defaults == {**BEAMS, "beam_width": 8, "length_penalty": 0.5, "early_stopping": "never"}
    assert Registry.load().create("decoding", "beam:early_stopping=true").defaults["early_stopping"] is True


@pytest.mark.parametrize("options", ["width=0", "width=x", "length_penalty=99", "early_stopping=soon"])
def test_options_that_cannot_be_are_refused(options: str) -> None:
    with pytest.raises(ConfigError, match=r"beam.*" + options.partition("=")[0]):
        Registry.load().create("decoding", f"beam:{options}")


# ------------------------------------------------------------------ best_of


def test_the_engine_is_asked_for_all_that_the_best_are_chosen_from() -> None:
    asked = SamplingParams(n=2, best_of=5)
    generating = asked.generating()
    assert (generating.n, generating.best_of, generating.logprobs) == (5, None, 0)
    assert SamplingParams(n=2, best_of=5, logprobs=3).generating().logprobs == 3
    assert SamplingParams(n=2, best_of=2).generating() == SamplingParams(n=2)
