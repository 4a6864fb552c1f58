"""``turnout compare``, simulated where it can be; else on real engines, once in processes of their own."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import msgspec
import psutil
import pytest
from click.testing import CliRunner, Result

from turnout.cli.main import cli
from turnout.config import EngineConfig
from turnout.core.types.live.event import TraceFile
from turnout.lab.arms import Arm
from turnout.lab.compare.runs import child, worker
from turnout.lab.compare.runs.live import measure_quality_live
from turnout.lab.compare.runs.protocol import QualityResult
from turnout.lab.compare.runs.quality import QualityText
from turnout.lab.compare.runs.simulated import SimulatedRuns
from turnout.models.hub.resolve import resolve_model
from turnout.models.random.random_weights import write_random_checkpoint
from turnout.models.random.shapes import Shape, config_of

FAST = "base:max-num-seqs=16"
SLOW = "slow:max-num-seqs=2"
WORKLOAD = "gamma:rate=40,requests=30,prompt=100,output=lognormal:mean=30"


def compare(*arguments: str | Path, workload: str = WORKLOAD) -> Result:
    simulated = ["--simulate", "h100-7b", "--workload", workload]
    return CliRunner().invoke(cli, ["compare", *simulated, *map(str, arguments)])


def refused(*arguments: str | Path, workload: str = WORKLOAD) -> str:
    done = compare(*arguments, workload=workload)
    assert done.exit_code == 2, done.output
    return done.stderr


def two(*arguments: str | Path) -> Result:
    return compare("--arm", FAST, "--arm", SLOW, *arguments)


def test_it_says_what_differs_and_how_sure_that_is() -> None:
    done = two("--repeat", "3")
    assert done.exit_code == 0
    assert "slow lowers request throughput by" in done.stdout and ": worse" in done.stdout
    assert "3 repeats of gamma:" in done.stdout and "simulated on h100-7b" in done.stdout


def test_progress_goes_to_standard_error() -> None:
    done = two("--repeat", "2")
    lines = [line for line in done.stderr.splitlines() if line.startswith("run ")]
    assert lines == [
        "run 1 of 4: base, repeat 1",
        "run 2 of 4: slow, repeat 1",
        "run 3 of 4: slow, repeat 2",
        "run 4 of 4: base, repeat 2",
    ]
    assert "run 1" not in done.stdout


def test_json_and_report_are_written(tmp_path: Path) -> None:
    done = two("--repeat", "2", "--json", tmp_path / "all.json", "--report", tmp_path / "report.html")
    assert done.exit_code == 0
    assert json.loads((tmp_path / "all.json").read_text())["repeats"] == 2
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")


def test_goodput_is_compared_if_its_limits_are_given() -> None:
    assert "goodput" in two("--repeat", "2", "--goodput", "ttft:100").stdout


# ------------------------------------------------------------------ a guard


def test_a_change_beyond_the_limit_ends_with_code_3() -> None:
    done = two("--repeat", "3", "--fail-on", "mean_ttft:+5%,output_throughput:-5%")
    assert done.exit_code == 3
    assert "failed: slow raises mean TTFT by" in done.stderr and "beyond mean_ttft:+5%" in done.stderr


def test_a_change_within_the_limit_passes_and_so_does_one_for_the_better() -> None:
    assert two("--repeat", "3", "--fail-on", "mean_ttft:+500000%,mean_tpot:+5%").exit_code == 0


def test_a_change_that_is_shown_but_perhaps_within_the_limit_passes() -> None:
    """51% [1%, 127%] failed a limit of 50%: more than none was shown, not more than the limit."""
    workload = "gamma:rate=12,burstiness=0.25,requests=120,longest=1024,clients=3"
    arms = ("--arm", "fcfs", "--arm", "srpt:scheduler=srpt", "--max-num-seqs", "16", "--repeat", "4")
    done = compare(*arms, "--fail-on", "p99_ttft:+50%", workload=workload)
    assert "srpt raises p99 TTFT by 51% [1%, 127%]" in done.stdout
    assert done.exit_code == 0 and "failed" not in done.stderr


def test_repeats_in_which_an_arm_has_no_good_request_count(tmp_path: Path) -> None:
    """They were dropped: a fall from 0.48 to 0.41 was told as +1.5%."""
    workload = "gamma:rate=8,burstiness=0.2,requests=12,prompt=400,output=lognormal:100"
    arms = ("--arm", "fcfs", "--arm", "ljf:scheduler=ljf", "--max-num-seqs", "2", "--repeat", "12")
    files = ("--json", tmp_path / "all.json", "--report", tmp_path / "report.html")
    done = compare(*arms, "--goodput", "e2el:484", *files, workload=workload)
    row = json.loads((tmp_path / "all.json").read_text())["differences"]["ljf"][1]
    assert (row["metric"], row["repeats"], row["judged_by"]) == ("request_goodput", 12, "difference")
    assert row["change"] == pytest.approx(row["other"] / row["base"] - 1)
    for text in (done.stdout, (tmp_path / "report.html").read_text()):
        assert "-15%" in text and "[-34%, +4%] of the mean" in text
        assert "one arm alone has a figure of 0" in text


def test_an_arm_that_serves_no_good_request_does_not_pass() -> None:
    """Its goodput, 0 in every repeat, was not measured."""
    arms = ("--arm", "one:max-num-seqs=1", "--arm", "all:max-num-seqs=16", "--repeat", "3")
    limits = ("--goodput", "tpot:6.5", "--fail-on", "request_goodput:-50%")
    done = compare(*arms, *limits, workload="burst:requests=16,prompt=500,output=uniform:30:40")
    assert done.exit_code == 3, done.output
    assert "failed: all lowers goodput by 100% [" in done.stderr and "] of the mean: worse" in done.stderr


def test_arms_that_did_not_do_the_same_work_do_not_pass() -> None:
    done = compare(
        "--arm", "base", "--arm", "short:max-model-len=110", "--repeat", "2", "--fail-on", "p99_itl:+900%"
    )
    assert done.exit_code == 3
    assert "WARNING: short:" in done.stdout and "did not do the same work" in done.stderr


@pytest.mark.parametrize(
    ("limit", "workload"),
    [
        ("worst_client_ttft:+900%", "burst:requests=8,prompt=30,output=4"),
        ("mean_tpot:+900%", "burst:requests=8,prompt=30,output=1"),
    ],
)
def test_a_limit_of_what_is_not_measured_does_not_pass(limit: str, workload: str) -> None:
    """It passed, as if there was no change."""
    arms = ("--arm", FAST, "--arm", SLOW, "--repeat", "2")
    done = compare(*arms, "--fail-on", f"mean_ttft:+9000000%,{limit}", workload=workload)
    assert done.exit_code == 3
    assert done.stderr.count("failed: ") == 1 and "of slow was not measured, so that" in done.stderr


def test_one_repeat_guards_nothing() -> None:
    assert "--repeat 2 or more" in refused(
        "--arm", FAST, "--arm", SLOW, "--repeat", "1", "--fail-on", "p99_ttft:+5%"
    )


@pytest.mark.parametrize(
    ("limit", "told"),
    [
        ("p99_tftt:+5%", "did you mean 'p99_ttft'?"),
        ("p99_ttft:5%", "METRIC:+N%"),
        ("p99_ttft:+0%", "a share above 0%"),
        ("request_goodput:-5%", "needs --goodput"),
        ("goodput:-5%", "known: request_throughput"),
    ],
)
def test_limits_that_cannot_be_are_refused_before_anything_runs(limit: str, told: str) -> None:
    assert told in refused("--arm", FAST, "--arm", SLOW, "--fail-on", limit)


# ------------------------------------------------------------------ what is refused


def test_options_that_change_nothing_in_a_simulation_are_named() -> None:
    done = two("--repeat", "1", "--quantization", "int8", "--gpu-memory-utilization", "0.5")
    assert done.exit_code == 0
    told = "WARNING: gpu_memory_utilization, quantization change nothing in a simulation, whose steps"
    assert done.stderr.splitlines()[0].startswith(told)


def test_what_cannot_be_compared_is_refused_in_a_line(tmp_path: Path) -> None:
    assert "two arms or more" in refused("--arm", FAST)
    assert "arm 'x': no option of serve" in refused("--arm", FAST, "--arm", "x:sheduler=ljf")
    assert "arm 'x': no scheduler is called 'lfj'" in refused("--arm", FAST, "--arm", "x:scheduler=lfj")
    assert "no workload is called 'poison'" in refused("--arm", FAST, "--arm", SLOW, workload="poison:rate=1")
    assert "repeat must be at least 1" in refused("--arm", FAST, "--arm", SLOW, "--repeat", "0")
    missing = tmp_path / "missing" / "report.html"
    assert "there is no folder" in refused("--arm", FAST, "--arm", SLOW, "--report", missing)


def test_what_is_not_simulated_is_refused_with_its_arm() -> None:
    said = refused("--arm", FAST, "--arm", "guess:spec-ngram=true")
    assert "arm 'guess': speculative decoding is not simulated" in said and "--simulate" in said


@pytest.mark.parametrize("change", ["quantization=int8", "dtype=float32", "model=nowhere", "decoding=beam"])
def test_an_arm_that_changes_what_is_not_simulated_is_refused(change: str) -> None:
    """It was said to make no difference."""
    said = refused("--arm", FAST, "--arm", f"other:{change}")
    assert f"arm 'other': {change.partition('=')[0]} changes nothing in a simulation" in said


def test_a_text_without_an_arm_to_judge_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_bytes(b"\xff")
    given = ("--quality-text", text)
    assert "--quality-text has no arm to judge" in refused("--arm", FAST, "--arm", SLOW, *given)
    arms = ("--arm", FAST, "--arm", "few:quantization=int8")
    assert "is not UTF-8 text" in refused(*arms, *given)
    text.write_text("words")
    assert "a simulation says nothing of answers" in refused(*arms, *given)


# ------------------------------------------------------------------ ends before the end


def test_ctrl_c_keeps_what_is_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made, run = 0, SimulatedRuns.run

    def interrupted(self: SimulatedRuns, *given: object) -> object:
        nonlocal made
        made += 1
        if made == 6:
            raise KeyboardInterrupt
        return run(self, *given)

    monkeypatch.setattr(SimulatedRuns, "run", interrupted)
    done = two("--repeat", "5", "--json", tmp_path / "all.json")
    assert done.exit_code == 130
    assert "2 of 5 repeats" in done.stdout
    assert json.loads((tmp_path / "all.json").read_text())["repeats"] == 2


LIVE = ["--workload", "constant:rate=20,requests=6,prompt=16,output=8", "--warm-up", "2"]


@pytest.mark.slow
def test_on_real_engines_schedulers_and_kv_backends_say_the_same(tmp_path: Path) -> None:
    arms = ["--arm", "base", "--arm", "other:scheduler=ljf,kv=contiguous", "--kv-memory", "64MiB"]
    written = ["--json", str(tmp_path / "all.json"), "--traces", str(tmp_path / "traces")]
    done = CliRunner().invoke(cli, ["compare", *arms, *LIVE, "--repeat", "1", *written])
    assert done.exit_code == 0, done.output
    assert "WARNING" not in done.stdout and "one repeat cannot tell" in done.stdout
    document = json.loads((tmp_path / "all.json").read_text())
    base, other = document["runs"]
    digests = [[request["digest"] for request in run["requests"]] for run in (base, other)]
    assert digests[0] == digests[1] and all(digests[0])
    assert all(request["ttft"] > 0 and request["output_tokens"] == 8 for request in base["requests"])
    assert "kv contiguous" in " ".join(other["engine"])
    for arm, scheduler in (("base", "fcfs"), ("other", "ljf")):
        events = msgspec.json.decode((tmp_path / f"traces/{arm}-1.json").read_bytes(), type=TraceFile).events
        engines = [engine for event in events for engine in event.engines]
        told = {request.id for engine in engines for request in engine.requests}
        assert len(told) == 6 and {engine.scheduler for engine in engines} == {scheduler}
        times = [step.started for engine in engines for step in engine.steps]
        assert times == sorted(times) and 0 <= times[0] < 1  # from the run's beginning, the warm-up left out


def test_traces_go_to_a_folder_that_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "is a file" in refused("--arm", FAST, "--arm", SLOW, "--traces", tmp_path / "file")
    done = two("--repeat", "1", "--traces", tmp_path / "file" / "below")
    assert done.exit_code == 1 and "cannot be written: Not a directory" in done.stderr


def test_a_judgement_is_made_in_a_process_of_its_own() -> None:
    base, other = (
        Arm(name, {}, EngineConfig(quantization=name, kv_memory="64MiB")) for name in ("none", "int8")
    )
    found = measure_quality_live(base, other, QualityText("a text", "import os\n" * 20, tokens=32))
    assert isinstance(found, QualityResult) and found.deviation.own.tokens == 31


class InThisProcess:
    """Stands in for a worker's process, and does what it would; torch is loaded already."""

    def __init__(self) -> None:
        self.stdin = io.BytesIO()

    @property
    def stdout(self) -> list[bytes]:
        lines = io.BytesIO()
        worker.answer(self.stdin.getvalue(), lines)
        return lines.getvalue().splitlines()


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def started() -> Iterator[InThisProcess]:
        yield InThisProcess()

    monkeypatch.setattr(child, "_worker", started)
    monkeypatch.setattr(worker, "freeze_garbage", nullcontext)  # which is for the process's owner


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("simulated", [False, True])
def test_a_policy_that_fails_is_told_of(misspelt: str, tmp_path: Path, simulated: bool) -> None:
    arms = ["--arm", "base", "--arm", "wrong:scheduler=misspelt", "--plugins-folder", misspelt]
    how = ["--simulate", "h100-7b"] if simulated else ["--kv-memory", "64MiB"]
    told = ["--json", str(tmp_path / "all.json"), "--fail-on", "mean_ttft:+9000000%"]
    done = CliRunner().invoke(cli, ["compare", *arms, *LIVE, "--repeat", "2", *how, *told])
    assert re.search(r"WARNING: wrong: \d+ answers of its scheduling policy could not be", done.stdout)
    assert "WARNING: base" not in done.stdout and done.exit_code == 3, done.output
    runs = json.loads((tmp_path / "all.json").read_text())["runs"]
    assert {(run["arm"], run["policy_faults"] > 0) for run in runs} == {("base", False), ("wrong", True)}


