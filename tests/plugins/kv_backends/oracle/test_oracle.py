"""KV memory on real tensors, under pressure: whatever happens to it, tokens are those of brute force.

A case is drawn from its seed: choices that part, right and wrong guesses, tokens without a guess, beams;
policy, budget, backend, block size, memory hardly more than the largest request takes, host memory,
evictions, pins, salts, scored prompts, aborts; preempted requests swapped out, computed again, or either.
Every logit is compared, and the keys and values in memory; every step's accounting is checked, and free
memory spoilt. `seeded_faults.py` shows that mistakes would be noticed.

``pytest test_oracle.py -m slow --kv-minutes 10`` serves cases never seen before, for minutes;
``pytest test_oracle.py --kv-cases 2000:4000`` those of these seeds. Faults are then seeded into each of
them, and ``-s`` prints how many were caught.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import cast

import msgspec
import pytest
from brute_force import BruteForce
from fault import Fault
from seeded_faults import FAULTS
from stress_case import Case, draw_case, of_choices_alone
from stress_recorder import Tally
from stress_run import serve

from turnout.plugins.kv_backends.storage.dtypes import KVDtype

GROUP = 25
"""Cases of one test."""
MORE = range(25, 50)
"""Cases like the 25 before them, so slow."""
WINDOWS = "windows"
"""Where others name the dtype of KV: it is as computed, and a layer of the model has a window."""
CASES: dict[str, tuple[range, ...]] = {
    "auto": (range(50), range(50_200, 50_210)),
    WINDOWS: (range(60_000, 60_025),),
    "int8": (range(10_000, 10_015),),
    "bfloat16": (range(12_000, 12_010),),
}
FAULTY_CASES = range(20_000, 20_060)
RARE = {"KeptKey": range(20_170, 20_180), "SiblingsTakenForEqual": range(20_325, 20_330)}
"""Cases for faults that few cases are open to."""
SWAP_CASES = range(20_000, 20_015)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    given = metafunc.config.getoption("kv_cases")
    if "seeds" in metafunc.fixturenames:
        groups = [
            pytest.param(
                stored,
                range(first, min(first + GROUP, seeds.stop)),
                id=f"{stored}-{first}",
                marks=[] if given or first not in MORE else [pytest.mark.slow],
            )
            for stored, default in CASES.items()
            for seeds in ([given] if given else default)
            for first in range(seeds.start, seeds.stop, GROUP)
        ]
        metafunc.parametrize(("stored", "seeds"), groups)


@pytest.fixture(autouse=True)
def policies_may_be_at_fault_in_silence() -> Iterator[None]:
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(autouse=True)
def windows_end_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled kernels read from multiples of 64 positions on, and contexts here are hardly longer."""
    monkeypatch.setattr("turnout.plugins.kv_backends.paged.host.kv_groups.READ_TOGETHER", 1)


def fresh_reference(stored: str) -> BruteForce:
    if stored == WINDOWS:
        return BruteForce(windowed=True)
    return BruteForce(cast("KVDtype", stored))


reference = cache(fresh_reference)


def test_outputs_equal_brute_force(stored: str, seeds: range) -> None:
    total: Counter[str] = Counter()
    for seed in seeds:
        case = draw_case(seed, reference(stored))
        tally = attempt(case, against=reference(stored))
        assert not tally.complaints, told(case, tally)
        total.update(tally.counts())
    print(f"{stored} {seeds}: {dict(total)}")
    if not of_choices_alone(seeds.start):
        del total["unknown"]
    missed = [what for what, count in total.items() if count < len(seeds) / 5]
    assert len(seeds) < GROUP or not missed, f"cases that hardly try {missed} prove little: {total}"


@pytest.mark.parametrize("seed", [373_110_704])
def test_cases_that_once_failed(seed: int) -> None:
    """373110704: guesses counted as work to do, so that `srpt` had two equal requests evict each other."""
    case = draw_case(seed, reference("auto"))
    tally = attempt(case)
    assert not tally.complaints, told(case, tally)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_for_minutes(request: pytest.FixtureRequest) -> None:
    """Cases never seen before, until the time is up. One that fails says how to try it again."""
    end = time.monotonic() + 60 * request.config.getoption("kv_minutes")
    total: Counter[str] = Counter()
    while time.monotonic() < end:
        first = 100 * secrets.randbelow(10**7)
        # A reference of its own: what it remembers would fill the memory some day.
        fresh = fresh_reference(secrets.choice(list(CASES)))
        for case in (draw_case(seed, fresh) for seed in range(first, first + 100)):
            tally = attempt(case, against=fresh)
            assert not tally.complaints, told(case, tally)
            total.update(tally.counts() | {"cases": 1})
            if time.monotonic() >= end:
                break
    print(dict(total))


@pytest.mark.parametrize("name", FAULTS)
def test_a_seeded_fault_is_caught(name: str, request: pytest.FixtureRequest) -> None:
    """In one of the cases; tried in all of them, for the rate, where they are given."""
    given = request.config.getoption("kv_cases")
    happened = caught = 0
    checks: Counter[str] = Counter()
    for seed in given or RARE.get(name, FAULTY_CASES):
        fault = FAULTS[name](seed)
        against = reference(WINDOWS if fault.windowed else "auto")
        case = draw_case(seed, against)
        if not fault.suits(case):
            continue
        complaints = attempt(case, fault, against=against).complaints
        assert fault.happened or not complaints, (seed, complaints)
        happened += fault.happened > 0
        caught += bool(complaints)
        checks.update(complaints.keys())
        if caught and not given:
            break
    print(f"{name}: caught in {caught} of {happened} cases in which it happened, by {dict(checks)}")
    assert caught, f"happened in {happened} cases, caught in none"


def attempt(case: Case, fault: Fault | None = None, *, against: BruteForce | None = None) -> Tally:
    """Serve it; that it broke down is a complaint too."""
    tally = Tally()
    try:
        serve(case, against or reference(case.stored), tally, fault or Fault())
    except Exception as error:
        if fault is None:
            raise AssertionError(told(case, tally)) from error
        tally.complain("breakdown", repr(error))
    return tally


def told(case: Case, tally: Tally) -> str:
    found = [
        f"{check}: {message}" for check, messages in tally.complaints.items() for message in messages[:3]
    ]
    seeds = f"{case.seed}:{case.seed + 1}"
    file = "tests/plugins/kv_backends/oracle/test_oracle.py"
    kind = WINDOWS if case.windowed else case.stored
    again = f"python -m pytest {file} --kv-cases {seeds} -k 'brute_force[{kind}'"
    described = msgspec.json.encode(case).decode()
    return "\n".join([f"case {case.seed} came out wrong", *found, described, f"again: {again}"])


def test_what_is_swapped_out_is_not_computed_again() -> None:
    """Where all who are preempted are swapped out, and there is room, no position is computed twice."""
    swap_outs = 0
    for seed in SWAP_CASES:
        case = draw_case(seed, reference("auto"))
        case = replace(case, preemption="swap", pool=replace(case.pool, swap=10_000))
        tally = attempt(case)
        assert not tally.complaints and not tally.recomputed, told(case, tally)
        swap_outs += tally.swap_outs
    assert swap_outs > len(SWAP_CASES)
