"""`turnout plugins new`: what it writes is found and passes its own tests; nothing is overwritten."""

from __future__ import annotations

import ast
import json
import re
import shutil
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from installed_packages import lay_out, run, turnout

from turnout import testing
from turnout.cli.main import cli
from turnout.cli.plugins.new import package_files
from turnout.cli.plugins.skeletons import SKELETONS
from turnout.core.registry.kinds import KINDS, OBSERVER_KIND
from turnout.models.hub.resolve import resolve_model
from turnout.models.random.random_weights import write_random_checkpoint
from turnout.models.random.shapes import Shape, config_of
from turnout.scripts.make_model import copy_tokenizer
from turnout.testing.suites.suite import is_slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where one generated package of each kind is installed."""
    site, made = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("made")
    for kind in SKELETONS:
        new(mine(kind), kind, made)
        lay_out(made / f"turnout-{mine(kind)}", site)
    shutil.copytree(made, site / "made")
    return site


def new(name: str, kind: str, folder: Path) -> Result:
    done = CliRunner().invoke(cli, ["plugins", "new", name, "--kind", kind, "--folder", str(folder)])
    assert done.exit_code == 0, done.output
    return done


def mine(kind: str) -> str:
    return f"my-{kind.replace('_', '-')}"


def test_every_kind_has_a_skeleton() -> None:
    assert SKELETONS.keys() == {*KINDS, OBSERVER_KIND}


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ("kv-eviction", "kv_eviction"),
        ("eviction", "kv_eviction"),
        ("quantizer", "quantization"),
        ("predictor", "length_predictor"),
        ("logits-processor", "logits_processor"),
    ],
)
def test_kinds_have_short_names_and_dashes(tmp_path: Path, given: str, kind: str) -> None:
    new("same", given, tmp_path / "short")
    new("same", kind, tmp_path / "listed")
    short, listed = (tmp_path / folder / "turnout-same" / "turnout_same.py" for folder in ("short", "listed"))
    assert short.read_text() == listed.read_text()


@pytest.mark.slow
def test_each_package_passes_its_own_tests(site: Path) -> None:
    """All in one run, with warnings as errors: they have nothing in common but Turnout."""
    folders = [str(site / "made" / f"turnout-{mine(kind)}" / "tests") for kind in SKELETONS]
    plugin = ["-p", "turnout.testing.pytest_plugin", "--turnout-trials", "4"]
    command = [
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-o",
        "addopts=",
        "-W",
        "error",
        *plugin,
        *folders,
    ]
    done = run(site, *command, cwd=site / "made")
    assert done.returncode == 0, done.stdout[-3000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed and int(passed[1]) > 60, done.stdout[-300:]


def test_each_is_listed_with_its_package(site: Path) -> None:
    listed = json.loads(turnout(site, "plugins", "--json", cwd=site).stdout)
    ours = {entry["kind"]: entry for entry in listed if entry["distribution"].startswith("turnout-my-")}
    assert ours.keys() == SKELETONS.keys()
    assert all((entry["state"], entry["version"]) == ("ok", "0.1.0") for entry in ours.values())
    assert all(entry["hook_api"] == 1 for entry in ours.values())


def test_none_imports_torch_as_it_is_imported(site: Path) -> None:
    """A pooling strategy's did, so that every command waited for torch, and warned of it."""
    assert turnout(site, "plugins", cwd=site).stderr == ""


@pytest.mark.parametrize(
    "target",
    [
        pytest.param(["my-scheduler:aging=3", "--claim", "bound=60"], marks=pytest.mark.slow),
        pytest.param(["kv_eviction/my-kv-eviction", "--claim", "ends_first=false"], marks=pytest.mark.slow),
        pytest.param(["router/my-router", "--claim", "spreads=false"], marks=pytest.mark.slow),
        pytest.param(["observer/my-observer:seconds=2"], marks=pytest.mark.slow),
    ],
    ids=lambda target: target[0],
)
def test_each_can_be_checked(site: Path, target: list[str]) -> None:
    done = turnout(site, "plugins", "check", *target, cwd=site)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\nconforms: \d+ passed(, [^\n]+)?\n$", done.stdout), done.stdout


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        ("ends_frist=false", "EvictionPolicySuite has no claim 'ends_frist'; it has ends_first, "),
        pytest.param(
            "ends_first", "'ends_first' is not a claim; expected NAME=VALUE", marks=pytest.mark.slow
        ),
    ],
)
def test_what_is_not_a_claim_is_refused(site: Path, claim: str, message: str) -> None:
    done = turnout(site, "plugins", "check", "my-kv-eviction", "--claim", claim, cwd=site)
    assert done.returncode == 2 and message in done.stderr


def test_a_policy_is_ready_in_three_commands(tmp_path: Path) -> None:
    """The policy's own code, without what every plugin has, is no more than 15 lines."""
    new("mine", "scheduler", tmp_path)
    source = (tmp_path / "turnout-mine" / "turnout_mine.py").read_text()
    body = source.partition("class Mine")[2].partition("@hookimpl")[0]
    assert len([line for line in body.splitlines() if line.strip()]) <= 15


