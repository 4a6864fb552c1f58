"""``turnout bench``: what its commands write, and what they refuse."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from scripted_server import ScriptedServer, serving

from turnout.cli.main import cli
from turnout.lab.workloads.source import load_workload

SMALL_ENGINE = ["--device", "cpu", "--kv-memory", "32MiB", "--dtype", "float32"]


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with serving(ScriptedServer()) as running:
        yield running


def bench(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["bench", *map(str, arguments)])


def load(server: ScriptedServer, *arguments: object) -> Result:
    workload = "poisson:rate=200,requests=5,prompt=7,output=3,clients=2"
    return bench("serve", "--url", server.url, "--model", "m", "--workload", workload, *arguments)


# ------------------------------------------------------------------ serve


def test_serve_prints_vllms_figures(server: ScriptedServer) -> None:
    result = load(server)
    assert result.exit_code == 0, result.output
    assert "Successful requests:              5" in result.stdout
    assert "Time per Output Token (excl. 1st token)" in result.stdout


def test_serve_loads_embeddings(server: ScriptedServer) -> None:
    result = load(server, "--endpoint", "embeddings", "--texts", 4, "--goodput", "e2el:60000")
    assert result.exit_code == 0, result.output
    assert "Total input tokens:               140" in result.stdout
    assert "End-to-end Latency" in result.stdout and "Time to First Token" not in result.stdout
    goodput, throughput = (
        line.split()[-1] for line in result.stdout.splitlines() if "put (req/s)" in line and "Request" in line
    )
    assert goodput == throughput


def test_serve_writes_them_for_machines(server: ScriptedServer, tmp_path: Path) -> None:
    files = tmp_path / "out.json", tmp_path / "out.csv"
    load(server, "--json", files[0], "--csv", files[1], "--goodput", "ttft:10000", "--details")
    figures = json.loads(files[0].read_text())
    assert (figures["completed"], figures["total_input_tokens"]) == (5, 35)
    assert figures["request_goodput"] == figures["request_throughput"]
    assert {"p99_itl_ms", "lag_p99_ms", "model_id", "workload", "seed", "date"} < set(figures)
    assert figures["output_lens"] == [3] * 5 and len(figures["itls"][0]) <= 2
    rows = list(csv.DictReader(files[1].read_text().splitlines()))
    assert [row["request"] for row in rows] == list("01234")
    assert {row["client"] for row in rows} == {"client-0", "client-1"}


def test_serve_interrupted_keeps_what_it_has(server: ScriptedServer, tmp_path: Path) -> None:
    """Ten requests a second; interrupted when some have ended."""
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from turnout.cli.main import cli; cli.main(sys.argv[1:])"
    )
    workload = "constant:rate=10,requests=1000,prompt=7,output=3"
    options = ["--url", server.url, "--model", "m", "--workload", workload, "--json", tmp_path / "out.json"]
    command = [sys.executable, "-c", code, "bench", "serve", *map(str, options)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 30
        while len(server.asked) < 12 and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        said, warned = process.communicate(timeout=20)
    assert process.returncode == 130
    figures = json.loads((tmp_path / "out.json").read_text())
    completed = figures["completed"]
    assert 9 <= completed < 100 and figures["failed"] == 0 and figures["interrupted"] is True
    assert f"interrupted: partial figures, of the {completed} of 1,000 requests that had ended:" in warned
    assert f"Successful requests:              {completed}" in said and "Traceback" not in warned


def test_serve_that_ends_by_itself_is_not_partial(server: ScriptedServer, tmp_path: Path) -> None:
    result = load(server, "--json", tmp_path / "out.json")
    assert json.loads((tmp_path / "out.json").read_text())["interrupted"] is False
    assert "interrupted" not in result.output


def test_serve_names_sessions(server: ScriptedServer) -> None:
    workload = "closed:concurrency=2,requests=6,turns=3,think=0.01,prompt=7,output=3"
    result = bench("serve", "--url", server.url, "--model", "m", "--workload", workload, "--warm-up", 0)
    assert result.exit_code == 0, result.output
    assert len(server.sessions) == len(server.asked) > len(set(server.sessions)) > 1


def test_serve_warms_up_with_other_prompts_that_do_not_count(server: ScriptedServer, tmp_path: Path) -> None:
    load(server, "--warm-up", 2, "--json", tmp_path / "out.json")
    prompts = [tuple(body["prompt"]) for body in server.asked]
    assert len(prompts) == len(set(prompts)) == 7
    assert json.loads((tmp_path / "out.json").read_text())["completed"] == 5


def test_serve_ends_before_it_begins_where_the_first_request_fails(server: ScriptedServer) -> None:
    server.broken = "refuse"
    result = load(server)
    assert result.exit_code == 1
    assert "did not answer a warm-up request: 400: too long by 3 tokens" in result.stderr


def test_serve_fails_where_nothing_was_answered(server: ScriptedServer) -> None:
    server.broken = "refuse"
    result = load(server, "--warm-up", 0)
    assert result.exit_code == 1
    assert "Failed requests:                  5" in result.stdout
    (ttft,) = [line for line in result.stdout.splitlines() if line.startswith("Time to First Token")]
    assert ttft.removeprefix("Time to First Token").split() == ["–"] * 6
    assert "Warning: failed: 5: 400: too long by 3 tokens" in result.stderr


def test_serve_sends_the_same_for_the_same_seed(server: ScriptedServer) -> None:
    sent = []
    for seed in (1, 1, 2):
        server.asked.clear()
        load(server, "--seed", seed)
        sent.append(sorted(str(body) for body in server.asked))
    assert sent[0] == sent[1] != sent[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workload", "poison"], "no workload is called 'poison'"),
        (["--goodput", "tfft:1"], "did you mean 'ttft'"),
        (["--percentiles", "99,x"], "expected numbers from 0 to 100"),
        (["--extra-body", "[1]"], "--extra-body must be an object"),
        (["--extra-body", "{"], "--extra-body is not JSON"),
        (["--endpoint", "chat", "--prompts", "tokens"], "the chat endpoint takes text, not token ids"),
        (["--url", "ftp://x"], "'ftp://x' is not the address of a server"),
    ],
)
def test_serve_refuses_what_it_cannot_do(server: ScriptedServer, arguments: list[str], message: str) -> None:
    result = load(server, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not server.asked


def test_serve_says_so_where_no_server_is() -> None:
    result = bench("serve", "--url", "http://127.0.0.1:9")
    assert result.exit_code == 1
    assert "no server answers at http://127.0.0.1:9" in result.stderr


def test_a_file_that_cannot_be_written_is_told_first(server: ScriptedServer, tmp_path: Path) -> None:
    result = load(server, "--json", tmp_path / "missing" / "out.json")
    assert result.exit_code == 2 and not server.asked
    assert "cannot be written: there is no folder" in result.stderr


# ------------------------------------------------------------------ without a server


def test_throughput_counts_every_token(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    workload = ["--workload", "burst:requests=3,prompt=8,output=4"]
    result = bench("throughput", *SMALL_ENGINE, *workload, "--repeat", 2, "--warm-up", 0, "--json", file)
    assert result.exit_code == 0, result.output
    figures = json.loads(file.read_text())
    assert (figures["num_requests"], figures["total_num_tokens"]) == (3, 36)
    assert len(figures["runs"]) == 2
    for run in figures["runs"]:
        assert run["tokens_per_second"] == pytest.approx(36 / run["elapsed_time"])


def test_latency_is_of_batches(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    shape = ["--batch-size", 2, "--prompt", 8, "--output", 3, "--repeat", 2, "--warm-up", 0]
    result = bench("latency", *SMALL_ENGINE, *shape, "--json", file)
    assert result.exit_code == 0, result.output
    figures = json.loads(file.read_text())
    assert len(figures["latencies"]) == 2
    assert figures["avg_latency"] == pytest.approx(sum(figures["latencies"]) / 2)
    assert set(figures["percentiles"]) == {"10", "25", "50", "75", "90", "99"}


def test_startup_goes_to_the_first_token(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    result = bench("startup", "--repeat", 1, "--json", file, *SMALL_ENGINE)
    assert result.exit_code == 0, result.output
    figures = json.loads(file.read_text())
    assert 0 < figures["median_ready_s"] < figures["median_first_token_s"]


def test_startup_tells_what_the_server_said() -> None:
    result = bench("startup", "--repeat", 1, "--scheduler", "nope")
    assert result.exit_code == 1
    assert "exit code 2 before it served: no scheduler is called 'nope'" in result.stderr


@pytest.mark.slow
def test_startup_of_a_server_that_requires_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNOUT_API_KEY", "of the environment")
    result = bench("startup", "--repeat", 1, "--api-key", "given", *SMALL_ENGINE)
    assert result.exit_code == 0, result.output


def test_startup_says_that_its_time_was_up() -> None:
    result = bench("startup", "--repeat", 1, "--timeout", 0.05)
    assert result.exit_code == 1 and "gave no token within 0.05 s, the --timeout" in result.stderr


# ------------------------------------------------------------------ workloads


def test_workloads_are_listed_and_described() -> None:
    assert "poisson " in bench("workloads").stdout
    described = bench("workloads", "gamma").stdout
    assert "burstiness" in described and "LENGTHS is a number of tokens, uniform:LOW:HIGH" in described
    wrong = bench("workloads", "gama:rate=1")
    assert wrong.exit_code == 2 and "did you mean 'gamma'" in wrong.stderr


def test_a_workload_can_be_looked_at_and_written(tmp_path: Path) -> None:
    file, spec = (
        tmp_path / "mine.jsonl",
        "closed:concurrency=4,requests=30,turns=3,clients=2,prompt=10,output=5",
    )
    looked_at = bench("workloads", spec, "--seed", 3, "--write", file).stdout
    assert "Requests:          30" in looked_at and "Sessions:          10" in looked_at
    assert "closed loop of 4" in looked_at
    again = load_workload(str(file), seed=0)
    assert (again.jobs, again.concurrency) == (load_workload(spec, seed=3).jobs, 4)


def test_requests_of_a_trace_that_are_skipped_are_told(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0,9,2\n1,9,0\n1e300,9,2\n")
    result = bench("workloads", f"trace:file={file}")
    told = "requests without a prompt or an output are skipped: 1 of 3"
    assert result.stderr == f"note: {file}: {told}.\n"
    assert "Requests:          2\n" in result.stdout
    assert "Last arrival (s):  1e+300\n" in result.stdout, "digits that mean nothing"
