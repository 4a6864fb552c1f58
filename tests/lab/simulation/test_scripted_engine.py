"""The engine without a model: outputs are the script's, time is the pace's, and nothing is left to chance."""

from __future__ import annotations

import msgspec
import pytest

from turnout.core.interfaces.kv import KVCache, PoolSize
from turnout.core.registry.registry import Registry
from turnout.core.scheduling.scheduler import Capacity
from turnout.core.types.plan import Chunk, Plan
from turnout.core.types.request import RequestSpec
from turnout.lab.simulation.scripted.play import Arrival, Pace, Play
from turnout.lab.simulation.scripted.script import scripted_output, scripted_request
from turnout.lab.simulation.scripted.workloads import Scans, Sessions, Templates, sharegpt
from turnout.lab.workloads.lengths import Lognormal

REGISTRY = Registry.load()


def cache(tokens: int = 4096, backend: str = "paged") -> KVCache:
    return REGISTRY.create("kv", backend).cache(PoolSize(tokens), REGISTRY.create("kv_eviction", "lru"))


def play(kv: KVCache, **options: object) -> Play:
    policy = REGISTRY.create("scheduler", "fcfs")
    predictor = REGISTRY.create("length_predictor", "max_tokens")
    return Play(kv, policy, predictor, Capacity(256, 64), max_model_len=4096, **options)


def outputs(playing: Play, *specs: RequestSpec) -> dict[str, list[list[int]]]:
    """All tokens that requests got, as their sequences had them in the end."""
    found: dict[str, list[list[int]]] = {}
    for engine in playing.steps([Arrival(0.0, spec) for spec in specs]):
        for request in engine.scheduler.queues.running:
            found[request.id] = [list(sequence.output) for sequence in request.live]
    return found


def test_outputs_are_the_scripts_whatever_the_client_allowed() -> None:
    spec = scripted_request("a", [1, 2, 3], 9, seed=4, bound=100, n=2)
    (choices,) = outputs(play(cache()), spec).values()
    assert choices == [scripted_output(4, 9, choice)[:-1] for choice in range(2)], "up to the last step"


def test_beams_are_as_many_as_asked_for_and_share_their_history() -> None:
    spec = scripted_request("a", [1, 2, 3], 40, seed=4, n=4)
    spec = msgspec.structs.replace(spec, params=msgspec.structs.replace(spec.params, temperature=0.0))
    (beams,) = outputs(play(cache()), spec).values()
    assert len({tuple(beam) for beam in beams}) == 4
    assert len({tuple(beam[:20]) for beam in beams}) == 1


def test_time_is_what_the_pace_says() -> None:
    pace = Pace(step=1.0, token=0.01, context=100)
    playing = play(cache(), pace=pace)
    steps = sum(1 for _ in playing.steps([Arrival(5.0, scripted_request("a", [1] * 10, 3, seed=0))]))
    assert steps == 3
    # The prompt's ten tokens see five on average; then the 11th and the 12th.
    computing = 0.01 * (10 + 10 * 5 / 100 + 2 + (10.5 + 11.5) / 100)
    assert playing.computing == pytest.approx(computing)
    assert playing.clock.now == pytest.approx(5.0 + 3 * 1.0 + computing)


def test_a_long_context_takes_longer() -> None:
    pace = Pace(token=1.0, context=100)
    near, far = (Plan([Chunk(None, start, [1], 1)], []) for start in (0, 1000))  # type: ignore[arg-type]
    assert pace.computing(near) == pytest.approx(1.005)
    assert pace.computing(far) == pytest.approx(11.005)


def test_a_turn_is_all_that_was_said_and_the_next_question() -> None:
    sessions = Sessions(1, 3, seed=1, longest=4000)
    playing, prompts = play(cache()), []

    def then(spec: RequestSpec, now: float) -> list[Arrival]:
        prompts.append(spec.prompt + scripted_output(spec.seed, spec.params.min_tokens))
        return list(sessions.then(spec, now))

    for _ in playing.steps(sessions.arrivals(), then):
        pass
    first, second, third = prompts
    assert second[: len(first)] == first and third[: len(second)] == second
    assert playing.kv.snapshot().hits > len(first) + len(second) - 3 * 16 - 2


@pytest.mark.parametrize(
    "workload", [Scans(9, 1.0, seed=3), Templates(9, 1.0, seed=3), Sessions(9, 2, seed=3)]
)
def test_a_seed_says_it_all(workload: Scans | Templates | Sessions) -> None:
    first, again = list(workload.arrivals()), list(workload.arrivals())
    assert first == again and len(first) == 9
    assert [arrival.at for arrival in first] == sorted(arrival.at for arrival in first)


def test_lengths_have_the_mean_they_were_given() -> None:
    drawn = sharegpt(20_000, longest=10**6, seed=0)
    prompts, answers = (sum(column) / len(drawn) for column in zip(*drawn, strict=True))
    assert prompts == pytest.approx(161.31, rel=0.03) and answers == pytest.approx(337.99, rel=0.03)
    assert all(4 <= length <= 50 for pair in sharegpt(100, longest=100, seed=0) for length in pair)


def test_some_texts_are_asked_about_more_than_others() -> None:
    def popularity(skew: float) -> int:
        texts = Templates(500, 1.0, seed=2, templates=50, template=Lognormal(20, 0), skew=skew)
        starts = [tuple(arrival.spec.prompt[:20]) for arrival in texts.arrivals()]
        return max(starts.count(start) for start in set(starts))

    assert popularity(0.0) < 25 < 75 < popularity(1.0)
