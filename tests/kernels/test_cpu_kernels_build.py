"""Kernels are compiled once, and an engine that cannot have them says why and does without."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from turnout.core.errors import ConfigError
from turnout.kernels import build, choice, choose_kernels
from turnout.kernels.build import BuildError, built_library

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


pytestmark = pytest.mark.usefixtures("fresh_kernels")


@pytest.fixture(autouse=True)
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was compiled before is not found."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="there is no compiler")
def test_they_are_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The source that compiles fastest: tests that compute build all of them, with all `FLAGS`."""
    sources = tmp_path / "native"
    sources.mkdir()
    shutil.copy(build.SOURCES / "identity.cpp", sources)
    monkeypatch.setattr(build, "SOURCES", sources)
    library = built_library()
    assert {file.name for file in library.path.parent.iterdir()} == {"kernels.so", "kernels.sha256"}
    monkeypatch.setattr(build, "_compile", None)
    assert built_library() == library


@pytest.mark.parametrize("damaged", [b"", b"\x7fELF, of which the disk kept a part"])
def test_a_damaged_library_is_compiled_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: bytes
) -> None:
    """No start looked into one that was there: without kernels, or killed by SIGBUS, until it was deleted."""
    writes = 'for last; do :; done; [ "$1" = --version ] || echo whole > "$last"'
    monkeypatch.setenv("CXX", str(script(tmp_path / "writes", writes)))
    library = built_library().path
    library.write_bytes(damaged)
    assert built_library().path.read_text() == "whole\n"
    monkeypatch.setattr(build, "_compile", None)
    assert built_library().path == library


def test_processes_that_start_together_compile_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock belongs to whoever opened the file, so that threads stand for processes here."""
    calls = tmp_path / "calls"
    asked = 'case "$*" in *--version*|*-fsyntax-only*) exit;; esac'
    slow = script(
        tmp_path / "slow", f'{asked}; for last; do :; done; echo >> {calls}; sleep 0.3; touch "$last"'
    )
    monkeypatch.setenv("CXX", str(slow))
    with ThreadPoolExecutor(4) as pool:
        libraries = list(pool.map(lambda _: built_library(), range(4)))
    assert len({library.path for library in libraries}) == 1
    sources = len(list(build.SOURCES.glob("*.cpp")))
    assert len(calls.read_text().splitlines()) == sources + 1  # and the linker


def test_who_compiles_for_too_long_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = 'for last; do :; done; [ "$1" = --version ] || touch "$last"'
    monkeypatch.setenv("CXX", str(script(tmp_path / "quick", quick)))
    folder = built_library().path.parent
    (folder / "kernels.so").unlink()
    monkeypatch.setattr(build, "COMPILER_SECONDS", 2)
    with build._alone(folder):
        assert built_library().path.exists()


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    kernels, note = choose_kernels("auto", CPU, torch.float32)
    assert kernels is None
    assert note == (
        "CPU kernels torch, slower than compiled ones: there is no C++ compiler (no-such-compiler)"
    )
    with pytest.raises(ConfigError, match="cpu_kernels=native: there is no C\\+\\+ compiler"):
        choose_kernels("native", CPU, torch.float32)


def test_a_compiler_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = script(tmp_path / "fails", '[ "$1" = --version ] || { echo "error: no headers" >&2; exit 1; }')
    monkeypatch.setenv("CXX", str(failing))
    with pytest.raises(BuildError, match="fails failed: error: no headers"):
        built_library()
    assert choose_kernels("auto", CPU, torch.float32).kernels is None


def test_a_compiler_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", str(script(tmp_path / "hangs", "exec sleep 30")))
    monkeypatch.setattr(build, "COMPILER_SECONDS", 0.1)
    with pytest.raises(BuildError, match=r"hangs cannot be used: .*timed out"):
        built_library()


def ends(process: int) -> bool:
    """Says whether a process ends within a few seconds. One that nobody waits for is a zombie then."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


