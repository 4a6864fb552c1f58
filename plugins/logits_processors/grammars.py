"""Grammars: compiled by llguidance for the model's vocabulary, and kept for the next request."""

from __future__ import annotations

import json
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, grammar_from

from turnout.core.errors import RequestError
from turnout.core.interfaces.logits_processor import ServedModel
from turnout.core.types.structured_outputs import StructuredOutputs
from turnout.text.tokenizer import tokenizer_json

__all__ = ["SLICES", "Grammars"]

KEPT = 256
"""Compiled grammars; the least recently used goes first."""
WHITE_SPACE = r"[\x20\x0A\x0D\x09]{1,20}"
"""Between the parts of JSON. A model that falls into writing blanks must come out of it."""
CHARACTERS = r'[^"\\\x00-\x1F\x7F]'
SLICES = [CHARACTERS + "{1,10}", CHARACTERS + "{1,30}", CHARACTERS + "+"]
"""Of strings in JSON. Tokens of these forms are looked through once instead of at each mask; llguidance's own
choice, but for one of blanks that `WHITE_SPACE` has no use for.
"""
LIMITS = LLParserLimits(verbose_errors=False)


class Grammars:
    """Of one model. `ready` and `get` may be called from any thread."""

    def __init__(self, model: ServedModel) -> None:
        """Returns at once: the tables of the vocabulary, which may take a second, come from a thread."""
        thread = ThreadPoolExecutor(1, thread_name_prefix="grammar-vocabulary")
        self._vocabulary = thread.submit(_vocabulary, model)
        thread.shutdown(wait=False)
        self._compiled: OrderedDict[StructuredOutputs, LLMatcher] = OrderedDict()
        self._lock = Lock()

    def ready(self, asked: StructuredOutputs) -> bool:
        """`get` would return at once."""
        return asked in self._compiled

    def get(self, asked: StructuredOutputs) -> LLMatcher:
        """At its beginning, and to stay there: copy it. Raises RequestError with the compiler's reason."""
        with self._lock:
            if asked in self._compiled:
                self._compiled.move_to_end(asked)
                return self._compiled[asked]
        matcher = _compiled(asked, self._known_vocabulary())
        with self._lock:
            self._compiled[asked] = matcher
            if len(self._compiled) > KEPT:
                self._compiled.popitem(last=False)
        return matcher

    def _known_vocabulary(self) -> LLTokenizer:
        try:
            return self._vocabulary.result()
        except Exception as error:
            raise RequestError(
                f"structured output is not possible with this model: {error}", "structured_outputs"
            ) from error


def _vocabulary(model: ServedModel) -> LLTokenizer:
    if not model.eos_token_ids:
        raise ValueError("it names no end-of-sequence token, so no output could end")
    ends = sorted(model.eos_token_ids)
    return LLTokenizer(tokenizer_json(model.folder), n_vocab=model.vocab_size, eos_token=ends, slices=SLICES)


def _compiled(asked: StructuredOutputs, vocabulary: LLTokenizer) -> LLMatcher:
    try:
        matcher = LLMatcher(vocabulary, _source(asked), log_level=0, limits=LIMITS)
        reason = matcher.get_error()
    except ValueError as error:
        reason = str(error)
    if reason:
        what = "JSON schema" if asked.kind == "json" else asked.kind
        raise RequestError(f"the {what} cannot be compiled: {reason.strip()}", "structured_outputs")
    return matcher


def _source(asked: StructuredOutputs) -> str:
    """In llguidance's own form."""
    if asked.json is not None or asked.json_object:
        schema = asked.json or '{"type": "object"}'
        return LLMatcher.grammar_from_json_schema(schema, defaults={"whitespace_pattern": WHITE_SPACE})
    if asked.regex is not None:
        return LLMatcher.grammar_from_regex(asked.regex)
    if asked.choice is not None:
        return grammar_from("choice", json.dumps(asked.choice))
    return grammar_from("grammar", asked.grammar or "")
