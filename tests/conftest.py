"""What all tests share."""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

# Before anything imports them: no test may reach for a hub or wait for one.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
if not os.path.exists("/dev/nvidiactl"):
    # Triton reads it when it is imported, which transformers may do before tests/gpu is collected.
    os.environ.setdefault("TRITON_INTERPRET", "1")
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
        help="Seeds of the cases that test_oracle.py serves, and seeds with faults.",
    )
    parser.addoption(
        "--kv-minutes",
        type=float,
        default=10.0,
        metavar="MINUTES",
        help="How long test_oracle.py goes on with fresh cases, under -m slow; by default 10.",
    )


def _range(text: str) -> range:
    first, _, end = text.partition(":")
    return range(int(first), int(end))


# ------------------------------------------------------------------ what hangs ends
#
# pytest-timeout raises an exception in the main thread: not while another holds the GIL or a call goes on in
# spite of signals, and not in the teardown of a test that failed. Well after a test's time, a thread without
# the GIL ends the process with the tracebacks of all threads, and pytest-xdist starts another worker.

GRACE = 120.0
"""Seconds that a test has after pytest-timeout has interrupted it."""
END_OF_SESSION = 60.0
"""Seconds that a process has for what it does after its last test."""
LIMIT = pytest.StashKey[float]()
"""Seconds after which a test ends its process; none for one that has no timeout."""
STDERR = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[STDERR] = os.dup(2)  # before pytest captures what tests write there


def _end_after(seconds: float, config: pytest.Config) -> None:
    faulthandler.dump_traceback_later(seconds, exit=True, file=config.stash[STDERR])


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:
    item.stash[LIMIT] = settings.timeout + GRACE
    _end_when_it_hangs(item)


def _end_when_it_hangs(item: pytest.Item) -> None:
    if LIMIT in item.stash:
        _end_after(item.stash[LIMIT], item.config)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Anew, since pytest cancels it where a test fails, for those who then debug."""
    _end_when_it_hangs(item)


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, sched: Any) -> None:
    """One failure: pytest-xdist would give the test to the next worker, until too many have ended."""
    file = crashitem.partition("::")[0]
    if unit := getattr(sched, "workqueue", {}).get(file):
        unit[crashitem] = True
        if all(unit.values()):
            del sched.workqueue[file]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, object, object]:
    """Until the interpreter ends; but a worker waits for others, and pytest-xdist sees to it that it ends."""
    _end_after(END_OF_SESSION, session.config)
    try:
        return (yield)
    finally:
        if "PYTEST_XDIST_WORKER" in os.environ:
            faulthandler.cancel_dump_traceback_later()


# What follows imports torch when it is asked for: many tests never do.


@pytest.fixture(scope="module", autouse=True)
def _what_is_there_is_no_garbage() -> None:
    """All tests and what they import: Python would go through it again and again, for a second each time.

    Once, and after a module whose tests have thawed it (`turnout.core.process.freeze_garbage`).
    """
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="session")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of random weights, small enough to run in milliseconds a step."""
    from turnout.models.random.random_weights import write_random_checkpoint
    from turnout.models.random.shapes import Shape, config_of

    folder = tmp_path_factory.mktemp("random-model")
    shape = Shape(64, 2, 4, 2, 96, 160, max_positions=512, theta=10_000.0)
    write_random_checkpoint(folder, config_of(shape, "qwen2", dtype="float32"), seed=5)
    return folder


@pytest.fixture
def fresh_kernels() -> Iterator[None]:
    """For tests that change which CPU kernels there are: what others find does not depend on their order."""
    from turnout.kernels import choice

    choice._kernels.cache_clear()
    yield
    choice._kernels.cache_clear()


@pytest.fixture(scope="session")
def one_thread() -> Iterator[None]:
    """Threads that wait for each other cost far more than matrices as small as a test's."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
