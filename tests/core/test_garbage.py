"""Python's garbage collector does not look through what was there before serving began."""

from __future__ import annotations

import gc

from turnout.core.process import freeze_garbage


def test_what_is_there_is_left_out_until_serving_ends() -> None:
    before = gc.get_freeze_count()
    with freeze_garbage():
        assert gc.get_freeze_count() > before
    assert gc.get_freeze_count() == 0
