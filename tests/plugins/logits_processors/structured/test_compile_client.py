"""The compile process: what dies in it is told, and whatever dies is replaced."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from running_server import eventually

from turnout.core.interfaces.logits_processor import ServedModel
from turnout.core.types.structured_outputs import StructuredOutputs
from turnout.models.hub.resolve import resolve_model
from turnout.plugins.logits_processors.structured.claims import Claim
from turnout.plugins.logits_processors.structured.compile_client import TOO_LONG, CompileProcess
from turnout.plugins.logits_processors.structured.exact_tokenizer import read_vocabulary

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks at processes in /proc")

SMALL = StructuredOutputs(choice=("a", "b"))
SLOW = StructuredOutputs(json='{"properties": {"a": {"type": "integer", "multipleOf": 999983}}}')
CHAIN = "\n".join(["start: r0", *(f"r{i}: r{i + 1}" for i in range(5000)), 'r5000: "z"'])


OTHERS: set[int] = set()
"""Processes that other tests have started."""


@pytest.fixture(scope="module")
def process() -> Iterator[CompileProcess]:
    OTHERS.update(children(os.getpid()))
    vocabulary = read_vocabulary(ServedModel(resolve_model("turnout-tiny"), 4096, frozenset({0})))
    yield CompileProcess(lambda: vocabulary)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def compile_process() -> int:
    """Pid of the compile process, which must have started."""
    (pid,) = [
        pid
        for pid in children(os.getpid())
        if pid not in OTHERS and b"compile_process" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    return pid


def test_a_verdict_has_the_source_or_the_reason(process: CompileProcess) -> None:
    good = process.tried(SMALL, 5, Claim())
    bad = process.tried(StructuredOutputs(regex="["), 5, Claim())
    assert good and good.source.startswith("start:") and not good.reason and not good.signal
    assert bad and "unclosed character class" in bad.reason and not bad.source


def test_one_worker_tries_one_form_after_the_other(process: CompileProcess) -> None:
    process.tried(SMALL, 5, Claim())
    workers = children(compile_process())
    for i in range(5):
        process.tried(StructuredOutputs(choice=(f"a{i}",)), 5, Claim())
    assert children(compile_process()) == workers


def test_what_killed_a_worker_is_told_and_another_takes_its_place(process: CompileProcess) -> None:
    crashed = process.tried(StructuredOutputs(grammar=CHAIN), 5, Claim())
    late = process.tried(SLOW, 0.1, Claim())
    assert crashed and crashed.signal == signal.SIGSEGV
    assert late and late.signal == TOO_LONG
    assert process.tried(SMALL, 5, Claim())


def test_started_ahead_it_has_a_worker_for_the_first_form() -> None:
    """The first form of a server took 190 to 530 ms."""
    others = set(children(os.getpid()))
    vocabulary = read_vocabulary(ServedModel(resolve_model("turnout-tiny"), 4096, frozenset({0})))
    started = CompileProcess(lambda: vocabulary)
    started.warm_up()
    (pid,) = set(children(os.getpid())) - others
    eventually(lambda: len(children(pid)) == 1)
    workers = children(pid)
    assert started.tried(SMALL, 5, Claim())
    assert set(children(os.getpid())) - others == {pid} and children(pid) == workers


def test_a_claim_that_ends_kills_its_worker(process: CompileProcess) -> None:
    claim = Claim()
    threading.Timer(0.3, claim.end).start()
    assert process.tried(SLOW, 60, claim) is None
    process.tried(SMALL, 5, Claim())
    eventually(lambda: len(children(compile_process())) <= 2)
    assert process.tried(SMALL, 5, claim) is None


def test_the_process_is_started_again(process: CompileProcess) -> None:
    process.tried(SMALL, 5, Claim())
    before = compile_process()
    os.kill(before, signal.SIGKILL)
    for _ in range(3):  # idle workers may outlive it
        verdict = process.tried(SMALL, 5, Claim())
        assert verdict and verdict.source
    process.tried(SLOW, 0.1, Claim())
    process.tried(SLOW, 0.1, Claim())
    assert compile_process() != before


def test_all_end_with_who_started_them() -> None:
    vocabulary = read_vocabulary(ServedModel(resolve_model("turnout-tiny"), 4096, frozenset({0})))
    before = set(children(os.getpid()))
    process = CompileProcess(lambda: vocabulary)
    process.tried(SMALL, 5, Claim())
    (pid,) = set(children(os.getpid())) - before
    workers = children(pid)
    assert workers
    del process
    eventually(lambda: not any(Path(f"/proc/{worker}").exists() for worker in [pid, *workers]))
