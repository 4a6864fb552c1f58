"""What all tests share."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

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


@pytest.fixture(scope="session")
def one_thread() -> Iterator[None]:
    """Threads that wait for each other cost far more than matrices as small as a test's."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
