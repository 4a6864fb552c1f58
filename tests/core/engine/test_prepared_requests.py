"""What a request needs before it is admitted is handed out, to be done in another thread."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from toy import toy_request

from turnout.core.engine.logits_processing import LogitsProcessors
from turnout.core.errors import RequestError
from turnout.core.interfaces.logits_processor import LogitsProcessor
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams

SPEC = toy_request("r", [1, 2], "greedy", 3)


class Compiling(LogitsProcessor):
    """Has something to do for every request, or fails at that."""

    def __init__(self, error: Exception | None = None) -> None:
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


def test_only_those_that_want_the_request_and_need_something_first_have_work() -> None:
    compiling = Compiling()
    found = LogitsProcessors([("a", compiling), ("b", Indifferent()), ("c", Ready())]).preparation(SPEC)
    assert len(found) == 1 and not compiling.done
    found[0]()
    assert compiling.done == ["r"]


@pytest.mark.parametrize(
    ("error", "message"),
    [(ValueError("oh"), "theirs failed: ValueError: oh"), (RequestError("too deep"), "too deep")],
)
def test_where_that_fails_the_request_is_refused(error: Exception, message: str) -> None:
    (work,) = LogitsProcessors([("theirs", Compiling(error))]).preparation(SPEC)
    with pytest.raises(RequestError, match=f"^{message}$"):
        work()
