"""Serve a case on real tensors and hold every number against brute force."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import torch
from brute_force import MAX_MODEL_LEN, VOCABULARY, BruteForce, tiny_spec
from fault import Fault
from stress_case import Case
from stress_memory import Finding, Memory
from stress_policies import AnyEviction
from stress_recorder import Recorder, Tally
from stress_strategies import EOS, log_softmax, strategies
from torch import Tensor

from turnout.core.engine.admission import Limits
from turnout.core.engine.engine import Engine
from turnout.core.errors import ConfigError
from turnout.core.interfaces.compute import ComputeContext
from turnout.core.interfaces.kv import KVBackend, KVCache, Span
from turnout.core.scheduling.scheduler import Capacity, Scheduler
from turnout.core.types.logprobs import TokenLogprobs
from turnout.core.types.messages import Delta, KVSnapshot
from turnout.plugins.kv_backends.contiguous.backend import Contiguous
from turnout.plugins.kv_backends.paged.backend import Paged
from turnout.plugins.kv_backends.storage.block_copies import SliceCopier, StagedCopier
from turnout.plugins.kv_backends.storage.grouped_attention import GroupedAttention
from turnout.plugins.predictors.max_tokens import MaxTokens

__all__ = ["serve"]

MAX_STEPS = 2000
GARBAGE = 30
TOLERANCE = 1e-9
"""Of a number: what is computed in another batch differs by 1e-14, wrong KV makes 1e-3 and more."""
SCORE_TOLERANCE = 1e-4
"""Of a log-probability of a prompt token, which is computed in float32."""
LOOKS = 5
"""Memory is looked at after every so many steps."""


def serve(case: Case, reference: BruteForce, tally: Tally, fault: Fault) -> None:
    """What differs from brute force is complained of in `tally`; what breaks down raises."""
    _Run(case, reference, tally, fault).serve()


@dataclass
class _Heard:
    """What a client got."""

    tokens: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    """By choice."""
    reasons: dict[int, str] = field(default_factory=dict)
    cached: int = 0
    """Prompt tokens found computed."""
    scores: list[TokenLogprobs] | None = None
    """Of the prompt."""
    aborted: bool = False

    def begins(self, index: int, answer: list[int]) -> bool:
        """An answer that was cut short, unless it had ended."""
        tokens = self.tokens[index]
        return tokens == (answer if index in self.reasons else answer[: len(tokens)])


class _Run:
    def __init__(self, case: Case, reference: BruteForce, tally: Tally, fault: Fault) -> None:
        self.case = case
        self.reference = reference
        self.fault = fault
        self.tally = tally
        self.asks = {ask.spec.id: ask for ask in case.asks}
        self.heard = {name: _Heard() for name in self.asks}
        self.eviction = case.make_eviction()
        spec = tiny_spec(windowed=case.windowed)
        backend = self.backend = _backend(case).for_model(spec)
        self.kv = backend.cache(case.pool, self.eviction)
        attention = backend.attention(spec, self.kv, ComputeContext(torch.device("cpu"), torch.float64))
        assert isinstance(attention, GroupedAttention)
        self.pool, self.host = attention.storage.tensors, _host_memory(attention, self.kv, case)
        self.memory = Memory(self.kv, attention, spec.layers)
        self.found: list[Finding] = []
        fault.break_host_half(self.kv)
        self._watch_reserve()
        fault.break_device_half(attention)
        self.runner = Recorder(attention, fault, self.tally)
        self.engine = self._engine()
        fault.break_engine(self.engine)

    def _engine(self) -> Engine:
        case = self.case
        scheduler = Scheduler(
            case.make_policy(),
            self.kv,
            Capacity(case.budget, case.slots),
            MaxTokens(),
            preemption=case.make_preemption(),
            strict=case.strict,
            grows_at=self.backend.grows_at,
        )
        limits = Limits(MAX_MODEL_LEN, VOCABULARY, max_waiting=100, eos_token_ids=frozenset({EOS}))
        decodings = strategies(lambda name: self.asks[name].answers)
        return Engine(
            scheduler,
            self.runner,
            decodings,
            limits,
            lambda: float(self.tally.steps),
            overlaps=case.overlaps,
        )

    def _watch_reserve(self) -> None:
        """It must do what `fits` said, or nothing at all."""
        reserve = self.kv.reserve

        def watched(spans: Sequence[Span]) -> bool:
            free, could = self.kv.free, self.kv.fits(spans)
            done = reserve(spans)
            if done != could or not (done or self.kv.free == free):
                self.tally.complain("accounting", f"reserved {spans}: {done}, fits said {could}")
            return done

        self.kv.reserve = watched  # type: ignore[method-assign]

    # -------------------------------------------------------------- serving

    def serve(self) -> None:
        self._pin()
        todo = sorted(self.case.asks, key=lambda ask: ask.step)
        while todo or self.engine.busy:
            while todo and todo[0].step <= self.tally.steps:
                self.engine.add(todo.pop(0).spec)
            for ask in self.case.asks:
                if ask.abort and ask.abort[0] == self.tally.steps:
                    self.heard[ask.spec.id].aborted |= (
                        self.engine.abort(ask.spec.id, ask.abort[1]) is not None
                    )
            for delta in self.engine.step():
                self._hear(delta)
            self.fault.after_step(self.engine)
            now = self.kv.snapshot()
            self._check_accounting(now)
            self._look_at_memory()
            self._spoil_free_memory(now)
            self.tally.steps += 1
            assert self.tally.steps < MAX_STEPS, "it goes on for ever"
        self._check_memory_returned()
        self._check_answers()
        self._check_scores()
        self._check_rows()
        self._check_memory()
        self._count()

    def _pin(self) -> None:
        rng = random.Random(self.case.seed)
        if self.kv.prefixes is None or not self.case.prefix_caching:
            return
        for index in range(self.case.pinned):
            spec = rng.choice(self.case.asks).spec
            with suppress(ConfigError):  # too short, or more than the pool has room for
                self.kv.prefixes.pin(f"p{index}", spec.prompt, spec.cache_salt)

    def _hear(self, delta: Delta) -> None:
        heard = self.heard[delta.request_id]
        if delta.error:
            ask = self.asks[delta.request_id]
            # A first choice that ends, or is given up, before the others have left its path leaves the
            # request without them.
            alone = len(ask.answers) < ask.spec.params.n or (ask.abort is not None and ask.abort[1] == 0)
            assert delta.error == "on a whim" or (alone and "choices" in delta.error), delta.error
            heard.aborted = True
            return
        heard.tokens[delta.index] += delta.tokens
        heard.cached = delta.cached_tokens
        heard.scores = heard.scores or delta.prompt_logprobs
        if delta.finish_reason:
            heard.reasons[delta.index] = delta.finish_reason

    def _look_at_memory(self) -> None:
        for sequence in self.memory.keys_ahead(self.engine):
            self.tally.complain("keys", f"{sequence} has computed {sequence.computed} positions, not so many")
        if self.tally.steps % LOOKS == self.case.seed % LOOKS:
            self.found += self.memory.held(self.engine)

    def _spoil_free_memory(self, now: KVSnapshot) -> None:
        """A read of what was given back shall be noticed."""
        place = 0
        for state, units in now.states:
            end = place + units * now.unit
            if state == "free":
                for tensor in self.pool:
                    tensor[:, place:end] = GARBAGE
            place = end
        if not now.swapped:
            for tensor in self.host:
                tensor.fill_(GARBAGE)

    # -------------------------------------------------------------- checking

    def _check_accounting(self, now: KVSnapshot) -> None:
        states = dict.fromkeys(("free", "cached", "held", "shared"), 0)
        for state, units in now.states:
            states[state] += units * now.unit
        parts = max(1, len(now.groups))
        right = (
            now.capacity == self.kv.capacity == now.free + now.held == sum(states.values()) // parts
            and now.free == self.kv.free == (states["free"] + states["cached"]) // parts
            and now.shared == states["shared"] // parts
            and now.cached == states["cached"] // parts
            and sum(group.held for group in now.groups) in (0, states["held"] + states["shared"])
            and now.computed <= now.held
            and now.swapped <= now.swap <= self.case.pool.swap
            and now.hits <= now.lookups
        )
        if not right:
            self.tally.complain("accounting", str(now))

    def _check_memory_returned(self) -> None:
        now = self.kv.snapshot()
        tables = getattr(self.kv, "tables", None) or getattr(self.kv, "slabs", None)
        if now.free < now.capacity or now.held or now.swapped or tables or self.kv.drain():
            self.tally.complain("accounting", f"memory was not given back: {now}")
        # Blocks that are pinned, or that windows have passed, are none of an eviction policy's business.
        cached = sum(units for state, units in now.states if state == "cached")
        blocks = getattr(self.kv, "_blocks", None)
        told = cached - len(blocks._evictable._pinned) - blocks.passed if blocks else 0
        if isinstance(self.eviction, AnyEviction) and len(self.eviction.blocks) != told:
            self.tally.complain("accounting", f"{self.eviction.blocks} are to be evicted, not: {now}")

    def _check_answers(self) -> None:
        for name, heard in self.heard.items():
            ask = self.asks[name]
            beams = ask.spec.params.stop == ("beam",)
            if heard.aborted:
                right = beams or all(heard.begins(index, ask.answers[index]) for index in heard.tokens)
            else:
                got = [heard.tokens[index] for index in sorted(heard.reasons)]
                right = (sorted(got) if beams else got) == (sorted(ask.answers) if beams else ask.answers)
            if not right:
                self.tally.complain("outputs", f"{name} gave {dict(heard.tokens)} instead of {ask.answers}")

    def _check_scores(self) -> None:
        for name, heard in self.heard.items():
            spec = self.asks[name].spec
            if spec.params.prompt_logprobs is None or (heard.scores is None and heard.aborted):
                continue
            right, given = self._prompt_scores(spec.prompt), heard.scores or []
            self.tally.scores += len(given)
            tokens, scores = [score.token for score in given], [score.logprob for score in given]
            if tokens != spec.prompt[1:] or not np.allclose(scores, right, rtol=0, atol=SCORE_TOLERANCE):
                self.tally.complain("scores", f"{name}: {given} instead of {right}")

    def _prompt_scores(self, prompt: list[int]) -> list[float]:
        """The log-probability of each of its tokens from the second one on."""
        rows = self.reference.last(tuple(prompt[:end]) for end in range(1, len(prompt)))
        return [float(log_softmax(row)[token]) for row, token in zip(rows, prompt[1:], strict=True)]

    def _check_rows(self) -> None:
        """All logits that were ever given, those of rejected guesses and dropped beams too."""
        given = [
            (context[: end + 1], row)
            for context, rows in self.runner.rows
            for end, row in zip(range(len(context) - len(rows), len(context)), rows, strict=True)
        ]
        self.tally.rows = len(given)
        wanted = self.reference.last(context for context, _ in given)
        for (context, row), right in zip(given, wanted, strict=True):
            worst = abs(row - right).max()
            if not worst < TOLERANCE:
                self.tally.complain("logits", f"off by {worst:.2g} after {context}")

    def _check_memory(self) -> None:
        """Keys and values of the sequences that ran, and all that a key finds in the end."""
        keyed, unknown = self.memory.keyed(self.runner.known)
        if unknown:
            self.tally.complain("keys", f"{unknown} keys find blocks, of tokens that were not computed")
        found = self.found + keyed
        rights = self.reference.memory(finding.context for finding in found)
        for (context, memory, columns), right in zip(found, rights, strict=True):
            self.tally.positions += len(memory)
            worst = np.abs(memory - right[len(right) - len(memory) :, columns]).max(initial=0.0)
            if not worst < TOLERANCE:
                self.tally.complain("memory", f"off by {worst:.2g} in the last {len(memory)} of {context}")

    def _count(self) -> None:
        stats = self.engine.stats()
        self.tally.preemptions, self.tally.swap_outs = stats.preemptions, stats.swap_outs
        self.tally.hits = sum(heard.cached for heard in self.heard.values())


def _backend(case: Case) -> KVBackend:
    if case.block_size is None:
        return Contiguous(case.stored)
    return Paged(case.block_size, case.prefix_caching, case.stored)


def _host_memory(attention: GroupedAttention, kv: KVCache, case: Case) -> Sequence[Tensor]:
    """Where it swaps; moving in stages, as on a GPU, if the case says so."""
    if case.staged:
        swap = getattr(kv, "swap_slots", case.pool.swap)
        attention._copier = StagedCopier(attention.storage.tensors, swap)
        attention._copier._limit = case.staged
        return attention._copier._host
    assert isinstance(attention._copier, SliceCopier)
    return [host for _, host in attention._copier._ends["swap_out"]]
