"""Tokens that came together are read one by one, and what they add is one again."""

from __future__ import annotations

from turnout.core.types.logprobs import TokenLogprobs
from turnout.core.types.messages import Delta
from turnout.text.choice_text import ShownToken, TextDelta
from turnout.text.output.events import Text
from turnout.text.split.one_by_one import joined, one_by_one


def test_each_token_has_its_delta_and_the_last_all_else() -> None:
    scores = [TokenLogprobs(number, -1.0, []) for number in range(3)]
    whole = Delta(
        request_id="a", index=1, tokens=[7, 8, 9], logprobs=scores, finish_reason="stop", stop_token=9
    )
    assert list(one_by_one(whole)) == [
        Delta(request_id="a", index=1, tokens=[7], logprobs=scores[:1]),
        Delta(request_id="a", index=1, tokens=[8], logprobs=scores[1:2]),
        Delta(request_id="a", index=1, tokens=[9], logprobs=scores[2:], finish_reason="stop", stop_token=9),
    ]
    for few in ([], [7]):
        delta = Delta(request_id="a", tokens=few, finish_reason="length")
        assert list(one_by_one(delta)) == [delta]


def test_what_was_added_is_joined() -> None:
    shown = [ShownToken(TokenLogprobs(number, -1.0, []), number) for number in range(2)]
    first = TextDelta(0, "ab", [1], shown[:1], token_count=1, events=[Text("ab")])
    last = TextDelta(0, "c", [2], shown[1:], "stop", token_count=2, events=[Text("c")])
    assert joined([first]) is first
    assert joined([first, last]) == TextDelta(
        0, "abc", [1, 2], shown, "stop", token_count=2, events=[Text("abc")], answered=[]
    )


def test_what_was_read_of_each_adds_up() -> None:
    answered = [ShownToken(TokenLogprobs(number, -1.0, []), number) for number in range(2)]
    first = TextDelta(0, reasoning_tokens=2, answered=answered[:1])
    last = TextDelta(0, reasoning_tokens=1, answered=answered[1:])
    both = joined([first, last])
    assert both.reasoning_tokens == 3 and both.answered == answered
