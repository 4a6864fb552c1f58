"""Generators make what their options say, and the same in every process."""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
from collections import Counter
from itertools import pairwise

import pytest

from turnout.core.errors import ConfigError
from turnout.lab.jobs.job import Job
from turnout.lab.workloads.generators import GENERATORS
from turnout.lab.workloads.lengths import (
    Bimodal,
    Documents,
    Fixed,
    Lengths,
    Lognormal,
    Queries,
    Uniform,
    parse_lengths,
)
from turnout.lab.workloads.source import SOURCES, load_workload, source_options

SHORT = "prompt=10,output=5"


def jobs(spec: str, seed: int = 1) -> list[Job]:
    return list(load_workload(spec, seed).jobs)


def gaps(spec: str) -> list[float]:
    times = [job.at for job in jobs(spec)]
    return [later - earlier for earlier, later in pairwise(times)]


def variation(values: list[float]) -> float:
    return statistics.pstdev(values) / statistics.fmean(values)


@pytest.mark.parametrize("name", ["poisson", "gamma", "constant"])
def test_a_rate_is_the_rate(name: str) -> None:
    assert statistics.fmean(gaps(f"{name}:rate=4,requests=4000")) == pytest.approx(1 / 4, rel=0.1)


@pytest.mark.parametrize(("burstiness", "expected"), [(0.25, 2.0), (1, 1.0), (4, 0.5)])
def test_burstiness_is_the_shape_of_the_gaps(burstiness: float, expected: float) -> None:
    spec = f"gamma:rate=4,requests=8000,burstiness={burstiness}"
    assert variation(gaps(spec)) == pytest.approx(expected, rel=0.1)


def test_constant_is_constant() -> None:
    assert [job.at for job in jobs("constant:rate=4,requests=3")] == [0.0, 0.25, 0.5]


def test_a_burst_comes_at_once_and_a_closed_loop_has_no_times() -> None:
    assert {job.at for job in jobs("burst:requests=9")} == {0.0}
    assert load_workload("closed:concurrency=8,requests=9", 0).concurrency == 8


def test_a_ramp_may_fall_to_next_to_nothing() -> None:
    """A low rate after a high one took a million draws for each arrival, and more: the command hung."""
    times = [job.at for job in jobs("ramp:start=100,end=0.000001,seconds=5,requests=400")]
    assert times == sorted(times) and 200 < sum(at < 5 for at in times) < 300
    assert times[-1] > 1e7


@pytest.mark.parametrize(("start", "end"), [(1, 20), (20, 1), (5, 5)])
def test_a_ramp_has_its_rate_everywhere(start: int, end: int) -> None:
    runs = [jobs(f"ramp:start={start},end={end},seconds=10,requests=400", seed) for seed in range(200)]
    for begin in range(0, 15, 3):
        middle = min(begin + 0.5, 10)
        found = sum(begin <= job.at < begin + 1 for run in runs for job in run)
        expected = 200 * (start + (end - start) * middle / 10)
        assert abs(found - expected) < 4 * expected**0.5


def test_a_ramp_ends_at_its_end() -> None:
    times = [job.at for job in jobs("ramp:start=1,end=20,seconds=60,requests=3000")]
    assert sum(at < 10 for at in times) == pytest.approx(10 + 16, abs=15)
    assert sum(70 <= at < 120 for at in times) == pytest.approx(1000, rel=0.15)


