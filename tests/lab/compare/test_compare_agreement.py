"""What must be known before any figure: whether the arms did the same work and said the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from compare_runs import H100, record, run, spec

from turnout.config import EngineConfig
from turnout.lab.arms import parse_arms
from turnout.lab.compare.agreement import Finding, check
from turnout.lab.compare.comparison import compare
from turnout.lab.compare.experiment import Experiment
from turnout.lab.compare.runs.predictions import different_predictions, predicting_options
from turnout.lab.compare.runs.run import Run
from turnout.lab.compare.runs.simulated import SimulatedRuns


def findings(arms: tuple[str, str], *runs: Run, greedy: bool = True) -> list[Finding]:
    given = spec(*arms)
    return check(given.arms, [{each.arm: each for each in runs}], greedy=greedy)


def test_arms_that_agree_have_no_findings() -> None:
    assert findings(("base", "long:scheduler=ljf,kv=contiguous"), run("base"), run("long")) == []


def test_a_scheduler_that_changes_what_is_said_is_found() -> None:
    other = Run("long", 0, [record(0), record(1, digest="something else"), record(2)])
    (finding,) = findings(("base", "long:scheduler=ljf"), run("base"), other)
    assert finding.serious
    assert "base and long must say the same, and differ in 1 of 3 answers" in finding.text
    assert "repeat 1, job 1" in finding.text


def test_another_model_may_say_something_else_and_the_reader_knows_that_answers_were_not_compared() -> None:
    (finding,) = findings(
        ("base", "big:model=other,kv=paged:dtype=int8"), run("base"), run("big", digest="x")
    )
    assert not finding.serious
    assert finding.text == (
        "outputs of base and big are not compared: they differ in model, what is kept of keys and values"
    )


def test_what_the_judge_of_predictions_loads_is_what_the_arms_serve() -> None:
    """Keys in place of the model's own, and what runs it, were left out: other predictions were measured."""
    options = {"hf_overrides": '{"rope_theta": 2.0}', "model_impl": "transformers", "trust_remote_code": True}
    assert predicting_options(EngineConfig(**options)) == options  # type: ignore[arg-type]
    overridden = EngineConfig(hf_overrides=options["hf_overrides"])  # type: ignore[arg-type]
    assert different_predictions(EngineConfig(), overridden) == ["hf_overrides"]


FORGETFUL = """
from turnout import hookimpl
from turnout.plugins.kv_backends.contiguous.backend import Contiguous

turnout_hook_api = 1


class Forgetful(Contiguous):
    def __init__(self, window: int = 8) -> None:
        super().__init__()
        self.approximation = f"window={window}"


@hookimpl
def register_kv_backends(register):
    register("forgetful", Forgetful)
"""


def test_a_kv_backend_that_says_that_it_approximates_may_say_something_else(tmp_path: Path) -> None:
    (tmp_path / "turnout_plugins.py").write_text(FORGETFUL)
    ours = EngineConfig(plugins_folder=str(tmp_path))

    def found(*arms: str) -> Finding:
        parsed = parse_arms(arms, ours)
        (finding,) = check(parsed, [{"a": run("a"), "b": run("b", digest="x")}], greedy=True)
        return finding

    assert not found("a", "b:kv=forgetful").serious
    assert not found("a:kv=forgetful:window=4", "b:kv=forgetful").serious
    assert found("a:kv=forgetful:window=8", "b:kv=forgetful").serious


def test_speculation_must_not_change_greedy_answers_and_may_change_sampled_ones() -> None:
    arms, runs = ("base", "spec:spec-ngram=true"), (run("base"), run("spec", digest="x"))
    assert findings(arms, *runs)[0].serious
    assert "spec_ngram" in findings(arms, *runs, greedy=False)[0].text


def test_failed_requests_are_found_with_their_reason() -> None:
    broken = Run("long", 0, [record(0), record(1, error="no memory", output_tokens=0), record(2)])
    found = findings(("base", "long:scheduler=ljf"), run("base"), broken)
    assert all(finding.serious for finding in found)
    assert "long: 1 of 3 requests failed, the first of them (job 1) because: no memory" in found[0].text
    assert "different numbers of output tokens: base 12, long 8" in found[1].text


def test_a_policy_that_fails_is_found_since_its_figures_are_those_of_arrival_order() -> None:
    wrong = replace(run("wrong"), policy_faults=2)
    (finding,) = findings(("base", "wrong:scheduler=ljf"), run("base"), wrong)
    assert finding.serious
    assert finding.text.startswith("wrong: 2 answers of its scheduling policy could not be carried out")


def test_answers_that_failed_are_not_compared_with_others() -> None:
    cut = Run("long", 0, [record(0), record(1, error="no memory", output_tokens=1, digest="x"), record(2)])
    found = findings(("base", "long:scheduler=ljf"), run("base"), cut)
    assert found and not any("must say the same" in finding.text for finding in found)


def test_simulated_refusals_are_no_answers() -> None:
    """Each of them counted as an answer that differs."""
    given = spec("a", "w:max-waiting=3,max-num-seqs=2", workload="burst:requests=8,prompt=50,output=10")
    experiment = Experiment(given, SimulatedRuns(given, H100))
    experiment.make(lambda turn: lambda done, total: None)
    texts = [finding.text for finding in experiment.comparison().findings]
    assert any("requests failed" in text for text in texts)
    assert not any("must say the same" in text for text in texts)
    assert not any(each.digest for made in experiment.runs for each in made.records if each.error)


def test_answers_of_another_length_than_asked_are_found() -> None:
    short = run("long", output_tokens=3, token_times=[1.0, 1.1, 1.2])
    assert any(
        "3 tokens instead of 4" in each.text for each in findings(("base", "long"), run("base"), short)
    )


def test_what_is_serious_comes_first() -> None:
    other = run("big", error="no")
    found = findings(("base", "big:model=x"), run("base"), other)
    assert [finding.serious for finding in found] == sorted((f.serious for f in found), reverse=True)


def test_repeats_of_one_trace_are_told_from_repeats_of_a_kind_of_workload() -> None:
    given = spec("a", "b", repeats=2)
    found = compare(given, [run(arm, repeat) for arm in "ab" for repeat in (0, 1)]).findings
    assert [finding.text for finding in found] == [
        "every repeat served the same jobs: intervals speak of this workload alone"
    ]


def test_a_repeat_that_not_all_arms_have_made_is_left_out() -> None:
    comparison = compare(spec("a", "b", repeats=2), [run("a"), run("b"), run("b", 1)])
    assert len(comparison.repeats) == 1


def test_without_a_complete_repeat_there_are_no_figures() -> None:
    comparison = compare(spec("a", "b"), [run("a")])
    assert comparison.repeats == [] and all(row.difference is None for row in comparison.rows["b"])
