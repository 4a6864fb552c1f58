"""``turnout simulate`` and ``turnout profile`` from the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from turnout.cli.main import cli
from turnout.lab.simulation import CostModel

WORKLOAD = "poisson:rate=30,requests=40,prompt=100,output=uniform:5:40"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments))


def simulate(*arguments: str) -> Result:
    return run("simulate", "--workload", WORKLOAD, "--cost-model", "h100-7b", *arguments)


def test_arms_stand_side_by_side_in_vllms_words() -> None:
    result = simulate("--arm", "base", "--arm", "long:scheduler=ljf", "--goodput", "ttft:1000")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0] == f"simulated: {WORKLOAD}, 40 requests"
    assert "estimated: from data sheets: 1 x H100 SXM" in lines[1]
    assert "  long (scheduler=ljf)" in lines
    assert any(line.split() == ["base", "long"] for line in lines)
    for name in ("Successful requests", "Request goodput (req/s)", "Mean TTFT (ms)", "P99 TPOT (ms)"):
        (line,) = [line for line in lines if line.startswith(name)]
        assert len(line.removeprefix(name).split()) == 2


def test_a_policy_that_fails_is_told_of(misspelt: str) -> None:
    ours = (
        "--plugins-folder",
        misspelt,
        "--arm",
        "base",
        "--arm",
        "wrong:scheduler=misspelt",
    )
    result = simulate(*ours)
    (warning,) = [line for line in result.stderr.splitlines() if line.startswith("WARNING: wrong")]
    assert "answers of its scheduling policy could not be carried out" in warning
    assert "base:" not in result.stderr and result.exit_code == 0


def test_figures_are_written_for_machines(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    assert simulate("--json", str(file), "--replicas", "2").exit_code == 0
    written = json.loads(file.read_text())
    assert written["cost_model"]["estimate"] is True
    arm = written["arms"]["default"]
    assert arm["completed"] == 40 and arm["total_input_tokens"] == 4000
    assert 0 < arm["mean_ttft_ms"] < arm["p99_ttft_ms"]
    printed = simulate("--json", "-", "--replicas", "2", "--stepwise")
    assert json.loads(printed.output) == written


def test_requests_that_generate_nothing_have_a_whole_latency_alone(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    workload = "burst:requests=30,prompt=documents:400,output=0"
    result = run("simulate", "--workload", workload, "--cost-model", "h100-7b", "--json", str(file))
    assert result.exit_code == 0, result.output
    arm = json.loads(file.read_text())["arms"]["default"]
    assert (arm["completed"], arm["total_output_tokens"], arm["mean_ttft_ms"]) == (30, 0, 0)
    assert 0 < arm["mean_e2el_ms"] <= arm["p99_e2el_ms"] and arm["total_input_tokens"] > 30 * 30


def columns(output: str) -> dict[str, list[str]]:
    """The cells of each row of the table."""
    rows = [re.split(r"\s{2,}", line) for line in output.splitlines()]
    return {name: cells for name, *cells in rows}


@pytest.mark.parametrize("more", [(), ("--replicas", "2", "--workers", "2")])
def test_requests_that_fail_are_told_with_a_reason(more: tuple[str, ...]) -> None:
    workload = "constant:rate=1,requests=3,prompt=5000,output=5 + burst:requests=1,prompt=10,output=5"
    result = run(
        "simulate", "--cost-model", "h100-7b", "--workload", workload, "--arm", "base", "--arm", "b", *more
    )
    assert result.exit_code == 0, result.output
    first, second = result.stderr.splitlines()
    assert first.startswith("WARNING: base: 3 of 4 requests failed, the first of them (job 0) because: ")
    assert "the prompt has 5000" in first and second.startswith("WARNING: b: 3 of 4 ")
    assert columns(result.stdout)["Failed requests"] == ["3", "3"]


def test_figures_that_do_not_exist_are_dashes() -> None:
    result = run("simulate", "--cost-model", "h100-7b", "--workload", "burst:requests=2,prompt=9,output=1")
    assert "WARNING" not in result.output
    table = columns(result.stdout)
    assert table["Mean TPOT (ms)"] == table["P99 ITL (ms)"] == ["–"]
    assert float(table["Mean TTFT (ms)"][0]) > 0


def test_a_figure_has_no_digits_that_mean_nothing(tmp_path: Path) -> None:
    file = tmp_path / "trace"
    file.write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0,9,2\n1e300,9,2\n")
    result = run("simulate", "--cost-model", "h100-7b", "--workload", str(file))
    assert columns(result.stdout)["Duration (s)"] == ["1e+300"]


def test_options_beside_the_arms_that_change_nothing_are_named(tmp_path: Path) -> None:
    """They were ignored in silence. They aren't refused: a server's file of options serves here, too."""
    file = tmp_path / "serve.yaml"
    file.write_text("model: turnout-tiny\ndtype: bfloat16\nmax-num-seqs: 8\n")
    result = simulate("--config", str(file), "-tp", "8")
    assert result.exit_code == 0, result.output
    assert result.stderr == (
        "WARNING: dtype, model, tensor_parallel_size change nothing in a simulation, whose steps take what "
        "the cost model says (to divide the model, write -tp8 behind its name).\n"
    )
    assert result.stdout == simulate("--max-num-seqs", "8").stdout


def test_a_seed_is_another_run() -> None:
    first, second, again = (simulate("--json", "-", "--seed", seed).output for seed in ("1", "2", "1"))
    assert first == again != second


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--cost-model", "h100_7b"], "did you mean"),
        (["--cost-model", "nowhere.json"], "nowhere.json cannot be read"),
        (["--arm", "a:scheduler=fcsf"], "arm 'a'"),
        (["--arm", "a:spec_ngram=true"], "speculative decoding is not simulated"),
        (["--arm", "a:quantization=int8"], "arm 'a': quantization changes nothing in a simulation"),
        (["--arm", "a:tensor-parallel-size=8"], "write -tp8 behind its name"),
        (["--router", "round"], "round-robin"),
        (["--router", "least-loaded:by=mood"], "by"),
        (["--workload", "poison:rate=1"], "poisson"),
        (["--goodput", "speed:3"], "goodput"),
        (["--max-model-len", "9000"], "exceeds the model's 4,096 positions"),
        (["--replicas", "0"], "replicas"),
    ],
)
def test_what_is_wrong_is_said(arguments: list[str], words: str) -> None:
    result = simulate(*arguments)
    assert result.exit_code == 2, result.output
    assert words in result.output
    assert "Traceback" not in result.output


def test_a_machine_is_measured_and_simulated(tmp_path: Path) -> None:
    file = tmp_path / "here.json"
    small = ("--max-model-len", "128", "--max-num-seqs", "8", "--max-num-batched-tokens", "64")
    measured = run("profile", "--out", str(file), "--seconds", "2", "--clock", "thread", *small)
    assert measured.exit_code == 0, measured.output
    assert "error of a step: mean" in measured.output
    assert CostModel.load(file).name == "turnout-tiny on cpu"
    arguments = ("--workload", "constant:rate=1,requests=3,prompt=20,output=5", "--cost-model", str(file))
    result = run("simulate", *arguments, *small)
    assert result.exit_code == 0, result.output
    assert "cost model turnout-tiny on cpu (measured: model turnout-tiny" in result.output


def test_options_of_routers_are_shown() -> None:
    result = run("plugins", "show", "prefix-affinity")
    assert "--router prefix-affinity:tokens=256" in result.output and "slack" in result.output
