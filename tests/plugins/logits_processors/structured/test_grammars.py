"""A form that several requests want is compiled once, and its cache is bounded by memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from running_server import eventually

from turnout.core.errors import RequestError
from turnout.core.interfaces.logits_processor import ServedModel
from turnout.core.types.structured_outputs import StructuredOutputs
from turnout.models.hub.resolve import resolve_model
from turnout.plugins.logits_processors.structured import grammars as module
from turnout.plugins.logits_processors.structured.claims import Claim
from turnout.plugins.logits_processors.structured.compiler import ClaimEnded, Compiler, Grammar
from turnout.plugins.logits_processors.structured.grammars import Grammars

FORM = StructuredOutputs(regex="a")


class Slow:
    """In place of `Compiler.compile`: waits until it may, or until the claim ends."""

    def __init__(self) -> None:
        self.may = threading.Event()
        self.calls = 0

    def __call__(self, form: StructuredOutputs, claim: Claim) -> Grammar:
        self.calls += 1
        with claim.ends(self.may.set):
            assert self.may.wait(10)
        if claim.ended:
            self.may.clear()
            raise ClaimEnded
        if form.regex == "bad":
            raise RequestError("no such form")
        return Grammar(form, None, 100)  # type: ignore[arg-type]  # no test looks at the matcher


@pytest.fixture
def compiling(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    slow = Slow()
    monkeypatch.setattr(Compiler, "compile", lambda _, form, claim: slow(form, claim))
    yield slow


@pytest.fixture
def grammars() -> Grammars:
    return Grammars(ServedModel(resolve_model("turnout-tiny"), 4096, frozenset({0})), 3.0)


def test_requests_that_want_the_same_form_wait_for_one_compilation(
    compiling: Slow, grammars: Grammars
) -> None:
    with ThreadPoolExecutor() as threads:
        found = [threads.submit(grammars.get, FORM) for _ in range(5)]
        eventually(lambda: compiling.calls)
        compiling.may.set()
        assert len({id(each.result()) for each in found}) == 1 == compiling.calls


def test_they_share_its_refusal(compiling: Slow, grammars: Grammars) -> None:
    with ThreadPoolExecutor() as threads:
        found = [threads.submit(grammars.get, StructuredOutputs(regex="bad")) for _ in range(2)]
        eventually(lambda: compiling.calls)
        compiling.may.set()
        assert all("no such form" in str(each.exception()) for each in found)


def test_where_the_first_leaves_another_goes_on(compiling: Slow, grammars: Grammars) -> None:
    first, third = Claim(), Claim()
    with ThreadPoolExecutor() as threads:
        gone = threads.submit(grammars.get, FORM, first)
        eventually(lambda: compiling.calls == 1)
        stays, leaves = threads.submit(grammars.get, FORM), threads.submit(grammars.get, FORM, third)
        third.end()
        assert isinstance(leaves.exception(), ClaimEnded) and not stays.done()
        first.end()
        assert isinstance(gone.exception(), ClaimEnded)
        eventually(lambda: compiling.calls == 2)
        compiling.may.set()
        assert stays.result().form == FORM


def test_the_cache_holds_so_many_bytes(
    compiling: Slow, grammars: Grammars, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_CACHED_BYTES", 250)
    compiling.may.set()
    forms = [StructuredOutputs(regex=letter) for letter in "abc"]
    for form in forms:
        grammars.get(form)
    assert [grammars.ready(form) for form in forms] == [False, True, True]
