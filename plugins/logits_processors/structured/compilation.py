"""Compiles grammars within llguidance's limits, and finds their first tokens."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from turnout.core.errors import Overloaded

__all__ = ["compiled", "in_thread", "reason_of"]

LIMITS = LLParserLimits(
    verbose_errors=False,
    max_items_in_row=10_000,  # each optional property of an object takes four
    max_lexer_states=100_000,  # of 1.2 KB each
)
"""Beyond them a matcher fails, at compilation or at a token. The others are llguidance's."""
MAX_REASON = 400
"""Characters of the compiler's reason that a client is told."""
MIB = 2**20

Result = TypeVar("Result")
_stack_size = threading.Lock()


def compiled(source: str, vocabulary: LLTokenizer) -> LLMatcher:
    """Returns a matcher before its first token. Raises ValueError with the compiler's reason."""
    matcher = LLMatcher(vocabulary, source, log_level=0, limits=LIMITS)
    if matcher.is_error():
        raise ValueError(reason_of(matcher.get_error()))
    return matcher


def reason_of(error: str) -> str:
    """The part of llguidance's message that is for readers, on one line or a few."""
    for mark in ("<backtrace>", "<state>", "<non-verbose/>"):
        error = error.partition(mark)[0]
    error = error.strip()
    if error == "NoExtensionBias":
        return "nothing has this form: no token of the vocabulary can begin it"
    return error if len(error) <= MAX_REASON else error[:MAX_REASON] + " …"


def in_thread(work: Callable[[], Result], stack_mib: int) -> Result:
    """Does work in a thread with a stack of its own, and returns or raises what it does.

    A panic of llguidance is raised as a RuntimeError: its own type is no Exception.
    """
    results: list[Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    with _stack_size:  # the size is the process's: it holds for the next thread that starts
        before = threading.stack_size(stack_mib * MIB)
        try:
            thread = threading.Thread(target=run, name="compile", daemon=True)
            thread.start()
        except RuntimeError as reason:  # no memory for its stack, or too many threads
            raise Overloaded(f"no thread can be started to compile the form: {reason}; try again") from reason
        finally:
            threading.stack_size(before)
    thread.join()
    if errors:
        error = errors[0]
        raise error if isinstance(error, Exception) else RuntimeError(f"the compiler failed: {error}")
    return results[0]
