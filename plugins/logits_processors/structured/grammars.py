"""The compiled forms of one model."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from weakref import WeakValueDictionary

from llguidance import LLTokenizer

from turnout.core.errors import RequestError
from turnout.core.interfaces.logits_processor import ServedModel
from turnout.core.types.structured_outputs import StructuredOutputs
from turnout.plugins.logits_processors.structured.claims import Claim
from turnout.plugins.logits_processors.structured.compiler import Compiler, Grammar
from turnout.plugins.logits_processors.structured.exact_tokenizer import read_vocabulary
from turnout.plugins.logits_processors.structured.vocabulary import Vocabulary

__all__ = ["Grammars"]

MAX_CACHED = 256
"""Forms in the cache; the least recently used is removed first."""
MAX_CACHED_BYTES = 512 * 2**20
"""The memory that they may take, about."""


class Grammars:
    """Compiles forms and caches them. For any thread."""

    def __init__(self, model: ServedModel, compile_seconds: float) -> None:
        """Returns at once: a thread builds the tables of the vocabulary, which may take a second.

        compile_seconds: processor time that a form may take.
        """
        thread = ThreadPoolExecutor(1, thread_name_prefix="grammar-vocabulary")
        self._vocabulary = thread.submit(read_vocabulary, model)
        self._tables = thread.submit(_tables_of, self._vocabulary.result)
        thread.shutdown(wait=False)
        self._compiler = Compiler(self._vocabulary.result, self._tables.result, compile_seconds)
        self._known: WeakValueDictionary[StructuredOutputs, Grammar] = WeakValueDictionary()
        """Those that the cache, a request or the preparation of one holds."""
        self._cached: OrderedDict[StructuredOutputs, Grammar] = OrderedDict()
        self._lock = Lock()

    def ready(self, form: StructuredOutputs) -> bool:
        """Whether `get` returns at once."""
        return self._find(form) is not None

    def get(self, form: StructuredOutputs, claim: Claim | None = None) -> Grammar:
        """Returns a compiled form.

        Raises RequestError with the compiler's reason, and Overloaded if too many forms are being compiled.
        """
        found = self._find(form)
        if found is not None:
            if found.refusal:
                raise RequestError(f"the form is refused: {found.refusal}", "structured_outputs")
            return found
        self._check_possible()
        grammar = self._compiler.compile(form, claim or Claim(), lambda: self._find(form))
        self._keep(grammar)
        return grammar

    def forget(self, grammar: Grammar) -> None:
        """Has a form compiled anew for later requests: what its requests share is full or broken."""
        with self._lock:
            if self._known.get(grammar.form) is grammar:
                del self._known[grammar.form]
            if self._cached.get(grammar.form) is grammar:
                del self._cached[grammar.form]

    def _find(self, form: StructuredOutputs) -> Grammar | None:
        with self._lock:
            if form in self._cached:
                self._cached.move_to_end(form)
            return self._known.get(form)

    def _keep(self, grammar: Grammar) -> None:
        with self._lock:
            self._known[grammar.form] = self._cached[grammar.form] = grammar
            total = sum(kept.memory for kept in self._cached.values())
            while len(self._cached) > 1 and (total > MAX_CACHED_BYTES or len(self._cached) > MAX_CACHED):
                total -= self._cached.popitem(last=False)[1].memory

    def _check_possible(self) -> None:
        try:
            self._tables.result()
        except Exception as error:
            raise RequestError(
                f"structured output is not possible with this model: {error}", "structured_outputs"
            ) from error


def _tables_of(vocabulary: Callable[[], Vocabulary]) -> LLTokenizer:
    return vocabulary().tables()
