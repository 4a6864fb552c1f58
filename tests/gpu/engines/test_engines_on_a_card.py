"""Whole engines on a GPU: nothing is on the wrong device, out of order, or waited for.

Where there is none, on one that is not there, which tells. PyTorch computes attention: its own kernels are
slow to interpret.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from card_tensors import Tensors
from serving import BY_PYTORCH, OVERFLOWS, PARAMS, built, serve, waited, waiting

from turnout.core.errors import ConfigError
from turnout.runner.memory.device import choose_device

pytestmark = pytest.mark.filterwarnings(OVERFLOWS)

TINY = 80 * 2 * 2 * 2 * 16 * 4
"""Bytes of a pool of 80 positions."""

SLOW = ("greedy", "sampled", "cut", "choices")
"""Kinds of sampling params of which others run the same code on the device."""


@pytest.mark.parametrize("name", ["auto", "cuda", "cuda:0"])
def test_a_gpu_is_known_by_its_number(name: str, card: Tensors) -> None:
    """PyTorch takes no other for the current one."""
    assert choose_device(name) == torch.device("cuda", 0)


def test_a_gpu_that_is_not_there_is_refused(card: Tensors) -> None:
    with pytest.raises(ConfigError, match=r"device cuda:99 is not there: torch sees \d+ GPU"):
        choose_device("cuda:99")


@pytest.mark.parametrize(
    "overlapping",
    [pytest.param(False, marks=pytest.mark.slow), True],
    ids=["step after step", "overlapping"],
)
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, marks=pytest.mark.slow),
        pytest.param({"kv_memory": None}, marks=pytest.mark.slow),
        pytest.param({"kv": "contiguous"}, marks=pytest.mark.slow),
        {"kv": "paged:attention=torch,dtype=int8", "enforce_eager": True},
        pytest.param({"max_num_batched_tokens": 7, "block_size": 4}, marks=pytest.mark.slow),
        {"kv_memory": TINY, "block_size": 4, "preemption": "swap", "swap_memory": "1MiB"},
        pytest.param(
            {"kv_memory": TINY, "block_size": 4, "preemption": "auto", "swap_memory": "1MiB"},
            marks=pytest.mark.slow,
        ),
    ],
    ids=["paged", "sized by memory", "contiguous", "eager int8 KV", "chunked", "swapped", "auto"],
)
def test_a_step_waits_for_nothing(
    options: dict[str, Any], overlapping: bool, random_model: Path, card: Tensors
) -> None:
    chosen = {name: PARAMS[name] for name in ("greedy", "adjusted", "choices")}
    expected = serve(built(random_model, "cpu", **options), chosen)
    engine = built(random_model, "cuda", async_scheduling=overlapping, **{**BY_PYTORCH, **options})
    waiting(card)
    assert serve(engine, chosen) == expected
    assert not waiting(card)
    assert bool(engine.stats().preemptions) == ("preemption" in options)
    assert card.replays is None or bool(card.replays) == ("enforce_eager" not in options)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a real one does not tell")
@pytest.mark.parametrize("overlapping", [False, True], ids=["step after step", "overlapping"])
def test_a_device_has_the_next_step_while_the_host_waits_for_the_last(
    overlapping: bool, random_model: Path, card: Tensors
) -> None:
    engine = built(random_model, "cuda", async_scheduling=overlapping, **BY_PYTORCH)
    serve(engine, {"greedy": PARAMS["greedy"]})
    busy = [left > 0 for left in card.order.left]
    # All requests are as long: what is waited for last is the last step of all.
    assert busy == [overlapping] * (len(busy) - 1) + [False]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in PARAMS]
)
def test_each_kind_of_sampling_params(name: str, random_model: Path, card: Tensors) -> None:
    chosen = {name: PARAMS[name]}
    expected = serve(built(random_model, "cpu"), chosen)
    engine = built(random_model, "cuda", **BY_PYTORCH)
    waiting(card)
    assert serve(engine, chosen) == expected
    assert not waiting(card)


@pytest.mark.parametrize(
    "drafts_by", ["ngram=true", pytest.param("draft=turnout-tiny-draft", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    ("chosen", "drafting"),
    [
        (("greedy",), 1),
        pytest.param(("sampled",), 1, marks=pytest.mark.slow),
        pytest.param(("scored",), 1, marks=pytest.mark.slow),
        pytest.param(("greedy", "sampled"), 1, marks=pytest.mark.slow),
        pytest.param(("sampled", "adjusted"), 3, marks=pytest.mark.slow),
    ],
    ids=["greedy", "sampled", "scored", "mixed", "adjusted"],
)
@pytest.mark.slow
def test_speculation_waits_for_its_drafts_and_for_what_was_chosen(
    chosen: tuple[str, ...], drafting: int, drafts_by: str, card: Tensors
) -> None:
    """Once a step each, however many tokens are drafted; but where penalties depend on the drafts."""
    options = {"kv_memory": "16MiB", "decoding": f"speculative:{drafts_by},k=3,adaptive=false"}
    served = {name: {**PARAMS[name], "max_tokens": 12} for name in chosen}
    expected = serve(built("turnout-tiny", "cpu", **options), served)
    engine = built("turnout-tiny", "cuda", **options, **BY_PYTORCH)
    waiting(card)
    before = waited(card)
    assert serve(engine, served) == expected
    assert not waiting(card)
    assert engine.stats().counters["spec_decode_num_accepted_tokens"]
    if before is not None:
        scores = 3 * ("scored" in chosen)
        drafting = drafting if "draft" in drafts_by else 0
        assert waited(card) - before <= engine.stats().steps * (1 + drafting + scores)
