"""What scripts may give as prompts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from turnout.core.errors import RequestError
from turnout.text.prompt.given_prompts import given_prompts


@pytest.mark.parametrize(
    ("given", "prompts"),
    [
        ("a text", ["a text"]),
        (["a", "b"], ["a", "b"]),
        (("a", [1, 2]), ["a", [1, 2]]),
        ((text for text in ("a", "b")), ["a", "b"]),
        ([1, 2], [[1, 2]]),
        ([[1, 2], [3]], [[1, 2], [3]]),
        (np.array([1, 2]), [[1, 2]]),
        (np.array([[1], [2]]), [[1], [2]]),
        ([np.array([1]), np.array([2, 3])], [[1], [2, 3]]),
        (torch.tensor([1, 2]), [[1, 2]]),
        ([torch.tensor([1]), torch.tensor([2])], [[1], [2]]),
        ({"prompt": "a"}, ["a"]),
        ({"prompt_token_ids": [1, 2]}, [[1, 2]]),
        ([{"prompt_token_ids": [1], "prompt": "a"}, {"prompt": "b", "prompt_token_ids": None}], [[1], "b"]),
        ([], []),
        ([[]], [[]]),
    ],
)
def test_prompts_are_texts_or_lists_of_token_ids(given: Any, prompts: list[object]) -> None:
    found = given_prompts(given)
    assert found == prompts
    assert all(type(token) is int for prompt in found if not isinstance(prompt, str) for token in prompt)


@pytest.mark.parametrize("given", [None, 5, b"ab", True, [None], ["a", 5], [b"ab"], {}, {"prompt": None}])
def test_what_is_no_prompt_is_refused_by_its_type(given: Any) -> None:
    with pytest.raises(RequestError, match=r"a prompt is a text, a list of token ids, .*, not \w+$"):
        given_prompts(given)


@pytest.mark.parametrize(
    ("tokens", "kind"), [([1, 2.5], "float"), ([1, "a"], "str"), ([1, None], "NoneType")]
)
def test_token_ids_are_integers(tokens: list[Any], kind: str) -> None:
    with pytest.raises(RequestError, match=f"token ids are integers, not {kind}$"):
        given_prompts(tokens)


def test_what_a_dictionary_has_besides_is_refused_by_name() -> None:
    with pytest.raises(RequestError, match="'prompt' and 'prompt_token_ids', not 'multi_modal_data'"):
        given_prompts({"prompt": "a", "multi_modal_data": {}})
