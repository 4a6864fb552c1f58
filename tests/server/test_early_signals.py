"""A signal in the middle of a start ends it, whatever the code that it interrupts makes of it."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

import pytest

from turnout.server.early_signals import early_signals

pytestmark = pytest.mark.usefixtures("hangs_up")
NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.mark.parametrize("number", NUMBERS)
def test_it_ends_the_block(number: signal.Signals) -> None:
    before = [signal.getsignal(each) for each in NUMBERS]
    with early_signals() as early:
        os.kill(os.getpid(), number)
        raise AssertionError("it was not interrupted")
    assert early.came
    assert [signal.getsignal(each) for each in NUMBERS] == before


def test_a_library_makes_another_error_of_it() -> None:
    with early_signals():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except KeyboardInterrupt:
            raise ValueError("Error building a validator") from None
        raise AssertionError("it was not interrupted")


def test_a_library_loses_it() -> None:
    with early_signals() as early:
        with suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
        assert early.came


class InterruptsItself:
    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("it was not interrupted")


def test_a_finalizer_loses_it(capfd: pytest.CaptureFixture[str]) -> None:
    with early_signals() as early:
        InterruptsItself()
        assert early.came
    assert capfd.readouterr().err == ""


def test_errors_without_a_signal_are_raised() -> None:
    with pytest.raises(ValueError, match="a mistake"), early_signals():
        raise ValueError("a mistake")
