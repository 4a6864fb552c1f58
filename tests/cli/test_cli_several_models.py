"""``turnout serve NAME=MODEL …`` and `models` in a config file, up to where the server takes over."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner, Result

from turnout.cli.main import cli
from turnout.config import EngineConfig, ModelConfig, ServerConfig


class Served:
    """Stands in for the server and keeps the models that it was started with."""

    def __init__(self) -> None:
        self.models: dict[str, ModelConfig] = {}
        self.engine = EngineConfig()

    def serve(
        self, engine: EngineConfig, server: ServerConfig, ab: object, models: list[ModelConfig] | None = None
    ) -> int:
        self.engine, self.models = engine, {model.name: model for model in models or ()}
        return 0


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Served:
    stand_in, module = Served(), ModuleType("turnout.server.serve")
    module.serve = stand_in.serve  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return stand_in


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["serve", *map(str, arguments)])


def refused(*arguments: str | Path) -> str:
    done = run(*arguments)
    assert done.exit_code == 2 and isinstance(done.exception, SystemExit), done.output
    return " ".join(done.stderr.split())


def config_file(folder: Path, text: str) -> Path:
    file = folder / "turnout.yaml"
    file.write_text(text)
    return file


def test_arguments_name_models_and_flags_are_common(served: Served) -> None:
    done = run("chat=turnout-tiny", "code=./folder", "--max-num-seqs", "4", "--replicas", "2")
    assert done.exit_code == 0, done.output
    assert {name: model.engine.model for name, model in served.models.items()} == {
        "chat": "turnout-tiny",
        "code": "./folder",
    }
    for model in served.models.values():
        assert (model.engine.max_num_seqs, model.server.replicas) == (4, 2)
        assert (model.engine.memory_share, model.engine.cpu_engines) == (0.5, 4)


def test_one_model_may_have_a_name_and_a_folder_an_equals_sign(served: Served, tmp_path: Path) -> None:
    assert run("chat=turnout-tiny").exit_code == 0
    assert list(served.models) == ["chat"]
    folder = tmp_path / "run=3"
    folder.mkdir()
    assert run(folder).exit_code == 0
    assert not served.models and served.engine.model == str(folder)


def test_a_section_overrides_the_flags(served: Served, tmp_path: Path) -> None:
    file = config_file(
        tmp_path,
        "max-num-seqs: 64\nmodels:\n  chat:\n    model: turnout-tiny\n    max-num-seqs: 8\n    replicas: 2\n"
        "    kv: {name: paged, block-size: 32}\n    memory-share: 0.7\n    served-model-name: [gpt, gpt-4]\n"
        "  code: turnout-tiny-draft\n",
    )
    assert run("--config", file, "--max-num-seqs", "16").exit_code == 0
    chat, code = served.models["chat"], served.models["code"]
    assert (chat.engine.max_num_seqs, chat.engine.kv) == (8, "paged:block_size=32")
    assert (chat.aliases, chat.server.replicas, chat.engine.memory_share) == (("gpt", "gpt-4"), 2, 0.7)
    assert (code.engine.model, code.engine.max_num_seqs) == ("turnout-tiny-draft", 16)
    assert code.engine.memory_share == pytest.approx(0.3)
    assert code.engine.cpu_engines == 3


def test_a_utilization_in_a_section_is_its_share(served: Served, tmp_path: Path) -> None:
    """As in servers beside each other, whose shares are of the whole card."""
    file = config_file(
        tmp_path, "models:\n  chat: {model: a, gpu-memory-utilization: 0.6}\n  code: {model: b}\n"
    )
    assert run("--config", file).exit_code == 0
    shares = [
        (model.engine.memory_share, model.engine.gpu_memory_utilization) for model in served.models.values()
    ]
    assert shares == [(0.6, 1.0), (0.4, 0.9)]


def test_models_on_demand_have_settings_of_their_own(served: Served, tmp_path: Path) -> None:
    """As many as are loaded at once share the memory and the cores."""
    file = config_file(
        tmp_path,
        "lazy: true\nunload-after: 60\nmodels:\n  chat: {model: a, pin: true, lazy: false}\n"
        "  code: {model: b, unload-after: 5}\n  draw: c\n  sing: {model: d, memory-share: 0.4}\n",
    )
    assert run("--config", file, "--max-loaded-models", "2").exit_code == 0
    models = served.models
    assert [model.server.lazy for model in models.values()] == [False, True, True, True]
    assert [model.pin for model in models.values()] == [True, False, False, False]
    assert [model.server.unload_after for model in models.values()] == [60, 5, 60, 60]
    assert [model.engine.memory_share for model in models.values()] == [0.5, 0.5, 0.5, 0.4]
    assert all(model.engine.cpu_engines == 2 for model in models.values())


def test_models_have_shares_of_the_cores(served: Served, tmp_path: Path) -> None:
    """Those without one divide what the others leave, and where nothing is left, all cores equally."""
    text = "models:\n  chat: {model: a, cpu-share: 0.5}\n  code: {model: b}\n  embed: {model: c}\n"
    assert run("--config", config_file(tmp_path, text)).exit_code == 0
    assert [model.engine.cpu_share for model in served.models.values()] == [0.5, 0.25, 0.25]
    assert {model.engine.cpu_engines for model in served.models.values()} == {1}
    assert run("--config", config_file(tmp_path, text.replace("0.5", "1"))).exit_code == 0
    shares = [(model.engine.cpu_share, model.engine.cpu_engines) for model in served.models.values()]
    assert shares == [(1.0, 1), (None, 3), (None, 3)]


def test_shares_may_exceed_the_whole_where_one_makes_room_for_another(served: Served, tmp_path: Path) -> None:
    text = "models:\n  chat: {model: a, memory-share: 0.7}\n  code: {model: b, memory-share: 0.6}\n"
    file = config_file(tmp_path, text)
    assert "their shares of the memory are chat 0.7 + code 0.6 = 1.3, of 1" in refused("--config", file)
    assert run("--config", file, "--lazy").exit_code == 0
    assert [model.engine.memory_share for model in served.models.values()] == [0.7, 0.6]
    said = refused("--config", config_file(tmp_path, f"{text}  small: {{model: c}}\n"), "--lazy")
    assert "0.7 + code 0.6 = 1.3, of 1, which leaves nothing for the other 1 (small); " in said
    assert said.endswith("; or give small a memory-share, too"), "one without a share has what is left"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["chat=a", "chat=b"], "two models are called 'chat': a and b"),
        (["ch@t=a", "code=b"], "'ch@t' cannot be a model's name: expected at most 64 letters"),
        (["=a"], "'' cannot be a model's name"),
        (["chat=", "code=b"], "'chat=': expected NAME=MODEL"),
        (["a", "b"], "'a': expected NAME=MODEL, since several models"),
        (["chat=a", "code=b", "--ab", "x"], "--ab is for one model, and chat, code are served"),
        (["chat=a", "code=b", "--served-model-name", "x"], "--served-model-name is for one model"),
        (["chat=a", "code=b", "--model", "x"], "the model is given as x and as chat, code"),
        (["chat=a", "code=b", "--scheduler", "fcsf"], "did you mean 'fcfs'?"),
    ],
)
def test_what_arguments_may_not_say(served: Served, arguments: list[str], message: str) -> None:
    assert message in refused(*arguments)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{chat: a, code: {modl: b}}", "models: code: unknown key 'modl'"),
        (
            "{chat: a, code: {model: b, port: 3}}",
            "models: code: 'port' is an option of the server, but not of a model; give it beside 'models'",
        ),
        ("{chat: a, code: {max-num-seqs: 3}}", "code: no model is given"),
        ("{chat: a, code: {model: b, max-num-seqs: many}}", "models: code: max_num_seqs: "),
        (
            "{chat: a, code: {model: b, served-model-name: chat}}",
            "two models are called 'chat': chat and code",
        ),
        (
            '{chat: a, code: {model: b, served-model-name: ["a\\nb"]}}',
            "'a\\nb' cannot be a model's name: expected 1 to 256 printable characters",
        ),
        ("{chat: a, code: 3}", "models: code: expected a model, or options"),
        ("[a, b]", "models: expected names, each with a model"),
        (
            "{chat: {model: a, memory-share: 0.7}, code: {model: b, memory-share: 0.6}}",
            "0.7 + code 0.6 = 1.3",
        ),
        ("{chat: {model: a, memory-share: 1}, code: b}", "leaves nothing for the other 1"),
        (
            "{chat: {model: a, memory-share: 1}, code: b}",
            "leaves nothing for the other 1 (code); lower a memory-",
        ),
    ],
)
def test_what_sections_may_not_say(served: Served, tmp_path: Path, text: str, message: str) -> None:
    assert message in refused("--config", config_file(tmp_path, f"models: {text}\n"))


def test_a_name_on_the_command_line_and_in_the_file(served: Served, tmp_path: Path) -> None:
    file = config_file(tmp_path, "models: {chat: a}\n")
    assert "two models are called 'chat': on the command line, and in" in refused("chat=b", "--config", file)


def test_other_commands_want_one_model(tmp_path: Path) -> None:
    file = config_file(tmp_path, "models: {chat: a}\n")
    done = CliRunner().invoke(cli, ["profile", "--config", str(file), "--out", str(tmp_path / "out")])
    assert "models is for `turnout serve`; choose one model with --model" in done.output
