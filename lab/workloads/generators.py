"""Workloads that are made up: a process of arrivals, and what the requests are like.

Each generator is a pydantic model: its fields are the options of ``--workload NAME:option=value,…``,
validated and described like those of a policy. Every aspect draws from a random source of its own, seeded by
name, so that another rate, say, changes neither lengths nor what is shared, and all processes make the same.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate, chain, count, islice
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from turnout.core import limits
from turnout.lab.jobs.job import Job, Workload
from turnout.lab.workloads import arrivals
from turnout.lab.workloads.lengths import Fixed, LengthsOption, Lognormal, OutputOption

__all__ = ["GENERATORS", "Generator"]

MOST = limits.TRACE_JOBS.whole
"""Each prefix and each client takes memory, as a job does."""


class Generator(BaseModel, ABC):
    """The shape of requests, however they arrive. An arrival is a request, or a session's first turn."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True, allow_inf_nan=False)

    requests: int = Field(200, ge=1, description="Requests; every turn of a session counts.")
    prompt: LengthsOption = Field(
        Lognormal(161.31),
        description="Tokens of a prompt, or of a turn's question. The default mean is ShareGPT's (Kwon et "
        "al. 2023).",
    )
    output: OutputOption = Field(
        Lognormal(337.99),
        description="Tokens that are generated. The default mean is ShareGPT's. 0: none, prompts are pooled.",
    )
    longest: int | None = Field(
        None,
        ge=2,
        description="Most tokens of prompt and output. Longer requests are cut, outputs to half of it and "
        "then prompts; sessions end before.",
    )
    prefix: LengthsOption | None = Field(
        None, description="Tokens that requests share before the prompt, as a system prompt."
    )
    prefixes: int = Field(1, ge=1, le=MOST, description="Different prefixes.")
    prefix_skew: float = Field(
        0.0, ge=0, description="Zipf's exponent: how much more often some prefixes are used than others."
    )
    turns: LengthsOption = Field(
        Fixed(1),
        description="Turns of a session. Each prompt is the whole conversation and the next question.",
    )
    think: float = Field(
        5.0,
        ge=0,
        description="Seconds between an answer and the session's next turn, on average (exponential).",
    )
    client: str | None = Field(None, description="The client that sends them: the API's `user`.")
    clients: int = Field(1, ge=1, le=MOST, description="Clients; several are numbered.")
    client_skew: float = Field(
        0.0, ge=0, description="Zipf's exponent: how much more some clients send than others."
    )
    priorities: int = Field(1, ge=1, description="Number of priorities, from 0, which are equally frequent.")

    @abstractmethod
    def times(self, rng: random.Random) -> Iterator[float]:
        """Arrivals, without end."""

    def workload(self, seed: int, part: int = 0) -> Workload:
        """`part` tells the generators of a mixture apart."""
        times = self.times(random.Random(f"{seed} {part} arrivals"))
        sessions = map(_Sessions(self, seed, part).turns, count(), times)
        jobs = list(islice(chain.from_iterable(sessions), self.requests))
        return Workload(type(self).__name__.lower(), jobs)


