"""``turnout serve`` up to where the server takes over: flags, config file, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner, Result

from turnout.cli.main import cli
from turnout.cli.options.config_file import build_configs
from turnout.config import EngineConfig, ServerConfig
from turnout.core.errors import ConfigError, EngineError, NoRoom
from turnout.server.fleet.ab_test import ABTest


class Served:
    """Stands in for the server and keeps what it was started with."""

    def __init__(self) -> None:
        self.engine = EngineConfig()
        self.server = ServerConfig()
        self.ab: ABTest | None = None
        self.outcome: int | BaseException = 0

    def serve(self, engine: EngineConfig, server: ServerConfig, ab: ABTest | None) -> int:
        self.engine, self.server, self.ab = engine, server, ab
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Served:
    stand_in, module = Served(), ModuleType("turnout.server.serve")
    module.serve = stand_in.serve  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return stand_in


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["serve", *map(str, arguments)])


def refused(done: Result) -> str:
    """The message of a refusal: exit code 2, and never a traceback."""
    assert done.exit_code == 2 and isinstance(done.exception, SystemExit)
    return done.stderr


def config_file(folder: Path, text: str) -> Path:
    file = folder / "turnout.yaml"
    file.write_text(text)
    return file


def test_without_arguments_it_is_the_defaults(served: Served) -> None:
    assert run().exit_code == 0
    assert (served.engine, served.server) == (EngineConfig(), ServerConfig())


def test_every_field_is_a_flag_with_its_help(served: Served) -> None:
    words = " ".join(run("--help").stdout.split())
    for name in (*EngineConfig.model_fields, *ServerConfig.model_fields):
        assert f"--{name.replace('_', '-')}" in words
    assert "[default: fcfs]" in words and "[default: 32MiB]" in words


def test_flags_become_configs(served: Served) -> None:
    flags = "--kv contiguous --kv-memory 2GiB --max-num-seqs 8 --strict-plugins --port 0 --dtype float32"
    assert run("some/folder", *flags.split()).exit_code == 0
    assert served.engine == EngineConfig(
        model="some/folder",
        kv="contiguous",
        kv_memory=2 * 2**30,
        max_num_seqs=8,
        strict_plugins=True,
        dtype="float32",
    )
    assert served.server == ServerConfig(port=0)


def test_the_model_is_a_flag_too_but_not_both(served: Served) -> None:
    run("--model", "this")
    assert served.engine.model == "this"
    assert "given twice: this and --model that" in refused(run("this", "--model", "that"))


def test_flags_override_the_file(served: Served, tmp_path: Path) -> None:
    file = config_file(
        tmp_path,
        "kv-memory: 1GiB\nmax_num_seqs: 8\nport: 9000\nstrict-plugins: true\nserved-model-name: null\n"
        "kv: {name: paged, block-size: 32}\n",
    )
    assert run("--config", file, "--port", "9001", "--no-strict-plugins").exit_code == 0
    assert served.engine == EngineConfig(
        kv_memory=2**30, max_num_seqs=8, kv="paged:block_size=32", plugins_folder=str(tmp_path.resolve())
    )
    assert served.server == ServerConfig(port=9001)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kv-memori: 1GiB", "unknown key 'kv-memori'; known: model, "),
        ("kv-memori: 1GiB", "; did you mean 'kv-memory'?"),
        ("max-num-seqs: many", "max_num_seqs: "),
        ("kv: {block-size: 32}", "expected a key 'name'"),
        ("kv: {name: paged, blok-size: 32}", "kv 'paged': unknown option 'blok_size'"),
        ("port: 1\nport : [", "is not YAML"),
        ("- model", "holds no keys"),
        ("max-num-seqs: 1\nmax_num_seqs: 2", "given twice"),
        ("scheduler: sjf\nkv: paged\nscheduler: fcfs", "the key 'scheduler' is given twice"),
        ("scheduler: {mlfq: {levels: 3, levels: 4}}", "the key 'levels' is given twice"),
    ],
)
def test_what_a_file_may_not_say(served: Served, tmp_path: Path, text: str, message: str) -> None:
    file = config_file(tmp_path, text)
    said = refused(run("--config", file))
    assert message in said and (str(file) in said or "unknown option" in message)


def test_a_value_in_a_file_is_not_taken_for_a_flags(served: Served, tmp_path: Path) -> None:
    """The message named the field alone, and so it does where a flag is wrong."""
    file = config_file(tmp_path, "max-num-seqs: 8\nport: many\n")
    assert f"Error: {file}: port: " in refused(run("--config", file))
    assert "Error: max_num_seqs: " in refused(run("--config", file, "--port", "1", "--max-num-seqs", "many"))


@pytest.mark.parametrize("name", ["", " ", ",", "two\nlines", "\udcff", "x" * 257])
def test_a_name_that_no_request_can_give_is_refused(served: Served, name: str) -> None:
    """The server started; with some, no answer could be written."""
    assert "Error: served_model_name: " in refused(run("--served-model-name", name))
    assert run("--served-model-name", "my model (é)").exit_code == 0


def test_every_kind_of_plugin_may_be_a_mapping_in_a_file(served: Served, tmp_path: Path) -> None:
    """Observers, logits processors, routers and launchers had to be texts."""
    file = config_file(
        tmp_path,
        "scheduler: {name: ljf, aging: 2}\nkv: {name: paged, block-size: null}\n"
        "router: {name: least-loaded}\nlauncher: {name: local}\nobserver: {name: print, to: err}\n"
        "logits-processor: [{name: structured, jobs: 2}, 'bad:x=1']\n",
    )
    engine, server = build_configs(file, {})
    assert (engine.scheduler, engine.kv) == ("ljf:aging=2", "paged")
    assert (server.router, server.launcher) == ("least-loaded", "local")
    assert engine.observer == ("print:to=err",)
    assert engine.logits_processor == ("structured:jobs=2", "bad:x=1")
    file = config_file(tmp_path, "observer: [{to: err}]")
    assert f"Error: {file}: observer: {{'to': 'err'}} does not name a policy" in refused(
        run("--config", file)
    )


def test_every_kind_of_plugin_may_be_a_mapping_in_python() -> None:
    """`LLM(scheduler={"name": …})` was refused as no text."""
    engine = EngineConfig(
        scheduler={"name": "ljf", "aging": 2},  # type: ignore[arg-type]
        kv_eviction={"name": "lru"},  # type: ignore[arg-type]
        observer={"name": "print", "to": "err"},  # type: ignore[arg-type]
    )
    assert (engine.scheduler, engine.kv_eviction, engine.observer) == (
        "ljf:aging=2",
        "lru",
        ("print:to=err",),
    )
    assert ServerConfig(router={"name": "least-loaded"}).router == "least-loaded"  # type: ignore[arg-type]
    with pytest.raises(
        ConfigError, match=r"scheduler: \{'aging': 2\} does not name a policy; expected a key"
    ):
        EngineConfig(scheduler={"aging": 2})  # type: ignore[arg-type]


@pytest.mark.parametrize(("kind", "spec"), [("scheduler", ""), ("kv", "1\n2"), ("observer", "a b")])
def test_what_names_no_policy_is_told_with_its_option(served: Served, kind: str, spec: str) -> None:
    assert f"Error: {kind}: {spec!r} does not name a policy" in refused(run(f"--{kind}", spec))


def test_a_model_may_have_several_names(served: Served, tmp_path: Path) -> None:
    """A section of `models` could name aliases, but a single model could not."""
    file = config_file(tmp_path, "served-model-name: [polly, gpt-4o, polly]")
    for arguments in (
        ("--config", file),
        ("--served-model-name", "polly,gpt-4o"),
        ("--served-model-name", "polly", "--served-model-name", "gpt-4o"),
    ):
        assert run(*arguments).exit_code == 0
        assert (served.server.model_name, served.server.model_aliases) == ("polly", ("gpt-4o",))
    assert (ServerConfig().model_name, ServerConfig().model_aliases) == (None, ())


# ------------------------------------------------------------------ a live test


def test_without_ab_there_is_no_test(served: Served) -> None:
    assert run().exit_code == 0 and served.ab is None


def test_two_arms_are_what_is_common_and_what_one_changes(served: Served) -> None:
    done = run("--kv", "contiguous", "--ab", "long:scheduler=ljf:aging=2,kv=", "--split", "0.2")
    assert done.exit_code == 0 and served.ab is not None
    assert (served.ab.base, served.ab.name, served.ab.share) == ("base", "long", 0.2)
    assert served.ab.base_config == EngineConfig(kv="contiguous", memory_share=0.5, cpu_engines=2)
    assert served.ab.config == EngineConfig(scheduler="ljf:aging=2", memory_share=0.5, cpu_engines=2)
    assert served.ab.changes == {"scheduler": "ljf:aging=2", "kv": ""}


def test_an_arm_may_be_the_same_and_gets_half(served: Served) -> None:
    assert run("--ab", "again").exit_code == 0 and served.ab is not None
    assert (served.ab.share, served.ab.config) == (0.5, served.ab.base_config)


def test_arms_share_the_memory_that_the_server_may_take(served: Served) -> None:
    run("--memory-share", "0.8", "--ab", "small:memory-share=0.2")
    assert served.ab is not None
    shares = served.ab.base_config.memory_share, served.ab.config.memory_share
    assert shares == pytest.approx((0.6, 0.2))


def test_a_file_may_ask_for_it(served: Served, tmp_path: Path) -> None:
    file = config_file(tmp_path, "ab: 'long:scheduler=\"ljf:aging=2,by=prompt\",kv=contiguous'\nsplit: 0.1\n")
    assert run("--config", file).exit_code == 0 and served.ab is not None
    assert (served.ab.config.scheduler, served.ab.share) == ("ljf:aging=2,by=prompt", 0.1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--split 0.2", "--split is the share of the sessions that the arm of --ab gets; give --ab"),
        ("--ab long:scheduler=ljf --split 0", "split: Input should be greater than 0 (given: '0')"),
        ("--ab long:scheduler=ljf --split 1", "split: Input should be less than 1 (given: '1')"),
        ("--ab long:scheduler=ljf --split nan", "split: "),
        ("--ab a:kv=paged --ab b:kv=paged", "--ab is given 2 times, but a live test has one arm beside"),
        ("--ab base:scheduler=ljf", "arm 'base': this is the name of the server's own configuration"),
        ("--ab long:scheduler=lfj", "arm 'long': no scheduler is called 'lfj'; known: "),
        ("--ab long:schedular=ljf", "arm 'long': no option of serve is called 'schedular'; did you mean"),
        ("--ab long:port=9", "arm 'long': 'port' is an option of serve, but not of an engine, and an arm"),
        (
            "--ab long:scheduler=ljf:aging=2,router=a",
            "not of an engine, and an arm changes an engine's options",
        ),
        ("--ab long:scheduler=ljf:aging=2,router=a", "belongs to ljf, quote the whole: scheduler="),
        ("--ab long:memory-share=1", "arm 'long': memory-share=1 leaves nothing to 'base'"),
        ("--ab :scheduler=ljf", "does not name an arm; expected NAME or NAME:field=value"),
    ],
)
def test_what_is_no_live_test_is_one_line(served: Served, arguments: str, message: str) -> None:
    served.outcome = AssertionError("it went on")
    said = refused(run(*arguments.split()))
    assert message in said and said.count("\n") == 1


def test_a_missing_file_is_named(served: Served, tmp_path: Path) -> None:
    assert "absent.yaml cannot be read: " in refused(run("--config", tmp_path / "absent.yaml"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--scheduler fcfz", "; did you mean 'fcfs'?"),
        ("--kv pagd", "known: contiguous, none, paged; did you mean 'paged'?"),
        ("--quantization int3", "no quantization is called 'int3'; known: awq, bnb-fp4"),
        ("--decoding gredy", "known: beam, greedy, sampling, speculative; did you mean 'greedy'?"),
        ("--scheduler fcfs:aging=1", "scheduler 'fcfs': unknown option 'aging'; it takes no options"),
        ("--kv paged:blok_size=1", "did you mean 'block_size'?"),
        ("--kv paged:block_size=many", "block_size: "),
        ("--kv contiguous:dtype=int4", "dtype: Input should be 'auto', 'bfloat16', 'int8' or 'fp8'"),
        ("--kv-cache-dtype int4", "dtype: Input should be 'auto', 'bfloat16', 'int8' or 'fp8'"),
        ("--kv paged:dtype=int8 --kv-cache-dtype fp8", "dtype given twice: as an option and by a flag"),
        ("--kv-eviction lruu", "; did you mean 'lru'?"),
        ("--swap-memory much", "expected a number with a unit"),
        ("--preemption never", "'recompute'"),
        ("--kv contiguous --block-size 16", "kv 'contiguous': unknown option 'block_size'"),
        ("--scheduler fcfs:", "expected NAME or NAME:option=value"),
        ("--schedulr fcfs", "--scheduler"),
        ("--port 70000", "port: "),
        ("--kv-memory much", "expected a number with a unit"),
        ("--dtype int1", "'bfloat16'"),
    ],
)
def test_mistakes_are_found_before_anything_is_loaded(served: Served, arguments: str, message: str) -> None:
    served.outcome = AssertionError("it went on")
    assert message in refused(run(*arguments.split()))


@pytest.mark.parametrize(
    ("outcome", "code", "message"),
    [
        (3, 3, ""),
        (EngineError("no memory left;\nask for less"), 1, "Error: no memory left;\nask for less\n"),
        (ConfigError("device 'gpu' is unknown"), 2, "Error: device 'gpu' is unknown\n"),
        (NoRoom("the weights take 9 GiB"), 1, "Error: the weights take 9 GiB\n"),
        (KeyboardInterrupt(), 130, "\n"),
    ],
)
def test_how_it_ends(served: Served, outcome: int | BaseException, code: int, message: str) -> None:
    served.outcome = outcome
    done = run()
    assert (done.exit_code, done.stderr) == (code, message)


def test_a_policy_beside_the_config_file_is_known(served: Served, tmp_path: Path) -> None:
    (tmp_path / "turnout_plugins.py").write_text(
        "from turnout.core.registry.hookspecs import hookimpl\n"
        "@hookimpl\n"
        "def register_schedulers(register):\n"
        "    register('mine', 'turnout.plugins.schedulers.fcfs:Fcfs')\n"
    )
    file = config_file(tmp_path, "scheduler: mine")
    assert run("--config", file).exit_code == 0
    assert "no scheduler is called 'mine'" in refused(run("--scheduler", "mine"))


def test_a_mistake_costs_no_import_of_torch() -> None:
    code = (
        "import sys\n"
        "from turnout.cli.main import cli\n"
        "try: cli.main(['serve', '--decoding', 'gredy'])\n"
        "except SystemExit as end: print(end.code, 'torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", "False"]
    assert "Traceback" not in done.stderr and "did you mean 'greedy'?" in done.stderr


def test_a_mistake_that_only_the_engine_can_find_ends_the_same_way() -> None:
    """What does not go together is known when all of it is there: it ended with 1, as what fails does."""
    code = "from turnout.cli.main import main; main()"
    flags = ["serve", "--port", "0", "--kv", "contiguous", "--kv-eviction", "lru"]
    done = subprocess.run([sys.executable, "-c", code, *flags], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("Error: kv_eviction='lru' has nothing to choose from: ")
    assert done.stderr.count("\n") == 1 and not done.stdout
