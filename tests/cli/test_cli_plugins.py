"""``turnout plugins``: the list, its JSON and a policy's page; and the group's own manners."""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from turnout.cli.main import COMMANDS, cli

INLINE = '''
from turnout.core.registry.hookspecs import hookimpl
from turnout.core.interfaces.scheduling import SchedulingPolicy

class Ljf(SchedulingPolicy):
    """Longest job first.

    Indented like any docstring.
    """
    def __init__(self, *, horizon: int, aging: float = 1.0):
        ...
    def order(self, view):
        return view.running

@hookimpl
def register_schedulers(register):
    register("tidal", Ljf)
    register("paged", Ljf)
'''


WATCHER = '''
from turnout import LogitsProcessor, hookimpl

class Quiet(LogitsProcessor):
    """Says nothing."""
    def wants(self, params):
        return False
    def apply(self, logits, rows): ...

@hookimpl
def register_logits_processors(register):
    register("quiet", Quiet)

@hookimpl
def step_finished(step):
    """Looks on."""
'''


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


@pytest.fixture
def inline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delitem(sys.modules, "turnout_plugins", raising=False)
    (tmp_path / "turnout_plugins.py").write_text(INLINE)
    file = tmp_path / "turnout.yaml"
    file.write_text("")
    return file


def test_the_list_is_an_aligned_table() -> None:
    done = run("plugins")
    head, *lines = done.stdout.splitlines()
    assert head.split() == ["KIND", "NAME", "DISTRIBUTION", "VERSION", "API", "STATE"]
    assert ["scheduler", "fcfs", "turnout", version("turnout"), "1", "ok"] in [line.split() for line in lines]
    assert {line.index(" ok") for line in lines if line.endswith(" ok")} == {head.index("STATE") - 1}


def test_the_list_has_a_name_too() -> None:
    assert run("plugins", "list").stdout == run("plugins").stdout
    assert run("plugins", "list", "--json").stdout == run("plugins", "--json").stdout


def test_json_is_a_list_of_objects() -> None:
    listed = json.loads(run("plugins", "--json").stdout)
    names = {(entry["kind"], entry["name"]) for entry in listed if entry["distribution"] == "turnout"}
    assert names >= {
        ("scheduler", "fcfs"),
        ("kv", "contiguous"),
        ("kv", "paged"),
        ("quantization", "none"),
        ("decoding", "greedy"),
        ("decoding", "sampling"),
        ("model", "llama"),
        ("model", "qwen2"),
    }
    assert all(
        entry.keys() >= {"kind", "name", "distribution", "version", "hook_api", "state"} for entry in listed
    )


def test_a_broken_plugin_is_listed_with_its_error(inline: Path) -> None:
    (inline.parent / "turnout_plugins.py").write_text("import no_such_module")
    done = run("plugins", "--config", inline)
    assert done.exit_code == 0 and "No module named 'no_such_module'" in done.stdout
    (broken,) = [
        entry
        for entry in json.loads(run("plugins", "--json", "--config", inline).stdout)
        if entry["state"] != "ok"
    ]
    assert (broken["name"], broken["state"]) == ("turnout_plugins.py", "broken")
    assert "no_such_module" in broken["error"]


@pytest.mark.parametrize("target", ["tidal", "scheduler/tidal"])
def test_a_policys_page(inline: Path, target: str) -> None:
    done = run("plugins", "--config", inline, "show", target)
    assert done.stdout == (
        "scheduler/tidal, from turnout_plugins.py\n\n"
        "Longest job first.\n\nIndented like any docstring.\n\n"
        "Options:\n"
        "  horizon  int    must be given\n"
        "  aging    float  default 1.0\n"
        "Use: turnout serve --scheduler tidal:horizon=…\n"
    )


def test_a_folder_will_do(inline: Path) -> None:
    by_folder = run("plugins", "--plugins-folder", inline.parent, "show", "tidal")
    assert by_folder.exit_code == 0
    assert by_folder.stdout == run("plugins", "--config", inline, "show", "tidal").stdout
    assert run("plugins", "--plugins-folder", inline.parent / "absent").exit_code == 2


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    """A server started without its plugins, or said that it knew no scheduler of the name."""
    absent = tmp_path / "absent"
    served = run("serve", "--plugins-folder", absent, "--scheduler", "tidal")
    assert served.exit_code == 2
    assert f"there is no folder {absent}" in served.stderr and "tidal" not in served.stderr


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("show", "--config"),
        ("show", "--plugins-folder"),
        ("check", "--config"),
        pytest.param("check", "--plugins-folder", marks=pytest.mark.slow),  # whose trials take seconds
    ],
)
def test_the_options_stand_before_the_command_or_after_it(inline: Path, command: str, option: str) -> None:
    target = "scheduler/tidal:horizon=1" if command == "check" else "tidal"
    options = (option, inline if option == "--config" else inline.parent)
    orders = ((*options, command, target), (command, *options, target), (command, target, *options))
    before, between, after = (run("plugins", *order) for order in orders)
    assert "scheduler/tidal" in before.stdout and before.stdout == between.stdout == after.stdout