def test_the_day_is_busier_than_the_night() -> None:
    times = [job.at for job in jobs("diurnal:rate=10,swing=0.8,period=100,requests=1000")]
    hours = Counter(int(at // 10) for at in times)
    assert hours[0] < 50 < hours[5]
    assert hours[5] == pytest.approx(180, rel=0.25)


def test_another_rate_changes_nothing_but_the_times() -> None:
    slow, fast = (jobs(f"poisson:rate={rate},clients=3,turns=2,prefix=50,prefixes=3") for rate in (1, 9))
    assert [(job.prompt, job.output, job.client, job.blocks) for job in slow] == [
        (job.prompt, job.output, job.client, job.blocks) for job in fast
    ]
    assert [job.at * 9 for job in fast] == pytest.approx([job.at for job in slow])


def test_another_seed_changes_all() -> None:
    assert jobs("poisson:rate=1", seed=1) != jobs("poisson:rate=1", seed=2)


def test_shared_prefixes_have_one_length_each_and_a_popularity() -> None:
    made = jobs(f"burst:requests=2000,prefix=uniform:10:90,prefixes=5,prefix_skew=1,{SHORT}")
    sizes = {job.blocks: job.block_size for job in made}
    assert len(sizes) == 5
    assert all(job.prompt == sizes[job.blocks] + 10 for job in made)
    counts = [count for _, count in Counter(job.blocks for job in made).most_common()]
    assert counts[0] == pytest.approx(2000 / (1 + 1 / 2 + 1 / 3 + 1 / 4 + 1 / 5), rel=0.1)


def test_turns_of_a_session_hold_what_was_said() -> None:
    first, second, third, other = jobs(f"constant:rate=1,turns=3,requests=4,prefix=7,think=2,{SHORT}")
    assert [job.prompt for job in (first, second, third)] == [17, 17 + 5 + 10, 32 + 5 + 10]
    assert first.think is None and second.think is not None and third.think is not None
    assert first.session == second.session == third.session != other.session
    assert {job.block_size for job in (first, second, third)} == {7}


def test_nothing_is_longer_than_the_longest() -> None:
    made = jobs("burst:requests=500,longest=400,turns=4")
    assert max(job.prompt + job.output for job in made) <= 400
    assert len(made) == 500


def test_clients_and_priorities() -> None:
    made = jobs("burst:requests=300,clients=3,client=team,priorities=2")
    assert {job.client for job in made} == {"team-0", "team-1", "team-2"}
    assert {job.priority for job in made} == {0, 1}
    assert {job.client for job in jobs("burst:client=ann")} == {"ann"}


def test_several_at_once_share_nothing() -> None:
    chat, scan = "poisson:rate=4,client=chat,prefix=20,turns=2", "constant:rate=1,client=scan,prefix=20"
    made = jobs(f"{chat} + {scan}")
    assert [job.at for job in made] == sorted(job.at for job in made)
    assert Counter(job.client for job in made) == {"chat": 200, "scan": 200}
    blocks = {client: {job.blocks for job in made if job.client == client} for client in ("chat", "scan")}
    assert not blocks["chat"] & blocks["scan"]


def test_a_workload_may_be_longer_than_a_file_name() -> None:
    """Previously it was looked for as a file, and the system's "File name too long" ended the command."""
    parts = [f"constant:rate=1,requests=1,prompt=40,output=20,client=team-{number}" for number in range(8)]
    assert len(load_workload(" + ".join(parts), 0).jobs) == 8


def test_every_process_makes_the_same() -> None:
    spec = "gamma:rate=3,requests=50,turns=uniform:1:3,clients=4,prefix=lognormal:90,prefixes=3"
    code = (
        "from turnout.lab.workloads.source import load_workload\n"
        "from turnout.lab.jobs.prompts import Prompts\n"
        f"jobs = load_workload({spec!r}, 7).jobs\n"
        "prompts = Prompts(jobs, 7)\n"
        "print(jobs, [prompts.of(index) for index in range(len(jobs))])"
    )
    outputs = {
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout for _ in "ab"
    }
    assert len(outputs) == 1


# ------------------------------------------------------------------ lengths


@pytest.mark.parametrize(
    ("text", "lengths"),
    [
        ("128", Fixed(128)),
        ("uniform:5:9", Uniform(5, 9)),
        ("lognormal:161", Lognormal(161.0)),
        ("lognormal:161:0.5:most=900", Lognormal(161.0, 0.5, most=900)),
        ("bimodal:short=20:long=900:share=0.2", Bimodal(20.0, 900.0, 0.2)),
        ("documents", Documents()),
        ("queries:most=64:spread=0.2", Queries(64, 0.2)),
    ],
)
def test_lengths_are_written_so_and_come_back_so(text: str, lengths: Lengths) -> None:
    assert parse_lengths(text) == lengths
    assert parse_lengths(str(lengths)) == lengths


def test_texts_are_as_long_as_those_of_beir() -> None:
    rng = random.Random(0)
    for lengths, mean in ((Documents(most=2000), 1.3 * 127.7), (Queries(most=2000), 1.3 * 22.7)):
        drawn = [lengths.draw(rng) for _ in range(20_000)]
        assert sum(drawn) / len(drawn) == pytest.approx(mean, rel=0.05)
    assert max(Documents(100).draw(rng) for _ in range(1000)) == 100


def test_lengths_are_distributed_as_said() -> None:
    def drawn(text: str) -> list[int]:
        return [job.prompt for job in jobs(f"burst:requests=5000,prompt={text}")]

    assert set(drawn("uniform:3:5")) == {3, 4, 5}
    assert statistics.fmean(drawn("lognormal:200")) == pytest.approx(200, rel=0.05)
    assert sum(length > 500 for length in drawn("bimodal:50:3000:0.25")) == pytest.approx(1250, rel=0.1)


# ------------------------------------------------------------------ what is wrong


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            "poison:rate=1",
            "no workload is called 'poison'; expected .*; did you mean 'poisson'",
        ),
        ("poisson", "workload 'poisson': the option 'rate' must be given"),
        ("poisson:rate=0", "workload 'poisson': rate: .*greater than 0"),
        ("poisson:rat=1,rate=1", "unknown option 'rat'; known: .*; did you mean 'rate'"),
        (
            "poisson:rate=1,prompt=lognrmal:3",
            "unknown lengths .* expected a number of .* did you mean 'lognormal'",
        ),
        (
            "poisson:rate=1,prompt=uniform:9:3",
            "cannot read the lengths 'uniform:9:3': 1 <= low <= high must hold",
        ),
        ("poisson:rate=1,prompt=uniform:1:2:3", "at most 2 values"),
        ("poisson:rate=1,prompt=uniform:1:hi=2", "there is no 'hi'; did you mean 'high'"),
        ("poisson:rate=1,prompt=0", "tokens must be at least 1"),
        ("missing.jsonl", "there is no such file"),
        ("./missing", "there is no such file"),
        ("trace:file=missing", "missing cannot be read: No such file"),
        ("trace:file=missing.csv", "^missing.csv cannot be read: No such file"),
        ("poisson:rate=1 + trace:file=missing.jsonl", "^missing.jsonl cannot be read: No such file"),
        ("trace:file=", "workload 'trace': file: the path of a file is expected"),
        ("trce:file=missing.csv", "no workload is called 'trce'; expected .*; did you mean 'trace'"),
        ("other:missing.csv", "there is no such file"),
        ("trace:file=missing,speed=inf", "workload 'trace': speed: .*finite"),
        ("trace:file=missing,speed=1e400", "workload 'trace': speed: .*finite"),
        ("trace:file=missing,rate=inf", "workload 'trace': rate: .*finite"),
        ("gamma:rate=1,burstiness=inf", "workload 'gamma': burstiness: .*finite"),
        ("poisson:rate=1e-320", "its last request would never arrive"),
        ("poisson:rate=4,requests=99999999999", "has more than 10,000,000 jobs"),
        ("poisson:rate=4,requests=9999999 + burst:requests=2", "has more than 10,000,000 jobs"),
        ("burst:prefix=3,prefixes=99999999999", "prefixes: .* 10000000 "),
        ("burst:clients=99999999999", "clients: .* 10000000 "),
        ("burst:prompt=16777217", "prompt: tokens must be at most 16,777,216"),
        ("burst:output=uniform:1:16777217", "high must be at most 16,777,216"),
        ("burst:prompt=lognormal:inf", "mean must be at most 16,777,216"),
        ("burst:prompt=lognormal:9:spread=inf", "spread must be 0 to 100"),
        ("burst:prompt=bimodal:1:inf", "long must be at most 16,777,216"),
        ("burst:prompt=documents:16777217", "most must be at most 16,777,216"),
        ("closed:concurrency=2 + burst", "a closed loop cannot be mixed with others"),
    ],
)
def test_a_mistake_is_told_in_one_line(spec: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        load_workload(spec, 0)
    assert "\n" not in str(error.value)


def test_every_option_says_what_it_is() -> None:
    assert set(GENERATORS) < set(SOURCES)
    for name in SOURCES:
        assert all(option.help for option in source_options(name))
