"""Every form of trace becomes the same form of jobs, told apart by its header alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from turnout.core.errors import ConfigError
from turnout.lab.jobs.job import Job, Workload
from turnout.lab.traces.tokens import estimated_tokens
from turnout.lab.traces.turnout_format import write_workload
from turnout.lab.workloads.source import load_workload

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:05.9799600,3180,8
"""
AZURE_2024 = """TIMESTAMP,ContextTokens,GeneratedTokens
2024-05-10 00:00:00.009930+00:00,2162,5
2024-05-10 00:00:02.009930+00:00,2399,6
"""
BURSTGPT = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,GPT-4,1087,230,1317,Conversation log
60,GPT-4,417,0,417,API log
"""
VIDUR = """arrived_at,num_prefill_tokens,num_decode_tokens
0.5,374,44
1.5,396,109
"""
VIDUR_LENGTHS = """num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio
374,44,418,8.5
"""
MOONCAKE = """{"timestamp": 27000, "input_length": 600, "output_length": 52, "hash_ids": [46, 47]}
{"timestamp": 30500, "input_length": 700, "output_length": 26, "hash_ids": [46, 48]}
"""
BAILIAN = """\
{"chat_id": 159, "parent_chat_id": -1, "timestamp": 61.0, "input_length": 21, "output_length": 13, \
"type": "text", "turn": 1, "hash_ids": [1089, 1090]}
{"chat_id": 160, "parent_chat_id": 159, "timestamp": 65.0, "input_length": 40, "output_length": 8, \
"type": "text", "turn": 2, "hash_ids": [1089, 1091, 1092]}
{"chat_id": 161, "parent_chat_id": 160, "timestamp": 66.0, "input_length": 4, "output_length": 8, \
"type": "text", "turn": 3, "hash_ids": [1089]}
"""
SHAREGPT = json.dumps(
    [
        {
            "id": "a",
            "conversations": [
                {"from": "human", "value": "Hello there"},
                {"from": "gpt", "value": "Hi"},
                {"from": "human", "value": "Why"},
                {"from": "gpt", "value": "Because it is"},
            ],
        },
        {"id": "b", "conversations": [{"from": "gpt", "value": "I begin"}]},
        {
            "id": "c",
            "conversations": [{"from": "user", "value": "One"}, {"from": "assistant", "value": "two"}],
        },
    ]
)


def words(text: str) -> int:
    return len(text.split())


def read(folder: Path, text: str, options: str = "") -> list[Job]:
    """From a file whose name says nothing."""
    file = folder / "trace"
    file.write_text(text)
    return list(load_workload(f"trace:file={file}{options}", 0, words).jobs)


@pytest.mark.parametrize(
    ("text", "jobs"),
    [
        (AZURE, [Job(0.0, 4808, 10), Job(2.0, 3180, 8)]),
        (AZURE_2024, [Job(0.0, 2162, 5), Job(2.0, 2399, 6)]),
        # Its last row is a request that failed.
        (BURSTGPT, [Job(0.0, 472, 18, client="ChatGPT"), Job(40.0, 1087, 230, client="GPT-4")]),
        (VIDUR, [Job(0.0, 374, 44), Job(1.0, 396, 109)]),
        (VIDUR_LENGTHS, [Job(0.0, 374, 44)]),
        (MOONCAKE, [Job(0.0, 600, 52, (46, 47), 512), Job(3.5, 700, 26, (46, 48), 512)]),
        (
            BAILIAN,
            [
                Job(0.0, 21, 13, (1089, 1090), 16, session="159"),
                Job(4.0, 40, 8, (1089, 1091, 1092), 16, session="159"),
                Job(5.0, 4, 8, (1089,), 16, session="159"),
            ],
        ),
        (
            SHAREGPT,
            [
                Job(0.0, 2, 1, session="0"),
                Job(0.0, 2 + 1 + 1, 3, session="0", think=0.0),
                Job(0.0, 1, 1, session="2"),
            ],
        ),
    ],
    ids=["azure", "azure-2024", "burstgpt", "vidur", "vidur-lengths", "mooncake", "bailian", "sharegpt"],
)
def test_a_trace_is_jobs(tmp_path: Path, text: str, jobs: list[Job]) -> None:
    assert read(tmp_path, text) == jobs


@pytest.mark.parametrize("name", ["t.csv", "t.json", "t.jsonl"])
@pytest.mark.parametrize("spec", ["{}", "trace:file={}", "burst:requests=1,prompt=1 + trace:file={}"])
def test_a_file_may_end_in_any_suffix(tmp_path: Path, spec: str, name: str) -> None:
    """A specification that ended so was taken for a path."""
    file = tmp_path / name
    file.write_text(AZURE)
    jobs = load_workload(spec.format(file), 0).jobs
    assert [job.prompt for job in jobs][-2:] == [4808, 3180]


@pytest.mark.parametrize("quote", ["'", '"'])
def test_a_plus_in_quotes_stands_between_no_workloads(tmp_path: Path, quote: str) -> None:
    file = tmp_path / "a + b.csv"
    file.write_text(AZURE)
    trace = f"trace:file={quote}{file}{quote},speed=2"
    assert len(load_workload(trace, 0).jobs) == 2
    assert len(load_workload(f"{trace} + burst:requests=3,prompt=1 + {trace}", 0).jobs) == 7


def test_a_byte_order_mark_and_windows_lines_do_no_harm(tmp_path: Path) -> None:
    assert len(read(tmp_path, "\ufeff" + AZURE.replace("\n", "\r\n"))) == 2


@pytest.mark.parametrize(
    ("text", "requests"),
    [
        (AZURE + "2023-11-16 18:17:06,0,5\n2023-11-16 18:17:07,5,0\n", 4),
        (BURSTGPT, 3),
        (VIDUR + "2.0,0,3\n2.5,3,0\n", 4),
        (MOONCAKE + '{"timestamp": 4, "input_length": 10, "output_length": 0}\n', 3),
        (BAILIAN + BAILIAN.replace('"output_length": 8', '"output_length": 0'), 6),
    ],
    ids=["azure", "burstgpt", "vidur", "mooncake", "bailian"],
)
def test_what_cannot_be_served_is_skipped_and_counted(tmp_path: Path, text: str, requests: int) -> None:
    file = tmp_path / "trace"
    file.write_text(text)
    loaded = load_workload(f"burst:requests=1 + trace:file={file}", 0)
    skipped = requests + 1 - len(loaded.jobs)
    told = f"requests without a prompt or an output are skipped: {skipped} of {requests}"
    assert skipped and loaded.notes == (f"{file}: {told}",)
    file.write_text(AZURE)
    assert not load_workload(str(file), 0).notes


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 1),
        ("Hello, internationalization!", 1 + 1 + 4 + 1),
        ("今天天气很好" * 100, 450),
        ("ひらがなとカタカナ" * 100, 675),
        ("안녕하세요" * 100, 375),
        ("我们用 Turnout，很好。", 4 + 2 + 2),
    ],
)
def test_lengths_of_texts_are_estimated(text: str, tokens: int) -> None:
    """Six ideographs once counted as one token, as six letters do."""
    assert estimated_tokens(text) == tokens


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    jobs = [
        Job(0.5, 10, 4, (1, 2), 4, session="a", client="x", priority=-1),
        Job(0.5, 20, 4, session="a", think=1.5, deadline_ms=2000.0, ttft_deadline_ms=300.0),
    ]
    file = tmp_path / "mine"
    write_workload(Workload("chat", jobs, concurrency=3), file)
    read_back = load_workload(str(file), 0)
    assert (list(read_back.jobs), read_back.concurrency) == (jobs, 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: '' does not begin a known trace; expected ShareGPT JSON, Turnout JSONL, "),
        ("hello\n", "line 1: 'hello' does not begin a known trace"),
        (
            "a,b\n1,2\n",
            "line 1: no known trace has the header 'a,b'; expected Azure CSV .TIMESTAMP,",
        ),
        (AZURE + "yesterday,1,2\n", "line 4: 'TIMESTAMP' should be a date and time, not 'yesterday'"),
        (AZURE + "2023-11-16,1\n", "line 4: 2 values for 3 columns"),
        (VIDUR + "2.0,many,3\n", "line 4: 'num_prefill_tokens' should be a number, not 'many'"),
        (VIDUR + "2.0,-1,3\n", "line 4: 'num_prefill_tokens' should be a count, not '-1'"),
        ('{"a": 1}\n', "line 1: no known trace has the fields a; expected"),
        (MOONCAKE + "{\n", "line 3: not valid JSON"),
        (MOONCAKE + "[]\n", "line 3: an object is expected .read as Mooncake JSONL"),
        (MOONCAKE + '{"timestamp": 1}\n', "line 3: 'input_length' should be a number, not None"),
        (
            '{"timestamp": 1, "input_length": 9, "output_length": 1, "hash_ids": [1, 2]}\n',
            "line 1: 2 blocks of 512 tokens are more than 'input_length': 9",
        ),
        ('[{"a": 1,\n]', "line 2: not valid JSON"),
        ('[{"a": 1}]', "conversation 1: expected"),
        ('{"turnout_workload": 2}\n', "line 1: version 2 is not 1"),
        ('{"turnout_workload": 1}\n{"at": 0, "promt": 4}\n', "line 2: .*'promt'.*; did you mean 'prompt'"),
        ('{"turnout_workload": 1}\n{"at": 0, "prompt": 0, "output": 4}\n', "line 2: .* must be at least 1"),
        ('{"turnout_workload": 1}\n{"at": 0, "prompt": 16777217, "output": 4}\n', "not 16777217 "),
        (
            '{"turnout_workload": 1}\n{"at": 0, "prompt": 4, "output": 4, "deadline_ms": 0}\n',
            "should be above 0",
        ),
        ('{"turnout_workload": 1}\n', "has no requests"),
        (VIDUR_LENGTHS.replace("44", "0"), "has no requests with a prompt and an output"),
    ],
)
def test_a_wrong_file_says_what_was_expected_and_where(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        read(tmp_path, text)
    assert "\n" not in str(error.value)


def test_a_trace_can_be_cut_and_sped_up(tmp_path: Path) -> None:
    jobs = read(tmp_path, BAILIAN, ",skip=1,requests=1,speed=2")
    assert [(job.at, job.prompt) for job in jobs] == [(0.0, 40)]
    assert [job.at for job in read(tmp_path, BAILIAN, ",speed=2")] == [0.0, 2.0, 2.5]
    assert [job.prompt for job in read(tmp_path, SHAREGPT, ",turns=1")] == [2, 1]
    assert [job.prompt for job in read(tmp_path, AZURE, ",longest=4000")] == [3180]


def test_a_rate_spreads_sessions_and_keeps_their_turns_apart(tmp_path: Path) -> None:
    first, *later = read(tmp_path, BAILIAN, ",rate=2")
    assert first.at > 0
    assert [job.at - first.at for job in later] == pytest.approx([4.0, 5.0])


def test_a_trace_can_be_sent_in_a_closed_loop(tmp_path: Path) -> None:
    file = tmp_path / "trace"
    file.write_text(AZURE)
    assert load_workload(f"trace:file={file},concurrency=4", 0).concurrency == 4
    with pytest.raises(ConfigError, match=r"^workload 'trace': rate and concurrency exclude each other$"):
        load_workload(f"trace:file={file},concurrency=4,rate=1", 0)