class _Sessions:
    """The jobs of each arrival: one, or the turns of a session."""

    def __init__(self, options: Generator, seed: int, part: int) -> None:
        self._options = options
        self._part = part
        source = f"{seed} {part}"
        self._prompts = random.Random(f"{source} prompts")
        self._outputs = random.Random(f"{source} outputs")
        self._turns = random.Random(f"{source} turns")
        self._thinking = random.Random(f"{source} thinking")
        self._sharing = random.Random(f"{source} sharing")
        self._clients = random.Random(f"{source} clients")
        self._ranks = random.Random(f"{source} priorities")
        self._prefixes = _prefix_lengths(options, random.Random(f"{source} prefixes"))
        self._prefix_weights = _zipf(options.prefixes, options.prefix_skew)
        self._client_weights = _zipf(options.clients, options.client_skew)

    def turns(self, number: int, at: float) -> Iterator[Job]:
        first = self._first(number, at)
        yield first
        last = first
        for _ in range(self._options.turns.draw(self._turns) - 1):
            prompt = last.prompt + last.output + self._options.prompt.draw(self._prompts)
            output = self._options.output.draw(self._outputs)
            if self._options.longest and prompt + output > self._options.longest:
                return
            think = self._thinking.expovariate(1 / self._options.think) if self._options.think else 0.0
            last = replace(last, prompt=prompt, output=output, think=think)
            yield last

    def _first(self, number: int, at: float) -> Job:
        options = self._options
        (prefix,) = self._sharing.choices(range(options.prefixes), cum_weights=self._prefix_weights)
        shared = self._prefixes[prefix]
        prompt, output = shared + options.prompt.draw(self._prompts), options.output.draw(self._outputs)
        if options.longest:
            output = min(output, options.longest // 2)
            prompt = min(prompt, options.longest - output)
        return Job(
            at=at,
            prompt=prompt,
            output=output,
            blocks=(self._part << 32 | prefix,) if shared else (),
            block_size=shared,
            session="" if options.turns == Fixed(1) else f"{self._part}-{number}",
            client=self._client(),
            priority=self._ranks.randrange(options.priorities),
        )

    def _client(self) -> str:
        options = self._options
        if options.clients == 1:
            return options.client or ""
        (number,) = self._clients.choices(range(options.clients), cum_weights=self._client_weights)
        return f"{options.client or 'client'}-{number}"


def _prefix_lengths(options: Generator, rng: random.Random) -> list[int]:
    return [options.prefix.draw(rng) if options.prefix else 0 for _ in range(options.prefixes)]


def _zipf(ranks: int, skew: float) -> list[float]:
    """Cumulative weights."""
    return list(accumulate((rank + 1) ** -skew for rank in range(ranks)))


# ------------------------------------------------------------------ by their arrivals

Rate = Annotated[float, Field(gt=0)]


class Poisson(Generator):
    """Independent arrivals: many people who know nothing of each other."""

    rate: Rate = Field(description="Arrivals a second.")

    def times(self, rng: random.Random) -> Iterator[float]:
        return arrivals.poisson(rng, self.rate)


class Gamma(Generator):
    """Arrivals in bursts, or evenly, or anything between."""

    rate: Rate = Field(description="Arrivals a second.")
    burstiness: float = Field(
        0.25,
        gt=0,
        description="Shape of the gaps' gamma distribution, as in vLLM: 1 is Poisson, less comes in bursts.",
    )

    def times(self, rng: random.Random) -> Iterator[float]:
        return arrivals.gamma(rng, self.rate, self.burstiness)


class Constant(Generator):
    """Arrivals that are evenly spaced."""

    rate: Rate = Field(description="Arrivals a second.")

    def times(self, rng: random.Random) -> Iterator[float]:
        return arrivals.constant(self.rate)


class Closed(Generator):
    """A closed loop: the next request or session begins when one ends. Latencies hide any queue."""

    concurrency: int = Field(ge=1, description="Requests, or sessions, at a time.")

    def workload(self, seed: int, part: int = 0) -> Workload:
        return replace(super().workload(seed, part), concurrency=self.concurrency)

    def times(self, rng: random.Random) -> Iterator[float]:
        return arrivals.together()


class Burst(Generator):
    """All at once, as a batch."""

    def times(self, rng: random.Random) -> Iterator[float]:
        return arrivals.together()


class Ramp(Generator):
    """Independent arrivals at a rate that grows or falls, to see where a server gives in."""

    start: Rate = Field(description="Arrivals a second in the beginning.")
    end: Rate = Field(description="Arrivals a second from `seconds` on.")
    seconds: float = Field(60.0, gt=0, description="Seconds from one to the other.")

    def times(self, rng: random.Random) -> Iterator[float]:
        return arrivals.ramp(rng, self.start, self.end, self.seconds)


class Diurnal(Generator):
    """Independent arrivals at a rate that swings like day and night."""

    rate: Rate = Field(description="Arrivals a second, on average.")
    swing: float = Field(
        0.8, ge=0, le=1, description="How far the rate departs from its mean, as a share of it."
    )
    period: float = Field(600.0, gt=0, description="Seconds from one night to the next; it begins at night.")

    def times(self, rng: random.Random) -> Iterator[float]:
        return arrivals.diurnal(rng, self.rate, self.swing, self.period)


GENERATORS: dict[str, type[Generator]] = {
    kind.__name__.lower(): kind for kind in (Poisson, Gamma, Constant, Closed, Burst, Ramp, Diurnal)
}
