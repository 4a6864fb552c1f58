"""Decoding strategies that strain KV memory, each with what it should answer, decided by brute force.

``choices``: n of them, greedy but where they part; ``guesses``: the same with drafts, right and wrong ones;
``leaps``: the same, some steps giving more tokens than were guessed; ``beam``: forks and drops at every
step. Choices leave the first one's path after as many tokens as the request's seed says, or a few more, so
that they share what was written until then.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

import numpy as np
import torch
from brute_force import VOCABULARY, BruteForce, Rows

from turnout.core.interfaces.decoding import Decoding
from turnout.core.types.decision import Chosen, Continuation
from turnout.core.types.plan import Logits
from turnout.core.types.request import Request, RequestSpec
from turnout.core.types.request import Sequence as TokenSequence
from turnout.core.types.sampling_params import SamplingParams

__all__ = ["EOS", "Answers", "Strategy", "answers", "log_softmax", "request", "strategies"]

EOS = 0

Answers = list[list[int]]
"""The tokens of each choice, in order of its index; of beams in no order."""


def request(
    name: str, strategy: str, prompt: list[int], max_tokens: int, *, n: int = 1, part: int = 0
) -> RequestSpec:
    """`part`: the number of tokens that all choices share; where the second one leaves the first."""
    params = SamplingParams(n=n, max_tokens=max_tokens, temperature=0.0, stop=(strategy,))
    return RequestSpec(id=name, prompt=prompt, params=params, seed=part)


def strategies(known: Callable[[str], Answers]) -> list[Decoding]:
    """One of each. `known`: the answers to a request, for the one that guesses."""
    return [Choices(), Guesses(known), Leaps(), Beam()]


# ------------------------------------------------------------------ in the engine


class Strategy(Decoding):
    """Serves the requests that name it as their stop string, one by one."""

    name: str
    streams = False
    later = False
    """It need not know which tokens it chose."""

    def accepts(self, params: SamplingParams) -> bool:
        return params.stop == (self.name,)

    def decide(self, requests: Sequence[Request], logits: Logits) -> Iterable[Continuation]:
        values = logits.values.numpy()
        continuations = list[Continuation]()
        for request in requests:
            rows = {sequence: values[list(logits.rows[sequence])] for sequence in request.live}
            continuations += self.choose(request, rows)
        if not self.later:
            return continuations
        tokens = torch.tensor([token for continuation in continuations for token in continuation.tokens])
        return Chosen([continuation.parent for continuation in continuations], tokens, tokens.tolist)

    def choose(self, request: Request, rows: dict[TokenSequence, Rows]) -> Iterable[Continuation]:
        raise NotImplementedError


class Choices(Strategy):
    """Greedy; the others leave the first one's path, each at another place."""

    name = "choices"
    later = True

    def choose(self, request: Request, rows: dict[TokenSequence, Rows]) -> Iterable[Continuation]:
        for sequence, logits in rows.items():
            tokens = _verified(sequence.draft, logits)
            yield Continuation(sequence, tokens)
            if sequence.index == 0:
                yield from self._leaving(request, sequence, tokens, logits)

    def _leaving(
        self, request: Request, first: TokenSequence, tokens: list[int], logits: Rows
    ) -> Iterator[Continuation]:
        """Some of the new tokens are theirs too, so they share memory, and may get fewer than the first."""
        for index in range(request.forks + 1, request.params.n):
            shared = max(0, _parting(request.spec, index) - len(first.output))
            if shared >= len(tokens) or EOS in tokens[:shared]:
                return
            yield Continuation(first, [*tokens[:shared], _best(logits[shared], index + 1)[-1]])


def _parting(spec: RequestSpec, index: int) -> int:
    """How many tokens a choice has in common with the first one; then it takes the `index`-th most likely."""
    return spec.seed + (index - 1) * (len(spec.prompt) % 3) if index else 0


def _verified(draft: list[int], logits: Rows) -> list[int]:
    """The guesses as far as they are right, and one token more."""
    tokens: list[int] = []
    for guess, row in zip([*draft, None], logits, strict=True):
        tokens.append(int(row.argmax()))
        if tokens[-1] != guess:
            break
    return tokens