@pytest.mark.slow
@pytest.mark.usefixtures("in_this_process")
def test_quality_stands_beside_speed_where_arms_may_answer_differently(tmp_path: Path) -> None:
    """Weights in fewer bits, KV in fewer bits, and what changes neither."""
    files = {name: tmp_path / f"all.{name}" for name in ("json", "html")}
    arms = [
        "base",
        "int8:quantization=int8",
        "kv8:kv=paged:dtype=int8",
        "late:quantization=int8,scheduler=ljf",
    ]
    done = CliRunner().invoke(
        cli,
        [
            *("compare", *LIVE, "--repeat", "1", "--kv-memory", "64MiB", "--quality-tokens", "1200"),
            *(argument for arm in (*arms, "same:scheduler=ljf") for argument in ("--arm", arm)),
            *("--json", str(files["json"]), "--report", str(files["html"])),
        ],
    )
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    start = lines.index("quality, on 1,199 tokens of held-out Python:")
    rows = {line.split()[0]: line.split()[1:] for line in lines[start + 2 : start + 7]}
    assert list(rows) == ["base", "int8", "kv8", "late", "same"]
    assert rows["same"] == ["as", "base"] and rows["late"] == rows["int8"]
    found = json.loads(files["json"].read_text())["quality"]["arms"]
    assert list(found) == ["int8", "kv8", "late"]
    assert 0 < found["kv8"]["kl_divergence"] < found["int8"]["kl_divergence"] < 0.01
    assert 0.9 < found["int8"]["agreement"] < found["kv8"]["agreement"] <= 1
    assert abs(found["int8"]["perplexity_change"]) < 0.02
    page = files["html"].read_text()
    assert all(cell in page for cell in ("Quality of answers", *rows["int8"], "as base"))
    # Once for all arms that predict the same.
    assert [line for line in done.stderr.splitlines() if line.startswith("quality")] == [
        "quality of int8 beside base",
        "quality of kv8 beside base",
    ]


