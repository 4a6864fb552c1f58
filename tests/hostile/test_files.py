"""Files that a person was given: configurations, traces and packages. A command refuses them in a moment."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from turnout.cli.options.config_file import build_configs
from turnout.core import limits
from turnout.core.errors import ConfigError
from turnout.core.registry import loading
from turnout.core.registry.registry import Registry
from turnout.lab.traces import reading
from turnout.lab.traces.reading import read_trace
from turnout.lab.traces.tokens import estimated_tokens

SECONDS = 5
"""Of processor time: some of these took minutes and gigabytes."""


def refusal(read: Callable[[], object]) -> str:
    began = time.process_time()
    with pytest.raises(ConfigError) as error:
        read()
    assert time.process_time() - began < SECONDS
    assert len(str(error.value)) < 2000
    return str(error.value)


# ------------------------------------------------------------------ config files


def bomb(indent: str) -> str:
    """Nine lists of nine aliases each: 9^9 values in a few hundred characters."""
    lines = [f"{indent}a: &a [x, x, x, x, x, x, x, x, x]"]
    for before, name in zip("abcdefgh", "bcdefghi", strict=True):
        lines.append(f"{indent}{name}: &{name} [{', '.join(['*' + before] * 9)}]")
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model: " + "[" * 100_000, "recursion"),
        ("scheduler:\n  name: fcfs\n" + bomb("  "), "aliases"),
        ("api-key: &a [*a]", "aliases"),
        ("scheduler: &a\n  name: fcfs\n  x: *a", "aliases"),
        ("api-key: [" + "k, " * 20_000 + "k]", "10,000 values"),
        ("model: " + "a" * 300_000, "256 KiB"),
        ("port: " + "9" * 10_000, "not YAML"),
        ("model: !!python/object/apply:os.system [echo hi]", "not YAML"),
        ("<<: [1]", "not YAML"),
        ("{a: 1}: 2", "not YAML"),
        ("model: 3\nport: [1]\nhost: {a: 1}\nmax-waiting: .nan", "model"),
        ("shutdown-timeout: .inf", "shutdown_timeout"),
        ("observer: {to: x}", "observer"),
        ("observer: [{name: {name: x}}]", "observer"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_a_config_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    assert message in refusal(lambda: build_configs(file, {}))


def test_a_config_file_of_100_mb_is_not_read(tmp_path: Path) -> None:
    """YAML takes a minute and 10 GB for that."""
    file = tmp_path / "config.yaml"
    with file.open("wb") as opened:
        opened.truncate(100_000_000)
    assert "larger than 256 KiB" in refusal(lambda: build_configs(file, {}))


def test_an_alias_is_no_attack(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("served-model-name: &name mine\nhost: *name\n")
    assert build_configs(file, {})[1].host == "mine"


# ------------------------------------------------------------------ traces

HEADER = '{"turnout_workload": 1, "name": "x", "concurrency": null}\n'
CSV = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def job(**fields: str) -> str:
    given = {"at": "0", "prompt": "1", "output": "1", **fields}
    return HEADER + "{" + ", ".join(f'"{name}": {value}' for name, value in given.items()) + "}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (job(at="NaN"), "line 2: 'at' should be a number"),
        (job(at="Infinity"), "line 2: 'at' should be a number"),
        (job(at="-1"), "line 2: 'at' should be at least 0"),
        (job(at="true"), "line 2: 'at' should be a number"),
        (job(think="-1"), "line 2: 'think' should be at least 0"),
        (job(prompt="1e999"), "line 2: 'prompt' should be a number"),
        (job(prompt="9" * 400), "line 2: 'prompt' should be a number"),
        (job(prompt="9" * 5000), "line 2: a number is too long"),
        (job(prompt="1000000000000"), "line 2: 'prompt' should be at most 16,777,216 tokens"),
        (job(block_size="1000000000000"), "line 2: 'block_size' should be at most"),
        (job(priority="NaN"), "line 2: 'priority' should be a number"),
        (job(prompt="[" * 200_000 + "]" * 200_000), "line 2: lists and objects lie too deep"),
        (job().replace("null", '"many"'), "line 1: 'concurrency'"),
        (job().replace("null", "-5"), "line 1: 'concurrency'"),
        ('{"timestamp": NaN, "input_length": 1, "output_length": 1, "hash_ids": [1]}', "'timestamp'"),
        ('{"a":' * 100_000, "line 1: lists and objects lie too deep"),
        ("[" * 100_000, "line 1: lists and objects lie too deep"),
        (CSV + '"' + "a" * 200_000 + '",1,1', "is not CSV"),
        (CSV + "nan,1,1", "line 2: 'TIMESTAMP'"),
        (CSV + "2024-01-01 00:00:00,inf,1", "line 2: 'ContextTokens'"),
        ("a" * 17_000_000, "line 1: longer than 16 MiB"),
        (HEADER + '{"at": 0, "client": "' + "a" * 17_000_000, "line 2: longer than 16 MiB"),
    ],
    ids=lambda value: str(value)[-30:],
)
def test_a_trace_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "trace.jsonl"
    file.write_text(text)
    assert message in refusal(lambda: read_trace(file, estimated_tokens))


def test_a_line_of_a_gigabyte_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl"
    with file.open("wb") as opened:
        opened.write(HEADER.encode())
        opened.truncate(2**30)  # NULs, of which the disk holds none
    assert "line 2: longer than 16 MiB" in refusal(lambda: read_trace(file, estimated_tokens))


def test_a_trace_of_too_many_jobs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = limits.Limit(most=10, unit="jobs", what="a trace", answer="refused")
    monkeypatch.setattr(reading.limits, "TRACE_JOBS", few)
    file = tmp_path / "trace.jsonl"
    line = '{"at": 0, "prompt": 1, "output": 1}\n'
    file.write_text(HEADER + line * 10)
    assert len(read_trace(file, estimated_tokens).jobs) == 10
    file.write_text(HEADER + line * 1000)
    assert "more than 10 jobs" in refusal(lambda: read_trace(file, estimated_tokens))


# ------------------------------------------------------------------ packages

POLICY = """
from turnout import hookimpl
from turnout.plugins.schedulers.fcfs import Fcfs

