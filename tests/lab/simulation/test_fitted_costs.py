"""Coefficients come back from steps that were made with them, and none is negative."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from scipy.optimize import nnls

from turnout.config import EngineConfig
from turnout.core.errors import ConfigError, TurnoutError
from turnout.lab.simulation.cost import Seconds, Work
from turnout.lab.simulation.profiling.fit import StepSample, fit
from turnout.lab.simulation.profiling.profile import Profiler, profile
from turnout.lab.simulation.profiling.scenes import Scene, scenes

TRUE = Seconds(
    fixed=5e-3,
    tokens=((0, 1e-3), (4, 5e-4), (8, 4e-4), (16, 3e-4), (32, 25e-5), (64, 2e-4), (256, 1e-4)),
    sequence=3e-5,
    row=1e-5,
    group=3e-4,
    prompt=2e-4,
    read=2e-6,
    far=((1024, 0.0), (4096, 3e-6), (16_384, 0.0), (65_536, 0.0)),
    pair=1e-7,
    host=4e-4,
    runner=2e-5,
    waiter=2e-7,
    beginner=1e-4,
    request=5e-4,
)


def planning(work: Work) -> float:
    of_requests = TRUE.beginner * work.prompts + TRUE.request * work.begun
    return TRUE.host + TRUE.runner * work.running + TRUE.waiter * work.waiting + of_requests


def steps(count: int, noise: float = 0.0) -> list[StepSample]:
    rng = random.Random(0)
    return [_sample(rng, noise) for _ in range(count)]


def _sample(rng: random.Random, noise: float) -> StepSample:
    sequences, context = 2 ** rng.randrange(8), 4 ** rng.randrange(1, 6)
    prompt = rng.choice([0, 3, 16, 64, 256])
    work = Work(
        tokens=sequences + prompt,
        sequences=sequences + (prompt > 0),
        rows=rng.randint(1, sequences),
        groups=rng.randint(1, 5),
        prompts=int(prompt > 0),
        begun=rng.choice([0, prompt > 0]),
        context=sequences * context + prompt,
        pairs=sequences * context + prompt**2 / 2,
        running=sequences + (prompt > 0),
        waiting=rng.choice([0, 0, 100]),
    )
    host = planning(work)
    off = 1 + rng.uniform(-noise, noise)
    return StepSample(work, off * (TRUE.of(work) - host), off * host)


def test_coefficients_come_back() -> None:
    found, quality = fit(steps(400))
    for (name, value, _), (_, true, _) in zip(found.terms(), TRUE.terms(), strict=True):
        assert value == pytest.approx(true, rel=1e-4, abs=1e-12), name
    assert quality.worst < 1e-4


def test_noise_is_reported() -> None:
    found, quality = fit(steps(400, noise=0.2))
    assert quality.steps == 400
    assert 0.05 < quality.mean < quality.p90 < 0.25 and abs(quality.bias) < 0.05
    work = Work(tokens=64, sequences=64, rows=64, groups=2, context=64 * 300, pairs=64 * 300, running=64)
    assert found.of(work) == pytest.approx(TRUE.of(work), rel=0.05)


def test_steps_that_a_busy_machine_delays_do_not_bias_the_fit() -> None:
    """One in five takes twice as long: what is expected of all together is what they took."""
    rng = random.Random(1)
    samples = [
        replace(s, device=2 * s.device, host=2 * s.host) if rng.random() < 0.2 else s for s in steps(2000)
    ]
    assert abs(fit(samples)[1].bias) < 0.01


def test_a_few_steps_that_took_forever_change_little() -> None:
    samples = steps(400)
    for index in range(0, 400, 50):
        samples[index] = replace(samples[index], device=100 * samples[index].device)
    found, _ = fit(samples)
    for sample in samples:
        assert found.of(sample.work) == pytest.approx(TRUE.of(sample.work), rel=0.2)


def test_what_planning_takes_with_context_counts_as_reading_it() -> None:
    """Behind a step that read much, caches hold less of what planning needs."""
    samples = [replace(s, host=s.host + 1e-6 * s.work.context) for s in steps(400)]
    found, quality = fit(samples)
    assert abs(quality.bias) < 1e-3
    assert found.read == pytest.approx(TRUE.read + 1e-6, rel=0.1)


def test_too_few_steps_are_refused() -> None:
    with pytest.raises(TurnoutError, match="measure for longer"):
        fit(steps(10))


def brute_force(matrix: np.ndarray, target: np.ndarray) -> float:
    """The least error over every choice of columns whose best coefficients are not negative."""
    best = float(np.linalg.norm(target))
    for size in range(1, matrix.shape[1] + 1):
        for columns in map(list, combinations(range(matrix.shape[1]), size)):
            x = np.linalg.lstsq(matrix[:, columns], target, rcond=None)[0]
            if (x >= 0).all():
                best = min(best, float(np.linalg.norm(target - matrix[:, columns] @ x)))
    return best


@pytest.mark.parametrize("seed", range(30))
def test_no_choice_of_columns_is_better(seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(20, 5)) * 10.0 ** rng.integers(-4, 4, size=5)
    target = rng.normal(size=20)
    x, _ = nnls(matrix, target)
    assert (x >= 0).all()
    assert np.linalg.norm(target - matrix @ x) == pytest.approx(brute_force(matrix, target), rel=1e-6)


def test_columns_that_say_nothing_or_the_same_are_no_trouble() -> None:
    column = np.arange(1.0, 9.0)
    matrix = np.column_stack([column, column, np.zeros(8)])
    assert matrix @ nnls(matrix, 3 * column)[0] == pytest.approx(3 * column)
    assert not nnls(matrix, -column)[0].any()


def test_scenes_fit_the_engine() -> None:
    for sequences, tokens, longest, pool in (
        (256, 512, 2048, 500_000),
        (8, 64, 128, 2000),
        (2, 2048, 4096, 9000),
    ):
        found = scenes(sequences, tokens, longest, pool)
        assert found
        assert all(scene.batch < sequences for scene in found)
        assert all(scene.context + scene.output <= longest for scene in found)
        prompts = {prompts for scene in found for prompts in scene.prompts}
        assert max(map(sum, prompts)) <= tokens and max(map(max, prompts)) < longest
        assert all(scene.tokens <= pool for scene in found)


def test_what_happens_between_scenes_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    config = EngineConfig(dtype="float32", max_model_len=64, max_num_seqs=4, max_num_batched_tokens=32)
    profiler = Profiler(config, time.perf_counter)
    monkeypatch.setattr(profiler, "_play", lambda scene, decodes, fills: 8.0)
    shares = list(profiler.measure(100.0))
    assert shares[:3] == [0.08, 0.16, 0.24]
    assert shares[-2:] == [0.96, 1.0]


def test_of_a_slow_model_small_and_large_steps_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no time for all scenes, and a run's steps are not the small ones only."""
    profiler = Profiler(EngineConfig(dtype="float32", max_model_len=512), time.perf_counter)
    played, took = list[Scene](), list[float]()

    def play(scene: Scene, decodes: int, fills: int) -> float:
        played.append(scene)
        profiler._taken |= {(scene, place): [] for place in range(3 * decodes)}
        tokens = 3 * decodes * scene.batch + sum(map(sum, scene.prompts))
        tokens += min(sum(scene.lengths), fills * 512)
        took.append(3 * decodes * 0.05 + tokens * 0.002)
        return took[-1]

    monkeypatch.setattr(profiler, "_play", play)
    monkeypatch.setattr(
        profiler._stage, "play", lambda scene, decodes, fills: [StepSample(Work(), 0.05, 0.0)]
    )
    assert len(list(profiler.measure(20.0))) == len(played) < len(profiler._grid) / 2
    batches = [scene.batch for scene in played]
    assert min(batches) == 1 and max(batches) >= 55
    assert sum(5 < batch < 55 for batch in batches) >= 5
    assert max(took) < 0.2 * 20.0
    assert sum(len(scene.prompts) > 0 for scene in played) > len(played) / 2
    # More context than could be computed in the time that a scene may take.
    assert max(sum(scene.lengths) for scene in played) * 0.002 > 0.2 * 20.0


