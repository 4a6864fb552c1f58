"""Listing many plugins fast, disabling some, and being strict about broken ones."""

from __future__ import annotations

import json
import logging
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from installed_packages import lay_out, run, turnout

from turnout.cli.plugins.new import package_files
from turnout.core.errors import ConfigError, PluginError
from turnout.core.registry.registry import Registry


def write(name: str, folder: Path, source: str | None = None) -> Path:
    """A package with a scheduler."""
    package = folder / f"turnout-{name}"
    for path, text in package_files(name, "scheduler").items():
        (package / path).parent.mkdir(parents=True, exist_ok=True)
        (package / path).write_text(text)
    if source is not None:
        (package / f"turnout_{name}.py").write_text(source)
    return package


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """With a scheduler called `tidal`, and a package `turnout-sunk` that cannot be imported."""
    site = tmp_path / "site"
    site.mkdir()
    lay_out(write("tidal", tmp_path), site)
    lay_out(write("sunk", tmp_path, "import no_such_module"), site)
    modules = set(sys.modules)
    monkeypatch.syspath_prepend(str(site))
    yield site
    for name in set(sys.modules) - modules:
        if name.startswith("turnout_"):
            del sys.modules[name]


def state(registry: Registry, plugin: str) -> str:
    return next(entry.state for entry in registry.entries() if entry.origin.plugin == plugin)


@pytest.mark.parametrize("name", ["sunk", "turnout-sunk"])
def test_one_that_is_disabled_is_not_imported(site: Path, name: str) -> None:
    registry = Registry.load(disabled=[name])
    assert (state(registry, "sunk"), state(registry, "tidal")) == ("disabled", "ok")
    assert state(Registry.load(), "sunk") == "broken"


def test_the_environment_disables_too(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNOUT_DISABLE_PLUGINS", "sunk, turnout-tidal")
    registry = Registry.load()
    assert (state(registry, "sunk"), state(registry, "tidal")) == ("disabled", "disabled")
    with pytest.raises(ConfigError, match=r"not loaded: turnout-tidal.*disabled by --disable-plugin"):
        registry.create("scheduler", "tidal_")
    with pytest.raises(PluginError, match="disabled by --disable-plugin or TURNOUT_DISABLE_PLUGINS"):
        registry.create("scheduler", "tidal")


def test_what_is_asked_for_is_not_warned_of(site: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert Registry.load(disabled=["sunk"]).create("scheduler", "fcfs")
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        Registry.load(disabled=["sunc"])
    assert "no plugin is called 'sunc'" in caplog.text


@pytest.mark.parametrize("name", ["builtin", "turnout"])
def test_our_own_cannot_be_disabled(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be disabled"):
        Registry.load(disabled=[name])


def test_a_broken_plugin_is_fatal_where_that_is_asked_for(site: Path) -> None:
    with pytest.raises(PluginError, match=r"turnout-sunk.*no_such_module"):
        Registry.load(strict=True)
    assert Registry.load(strict=True, disabled=["sunk"])


def test_the_command_line_says_the_same(site: Path) -> None:
    listed = json.loads(turnout(site, "plugins", "--disable-plugin", "sunk", "--json", cwd=site).stdout)
    assert [e["state"] for e in listed if e["plugin"] == "sunk"] == ["disabled"]
    refused = turnout(site, "serve", "--strict-plugins", cwd=site)
    assert refused.returncode == 2 and "no_such_module" in refused.stderr
    asked = turnout(site, "serve", "--disable-plugin", "sunk,tidal", "--scheduler", "tidal", cwd=site)
    assert asked.returncode == 2 and "disabled by --disable-plugin" in asked.stderr


@pytest.mark.slow
def test_a_policy_that_imports_torch_does_not_conform(site: Path, tmp_path: Path) -> None:
    """Listing it would cost seconds, and it belongs to the half that is integers."""
    source = package_files("heavy", "scheduler")["turnout_heavy.py"]
    lay_out(
        write("heavy", tmp_path, source.replace("from turnout import", "import torch\nfrom turnout import")),
        site,
    )
    listing = turnout(site, "plugins", cwd=site)
    assert "plugin turnout-heavy 0.1.0 (plugin 'heavy') imports torch as it is imported" in listing.stderr
    assert listing.stderr.count("torch") == 1
    done = turnout(site, "plugins", "check", "heavy", cwd=site)
    assert done.returncode == 1 and "does not conform: " in done.stdout
    assert "FAILED      importing it imports no torch: importing turnout_heavy imports torch" in done.stdout
    assert done.stdout.count("FAILED") == 1


def test_a_file_of_policies_can_be_checked(tmp_path: Path) -> None:
    """It is on no import path, and was reported as one that cannot be imported."""
    (tmp_path / "turnout_plugins.py").write_text(package_files("tidal", "scheduler")["turnout_tidal.py"])
    done = turnout(tmp_path / "none", "plugins", "--plugins-folder", ".", "check", "tidal", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ok          importing it imports no torch" in done.stdout


def test_twenty_plugins_are_listed_without_torch(tmp_path: Path) -> None:
    """Meant to take half a second at most, which a busy machine cannot be held to: see what is printed."""
    site = tmp_path / "many"
    site.mkdir()
    for letter in "abcdefghijklmnopqrst":
        lay_out(write(f"{letter}{letter}", tmp_path), site)
    code = (
        "import sys; from turnout.cli.main import cli; cli.main(['plugins'], standalone_mode=False); "
        "assert not {'torch', 'transformers', 'pytest'} & set(sys.modules), 'imports what is heavy'"
    )
    for _ in range(1):
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = run(site, "-c", code, cwd=site)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print(f"{taken:.2f} s of a processor, {time.perf_counter() - start:.2f} s")
        assert done.returncode == 0, done.stderr
        assert sum("turnout-" in line and line.endswith("ok") for line in done.stdout.splitlines()) == 20
