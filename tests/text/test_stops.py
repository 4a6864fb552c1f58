"""Stop strings are found wherever the text is cut into pieces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from turnout.text.stops import StopFound, StopMatcher

LETTERS = "ab"
STOPS = st.lists(st.text(LETTERS, min_size=1, max_size=5), max_size=4)


def brute_force(text: str, stops: list[str]) -> StopFound | None:
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            return StopFound(max(complete, key=len), end)
    return None


@given(pieces=st.lists(st.text(LETTERS, max_size=4)), stops=STOPS)
def test_against_brute_force(pieces: list[str], stops: list[str]) -> None:
    matcher, text = StopMatcher(stops), ""
    for piece in pieces:
        text += piece
        found = matcher.feed(piece)
        assert found == brute_force(text, stops)
        if found:
            return
        held = max((k for stop in stops for k in range(len(stop)) if text.endswith(stop[:k])), default=0)
        assert matcher.partial == held


def test_what_is_complete_too_early_is_ordinary_text() -> None:
    matcher = StopMatcher(["aa"])
    assert matcher.feed("aa", may_stop=False) is None
    assert matcher.partial == 1
    assert matcher.feed("a") == StopFound("aa", 3)


def test_of_two_complete_at_once_the_longer_wins() -> None:
    assert StopMatcher(["b", "ab"]).feed("xab") == StopFound("ab", 3)
