"""A served model and a draft of seven tokens each, small enough to compare with exact probabilities."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from toy import EOS, VOCABULARY, slots_of, toy_logits

from turnout.core.engine.admission import Limits
from turnout.core.engine.engine import Engine
from turnout.core.engine.logits_processing import LogitsProcessors
from turnout.core.engine.observers import Observers
from turnout.core.interfaces.kv import KVCache, PoolSize
from turnout.core.interfaces.logits_processor import ServedModel
from turnout.core.interfaces.observers import WatchingHook
from turnout.core.interfaces.proposer import DraftRequest, Proposal, Proposer
from turnout.core.registry.registry import Registry
from turnout.core.scheduling.scheduler import Capacity, Scheduler
from turnout.core.types.plan import Logits, Plan
from turnout.plugins.decoding.speculation.strategy import Speculative
from turnout.plugins.evictions.lru import Lru
from turnout.plugins.kv_backends.paged.host.cache import PagedCache
from turnout.plugins.predictors.max_tokens import MaxTokens
from turnout.plugins.proposers.draft_memory import DraftMemory
from turnout.plugins.proposers.drafter import Drafter
from turnout.plugins.schedulers.fcfs import Fcfs

Model = Callable[[Sequence[int]], list[float]]


def served_model(context: Sequence[int]) -> list[float]:
    return toy_logits(context)


def draft_model(context: Sequence[int]) -> list[float]:
    """Like the served one, but wrong in a way that depends on the last token."""
    return [value + 0.9 * ((token + context[-1]) % 3 - 1) for token, value in enumerate(toy_logits(context))]


@dataclass
class TensorRunner:
    """A model whose memory, the pool's slots, holds tokens: a stale or missing one changes its logits."""

    kv: KVCache
    model: Model
    pool: dict[int, int] = field(default_factory=dict)
    tokens: int = 0

    def run(self, plan: Plan) -> Logits:
        for source, target, length, *_ in plan.moves:
            for offset in range(length):
                self.pool[target + offset] = self.pool[source + offset]
        values, rows = [], {}
        for chunk in plan.chunks:
            slots = slots_of(self.kv, chunk.sequence, chunk.end)
            self.pool.update(zip(slots[chunk.start :], chunk.tokens, strict=True))
            self.tokens += len(chunk.tokens)
        for chunk in plan.chunks:
            if chunk.rows:
                read = [self.pool[slot] for slot in slots_of(self.kv, chunk.sequence, chunk.end)]
                rows[chunk.sequence] = range(len(values), len(values) + chunk.rows)
                values += [self.model(read[: chunk.end - chunk.rows + 1 + row]) for row in range(chunk.rows)]
        return Logits(torch.tensor(values).reshape(-1, VOCABULARY), rows)


class ToyDraft(Proposer):
    """A draft model without a checkpoint."""

    def __init__(self, blocks: int = 256, budget: int = 64, model: Model = draft_model) -> None:
        self.kv = PagedCache(PoolSize(4 * blocks), 4, Lru())
        self.runner = TensorRunner(self.kv, model)
        self.memory = DraftMemory(self.kv, max_positions=200)
        self.drafter = Drafter(self.runner, self.memory, VOCABULARY, VOCABULARY, budget)

    def propose(self, requests: Sequence[DraftRequest]) -> Iterable[Proposal]:
        return self.drafter.propose(requests)

    def backlog(self, sequence):
        return self.memory.backlog(sequence)

    def forget(self, sequences):
        self.memory.forget(sequences)


class Reckless(Proposer):
    """A third party's: drafts by rote, and not for all sequences."""

    def propose(self, requests: Sequence[DraftRequest]) -> Iterable[Proposal]:
        for sequence, count, _ in requests:
            if (len(sequence.tokens) + sequence.request.spec.seed) % 4:
                yield Proposal(sequence, [(sequence.tokens[-1] + 1 + n) % VOCABULARY for n in range(count)])


@dataclass
class ToyResources:
    """What the strategy needs of Resources."""

    observers: Observers
    max_batched_tokens: int
    time: float = 0.0

    @property
    def model(self) -> ServedModel:
        return ServedModel(Path(), VOCABULARY, frozenset({EOS}))

    def clock(self) -> float:
        self.time += 1e-3
        return self.time

    def watch_steps(self, name: str, hook: Callable[..., object]) -> None:
        self.observers.watch_steps(WatchingHook(name, hook))


def toy_engine(strategy: Speculative, *, blocks: int = 512, budget: int = 256, slots: int = 64) -> Engine:
    kv = PagedCache(PoolSize(4 * blocks), 4, Lru())
    observers = Observers()
    resources = ToyResources(observers, budget)
    strategy.start(resources)  # type: ignore[arg-type]
    processors = LogitsProcessors(Registry.load().logits_processors())
    processors.start(resources.model)
    return Engine(
        Scheduler(Fcfs(), kv, Capacity(budget, slots), MaxTokens(), strict=True),
        TensorRunner(kv, served_model),
        [strategy],
        Limits(max_model_len=256, vocab_size=VOCABULARY, max_waiting=10**6, eos_token_ids=frozenset({EOS})),
        resources.clock,
        observers,
        processors,
    )
