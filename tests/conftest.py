"""What all tests share."""

from __future__ import annotations

import os
import signal

import pytest

# Before anything imports them: no test may reach for a hub or wait for one.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
if "PYTEST_XDIST_WORKER" in os.environ:  # threads that wait for each other take long
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell starts in the background with SIGINT ignored, and what tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--kv-cases",
        type=_range,
        metavar="FIRST:END",
        help="Seeds of the cases that tests/kv/test_oracle.py serves, and seeds with faults.",
    )
    parser.addoption(
        "--kv-minutes",
        type=float,
        default=10.0,
        metavar="MINUTES",
        help="How long tests/kv/test_oracle.py goes on with fresh cases, under -m slow; by default 10.",
    )


def _range(text: str) -> range:
    first, _, end = text.partition(":")
    return range(int(first), int(end))