def test_prompts_come_as_far_as_there_is_time_for_them() -> None:
    scene = Scene(batch=1, context=1, prompts=((500,), (100, 100), (7,), (9,)), output=1)
    assert scene.with_prompts(4, 800).prompts == scene.prompts
    assert scene.with_prompts(3, 300).prompts == ((100, 100), (7,))
    assert scene.with_prompts(2, 100).prompts == ()


def test_no_room_for_any_scene_is_refused() -> None:
    with pytest.raises(ConfigError, match="raise --max-num-seqs"):
        Profiler(EngineConfig(dtype="float32", max_model_len=64, max_num_seqs=1), time.perf_counter)


def test_most_of_a_long_context_is_only_planned() -> None:
    """The steps that follow read all of it: they decode, compute prompts as well, have others wait."""
    config = EngineConfig(dtype="float32", max_model_len=256, max_num_seqs=16, max_num_batched_tokens=64)
    profiler = Profiler(config, time.perf_counter)
    scene = Scene(batch=12, context=160, prompts=((7,), (10, 90)), output=60)
    samples = profiler._stage.play(scene, decodes=2, fills=2)
    filling, decoding = samples[:-6], samples[-6:]
    assert len(filling) == 2 and all(sample.work.tokens == 64 for sample in filling)
    assert filling[0].work.context < 192 and filling[1].work.context > 12 * 160 / 2
    assert [sample.work.tokens for sample in decoding] == [12, 12, 12 + 7, 64, 12, 12]
    assert [sample.work.sequences for sample in decoding] == [12, 12, 13, 14, 12, 12]
    assert [sample.work.waiting for sample in decoding] == [0, 0, 0, 0, 300, 300]
    assert [sample.work.begun for sample in samples] == [0, 0, 0, 0, 1, 2, 0, 0], "what comes and ends in one"
    assert all(sample.work.context > 12 * 160 for sample in decoding)
    assert not profiler._stage._engine.busy


def test_a_machine_is_profiled() -> None:
    config = EngineConfig(dtype="float32", max_model_len=256, max_num_seqs=8, max_num_batched_tokens=128)
    cost = profile(config, seconds=3.0, clock=time.thread_time)
    assert cost.fit is not None and cost.fit.mean < 1
    assert cost.device == "cpu" and cost.model.layers == 8 and not cost.estimate
    one = Work(tokens=1, sequences=1, rows=1, context=100, pairs=100, running=1)
    prompt = Work(tokens=128, sequences=1, rows=1, context=128, pairs=128 * 64, running=1)
    assert 1e-4 < cost.seconds.of(one) < cost.seconds.of(prompt) < 1
