"""What a step takes is a sum that can be done by hand; it is read from a file, or computed from a data
sheet."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from simulations import machine

from turnout.core.errors import ConfigError
from turnout.core.types.layer_attention import LayerAttention
from turnout.core.types.plan import Chunk, Move, Plan
from turnout.core.types.request import Request, RequestSpec, Sequence
from turnout.core.types.sampling_params import SamplingParams
from turnout.lab.simulation import CostModel, preset
from turnout.lab.simulation.cost import Seconds, Work, kind, work_of
from turnout.lab.simulation.cost_runner import FastForwarded
from turnout.lab.simulation.presets import PRESETS
from turnout.lab.simulation.reach import EVERYTHING, Reach, reaches_of
from turnout.plugins.decoding.greedy import Greedy


def of_prompt(length: int) -> Sequence:
    spec = RequestSpec(id="a", prompt=[1] * length, params=SamplingParams(temperature=0.0), seed=0)
    return Request(spec, Greedy(), 0.0, length + 9, frozenset()).live[0]


def test_a_step_is_the_sum_of_what_is_in_it() -> None:
    seconds = Seconds(
        fixed=1,
        tokens=((0, 2),),
        sequence=3,
        row=5,
        group=29,
        read=7,
        pair=11,
        move=13,
        host=17,
        runner=19,
        waiter=23,
        prompt=31,
        beginner=37,
        request=41,
    )
    work = Work(
        tokens=10,
        sequences=2,
        rows=1,
        groups=3,
        prompts=2,
        begun=1,
        context=100,
        pairs=50.5,
        moved=4,
        running=6,
        waiting=8,
    )
    assert seconds.of(work) == 1 + 20 + 6 + 5 + 700 + 555.5 + 52 + 17 + 114 + 184 + 87 + 62 + 74 + 41


def test_few_tokens_hide_behind_the_weights() -> None:
    seconds = Seconds(weights=10, tokens=((0, 1),))
    assert [seconds.of(Work(tokens=tokens)) for tokens in (1, 10, 11)] == [10, 10, 11]


def test_the_first_tokens_may_cost_more_than_others() -> None:
    seconds = Seconds(tokens=((0, 5), (4, 2), (8, 1)))
    assert [seconds.of(Work(tokens=tokens)) for tokens in (0, 1, 4, 5, 8, 10)] == [0, 5, 20, 22, 28, 30]
    for wrong in (((1, 5),), ((0, 5), (0, 2)), ((0, 5), (8, 2), (4, 1))):
        with pytest.raises(ConfigError, match="begin at 0 and go up"):
            Seconds(tokens=wrong)


def test_context_that_caches_do_not_hold_takes_longer() -> None:
    seconds = Seconds(read=1, far=((10, 2), (20, 4)))
    assert [seconds.of(Work(context=context)) for context in (10, 12, 20, 21)] == [10, 16, 40, 47]
    with pytest.raises(ConfigError, match="far must go up"):
        Seconds(far=((20, 2), (10, 4)))


def test_a_plan_in_numbers() -> None:
    chunks = [Chunk(of_prompt(104), 100, [1] * 4, 1), Chunk(of_prompt(9), 0, [1] * 3, 0)]
    work = work_of(Plan(chunks, [Move(0, 9, 5), Move(0, 0, 2, "swap_out")]))
    assert work.begun == 1, "the other's prompt is computed in part"
    assert (work.tokens, work.sequences, work.rows, work.prompts, work.moved) == (7, 2, 1, 2, 7)
    assert work.context == 104 + 3
    assert work.groups == 2
    assert work_of(Plan(chunks, []), beside=[kind(3, 16), kind(1, 16)]).groups == 3
    assert work.pairs == (101 + 102 + 103 + 104) + (1 + 2 + 3), "each query and all up to itself"


def test_layers_with_windows_read_less() -> None:
    """A third of the layers sees all; the others see eight positions each."""
    rules = (LayerAttention(2, 1, 8, 8), *[LayerAttention(2, 1, 8, 8, window=8)] * 2)
    reaches = reaches_of(replace(machine().model, layers=3, attention=rules))
    sequence = of_prompt(104)
    chunks = [Chunk(sequence, start, [1] * length, 1) for start, length in ((100, 4), (6, 3), (0, 3))]
    work = work_of(Plan(chunks, []), reaches=reaches)
    assert work.context == pytest.approx(((104 + 9 + 3) + 2 * (11 + 9 + 3)) / 3)
    everything = (101 + 102 + 103 + 104) + (7 + 8 + 9) + (1 + 2 + 3)
    assert work.pairs == pytest.approx((everything + 2 * (4 * 8 + (7 + 8 + 8) + (1 + 2 + 3))) / 3)
    assert reaches_of(machine().model) == EVERYTHING


def test_fast_forwarded_sequences_read_what_they_would_in_a_plan() -> None:
    rng, reaches = random.Random(2), [Reach(0.75, 5), Reach(0.25, None)]
    fast, live = FastForwarded(reaches), dict[int, int]()
    for number in range(60):
        live[number] = rng.randrange(12)
        fast.add(live[number])
        for gone in [each for each in live if rng.random() < 0.2]:
            fast.remove(start := live.pop(gone), kind(1, start + 1))
        plan = Plan([Chunk(of_prompt(1), start, [1], 1) for start in live.values()], [])
        assert fast.context == pytest.approx(work_of(plan, reaches=reaches).context)
        assert fast.context == pytest.approx(work_of(plan, reaches=reaches).pairs)
        fast.step()
        for each, start in live.items():
            fast.change(kind(1, start + 1), kind(1, start + 2))
            live[each] = start + 1


@pytest.mark.parametrize("value", [-1e-9, float("inf"), float("nan")])
def test_a_coefficient_is_a_time(value: float) -> None:
    with pytest.raises(ConfigError, match="read must be seconds, at least 0"):
        Seconds(read=value)


def test_a_file_holds_all_of_it(tmp_path: Path) -> None:
    file = tmp_path / "toy.json"
    machine().save(file)
    assert CostModel.load(file) == machine()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is not a cost model"),
        ("{}", "is not a cost model"),
        ('{"name": 3}', "is not a cost model"),
        (None, "cannot be read: No such file"),
    ],
)
def test_a_file_that_is_none_is_named(tmp_path: Path, content: str | None, words: str) -> None:
    file = tmp_path / "other.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ConfigError, match=words) as caught:
        CostModel.load(file)
    assert str(file) in str(caught.value)


def test_a_file_with_a_negative_coefficient_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "toy.json"
    machine().save(file)
    file.write_text(file.read_text().replace('"fixed": 0.002', '"fixed": -1.0'))
    with pytest.raises(ConfigError, match=r"toy.json is not a cost model: .*fixed must be seconds"):
        CostModel.load(file)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_estimates_and_say_so(name: str) -> None:
    cost = preset(name)
    assert cost.estimate and "data sheets" in cost.note and cost.device == "cuda"
    assert cost.kv_memory > 10e9


def test_presets_are_in_the_range_that_is_published() -> None:
    """A sequence alone decodes at what the memory's bandwidth allows; a long prompt at half of the peak."""
    alone = Work(tokens=1, sequences=1, rows=1, context=500, pairs=500, running=1)
    prompt = Work(tokens=2048, sequences=1, rows=1, context=2048, pairs=2048**2 / 2, running=1)
    decode = {name: preset(name).seconds.of(alone) for name in PRESETS}
    prefill = {name: preset(name).seconds.of(prompt) for name in PRESETS}
    assert 0.005 < decode["h100-7b"] < 0.008 < decode["a100-7b"] < 0.013
    assert 0.012 < decode["h100-70b"] < 0.022 < decode["a100-70b"] < 0.032
    assert 0.04 < prefill["h100-7b"] < 0.08 and 0.1 < prefill["h100-70b"] < 0.3