@pytest.mark.usefixtures("in_this_process")
def test_models_of_other_vocabularies_are_not_judged_by_each_other(tmp_path: Path) -> None:
    folder = tmp_path / "other"
    shutil.copytree(resolve_model("turnout-tiny-draft"), folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    words = tokenizer["model"]["vocab"]
    one, other = list(words)[-2:]
    words[one], words[other] = words[other], words[one]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    text = tmp_path / "text.py"
    text.write_text("import os\n" * 20)
    arms = ["--arm", "base", "--arm", f"other:model={folder}", "--quality-text", str(text)]
    done = CliRunner().invoke(cli, ["compare", *LIVE, "--repeat", "1", *arms])
    assert done.exit_code == 0, done.output
    assert "note: answers of other are not judged by those of base: their vocabularies differ" in done.stdout
    assert "quality, on" not in done.stdout


@pytest.mark.usefixtures("in_this_process")
def test_a_model_without_a_tokenizer_is_compared_and_not_judged(tmp_path: Path) -> None:
    shape = Shape(64, 2, 4, 2, 96, 512, max_positions=256, theta=10_000.0)
    write_random_checkpoint(tmp_path / "model", config_of(shape, "qwen2", dtype="float32"))
    arms = ["--model", str(tmp_path / "model"), "--arm", "base", "--arm", "few:quantization=int8"]
    done = CliRunner().invoke(cli, ["compare", *LIVE, "--repeat", "1", *arms])
    assert done.exit_code == 0, done.output
    assert "note: answers of few are not judged by those of base: " in done.stdout
    assert "tokenizer" in done.stdout and "output throughput" in done.stdout


@pytest.mark.usefixtures("in_this_process")
def test_a_text_in_which_there_is_nothing_to_predict_is_refused_and_speed_kept(tmp_path: Path) -> None:
    text = tmp_path / "text.py"
    text.write_text("x")
    arms = ["--arm", "base", "--arm", "few:quantization=int8", "--quality-text", str(text)]
    done = CliRunner().invoke(cli, ["compare", *LIVE, "--repeat", "1", *arms])
    assert done.exit_code == 2 and "the text has 1 tokens; two or more" in done.stderr
    assert "output throughput" in done.stdout


def test_ctrl_c_leaves_no_process_behind() -> None:
    command = [sys.executable, "-P", "-c", "from turnout.cli.main import main; main()", "compare", *LIVE]
    process = subprocess.Popen(
        [*command, "--arm", "a", "--arm", "b"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    children = _children(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert not psutil.wait_procs(children, timeout=5)[1]


def _children(pid: int) -> list[psutil.Process]:
    """Once there are some."""
    for _ in range(300):
        if children := psutil.Process(pid).children():
            return children
        time.sleep(0.1)
    raise AssertionError("no run began within 30 seconds")
