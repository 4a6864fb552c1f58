"""The compiled forms of one model."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from threading import Condition, Lock
from weakref import WeakValueDictionary

from llguidance import LLTokenizer

from turnout.core.errors import Overloaded, RequestError
from turnout.core.interfaces.logits_processor import ServedModel
from turnout.core.types.structured_outputs import StructuredOutputs
from turnout.plugins.logits_processors.structured.claims import Claim
from turnout.plugins.logits_processors.structured.compiler import ClaimEnded, Compiler, Grammar
from turnout.plugins.logits_processors.structured.exact_tokenizer import read_vocabulary
from turnout.plugins.logits_processors.structured.masks.token_starts import TokenStarts
from turnout.plugins.logits_processors.structured.vocabulary import Vocabulary

__all__ = ["Grammars"]

MAX_CACHED = 256
"""Forms in the cache; the least recently used is removed first."""
MAX_CACHED_BYTES = 512 * 2**20
"""The memory that they may take, about."""


class _Compiling:
    """A form that is being compiled."""

    error: Exception | None = None
    """Why it could not be."""


class Grammars:
    """Compiles forms and caches them. For any thread."""

    def __init__(self, model: ServedModel, compile_seconds: float) -> None:
        """Returns at once: a thread builds the tables of the vocabulary, which may take a second.

        compile_seconds: processor time that a form may take.
        """
        thread = ThreadPoolExecutor(1, thread_name_prefix="grammar-vocabulary")
        self._vocabulary = thread.submit(read_vocabulary, model)
        self._tables = thread.submit(_tables_of, self._vocabulary.result)
        starts = thread.submit(_starts_of, self._vocabulary.result, self._tables.result)
        thread.shutdown(wait=False)
        self._compiler = Compiler(
            self._vocabulary.result, self._tables.result, partial(_if_there, starts), compile_seconds
        )
        self._known: WeakValueDictionary[StructuredOutputs, Grammar] = WeakValueDictionary()
        """Those that the cache, a request or the preparation of one holds."""
        self._cached: OrderedDict[StructuredOutputs, Grammar] = OrderedDict()
        self._lock = Lock()
        self._compiling: dict[StructuredOutputs, _Compiling] = {}
        self._changed = Condition()
        """Guards and announces what is being compiled."""

    def warm_up(self) -> None:
        """Does ahead what the first form would wait for."""
        with suppress(Overloaded, RequestError):  # the first form tries again
            self._check_possible()
            self._compiler.warm_up()

    def ready(self, form: StructuredOutputs) -> bool:
        """Whether `get` returns at once."""
        return self._find(form) is not None

    def get(self, form: StructuredOutputs, claim: Claim | None = None) -> Grammar:
        """Returns a compiled form.

        Raises RequestError with the compiler's reason, and Overloaded if too many forms are being compiled.
        """
        self._check_possible()
        claim = claim or Claim()
        while (found := self._find(form)) is None:
            self._compile_or_wait(form, claim)
        if found.refusal:
            raise RequestError(f"the form is refused: {found.refusal}", "structured_outputs")
        return found

    def _compile_or_wait(self, form: StructuredOutputs, claim: Claim) -> None:
        """Compiles a form; or waits while another request's claim does, whose refusal is this one's too."""
        with self._changed:
            other = self._compiling.get(form)
            if other is None:
                mine = self._compiling[form] = _Compiling()
        if other is None:
            try:
                self._keep(self._compiler.compile(form, claim))
            except Exception as error:
                mine.error = error
                raise
            finally:
                self._end(form)
            return
        with claim.ends(self._wake), self._changed:
            self._changed.wait_for(lambda: claim.ended or self._compiling.get(form) is not other)
        if claim.ended:
            raise ClaimEnded
        if other.error is not None and not isinstance(other.error, ClaimEnded):
            raise other.error

    def _end(self, form: StructuredOutputs) -> None:
        with self._changed:
            del self._compiling[form]
            self._changed.notify_all()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

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


def _starts_of(vocabulary: Callable[[], Vocabulary], tables: Callable[[], LLTokenizer]) -> TokenStarts:
    return vocabulary().token_starts(tables())


def _if_there(starts: Future[TokenStarts]) -> TokenStarts | None:
    return starts.result() if starts.done() and starts.exception() is None else None
