"""Compiles grammars with llguidance for the model's vocabulary, and caches them."""

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

MAX_CACHED = 256
"""Compiled grammars in the cache; the least recently used is removed first."""
WHITE_SPACE = r"[\x20\x0A\x0D\x09]{1,20}"
"""Allowed between the parts of JSON. The limit ends an output that would otherwise continue with blanks."""
CHARACTERS = r'[^"\\\x00-\x1F\x7F]'
SLICES = [CHARACTERS + "{1,10}", CHARACTERS + "{1,30}", CHARACTERS + "+"]
"""Forms of tokens in JSON strings, which are examined once instead of for each mask. They are llguidance's
defaults without the slice for blanks, which does not go with `WHITE_SPACE`.
"""
LIMITS = LLParserLimits(verbose_errors=False)


class Grammars:
    """The compiled grammars of one model. `ready` and `get` may be called from any thread."""

    def __init__(self, model: ServedModel) -> None:
        """Returns at once: a thread builds the tables of the vocabulary, which may take a second."""
        thread = ThreadPoolExecutor(1, thread_name_prefix="grammar-vocabulary")
        self._vocabulary = thread.submit(_vocabulary, model)
        thread.shutdown(wait=False)
        self._compiled: OrderedDict[StructuredOutputs, LLMatcher] = OrderedDict()
        self._lock = Lock()

    def ready(self, form: StructuredOutputs) -> bool:
        """Whether `get` returns at once."""
        return form in self._compiled

    def get(self, form: StructuredOutputs) -> LLMatcher:
        """A matcher before the first token, to be copied before use.

        Raises RequestError with the compiler's reason.
        """
        with self._lock:
            if form in self._compiled:
                self._compiled.move_to_end(form)
                return self._compiled[form]
        matcher = _compiled(form, self._known_vocabulary())
        with self._lock:
            self._compiled[form] = matcher
            if len(self._compiled) > MAX_CACHED:
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


def _compiled(form: StructuredOutputs, vocabulary: LLTokenizer) -> LLMatcher:
    try:
        matcher = LLMatcher(vocabulary, _source(form), log_level=0, limits=LIMITS)
        reason = matcher.get_error()
    except ValueError as error:
        reason = str(error)
    if reason:
        what = "JSON schema" if form.kind == "json" else form.kind
        raise RequestError(f"the {what} cannot be compiled: {reason.strip()}", "structured_outputs")
    return matcher


def _source(form: StructuredOutputs) -> str:
    """The grammar in the notation of llguidance."""
    if form.json is not None or form.json_object:
        schema = form.json or '{"type": "object"}'
        return LLMatcher.grammar_from_json_schema(schema, defaults={"whitespace_pattern": WHITE_SPACE})
    if form.regex is not None:
        return LLMatcher.grammar_from_regex(form.regex)
    if form.choice is not None:
        return grammar_from("choice", json.dumps(form.choice))
    return grammar_from("grammar", form.grammar or "")
