"""Forbids words in the output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from turnout.core.errors import RequestError
from turnout.core.interfaces.logits_processor import LogitsProcessor, Row
from turnout.core.types.request import Request
from turnout.core.types.sampling_params import SamplingParams

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["BadWords"]


class BadWords(LogitsProcessor):
    """Suppresses the last token of each of a request's `bad_words_token_ids` behind its other tokens.

    Only the output counts: a word that begins in the prompt is not recognized, as in vLLM.
    """

    masks = True

    def wants(self, params: SamplingParams) -> bool:
        return bool(params.bad_words or params.bad_words_token_ids)

    def check(self, request: Request) -> None:
        if not request.params.bad_words_token_ids:
            raise RequestError(
                "bad_words reached the engine as text; give their tokens too, as bad_words_token_ids",
                "bad_words",
            )

    def apply(self, logits: Tensor, rows: Sequence[Row]) -> None:
        from turnout.plugins.logits_processors.token_index import suppress

        suppress(logits, ((number, list(_last_tokens(row))) for number, row in enumerate(rows)))


def _last_tokens(row: Row) -> Iterator[int]:
    """The tokens that would complete a word."""
    words = row.params.bad_words_token_ids
    before = row.last(max(len(word) for word in words) - 1)
    for word in words:
        start = len(before) - (len(word) - 1)
        if start >= 0 and before[start:] == list(word[:-1]):
            yield word[-1]
