"""A request that has begun waits for the room to compile its form again; a new one is refused."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from running_server import eventually

from turnout.core import limits
from turnout.core.errors import Overloaded
from turnout.core.interfaces.logits_processor import ServedModel
from turnout.core.types.request import RequestSpec, Resumption
from turnout.core.types.sampling_params import SamplingParams
from turnout.core.types.structured_outputs import StructuredOutputs
from turnout.models.hub.resolve import resolve_model
from turnout.plugins.logits_processors.structured import preparing as module
from turnout.plugins.logits_processors.structured.compiler import ClaimEnded
from turnout.plugins.logits_processors.structured.grammars import Grammars
from turnout.plugins.logits_processors.structured.preparing import Preparing

FORM = StructuredOutputs(regex="[a-f]+")
NEW = RequestSpec(id="a", prompt=[1], params=SamplingParams(max_tokens=9, structured_outputs=FORM), seed=0)
BEGUN = msgspec.structs.replace(NEW, resume=Resumption(choices=[]))


@pytest.fixture
def grammars() -> Grammars:
    return Grammars(ServedModel(resolve_model("turnout-tiny"), 4096, frozenset({0})), 3.0)


@pytest.fixture
def refuse_threads(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], list[str]]:
    """Has the system refuse the threads that compile, so many times; returns the list of those refused."""
    start = threading.Thread.start
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.01)

    def refuse(times: float) -> list[str]:
        refused: list[str] = []

        def started(thread: threading.Thread, *args: Any) -> None:
            if thread.name == "compile" and len(refused) < times:
                refused.append(thread.name)
                raise RuntimeError("can't start new thread")
            start(thread, *args)

        monkeypatch.setattr(threading.Thread, "start", started)
        return refused

    return refuse


def test_a_request_that_has_begun_waits_for_room(
    grammars: Grammars, refuse_threads: Callable[[float], list[str]]
) -> None:
    refused = refuse_threads(2)
    preparing = Preparing(grammars, FORM, BEGUN)
    preparing()
    assert preparing.grammar is not None and preparing.grammar.form == FORM
    assert len(refused) == 2


def test_a_new_one_is_refused(grammars: Grammars, refuse_threads: Callable[[float], list[str]]) -> None:
    refused = refuse_threads(2)
    with pytest.raises(Overloaded, match="no thread can be started"):
        Preparing(grammars, FORM, NEW)()
    assert len(refused) == 1


def test_it_waits_no_longer_than_the_limit(
    grammars: Grammars, refuse_threads: Callable[[float], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = refuse_threads(float("inf"))
    monkeypatch.setattr(limits, "FORM_ROOM", replace(limits.FORM_ROOM, most=0.5))
    for spec in (NEW, BEGUN):  # the first starts the process that compiles
        with pytest.raises(Overloaded, match="no thread can be started"):
            Preparing(grammars, FORM, spec)()
    assert len(refused) > 2


def test_it_ends_when_its_client_leaves(
    grammars: Grammars, refuse_threads: Callable[[float], list[str]]
) -> None:
    refused = refuse_threads(float("inf"))
    preparing = Preparing(grammars, FORM, BEGUN)
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(preparing)
        eventually(lambda: refused, 60)
        preparing.cancel()
        assert isinstance(waiting.exception(10), ClaimEnded)
