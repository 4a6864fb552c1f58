"""What a client sees of a choice does not depend on how its tokens arrive."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from turnout.core.types.logprobs import TokenLogprobs
from turnout.core.types.messages import Delta
from turnout.core.types.sampling_params import SamplingParams
from turnout.text.choice_text import ChoiceText, ShownToken, TextDelta
from turnout.text.tokenizer import Tokenizer


def deltas(
    ids: list[int], sizes: list[int], finish: str = "length", stop_token: int | None = None
) -> list[Delta]:
    cut, parts = 0, []
    for size in [*sizes, len(ids)]:
        parts.append(ids[cut : cut + size])
        cut += size
    return [
        Delta(
            request_id="r",
            tokens=part,
            logprobs=[TokenLogprobs(token, -1.0, []) for token in part],
            finish_reason=finish if last else None,
            stop_token=stop_token if last else None,
        )
        for part, last in zip(parts, [False] * (len(parts) - 1) + [True], strict=True)
    ]


def serve(tokenizer: Tokenizer, feed: list[Delta], **params: object) -> tuple[list[TextDelta], ChoiceText]:
    choice = ChoiceText(tokenizer, SamplingParams(**params), ())  # type: ignore[arg-type]
    return [choice.feed(delta) for delta in feed], choice


def text(pieces: list[TextDelta]) -> str:
    return "".join(piece.text for piece in pieces)


def shown(pieces: list[TextDelta]) -> list[ShownToken]:
    return [token for piece in pieces for token in piece.shown]


@settings(deadline=None)
@given(
    content=st.text("ab你🚀 ", max_size=12),
    sizes=st.lists(st.integers(0, 3), max_size=8),
    stops=st.lists(st.text("ab你🚀 ", min_size=1, max_size=3), max_size=2),
    include=st.booleans(),
    min_tokens=st.integers(0, 4),
)
def test_arrival_does_not_matter(
    bytewise: Tokenizer, content: str, sizes: list[int], stops: list[str], include: bool, min_tokens: int
) -> None:
    ids = bytewise.encode(content)
    options = {"stop": tuple(stops), "include_stop_str_in_output": include, "min_tokens": min_tokens}
    pieces, choice = serve(bytewise, deltas(ids, sizes), **options)
    whole, other = serve(bytewise, deltas(ids, []), **options)
    assert text(pieces) == text(whole)
    assert shown(pieces) == shown(whole)
    assert choice.token_count == other.token_count == sum(len(piece.tokens) for piece in pieces)
    assert choice.finish_reason == other.finish_reason
    if not choice.stopped_by_text:
        assert text(pieces) == content
        assert [token.logprobs.token for token in shown(pieces)] == ids
    elif not include and not min_tokens:
        assert not any(stop in text(pieces) for stop in stops)


def test_a_stop_string_over_several_tokens_never_leaks(bytewise: Tokenizer) -> None:
    ids = bytewise.encode("go on\nSTOP here")
    pieces, choice = serve(bytewise, deltas(ids, [1] * len(ids)), stop=("\nSTOP",))
    assert text(pieces) == "go on"
    assert choice.stopped_by_text and choice.finish_reason == "stop"
    assert next(piece.stop_reason for piece in pieces if piece.finish_reason) == "\nSTOP"
    assert choice.token_count < len(ids)


def test_what_only_looked_like_a_stop_is_shown_at_the_end(bytewise: Tokenizer) -> None:
    ids = bytewise.encode("go on\nST")
    pieces, choice = serve(bytewise, deltas(ids, [1] * len(ids)), stop=("\nSTOP",))
    assert pieces[-1].text == "\nST"
    assert choice.finish_reason == "length"


def test_logprobs_cover_the_text_that_is_shown(bytewise: Tokenizer) -> None:
    ids = bytewise.encode("xyzw")
    pieces, _ = serve(bytewise, deltas(ids, [1] * len(ids)), stop=("z",))
    assert [(token.logprobs.token, token.offset) for token in shown(pieces)] == [(ids[0], 0), (ids[1], 1)]
    pieces, _ = serve(bytewise, deltas(ids, [1] * len(ids)), stop=("z",), include_stop_str_in_output=True)
    assert text(pieces) == "xyz" and len(shown(pieces)) == 3


def test_logprobs_of_a_hidden_token_before_a_stop_string_come_anyway(
    bytewise: Tokenizer,
) -> None:
    """A special token that has no text was shown if it came before the stop string, but not if with it."""
    ids = [*bytewise.encode("a"), min(bytewise.special_ids), *bytewise.encode("STOP")]
    for sizes in [1] * len(ids), []:
        pieces, _ = serve(bytewise, deltas(ids, sizes), stop=("STOP",))
        assert [(token.logprobs.token, token.offset) for token in shown(pieces)] == [(ids[0], 0), (ids[1], 1)]


def test_logprobs_of_a_character_come_with_it(bytewise: Tokenizer) -> None:
    ids = bytewise.encode("🦀")
    pieces, _ = serve(bytewise, deltas(ids, [1] * len(ids)))
    assert [(piece.text, len(piece.shown)) for piece in pieces if piece.text] == [("🦀", len(ids))]


@settings(deadline=None)
@given(data=st.data())
def test_offsets_are_where_the_first_byte_of_a_token_is(bytewise: Tokenizer, data: st.DataObject) -> None:
    """A token that followed an incomplete character had the place of the U+FFFD in front of it."""
    assert bytewise.bytes_of is not None
    ids = data.draw(st.lists(st.sampled_from(bytewise.encode("a你🚀"))))
    pieces, _ = serve(bytewise, deltas(ids, [1] * len(ids)))
    spelt = [bytewise.bytes_of(id) for id in ids]
    begins = [b"".join(spelt[:count]) + spelt[count][:1] for count in range(len(ids))]
    assert [token.offset for token in shown(pieces)] == [
        len(begin.decode(errors="replace")) - 1 for begin in begins
    ]


def test_a_stop_string_behind_an_incomplete_character_is_not_shown(bytewise: Tokenizer) -> None:
    ids = [bytewise.encode("🦀")[0], *bytewise.encode("z")]
    pieces, _ = serve(bytewise, deltas(ids, [1] * len(ids)), stop=("z",))
    assert text(pieces) == "\ufffd" and [token.offset for token in shown(pieces)] == [0]


def test_a_stop_token_is_counted_but_not_shown(bytewise: Tokenizer) -> None:
    ids = bytewise.encode("abc")
    feed = deltas(ids, [], finish="stop", stop_token=ids[-1])
    pieces, choice = serve(bytewise, feed, stop_token_ids=(ids[-1],), skip_special_tokens=False)
    assert text(pieces) == "ab" and len(shown(pieces)) == 2
    assert choice.token_count == 3 and pieces[-1].stop_reason == ids[-1]
    pieces, _ = serve(bytewise, feed, stop_token_ids=(ids[-1],), include_stop_str_in_output=True)
    assert text(pieces) == "abc"
    pieces, _ = serve(bytewise, feed)
    assert pieces[-1].stop_reason is None  # the model's own end-of-sequence token


def test_nothing_comes_after_the_end(bytewise: Tokenizer) -> None:
    ids = bytewise.encode("stop and more")
    _, choice = serve(bytewise, deltas(ids, [len(ids)]), stop=("stop",))
    assert choice.feed(Delta(request_id="r", tokens=ids)) == TextDelta(index=0)