def decode_and_prefill(name: str) -> tuple[float, float]:
    """Seconds of a step of 64 sequences, and of one that computes 8192 tokens."""
    seconds = preset(name).seconds
    decode = Work(tokens=64, sequences=64, rows=64, context=64_000, pairs=64_000, running=64)
    return seconds.of(decode), seconds.of(Work(tokens=8192, sequences=4, rows=4, running=4))


def test_more_gpus_take_less_time_and_have_more_memory_until_the_network_is_between() -> None:
    four, eight, sixteen = (decode_and_prefill(f"h100-70b-tp{gpus}") for gpus in (4, 8, 16))
    assert four == decode_and_prefill("h100-70b")
    for index in (0, 1):
        assert four[index] / 2 < eight[index] < four[index]
        assert sixteen[index] > eight[index]
    assert preset("h100-70b-tp8").kv_memory > 2 * preset("h100-70b").kv_memory
    twice_kept = preset("h100-70b-tp16")  # 8 KV heads
    assert twice_kept.kv_memory < 1.5 * preset("h100-70b-tp8").kv_memory
    assert "8 x H100 SXM, Llama 2 70B, bf16, tensor parallel 8" in preset("h100-70b-tp8").note


def test_a_pipeline_halves_what_tokens_take_and_not_what_weights_take() -> None:
    one, two = preset("h100-70b-tp4").seconds, preset("h100-70b-tp4-pp2").seconds
    assert two.weights == one.weights
    assert one.forward(8192) / 2 < two.forward(8192) < 0.51 * one.forward(8192)
    assert two.read == one.read / 2
    assert two.row == one.row


def test_experts_of_their_own_gpu_take_longer_for_being_chosen_unevenly() -> None:
    by_parts, whole = decode_and_prefill("h100-8x7b-tp4"), decode_and_prefill("h100-8x7b-tp4-ep")
    assert whole[0] == by_parts[0], "a step that decodes waits for memory, and reads as much"
    assert by_parts[1] < whole[1] < 1.25 * by_parts[1]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("h100-70b-tp1", "Llama 2 70B takes 138 GB, and 1 x H100 SXM have room for 70 GB; use more of them"),
        ("h100-70b-tp7", "its 64 heads cannot be divided by 7"),
        ("h100-70b-tp0", "tp and pp are counted from 1"),
        ("h100-7b-pp33", "its 32 layers are no 33 stages"),
        ("h100-70b-tp8-ep", "ep divides experts over the GPUs of tp"),
        ("h100-8x7b-ep", "ep divides experts over the GPUs of tp"),
        ("h100-8x7b-tp16-ep", "its 8 experts cannot be divided by 16"),
        (
            "h200-70b-tp8",
            "is called 'h200-70b-tp8'; did you mean 'h100-70b'.* -tpN, -ppN and -ep",
        ),
        ("h100-70b-pp2-tp8", "no cost model is called"),
    ],
)
def test_splits_that_cannot_be_are_refused_with_the_numbers(name: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        preset(name)


def test_an_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"h100_7b.*did you mean.*h100-7b"):
        preset("h100_7b")
