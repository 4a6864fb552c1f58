"""Workloads: how long requests are, when they arrive, and what they share. All are seeded."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from turnout.core.types.request import RequestSpec
from turnout.lab.simulation.scripted.play import Arrival
from turnout.lab.simulation.scripted.script import VOCABULARY, scripted_output, scripted_request
from turnout.lab.workloads.lengths import Lognormal

__all__ = ["Scans", "Sessions", "Templates", "random_tokens", "sharegpt"]


def random_tokens(rng: random.Random, length: int) -> list[int]:
    return [rng.randrange(1, VOCABULARY) for _ in range(length)]


def sharegpt(requests: int, *, longest: int, seed: int) -> list[tuple[int, int]]:
    """Lognormal of prompt and output with the means of ShareGPT in Kwon et al. 2023, Figure 11.

    The paper gives the means (161.31 and 337.99 tokens) and shows a long tail; the lognormal shape and its
    spread are ours. Either is cut at half of `longest`.
    """
    rng = random.Random(seed)
    prompts, outputs = Lognormal(161.31, most=longest // 2), Lognormal(337.99, most=longest // 2)
    return [(prompts.draw(rng), outputs.draw(rng)) for _ in range(requests)]


@dataclass(frozen=True)
class Scans:
    """Long prompts that are never sent again, with short answers."""

    scans: int
    rate: float
    """A second."""
    seed: int
    prompt: Lognormal = Lognormal(1200, 0.3, most=3500)
    answer: Lognormal = Lognormal(40, 0.5)

    def arrivals(self) -> Iterator[Arrival]:
        rng, at = random.Random(f"scans {self.seed}"), 0.0
        for number in range(self.scans):
            at += rng.expovariate(self.rate)
            prompt, answer = random_tokens(rng, self.prompt.draw(rng)), self.answer.draw(rng)
            yield Arrival(at, scripted_request(f"scan-{number}", prompt, answer, seed=10**9 + number))


@dataclass(frozen=True)
class Templates:
    """Questions, each behind one of several texts that it is about, and short answers."""

    requests: int
    rate: float
    """A second."""
    seed: int
    templates: int = 20
    template: Lognormal = Lognormal(60, 0.5)
    skew: float = 0.0
    """How much some texts are asked about more than others: Zipf's exponent; 0: all alike."""
    question: Lognormal = Lognormal(30, 0.7)
    answer: Lognormal = Lognormal(10, 0.5)

    def arrivals(self) -> Iterator[Arrival]:
        rng, at = random.Random(f"templates {self.seed}"), 0.0
        templates = [random_tokens(rng, self.template.draw(rng)) for _ in range(self.templates)]
        popularity = [(rank + 1) ** -self.skew for rank in range(self.templates)]
        for number in range(self.requests):
            at += rng.expovariate(self.rate)
            (template,) = rng.choices(templates, popularity)
            prompt = template + random_tokens(rng, self.question.draw(rng))
            yield Arrival(
                at,
                scripted_request(f"short-{number}", prompt, self.answer.draw(rng), seed=2 * 10**9 + number),
            )


@dataclass(frozen=True)
class Sessions:
    """Conversations: each turn's prompt is all that was said before, and the next question.

    Every session begins with one of a few system prompts. A turn comes when the last answer has been read.
    """

    sessions: int
    turns: int
    seed: int
    systems: int = 4
    system: Lognormal = Lognormal(300, 0.3)
    question: Lognormal = Lognormal(60, most=400)
    answer: Lognormal = Lognormal(150, 0.8, most=600)
    reading: float = 15.0
    """Seconds between an answer and the next question, on average."""
    rate: float = 0.5
    """Sessions that begin, a second."""
    longest: int = 4096
    """A session ends before a turn that might not fit."""
    _open: dict[str, _Session] = field(default_factory=dict)

    def arrivals(self) -> Iterator[Arrival]:
        """The first turns."""
        rng, at = random.Random(f"sessions {self.seed}"), 0.0
        systems = [random_tokens(rng, self.system.draw(rng)) for _ in range(self.systems)]
        for number in range(self.sessions):
            at += rng.expovariate(self.rate)
            # Each has its own randomness: what is said does not depend on which is served first.
            session = _Session(number, random.Random(f"session {self.seed} {number}"), self.turns)
            yield self._turn(session, at, rng.choice(systems))

    def then(self, spec: RequestSpec, now: float) -> Iterator[Arrival]:
        """The turn after this one, if it is one of ours and not the last."""
        session = self._open.pop(spec.id, None)
        if session is None or not session.turns_left:
            return
        said = spec.prompt + scripted_output(spec.seed, spec.params.min_tokens)
        if len(said) + self.question.most + self.answer.most <= self.longest:
            yield self._turn(session, now + session.rng.expovariate(1 / self.reading), said)

    def _turn(self, session: _Session, at: float, said: list[int]) -> Arrival:
        session.turns_left -= 1
        id = f"session-{session.number}-{session.turns_left}"
        prompt = said + random_tokens(session.rng, self.question.draw(session.rng))
        answer = self.answer.draw(session.rng)
        self._open[id] = session
        return Arrival(at, scripted_request(id, prompt, answer, seed=session.rng.randrange(10**9)))


@dataclass
class _Session:
    number: int
    rng: random.Random
    turns_left: int
