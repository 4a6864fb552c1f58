"""A made-up engine that tells of itself as `/admin/live` does: quick, seeded, with all that can happen."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

UNIT = 16
WHY = ["oldest first", "shortest prompt first: 212 tokens", "its client had the least service"]


@dataclass
class Made:
    """A request of the made-up engine."""

    id: str
    client: str
    arrival: float
    prompt: int
    most: int
    state: str = "waiting"
    computed: int = 0
    output: int = 0
    preemptions: int = 0
    finish: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def blocks(self) -> int:
        return -(-(self.computed + 1) // UNIT) if self.state in ("prefill", "decode") else 0

    def entry(self) -> dict[str, Any]:
        entry = {
            "id": self.id,
            "client": self.client,
            "prompt_tokens": self.prompt,
            "max_tokens": self.most,
            "n": 1,
            "arrival": self.arrival,
            "state": self.state,
            "computed": self.computed,
            "output_tokens": self.output,
            "preemptions": self.preemptions,
            "finish_reason": self.finish,
            **self.extra,
        }
        return {name: value for name, value in entry.items() if value not in (None, 0, "")}


class MadeUp:
    """First come, first served, by chunks; the latest gives way when memory runs out."""

    def __init__(
        self, *, seed: int = 1, rate: float = 6.0, slots: int = 24, blocks: int = 640, replica: str = "0"
    ) -> None:
        self.random = random.Random(seed)
        self.rate, self.slots, self.blocks, self.replica = rate, slots, blocks, replica
        self.live: list[Made] = []
        self.ended: list[Made] = []
        self.number = self.made = 0
        self.counters = {"preemptions": 0, "swap_outs": 0, "computed_tokens": 0, "output_tokens": 0}
        self._spans: list[list[Any]] = []
        self._begun: dict[str, tuple[str, float]] = {}
        self._new: dict[str, Made] = {}

    # ------------------------------------------------------------- what happens

    def arrive(self, at: float, **given: Any) -> Made:
        self.made += 1
        prompt = given.pop("prompt", int(self.random.lognormvariate(5.4, 0.9)))
        most = given.pop("most", self.random.randint(20, 220))
        client = given.pop("client", f"team-{self.random.choice('abcd')}")
        request = Made(f"cmpl-{self.replica}-{self.made:05d}", client, at, min(prompt, 6000), most, **given)
        self.live.append(request)
        self._begin(request, "waiting", at)
        return request

    def _begin(self, request: Made, phase: str, at: float) -> None:
        if (before := self._begun.pop(request.id, None)) is not None:
            self._spans.append([request.id, before[0], before[1], at])
        if phase != "ended":
            self._begun[request.id] = (phase, at)
            self._spans.append([request.id, phase, at, None])
        request.state = phase
        self._new[request.id] = request

    @property
    def free(self) -> int:
        return self.blocks - sum(request.blocks for request in self.live)

    def step(self, at: float, seconds: float, budget: int = 512) -> dict[str, Any]:
        """One step of the engine, as the feed tells of it."""
        self.number += 1
        running = [request for request in self.live if request.state in ("prefill", "decode")]
        queue = sorted((one for one in self.live if one not in running), key=lambda one: one.arrival)
        step: dict[str, Any] = {"number": self.number, "started": at, "ended": at + seconds}
        admitted, preempted, grants = [], [], []
        while self.free < len(running) + 4 and len(running) > 1:
            victim = running.pop()
            how = "swap" if self.random.random() < 0.5 else "recompute"
            preempted.append([victim.id, how])
            victim.preemptions += 1
            self.counters["preemptions"] += 1
            self.counters["swap_outs"] += how == "swap"
            victim.computed = victim.computed if how == "swap" else 0
            self._begin(victim, "swapped" if how == "swap" else "preempted", at)
        if not preempted:
            for request in queue:
                if len(running) >= self.slots or self.free < request.prompt // UNIT + 8:
                    break
                running.append(request)
                admitted.append(request.id)
                self._begin(request, "decode" if request.computed >= request.prompt else "prefill", at)
        left = budget
        for request in list(running):
            tokens = 1 if request.state == "decode" else min(request.prompt - request.computed, left)
            if tokens <= 0:
                continue
            left -= tokens
            done = min(request.prompt, request.computed + tokens)
            grants.append([request.id, tokens, request.state, done, request.prompt])
            self._advance(request, tokens, at + seconds)
        self.counters["computed_tokens"] += budget - left
        step |= {
            "policy_ms": 0.12,
            "tokens": budget - left,
            "rows": len(grants),
            "running": len(running),
            "waiting": len(queue) - len(admitted),
            "kv_free": self.free * UNIT,
            "order": [request.id for request in queue][:64],
            "grants": grants[:64],
            "admitted": admitted,
            "preempted": preempted,
            "why": {request.id: WHY[self.number % len(WHY)] for request in queue[:3]},
        }
        return step

    def _advance(self, request: Made, tokens: int, at: float) -> None:
        request.computed += tokens
        self._new[request.id] = request
        if request.computed >= request.prompt:
            request.output += 1
            self.counters["output_tokens"] += 1
            if request.state == "prefill":
                self._begin(request, "decode", at)
        if request.output >= request.most:
            request.finish = self.random.choice(["stop", "length"])
            self._begin(request, "ended", at)
            self.live.remove(request)

    def run(self, at: float, seconds: float, step: float = 0.05) -> list[dict[str, Any]]:
        """The steps of some time, with arrivals."""
        steps = []
        end = at + seconds
        while at < end:
            if self.random.random() < self.rate * step:
                self.arrive(at)
            steps.append(self.step(at, step * 0.96))
            at += step
        return steps

    # ------------------------------------------------------------- what is told

    def event(self, at: float, steps: list[dict[str, Any]], *, first: bool = False) -> dict[str, Any]:
        told = self.live if first else list(self._new.values())
        spans = self._spans
        if first:
            spans = [[one.id, *self._begun[one.id], None] for one in self.live]
        engine: dict[str, Any] = {
            "model": "tiny",
            "name": f"tiny/base/{self.replica}",
            "replica": self.replica,
            "state": "serving",
            "scheduler": "fcfs",
            "stats": {
                "steps": self.number,
                "running": sum(one.blocks > 0 for one in self.live),
                "waiting": sum(one.blocks == 0 for one in self.live),
                "kv_capacity": self.blocks * UNIT,
                "kv_free": max(0, self.free) * UNIT,
                **self.counters,
            },
            "requests": [one.entry() for one in told],
            "spans": spans,
            "steps": steps,
            "kv": self.kv(),
        }
        if first:
            engine["policies"] = {
                "scheduler": "fcfs",
                "kv": f"paged:block_size={UNIT}",
                "kv_eviction": "lru",
                "router": "least_requests",
            }
        self._spans, self._new = [], {}
        return {"at": at, "engines": [engine], **({"first": True} if first else {})}

    def kv(self) -> dict[str, Any]:
        runs: list[list[Any]] = [["cached", 4]]
        owners, holders = [[-1, 0, 4]], list[str]()
        for at, request in enumerate(self.live):
            if request.blocks:
                runs.append(["shared" if at % 5 == 0 else "held", request.blocks])
                runs.append(["cached", min(3, max(0, self.blocks - sum(run[1] for run in runs)))])
                holders.append(request.id)
                owners += [[len(holders), 2 if at % 5 == 0 else 1, request.blocks], [0, 0, runs[-1][1]]]
        used = sum(run[1] for run in runs)
        runs.append(["free", max(0, self.blocks - used)])
        sums = {name: sum(run[1] for run in runs if run[0] == name) * UNIT for name in ("held", "cached")}
        known = {"unit": UNIT, "capacity": self.blocks * UNIT, "free": max(0, self.free) * UNIT, **sums}
        whose = {"owners": owners, "holders": holders, "pins": ["system-prompt"]}
        return {**known, "swap": 4096, "swapped": 512, "hit_rate": 0.43, "cell": 1, "runs": runs, **whose}
