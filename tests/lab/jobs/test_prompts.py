"""Prompts say what the workload says they share, and nothing else alike."""

from __future__ import annotations

import pytest

from turnout.lab.jobs.job import Job, seed_of
from turnout.lab.jobs.prompts import Prompts, ordinary_tokens


def prompts(*jobs: Job, seed: int = 0, vocabulary: int = 4096) -> list[list[int]]:
    made = Prompts(jobs, seed, vocabulary)
    return [made.of(index) for index in range(len(jobs))]


def common(a: list[int], b: list[int]) -> int:
    """How many tokens they begin with alike."""
    return next(
        (place for place, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )


def test_a_prompt_is_as_long_as_its_job_says_and_like_no_other() -> None:
    a, b = prompts(Job(0, 100, 1), Job(0, 100, 1))
    assert len(a) == len(b) == 100 and common(a, b) < 3


def test_equal_blocks_are_equal_tokens() -> None:
    a, b = prompts(Job(0, 40, 1, (7, 8, 9), 16), Job(0, 48, 1, (7, 8, 10), 16))
    assert len(a) == 40 and common(a, b) == 32


def test_the_last_block_may_be_cut_short() -> None:
    a, b = prompts(Job(0, 20, 1, (7, 8), 16), Job(0, 30, 1, (7, 8), 16))
    assert common(a, b) == 20


def test_what_comes_after_the_blocks_is_its_own() -> None:
    a, b = prompts(Job(0, 50, 1, (7,), 30), Job(0, 50, 1, (7,), 30))
    assert 30 <= common(a, b) < 33


def test_a_turn_begins_with_all_that_was_said() -> None:
    jobs = [Job(0, 10, 4, session="a"), Job(0, 20, 4, session="a", think=1.0)]
    first, second = prompts(*jobs)
    assert second[:10] == first and len(second) == 20


def test_a_true_answer_takes_the_place_of_the_stand_in() -> None:
    jobs = [Job(0, 10, 4, session="a"), Job(0, 20, 4, session="a", think=1.0)]
    made = Prompts(jobs, seed=0)
    first = made.of(0)
    made.answered(0, [1, 2, 3])
    assert made.of(1)[:13] == [*first, 1, 2, 3]


def test_an_answer_that_comes_after_the_next_prompt_changes_nothing_more() -> None:
    """It took the place of the end of the next turn, whose prompt the third then no longer began with."""
    made = Prompts(
        [Job(0, 10, 4, session="a"), Job(0, 20, 1, session="a"), Job(0, 40, 1, session="a")], seed=0
    )
    made.of(0)
    second = made.of(1)
    made.answered(0, [1, 2, 3, 4])
    made.answered(1, [5])
    assert made.of(2)[:21] == [*second, 5]


def test_turns_without_answers_begin_alike() -> None:
    """Prompts that are pooled: the next turn began with nothing of the one before."""
    made = Prompts([Job(0, 10, 0, session="a"), Job(0, 20, 0, session="a", think=1.0)], seed=0)
    first = made.of(0)
    made.answered(0, [])
    assert made.of(1)[:10] == first


def test_sessions_may_share_a_prefix() -> None:
    jobs = [
        Job(0, 30, 4, (3,), 20, session="a"),
        Job(0, 50, 4, (3,), 20, session="a", think=1.0),
        Job(0, 30, 4, (3,), 20, session="b"),
    ]
    first, second, other = prompts(*jobs)
    assert second[:30] == first and 20 <= common(first, other) < 23


def test_blocks_that_contradict_what_was_said_are_right() -> None:
    """Some traces drop or rewrite old turns."""
    _, second = prompts(Job(0, 16, 4, (1,), 16, session="a"), Job(0, 16, 4, (2,), 16, session="a"))
    (alone,) = prompts(Job(0, 16, 4, (2,), 16))
    assert second == alone


def test_a_session_is_forgotten_after_its_last_turn() -> None:
    made = Prompts([Job(0, 10, 4, session="a"), Job(0, 20, 4, session="a", think=1.0)], seed=0)
    made.of(0), made.of(1)
    assert not made._said


def test_a_seed_makes_other_prompts() -> None:
    job = Job(0, 50, 1, (7,), 30)
    assert common(prompts(job, seed=1)[0], prompts(job, seed=2)[0]) < 3


@pytest.mark.parametrize(
    ("vocabulary", "special"),
    [
        (4096, range(3)),  # turnout-tiny
        (32_000, range(3)),  # Llama 2
        (128_256, range(128_000, 128_256)),  # Llama 3
        (131_072, range(1000)),  # Mistral's Tekken
        (151_936, range(151_643, 151_936)),  # Qwen
        (256_000, range(108)),  # Gemma
    ],
)
def test_no_prompt_has_a_special_token(vocabulary: int, special: range) -> None:
    assert not set(ordinary_tokens(vocabulary)) & set(special)
    (prompt,) = prompts(Job(0, 3000, 1), vocabulary=vocabulary)
    assert set(prompt) <= set(ordinary_tokens(vocabulary)) and len(set(prompt)) > 1000


def test_seeds_of_requests_have_64_bits_whatever_the_run_is() -> None:
    """A date and time as --seed ended requests that draw, and fleets in several processes, by a traceback."""
    assert seed_of(7, 3) == 7_000_024 and seed_of(-7, 3) == -7_000_018
    assert all(-(2**63) <= seed_of(run, 5) < 2**63 for run in (20_261_130_120_000, 10**23, -(10**23)))
    assert len({seed_of(20_261_130_120_000, index) for index in range(100)}) == 100
