"""What scripts may give as conversations."""

from __future__ import annotations

from typing import Any

import pytest

from turnout.core.errors import RequestError
from turnout.text.prompt.given_conversations import given_conversations

HI = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    ("given", "conversations"),
    [([HI], [[HI]]), ([[HI], (HI, HI)], [[HI], [HI, HI]]), (iter([HI]), [[HI]]), ([], [])],
)
def test_one_conversation_or_several(given: Any, conversations: list[object]) -> None:
    assert given_conversations(given) == conversations


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ("hi", "a conversation is a list of messages such as .*, not str"),
        (None, "not NoneType"),
        (HI, "a conversation is a list of messages such as .*, not dict"),
        (["hi"], "a conversation is a list of messages such as .*, not str"),
        ([HI, "hi"], "a message is such as .*, not str"),
        ([{"content": "hi"}], "a message has a text as its role, not None"),
        ([{"role": 5}], "a message has a text as its role, not 5"),
        ([[]], "at least one message"),
    ],
)
def test_what_is_none_is_refused(given: Any, match: str) -> None:
    with pytest.raises(RequestError, match=match):
        given_conversations(given)