def test_plugins_disabled_before_the_command_and_after_it_add_up(
    inline: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before, after = ("--disable-plugin", "absent"), ("--disable-plugin", "turnout_plugins.py")
    done = run("plugins", *before, "show", "tidal", "--config", inline, *after)
    assert "no plugin is called 'tidal'" in done.stderr
    assert "no plugin is called 'absent'" in caplog.text


@pytest.mark.parametrize("stated", [True, False], ids=["in the file", "by a flag"])
def test_what_a_configuration_disables_is_listed_so(inline: Path, stated: bool) -> None:
    """The file's own keys were not read, and of names with a comma between none was known."""
    inline.write_text("disable-plugin: turnout_plugins.py" if stated else "")
    flags = () if stated else ("--disable-plugin", "nobody,turnout_plugins.py")
    done = run("plugins", "--json", "--config", inline, *flags)
    states = {entry["name"]: entry["state"] for entry in json.loads(done.stdout)}
    assert states["turnout_plugins.py"] == "disabled" and "tidal" not in states


def test_a_policy_without_options() -> None:
    assert "Options: none\nUse: turnout serve --scheduler fcfs\n" in run("plugins", "show", "fcfs").stdout


@pytest.mark.parametrize(
    ("target", "use"),
    [
        ("kv_eviction/lru", "turnout serve --kv-eviction lru"),
        ("quantization/int8", "turnout serve --quantization int8:lm_head=false"),
        ("quantization/fp8", "turnout serve --quantization fp8:lm_head=false"),
        (
            "quantization/awq",
            "turnout serve FOLDER, where quantization_config in config.json has the quant_method awq",
        ),
        ("length_predictor/max_tokens", "turnout serve --length-predictor max_tokens"),
        ("proposer/ngram", "turnout serve --decoding speculative:proposer=ngram:longest=4"),
        ("router/round-robin", "turnout simulate --replicas 4 --router round-robin"),
        ("logits_processor/penalties", "nothing to choose: it is active, for the requests that it wants"),
        (
            "model/llama",
            "turnout serve MODEL, where config.json names the architecture LlamaForCausalLM; such as "
            "meta-llama/Llama-3.2-1B-Instruct, HuggingFaceTB/SmolLM2-360M-Instruct, "
            "TinyLlama/TinyLlama-1.1B-Chat-v1.0",
        ),
    ],
)
def test_how_each_kind_is_put_to_use(target: str, use: str) -> None:
    done = run("plugins", "show", target)
    assert done.stdout.splitlines()[-1] == f"Use: {use}"


def test_how_plugins_are_used_that_no_flag_chooses(inline: Path) -> None:
    """They are named by what would leave them out."""
    (inline.parent / "turnout_plugins.py").write_text(WATCHER)
    for target in ("observer/turnout_plugins.py.step_finished", "logits_processor/quiet"):
        done = run("plugins", "--config", inline, "show", target)
        assert done.exit_code == 0, done.output
        assert done.stdout.splitlines()[-1].startswith("Use: nothing to choose: it is a")
        assert done.stdout.endswith("; --disable-plugin turnout_plugins.py leaves it out\n")


def test_an_observer_is_described_by_its_own_words(inline: Path) -> None:
    """Its function's, else its module's; it once was what pluggy says of hooks in general."""
    file = inline.parent / "turnout_plugins.py"
    file.write_text(f'"""Watches the engine."""\n{WATCHER}@hookimpl\ndef request_finished(request): ...\n')
    for hook, words in (("step_finished", "Looks on."), ("request_finished", "Watches the engine.")):
        done = run("plugins", "--config", inline, "show", f"turnout_plugins.py.{hook}")
        assert done.stdout.split("\n\n")[1] == words


def test_a_plugin_is_found_by_its_own_name_where_it_offers_one_thing(inline: Path) -> None:
    file = inline.parent / "turnout_plugins.py"
    file.write_text(WATCHER)
    done = run("plugins", "--config", inline, "show", "turnout_plugins.py")
    assert done.exit_code == 2
    offers = "logits_processor/quiet and observer/turnout_plugins.py.step_finished"
    assert f"offers {offers}; name one of them" in done.output
    file.write_text("from turnout import hookimpl" + WATCHER.rpartition("\n\n")[2].replace("@", "\n\n@"))
    assert run("plugins", "--config", inline, "show", "turnout_plugins.py").exit_code == 0


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("pagd", "no plugin is called 'pagd'"),
        ("pagd", "did you mean 'paged'?"),
        ("kv/pagd", "no kv is called 'pagd'; known: contiguous, none, paged"),
        ("cv/paged", "no kind of plugin is called 'cv'"),
        ("paged", "use kv/paged or scheduler/paged"),
    ],
)
def test_what_has_no_page(inline: Path, target: str, message: str) -> None:
    done = run("plugins", "--config", inline, "show", target)
    assert done.exit_code == 2 and message in done.stderr


def test_unknown_commands_and_the_version() -> None:
    done = run("serv")
    assert done.exit_code == 2
    known = ", ".join(COMMANDS)
    assert f"there is no command 'serv'; known: {known}; did you mean 'serve'?" in done.stderr
    assert run("--version").stdout == f"turnout {version('turnout')}\n"


def test_help_says_what_each_command_does() -> None:
    from turnout.cli.main import COMMANDS

    text = run("--help").stdout
    for name, lazy in COMMANDS.items():
        assert name in text and lazy.help in text
        assert lazy.load().name == name
