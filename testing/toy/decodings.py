"""Decoding strategies for the toy model: greedy, speculation, parallel choices and beam search."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

from turnout.core.interfaces.decoding import Decoding
from turnout.core.types.decision import Chosen, Continuation
from turnout.core.types.plan import Logits
from turnout.core.types.request import Request
from turnout.core.types.request import Sequence as TokenSequence
from turnout.core.types.sampling_params import SamplingParams
from turnout.testing.toy.model import VOCABULARY, argmax, log_softmax

__all__ = ["ToyBeam", "ToyDecoding", "ToyGreedy", "ToyLookup", "ToyParallel", "toy_decodings"]

DRAFTED = 3
"""Tokens that `ToyLookup` drafts for a step."""

Rows = dict[TokenSequence, list[list[float]]]
"""The logits of each live sequence of a request: [rows, VOCABULARY]."""


class ToyDecoding(Decoding):
    """Serves the requests whose ``stop`` is its name; decides one request at a time."""

    resumes = True
    name: ClassVar[str] = ""
    later: ClassVar[bool] = False
    """It returns `Chosen` tokens, which the engine may read later, if it chose one for each sequence."""

    def accepts(self, params: SamplingParams) -> bool:
        return params.stop == (self.name,)

    def decide(self, requests: Sequence[Request], logits: Logits) -> Iterable[Continuation]:
        continuations = [
            continuation
            for request in requests
            for continuation in self.choose(request, {s: _rows(logits, s) for s in request.live})
        ]
        later = self.later and all(len(continuation.tokens) == 1 for continuation in continuations)
        return as_chosen(continuations, logits) if later else continuations

    @abstractmethod
    def choose(self, request: Request, rows: Rows) -> Iterable[Continuation]:
        """Continue the request's live sequences."""


def as_chosen(continuations: list[Continuation], logits: Logits) -> Chosen:
    """One token for each sequence, on the logits' device: in a tensor, or a list in place of one."""
    known = [token for continuation in continuations for token in continuation.tokens]
    tokens: Any = known
    if not isinstance(logits.values, list):
        import torch

        tokens = torch.tensor(known, device=logits.values.device)
    return Chosen([continuation.parent for continuation in continuations], tokens, lambda: known)


def _rows(logits: Logits, sequence: TokenSequence) -> list[list[float]]:
    rows = (logits.values[row] for row in logits.rows[sequence])
    return [row if isinstance(row, list) else row.tolist() for row in rows]


class ToyGreedy(ToyDecoding):
    name = "greedy"
    later = True

    def choose(self, request: Request, rows: Rows) -> Iterable[Continuation]:
        return [Continuation(s, [argmax(r[-1])]) for s, r in rows.items()]


class ToyLookup(ToyDecoding):
    """Prompt-lookup speculation, verified greedily."""

    name = "lookup"

    @property
    def rows(self) -> int:
        return DRAFTED + 1

    def draft(self, sequences: Sequence[TokenSequence]) -> Iterator[tuple[TokenSequence, list[int]]]:
        for sequence in sequences:
            tokens = sequence.tokens
            for i in range(len(tokens) - 2, -1, -1):
                if tokens[i] == tokens[-1]:
                    yield sequence, tokens[i + 1 : i + 1 + DRAFTED]
                    break

    def choose(self, request: Request, rows: Rows) -> Iterable[Continuation]:
        ((sequence, logits),) = rows.items()
        accepted: list[int] = []
        for draft_token, row in zip([*sequence.draft, None], logits, strict=True):
            accepted.append(argmax(row))
            if accepted[-1] != draft_token:
                break
        return [Continuation(sequence, accepted)]


class ToyParallel(ToyDecoding):
    """n choices: the i-th starts with the i-th most likely token, and is greedy from there."""

    name = "parallel"
    later = True

    def choose(self, request: Request, rows: Rows) -> Iterable[Continuation]:
        if request.forks == 0 and len(rows) == 1 and request.params.n > 1:
            ((sequence, logits),) = rows.items()
            best = sorted(range(VOCABULARY), key=lambda t: -logits[-1][t])
            return [Continuation(sequence, [token]) for token in best[: request.params.n]]
        return [Continuation(s, [argmax(r[-1])]) for s, r in rows.items()]


class ToyBeam(ToyDecoding):
    """Beam search of width `n`, which forks, drops and reorders sequences in every step."""

    name = "beam"
    streams = False

    def choose(self, request: Request, rows: Rows) -> Iterable[Continuation]:
        pool = [
            (s.logprob + lp, s, token, lp)
            for s, r in rows.items()
            for token, lp in enumerate(log_softmax(r[-1]))
        ]
        pool.sort(key=lambda c: (-c[0], c[1].tokens, c[2]))
        width = len(request.live) if request.forks > 0 else request.params.n
        return [Continuation(s, [token], lp) for _, s, token, lp in pool[:width]]


def toy_decodings() -> list[Decoding]:
    return [ToyGreedy(), ToyLookup(), ToyParallel(), ToyBeam()]
