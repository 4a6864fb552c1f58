"""The shape of an answer: what endpoints differ in once text comes out of the engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, TypedDict

from msgspec import UNSET, UnsetType

from turnout.server.api.generation import Generation, ScoredPrompt, Update
from turnout.server.protocol.responses import Choice, Envelope, TimedEnvelope, Timings, Usage
from turnout.text.choice import Piece
from turnout.text.tokenizer import Tokenizer

__all__ = ["Answer", "ranks"]


class Ranks(TypedDict, total=False):
    """What is known of a choice that has ended; left out where it is not."""

    cumulative_logprob: float
    beam_score: float


def ranks(piece: Piece) -> Ranks:
    found: Ranks = {}
    if piece.cumulative_logprob is not None:
        found["cumulative_logprob"] = piece.cumulative_logprob
    if piece.score is not None:
        found["beam_score"] = piece.score
    return found


@dataclass(frozen=True)
class Answer(ABC):
    id: str
    model: str
    created: int
    tokenizer: Tokenizer
    logprobs: bool
    """The client asked for log-probabilities."""

    object: ClassVar[str]
    chunk_object: ClassVar[str]

    @abstractmethod
    def opening(self, index: int) -> Choice | None:
        """What a streamed choice begins with, before any text."""

    @abstractmethod
    def chunks(self, update: Update) -> Iterable[Choice]:
        """A streamed update."""

    @abstractmethod
    def whole(self, update: Update, prompt: ScoredPrompt | None) -> Choice:
        """A choice in one piece."""

    def envelope(self, choices: list[Choice], generation: Generation) -> Envelope:
        return self._envelope(self.object, choices, generation.usage, generation.timing)

    def chunk(
        self,
        choices: list[Choice],
        usage: Usage | UnsetType | None = UNSET,
        timing: Timings | UnsetType = UNSET,
    ) -> Envelope:
        return self._envelope(self.chunk_object, choices, usage, timing)

    def _envelope(
        self,
        kind: str,
        choices: list[Choice],
        usage: Usage | UnsetType | None,
        timing: Timings | UnsetType,
    ) -> Envelope:
        if timing is UNSET:
            return Envelope(self.id, kind, self.created, self.model, choices, usage)
        return TimedEnvelope(self.id, kind, self.created, self.model, choices, usage, timing=timing)