def test_what_a_compiler_that_hangs_has_started_ends_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """g++ is a driver: it was killed alone, and cc1plus went on for minutes."""
    started = tmp_path / "started"
    monkeypatch.setenv("CXX", str(script(tmp_path / "driver", f"sleep 15 & echo $! > {started}; wait")))
    monkeypatch.setattr(build, "COMPILER_SECONDS", 1)
    with pytest.raises(BuildError, match="timed out"):
        built_library()
    assert ends(int(started.read_text()))


COMPILES = """
import signal
from turnout.kernels.build import built_library
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
built_library()
"""


@contextmanager
def compiling(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Starts a process that compiles, and yields it with what its compiler has started."""
    asked = 'case "$*" in *--version*|*-fsyntax-only*) exit;; esac'
    started = tmp_path / "started"
    slow = script(tmp_path / "slow", f"{asked}; sleep 10 & echo $! > {started}; wait")
    command = [sys.executable, "-c", COMPILES]
    with subprocess.Popen(command, env=os.environ | {"CXX": str(slow)}, stderr=subprocess.DEVNULL) as process:
        try:
            while not (started.exists() and started.read_text()):
                assert process.poll() is None
                time.sleep(0.02)
            yield process, int(started.read_text())
        finally:
            process.kill()


def test_an_interrupt_ends_the_compiler(tmp_path: Path) -> None:
    with compiling(tmp_path) as (process, started):
        process.send_signal(signal.SIGINT)
        assert process.wait(8)
    assert ends(started)


def test_the_folder_of_a_killed_start_is_removed(tmp_path: Path) -> None:
    with compiling(tmp_path):
        (folder,) = (tmp_path / "cache").rglob(f"{build.SCRATCH}*")
        with build._scratch_folder(folder.parent):
            assert folder.exists()  # which another process still compiles in
    deadline = time.monotonic() + 5
    while (
        folder.exists() and time.monotonic() < deadline
    ):  # a compiler that had just been started has its lock
        with build._scratch_folder(folder.parent):
            time.sleep(0.02)
    assert not list(folder.parent.glob(f"{build.SCRATCH}*"))


def test_a_compiler_may_be_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As ``ccache g++``, which was looked for as one program of that name."""
    (tmp_path / "two words").mkdir()
    wrapper = script(tmp_path / "two words" / "cache", 'exec "$@"')
    compiler = script(tmp_path / "compiler", 'for last; do :; done; [ "$1" = --version ] || touch "$last"')
    monkeypatch.setenv("CXX", f"'{wrapper}' {compiler}")
    assert built_library().path.exists()
    monkeypatch.setenv("CXX", str(wrapper))
    assert build.find_compiler() == [str(wrapper)]
    monkeypatch.setenv("CXX", "g++ 'unclosed")
    with pytest.raises(BuildError, match=r"there is no C\+\+ compiler \(g\+\+ 'unclosed\)"):
        built_library()


def test_a_library_that_cannot_be_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a compiler for another machine would make."""
    writes = '[ "$1" = --version ] || { for last; do :; done; echo no > "$last"; }'
    monkeypatch.setenv("CXX", str(script(tmp_path / "wrong", writes)))
    kernels, note = choose_kernels("auto", CPU, torch.float32)
    assert kernels is None
    assert "kernels.so" in note


def test_a_cache_folder_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").write_text("a file")
    monkeypatch.setenv("CXX", str(script(tmp_path / "any", "true")))
    with pytest.raises(BuildError, match=r"cannot be kept in .*cache"):
        built_library()


def test_a_user_without_a_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container whose user id it does not know: the start ended with a traceback."""
    monkeypatch.setenv("CXX", str(script(tmp_path / "any", "true")))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    with pytest.raises(BuildError, match="no home folder to keep the kernels in; set XDG_CACHE_HOME"):
        built_library()


def test_what_is_not_asked_for_is_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "built_library", None)
    assert choose_kernels("torch", CPU, torch.float32) == (None, "CPU kernels torch, as asked for")
    assert choose_kernels("auto", CUDA, torch.float32, "torch") == (None, "GPU kernels torch, as asked for")
    assert "not in torch.float16" in choose_kernels("auto", CPU, torch.float16).note


def test_native_kernels_are_for_cpus() -> None:
    with pytest.raises(ConfigError, match="cpu_kernels=native are for device cpu, not cuda"):
        choose_kernels("native", CUDA, torch.float32)
