"""Decoding that follows the script: choices by sampling, beams by scores drawn at random."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from turnout.core.interfaces.decoding import Decoding
from turnout.core.types.decision import Continuation
from turnout.core.types.plan import Logits
from turnout.core.types.request import Request
from turnout.core.types.request import Sequence as TokenSequence
from turnout.core.types.sampling_params import SamplingParams
from turnout.lab.simulation.scripted.script import EOS, VOCABULARY, scripted_token

__all__ = ["ScriptedBeams", "ScriptedSampling"]


class ScriptedSampling(Decoding):
    """Choices that go their own ways from the first token on."""

    def accepts(self, params: SamplingParams) -> bool:
        return params.temperature > 0

    def decide(self, requests: Sequence[Request], logits: Logits) -> Iterator[Continuation]:
        for request in requests:
            if request.forks == 0 and request.params.n > 1:
                (parent,) = request.live
                yield from (_continued(parent, choice) for choice in range(request.params.n))
            else:
                yield from (_continued(sequence, sequence.index) for sequence in request.live)


def _continued(parent: TokenSequence, choice: int) -> Continuation:
    request, position = parent.request, len(parent.output)
    ends = position + 1 >= request.params.min_tokens
    return Continuation(parent, [EOS if ends else scripted_token(request.spec.seed, choice, position)])


class ScriptedBeams(Decoding):
    """Beam search (temperature 0) over scores drawn at random: `n` beams, each with `n` candidates a step."""

    streams = False

    def accepts(self, params: SamplingParams) -> bool:
        return params.temperature == 0

    def decide(self, requests: Sequence[Request], logits: Logits) -> Iterator[Continuation]:
        for request in requests:
            candidates = [candidate for beam in request.live for candidate in _candidates(beam)]
            candidates.sort(key=lambda c: (-c.parent.logprob - c.logprob, c.tokens))
            yield from candidates[: request.params.n]


def _candidates(beam: TokenSequence) -> Iterator[Continuation]:
    request, position = beam.request, len(beam.output)
    ends = position + 1 >= request.params.min_tokens
    rng = random.Random(f"{request.spec.seed} {beam.tokens[-1]} {position} {beam.index}")
    for rank in range(request.params.n):
        token = EOS if ends else 1 + (rng.randrange(VOCABULARY) + rank) % (VOCABULARY - 1)
        yield Continuation(beam, [token], -rng.expovariate(1.0))
