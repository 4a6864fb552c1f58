"""What the kit makes by hand is what policies and processors are given."""

from __future__ import annotations

from turnout import SamplingParams
from turnout.testing.factories import made_request, made_row, made_view


def test_a_newcomer_wants_its_prompt() -> None:
    request = made_request("a", [5, 6, 7], arrival=2.0, client="me", priority=-1, deadline=3.0).view
    assert (request.id, request.client, request.priority, request.arrival) == ("a", "me", -1, 2.0)
    assert (request.deadline, request.ttft_deadline, request.max_tokens) == (5.0, None, 16)
    assert (request.prompt, request.pending, request.output_tokens) == ((5, 6, 7), 3, 0)
    assert not request.decoding


def test_who_has_an_output_wants_one_token_more() -> None:
    request = made_request(output=[8, 9], params=SamplingParams(max_tokens=7)).view
    assert (request.pending, request.output_tokens, request.max_tokens, request.decoding) == (1, 2, 7, True)


def test_a_view_has_them_in_order_and_answers_its_questions() -> None:
    waiting, running = [made_request("a"), made_request("b")], [made_request("c", output=[1])]
    view = made_view(waiting, running, now=9.0)
    assert [request.id for request in (*view.running, *view.waiting)] == ["c", "a", "b"]
    assert view.running[0] is running[0].view and view.now == 9.0
    first = view.waiting[0]
    assert (view.fits(first), view.cached(first), view.predict(first)) == (True, 0, 16.0)


def test_a_row_is_behind_output_and_drafts() -> None:
    row = made_row(made_request(prompt=[1, 2], output=[3, 4]), draft_tokens=[5])
    assert (row.position, row.output_length, row.last(2)) == (5, 3, [4, 5])