class Theirs(Fcfs):
    "Theirs."

@hookimpl
def register_schedulers(register):
    register("theirs", Theirs)
"""


def package(folder: Path, module: str, source: str, *, point: str = "theirs", name: str = "") -> None:
    name = name or module
    (folder / f"{module}.py").write_text(source)
    info = folder / f"{module}-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[turnout]\n{point} = {module}\n")


def listed(folder: Path) -> tuple[list[dict[str, str]], str]:
    """What `turnout plugins --json` lists, and what it says beside."""
    code = f"import sys; sys.path.insert(0, {str(folder)!r}); from turnout.cli.main import main; main()"
    command = [sys.executable, "-c", code, "plugins", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    entries: list[dict[str, str]] = json.loads(done.stdout)
    return [entry for entry in entries if entry["distribution"] != "turnout"], done.stderr


def test_packages_with_odd_names_and_modules_are_listed(tmp_path: Path) -> None:
    package(tmp_path, "odd_a", POLICY, point="\x1b[31mred", name="\x1b]0;title\x07pack")
    package(tmp_path, "odd_b", 'print(\'{"not": "json"}\')\n' + POLICY.replace('"theirs"', '"prints"'))
    package(tmp_path, "odd_c", "raise ValueError('\\x1b[2J' + 'x' * 10**6)")
    package(tmp_path, "odd_d", "class Odd(Exception):\n    def __str__(self):\n        1 / 0\nraise Odd")
    package(tmp_path, "odd_e", "import sys\nsys.exit(0)")
    package(tmp_path, "odd_f", POLICY, name="odd_a_twin")
    entries, said = listed(tmp_path)
    states = {entry["distribution"]: (entry["name"], entry["state"]) for entry in entries}
    assert states["odd_b"] == ("prints", "ok")
    assert {states[name][1] for name in ("odd_c", "odd_d", "odd_e")} == {"broken"}
    assert states["odd_a_twin"] == ("theirs", "duplicate")
    assert not any("\x1b" in str(entry) or len(str(entry)) > 3000 for entry in entries)
    assert "not" in said, "what it printed goes to standard error"


def test_a_module_that_is_long_to_import_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A module that never returns cannot be ended: the log says whom a command waits for."""
    monkeypatch.setattr(loading, "IMPORT_SECONDS", 0.05)
    (tmp_path / "turnout_plugins.py").write_text("import time\ntime.sleep(0.5)\n" + POLICY)
    with caplog.at_level(logging.WARNING):
        registry = Registry.load(config_folder=tmp_path)
    assert "theirs" in registry.names("scheduler")
    assert "turnout_plugins.py has not been imported for 0.05 s; --disable-plugin" in caplog.text
