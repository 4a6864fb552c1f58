"""Compiles forms: first in a process of its own, then, if that went well, in the engine's."""

from __future__ import annotations

import signal
from collections.abc import Callable

import torch
from llguidance import LLMatcher, LLTokenizer

from turnout.core import limits
from turnout.core.errors import RequestError
from turnout.core.types.structured_outputs import StructuredOutputs
from turnout.plugins.logits_processors.structured.claims import Claim
from turnout.plugins.logits_processors.structured.compilation import compiled, in_thread
from turnout.plugins.logits_processors.structured.compile_client import TOO_LONG, CompileProcess
from turnout.plugins.logits_processors.structured.frames import Verdict
from turnout.plugins.logits_processors.structured.lanes import Lane
from turnout.plugins.logits_processors.structured.masks.free_text import FreeTextMasks
from turnout.plugins.logits_processors.structured.masks.token_starts import TokenStarts
from turnout.plugins.logits_processors.structured.vocabulary import Vocabulary
from turnout.text.output.grammar.faulty_part import faulty_part

__all__ = ["ClaimEnded", "Compiler", "Grammar"]

STACK_MIB = 32
"""Four times the stack on which the form was tried: what passed there passes here."""
QUICK_PLACES = 2
QUICK_SECONDS = 0.25
"""Processor time that a form may take before it has to wait for others that are slow as well."""
SHORT_SECONDS = 0.02
"""The same while others wait: a small form takes a fifth of it."""


class Grammar:
    """A compiled form. Can be referred to weakly."""

    def __init__(
        self, form: StructuredOutputs, matcher: LLMatcher, memory: int, masks: FreeTextMasks | None = None
    ) -> None:
        self.form = form
        self.matcher = matcher
        """Before the first token, to be copied before use."""
        self.masks = masks
        """Where its text is free, if that is known."""
        self._memory = memory
        self.refusal = ""
        """Why later requests are refused it; empty if they are not."""

    @property
    def memory(self) -> int:
        """Bytes that it takes, about."""
        return self._memory + (0 if self.masks is None else self.masks.memory)


class ClaimEnded(RequestError):
    """The client left while its form was compiled."""

    def __init__(self) -> None:
        super().__init__("the client left while its form of structured output was compiled")


class Compiler:
    """Compiles forms in two lanes, so that slow ones hold up slow ones alone. For any thread."""

    def __init__(
        self,
        vocabulary: Callable[[], Vocabulary],
        tables: Callable[[], LLTokenizer],
        starts: Callable[[], TokenStarts | None],
        seconds: float,
    ) -> None:
        """vocabulary, tables: return the model's; either may have to wait for them. starts: returns them if
        they are there.

        seconds: processor time that a form may take.
        """
        self._seconds = seconds
        self._vocabulary = vocabulary
        self._process = CompileProcess(vocabulary)
        self._tables, self._starts = tables, starts
        self._quick = Lane(QUICK_PLACES, limits.FORMS_WAITING.whole)
        self._slow = Lane(1, limits.FORMS_SLOW.whole)

    def compile(self, form: StructuredOutputs, claim: Claim) -> Grammar:
        """Compiles a form. Raises RequestError with the compiler's reason, Overloaded, and ClaimEnded."""
        with self._quick.place(claim) as got:
            found = self._attempt(form, claim, self._quick_seconds(), got)
        if found is not None:
            return found
        with self._slow.place(claim) as got:
            found = self._attempt(form, claim, self._seconds, got, last=True)
        if found is not None:
            return found
        raise _refusal(form, f"it takes more than {self._seconds:g} s of processor time; make it smaller")

    def warm_up(self) -> None:
        """Starts the process ahead of the first form."""
        self._process.warm_up()

    def _quick_seconds(self) -> float:
        return SHORT_SECONDS if self._quick.waiting else QUICK_SECONDS

    def _attempt(
        self,
        form: StructuredOutputs,
        claim: Claim,
        seconds: float,
        got: bool,
        *,
        last: bool = False,
    ) -> Grammar | None:
        """Returns the compiled form; None if that takes more than `seconds`."""
        verdict = self._process.tried(form, seconds, claim, last=last) if got else None
        if verdict is None:
            raise ClaimEnded
        if verdict.signal == TOO_LONG:
            return None
        if verdict.signal or verdict.reason:
            raise _refusal(form, verdict.reason or _death(verdict))
        tables = self._tables()
        matcher = in_thread(lambda: compiled(verdict.source, tables), STACK_MIB)
        masks = None
        if form.free is not None:
            masks = FreeTextMasks(form.free, self._vocabulary().token_bytes(tables), self._starts())
            masks.keep(masks.start, torch.frombuffer(bytearray(verdict.first), dtype=torch.int32))
        return Grammar(form, matcher, verdict.memory, masks)


def _refusal(form: StructuredOutputs, reason: str) -> RequestError:
    what, field = "JSON schema" if form.kind == "json" else form.kind, "structured_outputs"
    if (part := faulty_part(form.grammar or "", reason)) is not None:
        what, field = ("form of the answer", field) if part.tool is None else ("schema of a tool", part.tool)
        reason = part.reason
    return RequestError(f"the {what} cannot be compiled: {reason}", field)


def _death(verdict: Verdict) -> str:
    if verdict.signal in (signal.SIGSEGV, signal.SIGBUS):
        return "it is nested or chained too deeply for the compiler"
    if verdict.signal in (signal.SIGABRT, signal.SIGKILL):
        return f"it takes more than {limits.FORM_MEMORY.amount} of memory; make it smaller"
    return f"the compiler died of {signal.Signals(verdict.signal).name}"
