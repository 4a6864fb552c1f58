"""A choice that is answered in one piece is what its deltas were, joined."""

from __future__ import annotations

from itertools import pairwise

from turnout.core.types.logprobs import TokenLogprobs
from turnout.server.generation.gathered import PIECES, GatheredChoice
from turnout.text.choice_text import ShownToken, TextDelta
from turnout.text.output.events import Text, ToolArguments, ToolBegin, ToolEnd


def shown(token: int) -> ShownToken:
    return ShownToken(TokenLogprobs(token, -1.5, [(token, -1.5), (9, -2.0)]), token)


def test_all_of_it_is_joined() -> None:
    choice = GatheredChoice(token_ids=True)
    for number in range(3 * PIECES + 5):
        choice.add(TextDelta(3, f"{number},", [number], [shown(number)], token_count=number + 1))
    choice.add(TextDelta(3, "end", finish_reason="stop", stop_reason="x", cumulative_logprob=-7.0))
    whole, count = choice.whole(), 3 * PIECES + 5
    assert whole.text == "".join(f"{number}," for number in range(count)) + "end"
    assert whole.tokens == list(range(count))
    assert list(whole.shown) == [shown(number) for number in range(count)] == whole.shown[:]
    assert whole.shown[-1] == shown(count - 1)
    assert (whole.index, whole.finish_reason, whole.stop_reason, whole.cumulative_logprob) == (
        3,
        "stop",
        "x",
        -7.0,
    )


def test_tokens_that_no_client_wants_are_not_kept() -> None:
    choice = GatheredChoice(token_ids=False)
    choice.add(TextDelta(0, "a", [1]))
    assert choice.whole().tokens == []


def test_parts_are_joined_as_they_come() -> None:
    choice = GatheredChoice(token_ids=False)
    events = [Text("a")] * 100 + [ToolBegin(0, "f")] + [ToolArguments(0, "1")] * 100 + [ToolEnd(0)] * 2
    for event in events:
        choice.add(TextDelta(0, events=[event]))
    assert choice.whole().events == [
        Text("a" * 100),
        ToolBegin(0, "f"),
        ToolArguments(0, "1" * 100),
        ToolEnd(0),
        ToolEnd(0),
    ]


def test_its_size_grows_with_what_it_keeps() -> None:
    choice, sizes = GatheredChoice(token_ids=False), [0]
    for number in range(10):
        choice.add(TextDelta(0, "a", [number], [shown(number)]))
        sizes.append(choice.size)
    assert all(40 < after - before < 400 for before, after in pairwise(sizes))
