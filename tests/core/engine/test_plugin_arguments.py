"""What a request says to plugins: arguments that they declare, and the name of its decoding strategy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import msgspec
import pytest
from toy import drive, toy_engine, toy_kv, toy_request

from turnout.core.engine.engine import Engine
from turnout.core.errors import RequestError
from turnout.core.interfaces.decoding import Decoding
from turnout.core.types.decision import Continuation
from turnout.core.types.request import Request, RequestSpec, RequestView
from turnout.core.types.sampling_params import SamplingParams
from turnout.core.types.views import View
from turnout.plugins.schedulers.fcfs import Fcfs
from turnout.testing.toy.decodings import Rows, ToyDecoding, ToyGreedy


class ByTier(Fcfs):
    """Serves those of a lower tier first."""

    extra_args: ClassVar[tuple[str, ...]] = ("tier",)

    def check(self, request: RequestView) -> None:
        if not isinstance(request.extra_args.get("tier", 0), int):
            raise RequestError("tier must be an integer", "extra_args")

    def order(self, view: View) -> Iterable[RequestView]:
        return sorted((*view.running, *view.waiting), key=lambda request: request.extra_args.get("tier", 0))  # type: ignore[arg-type,return-value]


class Repeats(ToyDecoding):
    """Says one token for ever: the one that a request names."""

    name = "repeats"
    extra_args: ClassVar[tuple[str, ...]] = ("token",)

    def check(self, request: Request) -> None:
        if "token" not in request.params.extra_args:
            raise RequestError("give it a token", "extra_args")

    def choose(self, request: Request, rows: Rows) -> Iterable[Continuation]:
        token: Any = request.params.extra_args["token"]
        return [Continuation(sequence, [token]) for sequence in rows]


def engine(*decodings: Decoding, slots: int = 6) -> Engine:
    return toy_engine(ByTier(), toy_kv(64, 4), decodings=decodings, slots=slots)


def asking(name: str, strategy: str = "greedy", decoding: str | None = None, **arguments: Any) -> RequestSpec:
    spec = toy_request(name, [1, 2, 3], strategy, 4)
    params = msgspec.structs.replace(spec.params, extra_args=arguments, decoding=decoding, ignore_eos=True)
    return msgspec.structs.replace(spec, params=params)


def refusal(engine: Engine, spec: RequestSpec) -> RequestError:
    with pytest.raises(RequestError) as refused:
        engine.add(spec)
    assert not engine.busy
    return refused.value


def test_a_policy_reads_its_arguments() -> None:
    outcome = drive(
        engine(slots=1), [(0, asking("late", tier=2)), (0, asking("soon", tier=1)), (0, asking("first"))]
    )
    assert list(outcome.finished) == ["first", "soon", "late"]


def test_a_strategy_reads_its_arguments() -> None:
    outcome = drive(engine(Repeats()), [(0, asking("r", "repeats", token=5, tier=1))])
    assert outcome.outputs("r") == [[5, 5, 5, 5]]


@pytest.mark.parametrize(
    ("strategy", "arguments", "said"),
    [
        ("greedy", {"tear": 1}, "no plugin takes the extra argument 'tear'; known: tier; "),
        ("greedy", {"token": 5}, "no plugin takes the extra argument 'token'; known: tier"),
        ("greedy", {"tier": "gold"}, "tier must be an integer"),
        ("repeats", {}, "give it a token"),
    ],
)
def test_arguments_are_checked_at_arrival(strategy: str, arguments: dict[str, Any], said: str) -> None:
    """Those of a strategy are known for requests that it serves."""
    error = refusal(engine(Repeats()), asking("r", strategy, **arguments))
    assert error.param == "extra_args" and str(error).startswith(said)


def test_a_check_that_fails_refuses_its_request_alone(caplog: pytest.LogCaptureFixture) -> None:
    class Faulty(Repeats):
        def check(self, request: Request) -> None:
            raise KeyError("oops")

    served = engine(Faulty())
    assert "check failed: KeyError: 'oops'" in str(refusal(served, asking("r", "repeats")))
    assert drive(served, [(0, asking("other"))]).finished
    assert "Faulty of test_plugin_arguments: check failed" in caplog.text


def test_views_of_arguments_cannot_be_changed() -> None:
    request = Request(asking("r", tier=1), ToyGreedy(), 0.0, 7, frozenset())
    with pytest.raises(TypeError):
        request.view.extra_args["tier"] = 2  # type: ignore[index]


# ------------------------------------------------------------------ the strategy by its name


class Any5(Repeats):
    """Would serve anything, so no request gets it but by name."""

    extra_args = ()

    def accepts(self, params: SamplingParams) -> bool:
        return True

    def check(self, request: Request) -> None: ...

    def choose(self, request: Request, rows: Rows) -> Iterable[Continuation]:
        return [Continuation(sequence, [5]) for sequence in rows]


@pytest.fixture
def offering() -> Engine:
    served = engine()
    served.offer_decodings({"greedy": ToyGreedy(), "any5": Any5()})
    return served


def test_a_request_names_its_strategy(offering: Engine) -> None:
    specs = [asking("named", decoding="any5"), asking("greedy", decoding="greedy"), asking("plain")]
    outcome = drive(offering, [(0, spec) for spec in specs])
    assert outcome.outputs("named") == [[5, 5, 5, 5]]
    assert outcome.outputs("greedy") == outcome.outputs("plain") != outcome.outputs("named")


def test_a_name_that_is_not_on_offer_is_told_what_is(offering: Engine) -> None:
    error = refusal(offering, asking("r", decoding="greddy"))
    assert error.param == "decoding"
    assert "no decoding strategy is called 'greddy' here; known: any5, greedy" in str(error)
    assert "known: none" in str(refusal(engine(), asking("r", decoding="greedy")))


def test_a_named_strategy_may_not_serve_the_parameters(offering: Engine) -> None:
    error = refusal(offering, asking("r", "lookup", decoding="greedy"))
    assert str(error) == "decoding 'greedy' does not serve these sampling parameters"
    assert error.param == "decoding"