class Guesses(Choices):
    """Drafts up to five tokens: what will be, with one of them wrong as often as not."""

    name = "guesses"
    later = False
    rows = 6

    def __init__(self, known: Callable[[str], Answers]) -> None:
        self._known = known

    def draft(self, sequences: Sequence[TokenSequence]) -> Iterator[tuple[TokenSequence, list[int]]]:
        for sequence in sequences:
            rng = random.Random(hash(tuple(sequence.tokens)))
            done = len(sequence.output)
            draft = self._known(sequence.request.id)[sequence.index][done : done + rng.randrange(6)]
            if draft and rng.random() < 0.5:
                draft[rng.randrange(len(draft))] = rng.randrange(VOCABULARY)
            yield sequence, draft


class Leaps(Choices):
    """After some tokens others must follow, as under a grammar: no logits are computed to choose them."""

    name = "leaps"
    later = False

    def choose(self, request: Request, rows: dict[TokenSequence, Rows]) -> Iterable[Continuation]:
        for continuation in super().choose(request, rows):
            (token,) = continuation.tokens
            yield Continuation(continuation.parent, _leap(token))


def _leap(token: int) -> list[int]:
    return [token, (token + 5) % VOCABULARY, (token + 9) % VOCABULARY] if token % 4 == 1 else [token]


class Beam(Strategy):
    name = "beam"

    def choose(self, request: Request, rows: dict[TokenSequence, Rows]) -> Iterable[Continuation]:
        pool = [
            (sequence.logprob + score, sequence.tokens, token, sequence, score)
            for sequence, logits in rows.items()
            for token, score in enumerate(log_softmax(logits[-1]))
        ]
        pool.sort(key=lambda entry: (-entry[0], entry[1], entry[2]))
        width = len(request.live) if request.forks > 0 else request.params.n
        return [Continuation(sequence, [token], score) for _, _, token, sequence, score in pool[:width]]


def _best(row: Rows, count: int) -> list[int]:
    return [int(token) for token in np.argsort(-row)[:count]]


def log_softmax(row: Rows) -> list[float]:
    """Of logits, [VOCABULARY]."""
    return list(row - np.log(np.exp(row).sum()))


# ------------------------------------------------------------------ by brute force

Thought = Generator[list[list[int]], list[Rows], Answers]
"""Asks for the logits after some contexts, is sent them, and returns what it found in the end."""


def answers(specs: Sequence[RequestSpec], reference: BruteForce) -> list[Answers]:
    """What each of `specs` should give. All of them are thought out in step, for the sake of speed."""
    thoughts = [_beams(spec) if spec.params.stop == ("beam",) else _choices(spec) for spec in specs]
    asked = {index: next(thought) for index, thought in enumerate(thoughts)}
    found: dict[int, Answers] = {}
    while asked:
        rows = iter(reference.last(tuple(context) for contexts in asked.values() for context in contexts))
        for index, contexts in list(asked.items()):
            try:
                asked[index] = thoughts[index].send([next(rows) for _ in contexts])
            except StopIteration as end:
                found[index] = end.value
                del asked[index]
    return [found[index] for index in range(len(specs))]


def _choices(spec: RequestSpec) -> Thought:
    found = []
    for index in range(spec.params.n):
        output, parted = list[int](), index == 0
        while not _ended(output, spec):
            (row,) = yield [spec.prompt + output]
            parts = not parted and len(output) >= _parting(spec, index)
            parted = parted or parts
            token = _best(row, index + 1 if parts else 1)[-1]
            output = _cut(output + (_leap(token) if spec.params.stop == ("leaps",) else [token]), spec)
        if parted:  # else the first one had ended before it could
            found.append(output)
    return found


def _beams(spec: RequestSpec) -> Thought:
    live, found = [(0.0, list[int]())], []
    width = spec.params.n
    while live:
        rows = yield [spec.prompt + output for _, output in live]
        pool = [
            (score + more, output, token)
            for (score, output), row in zip(live, rows, strict=True)
            for token, more in enumerate(log_softmax(row))
        ]
        pool.sort(key=lambda entry: (-entry[0], entry[1], entry[2]))
        kept = [(score, [*output, token]) for score, output, token in pool[:width]]
        found += [output for _, output in kept if _ended(output, spec)]
        live = [(score, output) for score, output in kept if not _ended(output, spec)]
        width = len(live)
    return found


def _ended(output: list[int], spec: RequestSpec) -> bool:
    return len(output) == spec.params.max_tokens or EOS in output


def _cut(output: list[int], spec: RequestSpec) -> list[int]:
    end = output.index(EOS) + 1 if EOS in output else len(output)
    return output[: min(end, spec.params.max_tokens or 0)]
