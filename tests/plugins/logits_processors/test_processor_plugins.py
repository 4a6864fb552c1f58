"""Third parties' processors: found, asked, put in order, contained when they fail."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest
import torch
from rows import VOCABULARY, a_row, some_logits
from torch import Tensor

from turnout import LLM, LogitsProcessor, SamplingParams, hookimpl
from turnout.core.engine.logits_processing import LogitsProcessors, adjust
from turnout.core.errors import ConfigError, EngineError, PluginError, RequestError
from turnout.core.interfaces.logits_processor import Row, ServedModel
from turnout.core.registry.registry import Registry
from turnout.core.types.request import Request, RequestSpec

INLINE = """
from turnout import LogitsProcessor, hookimpl

class OnlyEven(LogitsProcessor):
    masks = True
    def wants(self, params):
        return params.temperature == 0
    def apply(self, logits, rows):
        logits[:, 1::2] = float("-inf")

@hookimpl
def register_logits_processors(register):
    register("only-even", OnlyEven)
"""


class Writing(LogitsProcessor):
    """Writes its number into column 0, and multiplies column 1 by ten before it adds it there."""

    def __init__(self, number: int = 1) -> None:
        self.number = number

    def wants(self, params: SamplingParams) -> bool:
        return params.temperature == 0

    def apply(self, logits: Tensor, rows: object) -> None:
        logits[:, 0] = self.number
        logits[:, 1] = logits[:, 1] * 10 + self.number


class Mask(Writing):
    masks = True


class Failing(Writing):
    def apply(self, logits: Tensor, rows: object) -> None:
        logits.fill_(float("nan"))
        raise ZeroDivisionError("oh")


class Unable(Writing):
    def start(self, model: ServedModel) -> None:
        raise OSError("no such model")


class Choosy(Writing):
    def check(self, request: Request) -> None:
        raise RequestError("not on a Sunday", "temperature")


class Asked(Writing):
    """Writes the number that a request gives it."""

    extra_args = ("number",)

    def wants(self, params: SamplingParams) -> bool:
        return "number" in params.extra_args

    def apply(self, logits: Tensor, rows: Sequence[Row]) -> None:
        for index, row in enumerate(rows):
            logits[index, 0] = row.params.extra_args["number"]


class Broken(Writing):
    def wants(self, params: SamplingParams) -> bool:
        raise KeyError("what")


def plugin(**offers: object) -> ModuleType:
    module = ModuleType("theirs")

    @hookimpl
    def register_logits_processors(register):  # type: ignore[no-untyped-def]
        for name, factory in offers.items():
            register(name, factory)

    module.register_logits_processors = register_logits_processors  # type: ignore[attr-defined]
    return module


def test_a_plugin_of_ten_lines_holds_in_every_strategy_it_wants(tmp_path: Path) -> None:
    (tmp_path / "turnout_plugins.py").write_text(INLINE)
    llm = LLM(kv_memory="16MiB", device="cpu", plugins_folder=str(tmp_path))
    params = [
        SamplingParams(temperature=t, max_tokens=8, ignore_eos=True, seed=1, logit_bias={7: 50.0})
        for t in (0, 1)
    ]
    even, any_token = llm.generate(["import os"] * 2, params, progress=False)
    assert all(token % 2 == 0 for token in even.outputs[0].token_ids)
    assert any_token.outputs[0].token_ids == [7] * 8


def test_the_order_is_ours_then_theirs_by_name_and_masks_last() -> None:
    offers = {
        "b": lambda: Writing(2),
        "m": lambda: Mask(3),
        "a": lambda: Writing(1),
    }
    processors = LogitsProcessors(Registry.load(extra=[plugin(**offers)]).logits_processors())
    row = a_row(processors=processors, temperature=0.0, logit_bias={1: 5.0}, allowed_token_ids=[0, 1])
    titles = [active.title.split("'")[1] for active in row.request.processors]
    assert titles == ["logit_bias", "a", "b", "allowed_token_ids", "m"]
    logits = torch.zeros(1, VOCABULARY)
    assert adjust(logits, [row])[0, :2].tolist() == [3.0, 5123.0]


def test_only_the_rows_that_want_it_are_touched() -> None:
    processors = LogitsProcessors([("w", Writing(9))])
    logits = some_logits(4)
    rows = [a_row(processors=processors, temperature=float(i % 2)) for i in range(4)]
    changed = adjust(logits, rows)
    assert changed[[0, 2], 0].tolist() == [9, 9]
    assert torch.equal(changed[[1, 3]], logits[[1, 3]])


def test_one_that_fails_marks_the_requests_that_want_it() -> None:
    processors = LogitsProcessors([("their processor", Failing()), ("ours", Mask(7))])
    logits = some_logits(3)
    rows = [a_row(processors=processors, temperature=t) for t in (0.0, 1.0, 0.0)]
    changed = adjust(logits, rows)
    assert [row.request.fault for row in rows] == [
        message := "their processor: apply failed: ZeroDivisionError: oh",
        None,
        message,
    ]
    assert changed.isfinite().all() and torch.equal(changed[1], logits[1])


def test_a_failure_ends_those_requests_and_no_others(tmp_path: Path) -> None:
    (tmp_path / "turnout_plugins.py").write_text(INLINE.replace('logits[:, 1::2] = float("-inf")', "1 / 0"))
    llm = LLM(kv_memory="16MiB", device="cpu", plugins_folder=str(tmp_path))
    params = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
    with pytest.raises(
        EngineError, match=r"'only-even' of turnout_plugins\.py: apply failed: ZeroDivisionError"
    ):
        llm.generate("import os", params, progress=False)
    for name, temperature in (("fails", 0.0), ("goes on", 1.0)):
        given = SamplingParams(temperature=temperature, max_tokens=4, ignore_eos=True)
        llm.engine.add(RequestSpec(id=name, prompt=[1, 2, 3], params=given, seed=0))
    deltas = []
    while llm.engine.busy:
        deltas += llm.engine.step()
    ends = {delta.request_id: delta.finish_reason for delta in deltas if delta.finish_reason}
    assert ends == {"fails": "error", "goes on": "length"}


def test_a_request_can_be_refused() -> None:
    with pytest.raises(RequestError, match="not on a Sunday") as refusal:
        a_row(processors=LogitsProcessors([("theirs", Choosy())]), temperature=0.0)
    assert refusal.value.param == "temperature"


def test_a_request_has_arguments_of_its_own_for_it() -> None:
    processors = LogitsProcessors([("theirs", Asked())])
    rows = [a_row(processors=processors, extra_args=args) for args in ({"number": 7}, {}, {"number": 2.5})]
    assert adjust(torch.zeros(3, VOCABULARY), rows)[:, 0].tolist() == [7, 0, 2.5]


def test_an_argument_that_no_processor_takes_is_refused() -> None:
    for processors, known in (
        (LogitsProcessors([("theirs", Asked())]), "number; did"),
        (LogitsProcessors(), "none$"),
    ):
        with pytest.raises(RequestError, match=f"'numbr'; known: {known}") as refusal:
            a_row(processors=processors, extra_args={"numbr": 7})
        assert refusal.value.param == "extra_args"


def test_one_that_fails_when_asked_refuses_the_request_by_name() -> None:
    with pytest.raises(RequestError, match="theirs: wants failed: KeyError: 'what'"):
        a_row(processors=LogitsProcessors([("theirs", Broken())]))


def test_two_that_take_one_extra_argument_stop_the_start() -> None:
    """Both acted on it."""
    with pytest.raises(PluginError, match=r"'one' of theirs and .*'two' of theirs both take .*'number'"):
        Registry.load(extra=[plugin(one=Asked, two=Asked)]).logits_processors()


def test_one_that_cannot_start_stops_the_start() -> None:
    processors = LogitsProcessors(Registry.load(extra=[plugin(unable=Unable)]).logits_processors())
    with pytest.raises(PluginError, match="'unable' of theirs: start failed: OSError: no such model"):
        processors.start(ServedModel(Path(), VOCABULARY, frozenset()))


def test_one_that_cannot_be_built_stops_the_start() -> None:
    with pytest.raises(PluginError, match="'seven' of theirs"):
        LogitsProcessors(Registry.load(extra=[plugin(seven=lambda: 7)]).logits_processors())


# ------------------------------------------------------------------ options


class Offset(Writing):
    """Writes a number that the configuration gives it."""

    def __init__(self, *, number: int, times: float = 1.0) -> None:
        self.number = number * times


def test_options_come_from_the_configuration() -> None:
    registry = Registry.load(extra=[plugin(offset=Offset, other=lambda: Writing())])
    built = dict(registry.logits_processors(["offset:number=3,times=2"]))
    (offset,) = [each for each in built.values() if isinstance(each, Offset)]
    assert offset.number == 6 and len(built) == len(registry.names("logits_processor"))


@pytest.mark.parametrize(
    ("specs", "said"),
    [
        ([], "offset.*number"),
        (["offset:numbr=3"], "numbr.*number"),
        (["ofset:number=3"], "no logits_processor is called 'ofset'.*did you mean 'offset'"),
        (["offset:number=3", "offset:number=4"], "has options twice: offset:number=3 and offset:number=4"),
        (["min_tokens:number=3"], "min_tokens.*number"),
    ],
)
def test_options_that_cannot_be_are_named(specs: list[str], said: str) -> None:
    registry = Registry.load(extra=[plugin(offset=Offset)])
    with pytest.raises(ConfigError, match=f"(?s){said}"):
        registry.logits_processors(specs)


def test_an_engine_gives_its_processors_their_options(tmp_path: Path) -> None:
    chosen = INLINE.replace(
        "    masks = True\n", "    masks = True\n    def __init__(self, *, keep: int = 0): self.keep = keep\n"
    )
    (tmp_path / "turnout_plugins.py").write_text(chosen.replace("1::2", "1 - self.keep :: 2"))
    llm = LLM(
        kv_memory="16MiB", device="cpu", plugins_folder=str(tmp_path), logits_processor="only-even:keep=1"
    )
    params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
    (odd,) = llm.generate("import os", params, progress=False)
    assert all(token % 2 for token in odd.outputs[0].token_ids)
