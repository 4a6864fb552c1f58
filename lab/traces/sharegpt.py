"""ShareGPT: conversations as text, without times."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from turnout.core.errors import ConfigError
from turnout.lab.jobs.job import Job
from turnout.lab.traces.tokens import CountTokens

__all__ = ["SHAREGPT", "read_sharegpt"]

SHAREGPT = "ShareGPT JSON"
"""The format, as messages name it."""

PEOPLE, MODELS = {"human", "user"}, {"gpt", "chatgpt", "assistant", "bing", "bard"}


def read_sharegpt(path: Path, conversations: Any, tokens: CountTokens) -> Iterator[Job]:
    """Each question that got an answer is a turn; its prompt is all that was said before, and the question.

    Conversations are sessions, which begin all at once; later turns come as soon as the answer is there.
    Give a ``rate``, and ``turns=1`` as most benchmarks do. Lengths are estimated from the text;
    ``turnout bench serve --tokenizer`` counts them.
    """
    if not isinstance(conversations, list):
        raise ConfigError(f"{path}: a list of conversations is expected ({SHAREGPT})")
    for number, conversation in enumerate(conversations):
        prompt = output = 0
        for asked, answered in _exchanges(path, number, conversation):
            first = not prompt
            prompt, output = prompt + output + tokens(asked), tokens(answered)
            yield Job(0.0, prompt, output, session=str(number), think=None if first else 0.0)


def _exchanges(path: Path, number: int, conversation: Any) -> Iterator[tuple[str, str]]:
    try:
        said = [(str(message["from"]), str(message["value"])) for message in conversation["conversations"]]
    except (KeyError, TypeError):
        raise ConfigError(
            f"{path}, conversation {number + 1}: expected "
            '{"conversations": [{"from": "human", "value": …}, {"from": "gpt", "value": …}]} '
            f"({SHAREGPT})"
        ) from None
    for (asker, asked), (answerer, answered) in pairwise(said):
        if asker in PEOPLE and answerer in MODELS and asked.strip() and answered.strip():
            yield asked, answered
