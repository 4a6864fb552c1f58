"""What a request needs before it is admitted is handed out, to be done in another thread."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from toy import toy_request

from turnout.core.engine.logits_processing import LogitsProcessors
from turnout.core.errors import RequestError
from turnout.core.interfaces.logits_processor import CancellableWork, LogitsProcessor
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams

SPEC = toy_request("r", [1, 2], "greedy", 3)


class Compiling(LogitsProcessor):
    """Has something to do for every request, or fails at that."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.done: list[str] = []
        self.error = error

    def wants(self, params: SamplingParams) -> bool:
        return True

    def prepare(self, spec: RequestSpec) -> Callable[[], object]:
        def work() -> None:
            if self.error:
                raise self.error
            self.done.append(spec.id)

        return work

    def apply(self, logits: object, rows: object) -> None: ...


class Indifferent(Compiling):
    def wants(self, params: SamplingParams) -> bool:
        return False


class Ready(LogitsProcessor):
    """Wants every request, and needs nothing first."""

    def wants(self, params: SamplingParams) -> bool:
        return True

    def apply(self, logits: object, rows: object) -> None: ...


class Panic(BaseException):
    """As a panic of an extension written in Rust, which is no Exception."""


class Cancellable(CancellableWork):
    def __init__(self) -> None:
        self.cancelled = False

    def __call__(self) -> None: ...

    def cancel(self) -> None:
        self.cancelled = True


class CompilingOnDemand(Ready):
    def __init__(self) -> None:
        self.work = Cancellable()

    def prepare(self, spec: RequestSpec) -> CancellableWork:
        return self.work


def test_only_those_that_want_the_request_and_need_something_first_have_work() -> None:
    compiling = Compiling()
    found = LogitsProcessors([("a", compiling), ("b", Indifferent()), ("c", Ready())]).preparation(SPEC)
    assert len(found) == 1 and not compiling.done
    found[0]()
    assert compiling.done == ["r"]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("oh"), "theirs: prepare failed: ValueError: oh"),
        (Panic("at line 3"), "theirs: prepare failed: Panic: at line 3"),
        (RequestError("too deep"), "too deep"),
    ],
)
def test_where_that_fails_the_request_is_refused(error: BaseException, message: str) -> None:
    (work,) = LogitsProcessors([("theirs", Compiling(error))]).preparation(SPEC)
    with pytest.raises(RequestError, match=f"^{message}$"):
        work()


def test_what_ends_the_program_is_no_fault_of_a_processor() -> None:
    (work,) = LogitsProcessors([("theirs", Compiling(KeyboardInterrupt()))]).preparation(SPEC)
    with pytest.raises(KeyboardInterrupt):
        work()


def test_work_that_can_be_cancelled_is_told_and_other_work_is_not_disturbed() -> None:
    processor = CompilingOnDemand()
    for work in LogitsProcessors([("a", processor), ("b", Compiling())]).preparation(SPEC):
        work.cancel()
        work()
    assert processor.work.cancelled
