"""The conformance suite of KV backends: both halves together, on a model that really attends."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, ClassVar

from turnout.core.engine.engine import Engine
from turnout.core.interfaces.compute import ComputeContext
from turnout.core.interfaces.kv import KVBackend, KVCache, PoolSize, Span
from turnout.core.scheduling.preemption import Preemption, Recompute
from turnout.core.types.layer_attention import ATTENTION_FEATURES, NOT_CAUSAL
from turnout.core.types.plan import Logits, Move, Plan
from turnout.core.types.request import Request, RequestSpec
from turnout.core.types.request import Sequence as TokenSequence
from turnout.core.types.sampling_params import SamplingParams
from turnout.plugins.evictions.lru import Lru
from turnout.plugins.schedulers.fcfs import Fcfs
from turnout.plugins.schedulers.priority import Priority
from turnout.testing.checks.audited_cache import AuditedCache
from turnout.testing.checks.brute_force import assert_expected_tokens
from turnout.testing.checks.memory_leaks import assert_all_memory_is_free
from turnout.testing.checks.messages import shown
from turnout.testing.suites.embedded import GREEDY, LENGTH
from turnout.testing.suites.suite import Suite, not_for_it, slow
from turnout.testing.toy.decodings import ToyParallel
from turnout.testing.toy.engine import drive, toy_engine, toy_request
from turnout.testing.toy.runner import Model
from turnout.testing.toy.workloads import Arrivals, needs, random_preemption, random_workload

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from turnout.runner.execution.model_runner import ModelRunner

__all__ = ["KVBackendSuite"]

_names = count()


class KVBackendSuite(Suite[KVBackend]):
    """Tokens are those of a model without KV memory, and all memory that was taken is given back."""

    kind = "kv"
    trials: ClassVar[int] = 12

    dtype: ClassVar[str] = "float64"
    """The toy model's dtype, a name of torch: exact enough that the order of a sum changes no token."""

    def attends(self, position: int) -> Sequence[int]:
        """The positions that the query at `position` attends to: by default, all up to itself."""
        return range(position + 1)

    def stored(self, vectors: Tensor) -> Tensor:
        """The keys or values that are read after writing `vectors`: the same, unless the backend rounds.

        vectors: [tokens, kv_heads, head_dim], as is what is returned.
        """
        return vectors

    def pool(self, rng: random.Random, arrivals: Arrivals, backend: KVBackend) -> PoolSize:
        """A pool that holds the most demanding request and hardly more, so that requests compete for it."""
        most = max(n * -(-length // backend.unit) for n, length in needs(arrivals)) * backend.unit
        tokens = most + rng.randrange(0, 2) * backend.unit
        while not self._holds_all(backend, tokens, arrivals):
            tokens += backend.unit
        return PoolSize(tokens, rng.choice([0, rng.randrange(1, 40), 1000, 1000]))

    # -------------------------------------------------------------- tokens

    def test_an_approximation_is_declared(self) -> None:
        """Comparisons take other answers for a fault unless the backend declares that it approximates."""
        import torch

        vectors = torch.randn(64, 2, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        forgets = any(list(self.attends(position)) != list(range(position + 1)) for position in range(64))
        if forgets or not torch.equal(self.stored(vectors), vectors):
            assert self.make().approximation, (
                "the suite's `attends` or `stored` says that the backend leaves out or rounds keys and "
                "values, but its attribute `approximation` is empty; set it to a few words that say how"
            )

    def test_tokens_are_those_of_a_model_without_memory(self) -> None:
        """With common prefixes, forks, dropped beams, drafts, chunks, preemption, swap and scarce memory."""
        preemptions = 0
        for seed in range(self.trials):
            case = self._case(seed)
            outcome = drive(case.engine, case.arrivals)
            for _, spec in case.arrivals:
                assert_expected_tokens(spec, outcome, self._logits, case=f"seed {seed}")
            preemptions += case.engine.stats().preemptions
        lowered = self.trials < type(self).trials
        assert preemptions or lowered, (
            "no request was preempted in any workload, so preemption was not tested; raise `trials`"
        )

    def test_a_long_prompt_may_come_in_chunks(self) -> None:
        for budget in (1, 3, 7, 64):
            spec = toy_request("long", [1 + i * i % 6 for i in range(50)], "greedy", 6)
            engine = self._engine(self._roomy(128), budget=budget)
            outcome = drive(engine, [(0, spec)])
            assert_expected_tokens(spec, outcome, self._logits, case=f"a prompt in chunks of {budget}")

    def test_a_common_prefix_may_be_reused(self) -> None:
        """Requests with a common prefix, one after another: each may find what earlier ones left."""
        start = [1 + i * i % 6 for i in range(33)]
        specs = [toy_request(f"r{i}", [*start[: 33 - i], 1 + i], "greedy", 5) for i in range(6)]
        engine = self._engine(self._roomy(256))
        outcome = drive(engine, [(9 * i, spec) for i, spec in enumerate(specs)])
        for spec in specs:
            assert_expected_tokens(spec, outcome, self._logits, case="requests with a common prefix")

    def test_forked_choices_do_not_overwrite_each_other(self) -> None:
        """Copy on write: choices that diverge in a shared block do not see each other's tokens."""
        for length in range(1, 20):
            spec = toy_request("r", [1 + i % 6 for i in range(length)], "parallel", 8, n=4)
            outcome = drive(self._engine(self._roomy(256)), [(0, spec)])
            case = f"four choices after a prompt of {length} tokens"
            assert_expected_tokens(spec, outcome, self._logits, case=case)

    def test_layers_attend_by_the_rules_that_it_follows(self) -> None:
        """Each of `attention_features`, alone and mixed, with chunks, forks, prefixes and swapping."""
        import torch

        from turnout.testing.checks.attention_traffic import EXAMPLES, Traffic, random_traffic, spec_of

        backend = self.make()
        declared = backend.attention_features
        unknown = declared - ATTENTION_FEATURES - {NOT_CAUSAL}
        assert not unknown, (
            f"`attention_features` has {', '.join(map(repr, sorted(unknown)))}; expected names among "
            f"{', '.join(sorted(ATTENTION_FEATURES))}"
        )
        if not declared:
            not_for_it("it declares no attention features, so models that need one are refused")
        dtype: torch.dtype = getattr(torch, self.dtype)
        tolerance = 1e-6 if dtype is torch.float64 else 1e-3
        for rules in EXAMPLES.values():
            if spec_of(rules).attention_features() <= declared:
                traffic = Traffic(
                    self.make(),
                    rules,
                    dtype=dtype,
                    stored=self.stored,
                    attends=self.attends,
                    tolerance=tolerance,
                    tokens=max(4096, 16 * backend.unit),
                )
                random_traffic(traffic, random.Random(len(rules)))

    # -------------------------------------------------------------- accounting

    def test_every_call_keeps_its_contract(self) -> None:
        """Queries change nothing and predict transitions; a refusal changes nothing; the sums are right."""
        for seed in range(self.trials):
            case = self._case(seed, audited=True)
            drive(case.engine, case.arrivals)

    def test_all_memory_is_given_back(self) -> None:
        for seed in range(self.trials):
            case = self._case(seed)
            drive(case.engine, case.arrivals)
            assert_all_memory_is_free(case.kv)

    def test_aborted_requests_give_their_memory_back(self) -> None:
        for seed in range(self.trials):
            case = self._case(seed)
            for _, spec in case.arrivals:
                case.engine.add(spec)
            for number, (_, spec) in enumerate(case.arrivals):
                case.engine.step()
                case.engine.abort(spec.id, index=number % 3 or None)
            drive(case.engine, [])
            assert_all_memory_is_free(case.kv)

    def test_an_admitted_request_is_never_short_of_memory(self) -> None:
        """Where `holds` returned True, a request that runs alone gets all the memory it needs."""
        for n in (1, 3):
            length = self._longest(self._roomy(64, n), n)
            if length < 6:
                not_for_it(f"a pool of 64 positions holds only {n} sequences of {length} tokens")
            spec = toy_request("alone", [1, 2, 3], "parallel" if n > 1 else "greedy", length - 3, n)
            outcome = drive(self._engine(self._roomy(64, n), preemption=Recompute()), [(0, spec)])
            case = f"{n} sequences of {length} tokens, which `holds` admitted"
            assert_expected_tokens(spec, outcome, self._logits, case=case)

    def test_a_request_that_never_fits_is_refused(self) -> None:
        kv = self._cache(self.make(), self._roomy(64))
        assert kv.holds(1, 1), "`holds(1, 1)` returned False; expected True: an empty pool holds one token"
        many = kv.capacity + 1
        assert not kv.holds(1, many), (
            f"`holds(1, {many})` returned True for a pool of {kv.capacity} positions; expected False"
        )

    def test_salts_keep_prefixes_apart(self) -> None:
        kv = self._cache(self.make(), self._roomy(128))
        tokens = [1 + i * i % 6 for i in range(40)]
        first = _sequence(tokens, salt="one")
        _compute(kv, first)
        _end(kv, first)
        found = kv.cached(_sequence(tokens, salt="two"))
        assert found == 0, (
            f"`cached` found {found} tokens that were computed under another `cache_salt`; expected 0"
        )

    def test_only_equal_prefixes_are_found(self) -> None:
        kv, rng = self._cache(self.make(), self._roomy(512)), random.Random(3)
        tokens = [rng.randrange(1, 7) for _ in range(40)]
        first = _sequence(tokens)
        _compute(kv, first)
        for place in range(40):
            other = list(tokens)
            other[place] = 7 - other[place]
            found = kv.cached(_sequence(other))
            assert found <= place, (
                f"`cached` found {found} tokens of a sequence that differs at position {place}; expected at "
                f"most {place}"
            )

    def test_what_is_not_computed_yet_is_not_found(self) -> None:
        kv = self._cache(self.make(), self._roomy(256))
        tokens = [1 + i * i % 6 for i in range(40)]
        first = _sequence(tokens)
        _compute(kv, first, upto=20)
        assert kv.reserve([Span(first, 20, 40)]), "`reserve` refused 20 positions of 256; expected True"
        found = kv.cached(_sequence(tokens))
        assert found <= 20, f"`cached` found {found} tokens, of which 20 are computed; expected at most 20"

    def test_rejected_drafts_leave_no_trace(self) -> None:
        """Drafted tokens that are rejected were written above what is computed, and are overwritten."""
        rng = random.Random(11)
        prompt = [rng.randrange(1, 4) for _ in range(24)]
        spec = toy_request("drafted", prompt, "lookup", 24)
        outcome = drive(self._engine(self._roomy(256)), [(0, spec)])
        assert_expected_tokens(spec, outcome, self._logits, case="with rejected drafts")

    def test_the_same_calls_give_the_same_moves(self) -> None:
        first, again = self._moves(5), self._moves(5)
        assert first == again, (
            "two runs of the same workload gave other moves in `drain`; they must depend only on the calls"
        )

    def test_the_memory_of_a_token_is_known(self) -> None:
        from turnout.testing.toy.attention import toy_spec

        cost = self.make().bytes_per_token(toy_spec(), 4)
        assert isinstance(cost, int) and cost > 0, (
            f"`bytes_per_token` returned {cost!r}; expected a positive int"
        )
        unit = self.make().unit
        assert unit >= 1, f"`unit` is {unit}; expected at least 1 position"

    @slow
    def test_a_real_model_reads_what_it_wrote(self) -> None:
        """Alone, together and preempted; and the tokens of `paged`, if the backend is exact."""
        embedded = self.embedded()
        for params in (GREEDY, SamplingParams(n=2)):
            found = embedded.unmoved(params, kv=self.spec)
            if self._is_exact(LENGTH):
                wanted = embedded.tokens(params, kv="paged")
                assert found == wanted, (
                    f"requests got other tokens than with `paged`; expected the same: {shown(params)}"
                )

    # -------------------------------------------------------------- details

    def _is_exact(self, length: int) -> bool:
        """Does a query read all keys and values of a sequence of that length, as they were written?"""
        sees_all = all(set(self.attends(p)) == set(range(p + 1)) for p in range(length))
        return sees_all and type(self).stored is KVBackendSuite.stored

    @cached_property
    def _logits(self) -> Model:
        from turnout.testing.toy.attention import WithoutMemory, toy_spec, without_memory

        seen = tuple(tuple(self.attends(position)) for position in range(toy_spec().max_positions))
        rounds = type(self).stored is not KVBackendSuite.stored
        return WithoutMemory(seen, self.stored) if rounds else without_memory(seen)

    def _cache(self, backend: KVBackend, size: PoolSize) -> KVCache:
        return backend.cache(size, Lru())

    def _roomy(self, tokens: int, sequences: int = 4) -> PoolSize:
        """A pool of `tokens` positions, and at least one unit for each of `sequences`."""
        return PoolSize(max(tokens, sequences * self.make().unit))

    def _holds_all(self, backend: KVBackend, tokens: int, arrivals: Arrivals) -> bool:
        kv = self._cache(backend, PoolSize(tokens))
        assert tokens < 100_000, (
            "`holds` returned False for a small request in a pool of 100,000 positions; expected True"
        )
        return all(kv.holds(length, n) for n, length in needs(arrivals))

    def _longest(self, size: PoolSize, n: int) -> int:
        """The most tokens, up to 64, that each of a request's n sequences may have in such a pool."""
        kv = self._cache(self.make(), size)
        return max((length for length in range(65) if kv.holds(length, n)), default=0)

    def _case(self, seed: int, *, audited: bool = False) -> _Case:
        rng, backend = random.Random(seed), self.make()
        arrivals = list(random_workload(rng))
        kv = self._cache(backend, self.pool(rng, arrivals, backend))
        budget, slots = rng.randrange(5, 24), rng.randrange(4, 8)
        seen: KVCache = AuditedCache(kv) if audited else kv
        policy = rng.choice([Fcfs, Priority])()  # Priority preempts even where memory is reserved ahead
        engine = toy_engine(
            policy,
            seen,
            budget=budget,
            slots=slots,
            preemption=random_preemption(rng),
            runner=self._runner(backend, kv),
        )
        return _Case(arrivals, kv, engine)

    def _engine(self, size: PoolSize, *, budget: int = 64, preemption: Preemption | None = None) -> Engine:
        backend = self.make()
        kv = self._cache(backend, size)
        runner = self._runner(backend, kv)
        return toy_engine(Fcfs(), kv, budget=budget, preemption=preemption, runner=runner)

    def _runner(self, backend: KVBackend, kv: KVCache) -> ModelRunner:
        import torch

        from turnout.runner.execution.model_runner import ModelRunner
        from turnout.testing.toy.attention import attention_toy, toy_spec

        dtype: torch.dtype = getattr(torch, self.dtype)
        cpu = torch.device("cpu")
        attention = backend.attention(toy_spec(), kv, ComputeContext(cpu, dtype))
        return ModelRunner(attention_toy(dtype), attention, cpu)

    def _moves(self, seed: int) -> list[list[Move]]:
        case, seen = self._case(seed), list[list[Move]]()
        run = case.engine.runner.run

        def noting(plan: Plan) -> Logits:
            seen.append(list(plan.moves))
            return run(plan)

        case.engine.runner.run = noting  # type: ignore[method-assign]
        drive(case.engine, case.arrivals)
        return seen


@dataclass
class _Case:
    arrivals: list[tuple[int, RequestSpec]]
    kv: KVCache
    engine: Engine


def _sequence(tokens: list[int], *, salt: str = "") -> TokenSequence:
    """The first sequence of a new request, with space for 40 more tokens."""
    params = SamplingParams()
    spec = RequestSpec(id=f"s{next(_names)}", prompt=tokens, params=params, seed=0, cache_salt=salt)
    return Request(spec, ToyParallel(), 0.0, len(tokens) + 40, frozenset()).live[0]


def _compute(kv: KVCache, sequence: TokenSequence, *, upto: int | None = None) -> None:
    end = upto or len(sequence.tokens)
    done = kv.reserve([Span(sequence, kv.cached(sequence), end)])
    assert done, (
        f"`reserve` refused {end} positions in a pool that is empty but for a sequence; expected True"
    )
    sequence.request.timing.scheduled = 0.0
    sequence.held, sequence.computed = True, end
    kv.commit(sequence, end)


def _end(kv: KVCache, sequence: TokenSequence) -> None:
    kv.release([sequence])
    sequence.held, sequence.computed = False, 0