def test_a_model_family_is_qwen3_in_forty_lines(site: Path, tmp_path: Path) -> None:
    """Its greedy tokens are those of Turnout's own Qwen3, from the same checkpoint."""
    source = (site / "made" / "turnout-my-model" / "turnout_my_model.py").read_text()
    assert len([line for line in source.splitlines() if line.strip()]) <= 40
    shape = Shape(64, 2, 4, 2, 96, vocab=259, max_positions=128, tied=False)
    config = {**config_of(shape, "qwen3", dtype="float32"), "head_dim": 24}
    write_random_checkpoint(tmp_path, config)
    copy_tokenizer(resolve_model("turnout-tiny"), tmp_path)
    done = run(site, "-c", GENERATES, str(tmp_path), cwd=site)
    assert done.returncode == 0, done.stderr[-3000:]
    built_in, ours = json.loads(done.stdout.splitlines()[-1])
    assert built_in == ours and len(set(ours)) > 3


GENERATES = """
import json, pathlib, sys
from turnout import LLM, SamplingParams

params = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
config, tokens = pathlib.Path(sys.argv[1], "config.json"), []
for architecture in ("Qwen3ForCausalLM", "MyModelForCausalLM"):
    config.write_text(json.dumps({**json.loads(config.read_text()), "architectures": [architecture]}))
    llm = LLM(sys.argv[1], max_model_len=64, kv_memory=2**24)
    tokens.append(list(llm.generate([[5, 9, 140, 33]], params, progress=False)[0].outputs[0].token_ids))
print(json.dumps(tokens))
"""
"""Generates greedily by the model of a folder, as either family builds it, and prints the tokens."""


@pytest.mark.parametrize(("kind", "noun"), [("eviction", "an eviction policy"), ("kv", "a KV backend")])
def test_what_was_written_is_called_by_its_kind(tmp_path: Path, kind: str, noun: str) -> None:
    done = CliRunner().invoke(cli, ["plugins", "new", "mine", "--kind", kind, "--folder", str(tmp_path)])
    assert f"turnout-mine is {noun}:" in done.output
    readme = (tmp_path / "turnout-mine" / "README.md").read_text()
    assert f"{noun[0].upper()}{noun[1:]} for Turnout, in turnout_mine.py." in readme


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    new("mine", "kv", tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    time.sleep(0.01)
    again = ["plugins", "new", "turnout-mine", "--kind", "scheduler", "--folder", str(tmp_path)]
    done = CliRunner().invoke(cli, again)
    assert done.exit_code == 2 and "exists already" in done.output
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


@pytest.mark.parametrize("name", ["My", "my_plugin", "../mine", "mine/", "1st", "my--plugin", ""])
def test_a_name_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    done = CliRunner().invoke(cli, ["plugins", "new", name, "--kind", "kv", "--folder", str(tmp_path)])
    assert done.exit_code == 2 and "is not a name" in done.output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("kind", "name"), [("scheduler", "fcfs"), ("launcher", "local"), ("kv", "paged")])
def test_a_name_that_another_package_has_is_refused(tmp_path: Path, kind: str, name: str) -> None:
    """Two plugins of a kind and name exclude each other."""
    done = CliRunner().invoke(cli, ["plugins", "new", name, "--kind", kind, "--folder", str(tmp_path)])
    assert done.exit_code == 2 and f"called '{name}' already; choose another name" in done.output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("kind", "name", "made"),
    [
        ("decoding", "annotated", "AnnotatedDecoding"),
        ("scheduler", "field", "FieldScheduler"),
        ("model", "config-reader", "ConfigReaderModel"),
        ("observer", "figures", "FiguresObserver"),
        ("logits_processor", "none", "NoneLogitsProcessor"),
        ("router", "field-router", "FieldRouter"),
    ],
)
def test_a_class_has_no_name_that_its_module_uses_already(kind: str, name: str, made: str) -> None:
    files = package_files(name, kind)
    classes = {
        node.name
        for node in ast.parse(files[f"turnout_{name.replace('-', '_')}.py"]).body
        if isinstance(node, ast.ClassDef)
    }
    assert made in classes
    assert f"class Test{made}(" in files[f"tests/test_turnout_{name.replace('-', '_')}.py"]


@pytest.mark.parametrize("kind", SKELETONS)
def test_slow_tests_are_spoken_of_where_there_are_some(kind: str) -> None:
    suite = getattr(testing, SKELETONS[kind].suite)
    has_some = any(is_slow(getattr(suite, name)) for name in dir(suite))
    assert ("pytest -m slow" in package_files("mine", kind)["README.md"]) == has_some


def test_names_may_have_dashes(tmp_path: Path) -> None:
    done = new("round-robin", "scheduler", tmp_path)
    module = tmp_path / "turnout-round-robin" / "turnout_round_robin.py"
    assert "class RoundRobin(SchedulingPolicy)" in module.read_text()
    assert f"pip install -e {tmp_path / 'turnout-round-robin'}" in done.output
