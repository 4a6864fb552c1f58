"""Python's garbage collector leaves out what was there before serving began, and looks less often then."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest

from turnout.core.process import NEW_OBJECTS, freeze_garbage


def test_what_is_there_is_left_out_until_serving_ends() -> None:
    before = gc.get_freeze_count()
    with freeze_garbage():
        assert gc.get_freeze_count() > before
    assert gc.get_freeze_count() == 0


@pytest.fixture
def _threshold() -> Iterator[None]:
    """That of Python, whatever a library has set in this process."""
    found = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*found)


@pytest.mark.usefixtures("_threshold")
def test_collections_are_rarer_until_serving_ends() -> None:
    before = gc.get_threshold()
    with freeze_garbage():
        assert gc.get_threshold() == (NEW_OBJECTS, *before[1:])
    assert gc.get_threshold() == before


@pytest.mark.usefixtures("_threshold")
def test_collections_that_a_library_has_made_rarer_stay_so() -> None:
    gc.set_threshold(2 * NEW_OBJECTS, 20, 50)
    with freeze_garbage():
        assert gc.get_threshold() == (2 * NEW_OBJECTS, 20, 50)
    assert gc.get_threshold() == (2 * NEW_OBJECTS, 20, 50)


@pytest.mark.usefixtures("_threshold")
def test_garbage_is_still_found() -> None:
    class Ring:
        def __init__(self) -> None:
            self.own = self

    with freeze_garbage():
        for _ in range(3 * NEW_OBJECTS):
            Ring()
        assert sum(isinstance(each, Ring) for each in gc.get_objects()) < 2 * NEW_OBJECTS


ENDS = """
import atexit, gc
atexit.register(lambda: print(gc.get_freeze_count() > 0))  # handlers run in the reverse order
from turnout.core.process import begin_program
begin_program()
"""


def test_a_program_that_ends_does_not_look_for_garbage() -> None:
    done = subprocess.run([sys.executable, "-c", ENDS], check=True, capture_output=True, text=True)
    assert done.stdout == "True\n"
