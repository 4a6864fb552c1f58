"""Requests of every kind, drawn from a seed, and serving them under one policy after another."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from turnout.core.engine.engine import Engine
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.runner.assembly import AssembledEngine

__all__ = ["Soak", "request"]

TOKENS = range(3, 160)
"""Of the random model's vocabulary: none that ends an output."""
WAITING = 8
"""Requests that wait for memory at any time."""
_STEMS = [[random.Random(stem).choice(TOKENS) for _ in range(48)] for stem in range(4)]


def request(number: int) -> RequestSpec:
    """One choice or several, sampled, greedy or beams; prompts start alike more often than not."""
    rng = random.Random(number)
    prompt = rng.choice(_STEMS)[: rng.choice([0, 20, 48])] + rng.choices(TOKENS, k=rng.randrange(1, 30))
    return RequestSpec(
        id=f"r{number}",
        prompt=prompt,
        params=_params(rng),
        seed=number,
        priority=rng.randrange(3),
        client=rng.choice("abc"),
        deadline=rng.choice([None, 50.0, 5000.0]),
        ttft_deadline=rng.choice([None, 500.0]),
        cache_salt=rng.choice(["", "", "tenant"]),
    )


def _params(rng: random.Random) -> SamplingParams:
    length = rng.randrange(1, 24)
    match rng.choice(["one", "one", "one", "greedy", "several", "penalties", "beams"]):
        case "greedy":
            return SamplingParams(temperature=0.0, max_tokens=length, prompt_logprobs=rng.choice([None, 1]))
        case "several":
            return SamplingParams(n=rng.randrange(2, 5), max_tokens=length, logprobs=rng.choice([None, 2]))
        case "penalties":
            return SamplingParams(max_tokens=length, presence_penalty=0.5, logit_bias={5: 1.0})
        case "beams":
            return SamplingParams(use_beam_search=True, n=2, beam_width=3, temperature=0.0, max_tokens=length)
        case _:
            return SamplingParams(max_tokens=length, top_p=rng.choice([1.0, 0.9]), top_k=rng.choice([0, 20]))


@dataclass
class Soak:
    """An engine, and what has become of the requests that it was given."""

    assembled: AssembledEngine
    shift: int
    """Requests that begin under a policy, before another one finds them running."""
    begun: int = 0
    ended: int = 0
    aborted: int = 0
    missing: dict[str, int] = field(default_factory=dict)
    """Choices that have not ended, of the requests that are being served."""

    @property
    def engine(self) -> Engine:
        return self.assembled.engine

    def serve(self, until: int) -> None:
        """Go on with new requests until as many have ended since the start."""
        while self.ended < until:
            while self.begun < until and self.engine.stats().waiting < WAITING:
                self._begin()
            self._step()

    def _begin(self) -> None:
        turn, started = divmod(self.begun, self.shift)
        if not started:
            policies = self.assembled.registry.names("scheduler")
            self.assembled.set_scheduler(policies[turn % len(policies)])
            self._pin(_STEMS[turn % len(_STEMS)])
        spec = request(self.begun)
        self.engine.add(spec)
        self.missing[spec.id] = spec.params.n
        self.begun += 1

    def _pin(self, prefix: list[int]) -> None:
        """In place of the one before, where the backend keeps any."""
        if prefixes := self.engine.scheduler.kv.prefixes:
            prefixes.pin("stem", prefix, "")

    def unpin(self) -> None:
        if prefixes := self.engine.scheduler.kv.prefixes:
            assert prefixes.unpin("stem") and not prefixes.pinned()

    def _step(self) -> None:
        rng = random.Random(self.engine.stats().steps)
        if self.missing and rng.random() < 0.03:
            self._abort(rng.choice(list(self.missing)))
        for delta in self.engine.step():
            assert not delta.error or delta.error_kind == "timeout", delta
            if delta.error:  # a policy gave it up: past its deadline
                self._end(delta.request_id)
            elif delta.finish_reason:
                self._end_choice(delta.request_id)

    def _abort(self, name: str) -> None:
        """Its client leaves, wherever it stands."""
        self.engine.abort(name)
        self.aborted += 1
        self._end(name)

    def _end_choice(self, name: str) -> None:
        self.missing[name] -= 1
        if not self.missing[name]:
            self._end(name)

    def _end(self, name: str) -> None:
        del self.missing[name]
        self.ended += 1
