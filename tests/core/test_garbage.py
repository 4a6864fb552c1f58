"""The garbage collector leaves alone what exists already, and looks less often at what is new."""

from __future__ import annotations

import gc

from turnout.core.process import NEW_OBJECTS, freeze_garbage


def test_settings_hold_for_the_block() -> None:
    before = gc.get_threshold()
    with freeze_garbage():
        assert gc.get_freeze_count() > 0
        assert gc.get_threshold() == (NEW_OBJECTS, *before[1:])
    assert gc.get_freeze_count() == 0
    assert gc.get_threshold() == before


def test_garbage_is_still_found() -> None:
    class Ring:
        def __init__(self) -> None:
            self.own = self

    with freeze_garbage():
        for _ in range(3 * NEW_OBJECTS):
            Ring()
        assert sum(isinstance(each, Ring) for each in gc.get_objects()) < 2 * NEW_OBJECTS
