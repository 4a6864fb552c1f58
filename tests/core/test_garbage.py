"""Python's garbage collector leaves out what was there before serving began, and looks less often then."""

from __future__ import annotations

import gc

from turnout.core.process import NEW_OBJECTS, freeze_garbage


def test_what_is_there_is_left_out_until_serving_ends() -> None:
    before = gc.get_freeze_count()
    with freeze_garbage():
        assert gc.get_freeze_count() > before
    assert gc.get_freeze_count() == 0


def test_collections_are_rarer_until_serving_ends() -> None:
    before = gc.get_threshold()
    with freeze_garbage():
        assert gc.get_threshold() == (NEW_OBJECTS, *before[1:])
    assert gc.get_threshold() == before


def test_garbage_is_still_found() -> None:
    class Ring:
        def __init__(self) -> None:
            self.own = self

    with freeze_garbage():
        for _ in range(3 * NEW_OBJECTS):
            Ring()
        assert sum(isinstance(each, Ring) for each in gc.get_objects()) < 2 * NEW_OBJECTS
