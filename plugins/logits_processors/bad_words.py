"""Forbids words in the output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from turnout.core.errors import RequestError
from turnout.core.interfaces.logits_processor import LogitsProcessor, Row
from turnout.core.types.request import Request
from turnout.core.types.sampling_params import SamplingParams
from turnout.plugins.logits_processors.request_cache import RequestCache

if TYPE_CHECKING:
    from torch import Tensor

    from turnout.plugins.logits_processors.word_index import WordIndex

__all__ = ["BadWords"]


class BadWords(LogitsProcessor):
    """Suppresses the last token of each of a request's `bad_words_token_ids` behind its other tokens.

    Only the output counts: a word that begins in the prompt is not recognized, as in vLLM.
    """

    masks = True

    def __init__(self) -> None:
        self._words: RequestCache[WordIndex] = RequestCache()

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

        completing = (self._words.get(row.request, _index).completing(row.last) for row in rows)
        suppress(logits, list(enumerate(completing)))


def _index(request: Request) -> WordIndex:
    from turnout.plugins.logits_processors.word_index import WordIndex

    return WordIndex(request.params.bad_words_token_ids)
