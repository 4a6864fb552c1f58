"""The house keeps its shape: few arrows between rooms, no circle, no folder too full to read."""

from __future__ import annotations

from turnout.scripts import rooms


def test_bounds_of_rooms_arrows_and_files_hold() -> None:
    assert not rooms.complaints()


def test_a_circle_would_be_found() -> None:
    arrows = {("a", "b"): 1, ("b", "c"): 2, ("c", "a"): 1, ("d", "a"): 1}
    folder = rooms.Folder("here", frozenset("abcd"), arrows, 0)
    assert folder.circle == ["a", "b", "c"]


def test_imports_for_type_checking_count() -> None:
    assert ("core/interfaces/decoding.py", "core/types/plan.py") in rooms.imports()
