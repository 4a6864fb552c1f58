"""Stop strings are found wherever the text is cut into pieces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from turnout.text.stops import StopFound, StopMatcher, StopStrings

LETTERS = "ab"
STOPS = st.lists(st.text(LETTERS, min_size=1, max_size=5), max_size=4)


def brute_force(text: str, stops: list[str], read: int) -> StopFound | None:
    for end in range(read + 1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            return StopFound(max(complete, key=len), end)
    return None


@given(pieces=st.lists(st.tuples(st.text(LETTERS, max_size=4), st.booleans())), stops=STOPS)
def test_against_brute_force(pieces: list[tuple[str, bool]], stops: list[str]) -> None:
    matcher, text = StopMatcher(StopStrings(stops)), ""
    for piece, may_stop in pieces:
        read, text = len(text), text + piece
        found = matcher.feed(piece, may_stop=may_stop)
        assert found == (brute_force(text, stops, read) if may_stop else None)
        if found:
            return
        held = max((k for stop in stops for k in range(len(stop)) if text.endswith(stop[:k])), default=0)
        assert matcher.partial == held


def test_what_is_complete_too_early_is_ordinary_text() -> None:
    matcher = StopMatcher(StopStrings(["aa"]))
    assert matcher.feed("aa", may_stop=False) is None
    assert matcher.partial == 1
    assert matcher.feed("a") == StopFound("aa", 3)


def test_of_two_complete_at_once_the_longer_wins() -> None:
    assert StopMatcher(StopStrings(["b", "ab"])).feed("xab") == StopFound("ab", 3)


def test_a_long_stop_string_costs_what_the_text_resembles_of_it() -> None:
    """A table over all of it was built in Python for each choice: 1 MB and n=32 took the event loop 5 s."""
    stops = StopStrings(["a" * 1_000_000])
    matchers = [StopMatcher(stops) for _ in range(32)]
    for matcher in matchers:
        assert matcher.feed("baa") is None and matcher.partial == 2
    (pattern,) = stops.patterns
    assert len(pattern._borders) <= 4


def test_choices_share_what_is_known_of_a_stop_string() -> None:
    stops = StopStrings(["aab"])
    first, second = StopMatcher(stops), StopMatcher(stops)
    assert first.feed("aa") is None and first.partial == 2
    assert second.partial == 0
    assert first.feed("ab") == StopFound("aab", 4)
    assert second.feed("aab") == StopFound("aab", 3)
