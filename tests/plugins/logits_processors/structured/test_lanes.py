"""Who is compiled next: clients take turns, a claim that ended is gone, and the line has an end."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from running_server import eventually

from turnout.core.errors import Overloaded
from turnout.plugins.logits_processors.structured.claims import Claim
from turnout.plugins.logits_processors.structured.lanes import Lane


class Line:
    """A lane with one place, and claims that come one after the other."""

    def __init__(self, most_waiting: int = 10) -> None:
        self.lane = Lane(1, most_waiting)
        self.served: list[str] = []
        self.threads = ThreadPoolExecutor()

    def take(self, name: str, claim: Claim, leave: threading.Event | None = None) -> Future[bool]:
        """Wait for the place, and leave it when told, or at once."""

        def wait() -> bool:
            with self.lane.place(claim) as got:
                if got:
                    self.served.append(name)
                    if leave is not None:
                        leave.wait(10)
                return got

        before = self.lane.waiting
        future = self.threads.submit(wait)
        eventually(lambda: future.done() or self.lane.waiting > before or name in self.served)
        return future


def test_a_client_that_asks_for_much_waits_for_itself() -> None:
    line, leave = Line(), threading.Event()
    busy = [line.take("much 0", Claim("much"), leave)]
    busy += [line.take(f"much {i}", Claim("much")) for i in range(1, 4)]
    busy += [line.take("little", Claim("little"))]
    leave.set()
    assert all(future.result() for future in busy)
    assert line.served == ["much 0", "little", "much 1", "much 2", "much 3"]


def test_a_claim_that_ended_gets_no_place_and_holds_up_nobody() -> None:
    line, leave, claim = Line(), threading.Event(), Claim()
    first = line.take("first", Claim(), leave)
    gone = line.take("gone", claim)
    last = line.take("last", Claim())
    claim.end()
    assert gone.result() is False
    leave.set()
    assert first.result() and last.result()
    assert line.served == ["first", "last"] and line.lane.waiting == 0


def test_the_line_has_an_end_but_not_for_all() -> None:
    line, leave = Line(most_waiting=1), threading.Event()
    first, second = line.take("first", Claim(), leave), line.take("second", Claim())
    with pytest.raises(Overloaded, match="too many forms"):
        line.take("third", Claim()).result()
    another = line.take("another client", Claim("another"))
    admitted_before = line.take("resumed", Claim(bounded=False))
    leave.set()
    assert first.result() and second.result() and admitted_before.result() and another.result()
