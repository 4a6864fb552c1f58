"""Plugins come in by entry points, each guarded: a broken one is named and harms no other."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from turnout.core.engine.observers import Observers
from turnout.core.errors import ConfigError, ModelError, PluginError, UnknownPlugin
from turnout.core.interfaces.scheduling import SchedulingPolicy
from turnout.core.registry import hookspecs
from turnout.core.registry.hookspecs import hookimpl
from turnout.core.registry.registry import Registry

POLICY = """
from turnout.core.registry.hookspecs import hookimpl
from turnout.core.interfaces.scheduling import SchedulingPolicy

class Ljf(SchedulingPolicy):
    '''Longest job first.

    More about it.
    '''
    def __init__(self, aging: float = 1.0):
        self.aging = aging
        if aging == 13:
            raise ValueError("thirteen is refused")
    def order(self, view):
        return view.running + view.waiting
"""

HOOK = """
@hookimpl
def register_schedulers(register):
    register("tidal", Ljf)
"""

Install = Callable[..., str]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Lay a distribution out as pip would: a module, and metadata with an entry point."""
    modules = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))

    def build(distribution: str, source: str, version: str = "1.0") -> str:
        module = distribution.replace("-", "_")
        (tmp_path / f"{module}.py").write_text(source)
        info = tmp_path / f"{module}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(f"[turnout]\n{module}_plugin = {module}\n")
        return module

    yield build
    for name in set(sys.modules) - modules:
        if not name.startswith("turnout."):
            del sys.modules[name]


def test_our_own_come_by_the_same_entry_point() -> None:
    entries = [entry for entry in Registry.load().entries() if entry.distribution == "turnout"]
    assert {entry.kind for entry in entries} == {
        "scheduler",
        "length_predictor",
        "admission",
        "kv",
        "kv_eviction",
        "quantization",
        "decoding",
        "pooling",
        "router",
        "launcher",
        "logits_processor",
        "model",
        "format",
        "proposer",
    }
    assert all(entry.state == "ok" and entry.version for entry in entries)


def test_an_installed_plugin_is_listed_built_and_described(install: Install) -> None:
    install("turnout-tidal", POLICY + HOOK, "2.3")
    registry = Registry.load()
    (entry,) = [entry for entry in registry.entries() if entry.name == "tidal"]
    assert (entry.kind, entry.distribution, entry.version, entry.state) == (
        "scheduler",
        "turnout-tidal",
        "2.3",
        "ok",
    )
    assert entry.summary == "Longest job first."
    assert {"fcfs", "tidal"} <= set(registry.names("scheduler"))
    assert vars(registry.create("scheduler", "tidal:aging=2.5"))["aging"] == 2.5
    assert vars(registry.create("scheduler", "tidal", aging=3))["aging"] == 3.0
    assert vars(registry.create("scheduler", "tidal", aging=None))["aging"] == 1.0


def test_a_lazy_factory_is_imported_only_when_asked_for(install: Install) -> None:
    install("lazy-policy", POLICY)
    source = "from turnout.core.registry.hookspecs import hookimpl\n" + HOOK.replace(
        "Ljf", "'lazy_policy:Ljf'"
    )
    install("lazy-plugin", source)
    registry = Registry.load()
    assert "tidal" in registry.names("scheduler")
    assert [option.name for option in registry.options("scheduler", "tidal")] == ["aging"]


@pytest.mark.parametrize(
    ("spec", "given", "message"),
    [
        ("tidal:agin=1", {}, "scheduler 'tidal': unknown option 'agin'; known: aging; did you mean 'aging'"),
        ("tidal:aging=soon", {}, "scheduler 'tidal': aging: .*'soon'"),
        ("tidal", {"block_size": 16}, "scheduler 'tidal': unknown option 'block_size'"),
        ("tidal:aging=1", {"aging": 2}, "scheduler 'tidal': aging given twice"),
        ("tidal:aging=13", {}, "'tidal' of good 1.0.*ValueError: thirteen is refused .*good.py, line"),
    ],
)
def test_bad_options_name_the_policy(
    install: Install, spec: str, given: dict[str, object], message: str
) -> None:
    install("good", POLICY + HOOK)
    with pytest.raises(ConfigError, match=message):
        Registry.load().create("scheduler", spec, **given)


def test_unknown_names_list_the_known_and_the_nearest() -> None:
    with pytest.raises(UnknownPlugin, match=r"'fcfz'; known: .*fcfs.*; did you mean 'fcfs'"):
        Registry.load().create("scheduler", "fcfz")
    with pytest.raises(UnknownPlugin, match=r"no observer is called 'log'; known: none$"):
        Registry.load().create("observer", "log")  # the package has none of its own
    with pytest.raises(ConfigError, match=r"'schedule'; known: scheduler, .*; did you mean 'scheduler'"):
        Registry.load().names("schedule")
    with pytest.raises(ConfigError, match=r"'schedule'; known: scheduler, .*; did you mean 'scheduler'"):
        Registry.load().entry("schedule", "fcfs")


@pytest.mark.parametrize("wanted", ["3", 2.5, None, True])
def test_a_hook_api_that_is_no_integer_is_refused(monkeypatch: pytest.MonkeyPatch, wanted: object) -> None:
    monkeypatch.setattr(hookspecs, "HOOK_API_VERSION", 3)
    plugin = SimpleNamespace(register_schedulers=_register_good, turnout_hook_api=wanted)
    with pytest.raises(PluginError, match=f"its turnout_hook_api is {wanted!r}; expected an integer, as 3"):
        Registry.load(extra=[plugin]).create("scheduler", "SimpleNamespace")


@pytest.mark.parametrize("wanted", [1, 2, 4])
def test_a_plugin_written_for_another_hook_api_is_refused(
    monkeypatch: pytest.MonkeyPatch, wanted: object
) -> None:
    monkeypatch.setattr(hookspecs, "HOOK_API_VERSION", 3)
    plugin = SimpleNamespace(register_schedulers=_register_good, turnout_hook_api=wanted)
    with pytest.raises(PluginError, match=f"written for hook API {wanted} .* this Turnout has 3; install"):
        Registry.load(extra=[plugin]).create("scheduler", "SimpleNamespace")


def test_a_plugin_may_state_the_hook_api(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hookspecs, "HOOK_API_VERSION", 3)
    for stated, listed in (({"turnout_hook_api": 3}, 3), ({}, None)):
        registry = Registry.load(extra=[SimpleNamespace(register_schedulers=_register_good, **stated)])
        assert registry.entry("scheduler", "good").hook_api == listed


@hookimpl(specname="register_schedulers")
def _register_good(register: Callable[..., None]) -> None:
    register("good", "turnout.plugins.schedulers.fcfs:Fcfs")


BROKEN = {
    "import error": ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
    "syntax error": ("def broken(:", "SyntaxError"),
    "exits": ("import sys; sys.exit(3)", "SystemExit: 3"),
    "misspelt hook": (POLICY + HOOK.replace("register_schedulers", "register_scheduler"),
                      "no hook 'register_scheduler'; known: .*; did you mean 'register_schedulers'"),
    "no hook": (POLICY + HOOK.replace("@hookimpl", ""), "implements no hook.*@turnout.hookimpl"),
    "wrong parameter": (POLICY + HOOK.replace("(register)", "(registry)"),
                        "its register_schedulers takes 'registry'; a hook of that name is given: register"),
    "other api": (POLICY + HOOK + "turnout_hook_api = 99", "hook API 99.*has 1"),
    "other api, by constant": (POLICY + HOOK + "HOOK_API_VERSION = 99", "hook API 99.*has 1"),
    "bad name": (POLICY + HOOK.replace("tidal", "l j f"), "'l j f' is not a name"),
    "bad factory": (POLICY + HOOK.replace('"tidal", Ljf', '"tidal", "nowhere"'), "'nowhere'"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_plugin_is_an_error_only_for_who_names_it(
    install: Install, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    source, message = BROKEN[kind]
    install("bad-plugin", source)
    install("good", POLICY.replace("Ljf", "Good") + HOOK.replace("Ljf", "Good").replace("tidal", "good"))
    registry = Registry.load()
    (entry,) = [entry for entry in registry.entries() if entry.state != "ok"]
    assert (entry.distribution, entry.version, entry.state) == ("bad-plugin", "1.0", "broken")

    with pytest.raises(PluginError, match=f"bad-plugin 1.0(?s:.*){message}") as caught:
        registry.create("scheduler", "bad-plugin")
    assert caught.value.__cause__ is not None
    with pytest.raises(UnknownPlugin, match=f"known: .*good.*\nnot loaded: bad-plugin 1.0(?s:.*){message}"):
        registry.create("scheduler", "what")

    with caplog.at_level(logging.WARNING):
        assert registry.create("scheduler", "good")
        assert registry.create("scheduler", "fcfs")
    assert len(caplog.records) == 1 and "bad-plugin" in caplog.text


def test_a_hook_that_fails_half_way_breaks_the_names_it_registered(install: Install) -> None:
    install("half", POLICY + HOOK + "    raise RuntimeError('out of luck')")
    registry = Registry.load()
    assert "tidal" not in registry.names("scheduler")
    with pytest.raises(PluginError, match=r"'tidal' of half 1.0.*RuntimeError: out of luck .*half.py, line"):
        registry.create("scheduler", "tidal")


@pytest.mark.parametrize("name", ["tidal", "fcfs"])
def test_a_name_offered_twice_is_an_error_naming_both(install: Install, name: str) -> None:
    source = POLICY + HOOK.replace("tidal", name)
    install("first-dist", source)
    install("second-dist", source)
    registry = Registry.load()
    with pytest.raises(PluginError, match=r"first-dist 1.0.*and by.*second-dist 1.0") as caught:
        registry.create("scheduler", name)
    assert str(caught.value).endswith("--disable-plugin first-dist or --disable-plugin second-dist")
    states = {entry.state for entry in registry.entries() if entry.name == name}
    assert states == {"duplicate"}
    assert name not in registry.names("scheduler")


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("dict", "'dict', which does not derive from SchedulingPolicy"),
        ("lambda: 3", "returned an object of 'int', which does not derive from SchedulingPolicy"),
        ("'wrong_base:Missing'", "AttributeError: .*Missing"),
        ("'wrong_base.missing:Ljf'", "No module named 'wrong_base.missing'"),
        ("'wrong_base:POLICY'", "cannot be called"),
        ("lambda: exit(3)", "failed to start: SystemExit: 3"),
    ],
)
def test_a_factory_that_gives_something_else_is_named(install: Install, factory: str, message: str) -> None:
    install("wrong-base", "POLICY = 1\n" + POLICY + HOOK.replace('"tidal", Ljf', f'"tidal", {factory}'))
    with pytest.raises(PluginError, match=f"scheduler 'tidal' of wrong-base 1.0.*{message}"):
        Registry.load().create("scheduler", "tidal")


def test_a_signature_that_cannot_be_read_is_named(install: Install) -> None:
    install("odd", "from __future__ import annotations\n" + POLICY.replace("float", "Unheard") + HOOK)
    with pytest.raises(PluginError, match=r"'tidal' of odd 1.0.*cannot be read: NameError.*Unheard"):
        Registry.load().check("scheduler", "tidal")


def test_a_file_beside_the_config_is_a_plugin(install: Install, tmp_path: Path) -> None:
    folder = tmp_path / "deployment"
    folder.mkdir()
    (folder / "turnout_plugins.py").write_text(POLICY + HOOK.replace("Ljf", '"turnout_plugins:Ljf"'))
    registry = Registry.load(config_folder=folder)
    assert registry.create("scheduler", "tidal")
    assert registry.entry("scheduler", "tidal").distribution == "turnout_plugins.py"
    assert "tidal" not in Registry.load().names("scheduler")


def test_a_broken_file_beside_the_config_is_named(install: Install, tmp_path: Path) -> None:
    (tmp_path / "turnout_plugins.py").write_text("1 / 0")
    with pytest.raises(UnknownPlugin, match=r"not loaded: turnout_plugins.py: ZeroDivisionError: .*, line 1"):
        Registry.load(config_folder=tmp_path).create("scheduler", "tidal")
    assert "turnout_plugins" not in sys.modules


def test_a_misspelt_file_is_told_with_its_line(install: Install, tmp_path: Path) -> None:
    """The line that was named was the one that loads plugins."""
    (tmp_path / "turnout_plugins.py").write_text("import math\n\ndef broken(:\n")
    with pytest.raises(UnknownPlugin, match=r"SyntaxError: .*turnout_plugins.py, line 3\)"):
        Registry.load(config_folder=tmp_path).create("scheduler", "tidal")


class Direct(SchedulingPolicy):
    def order(self, view: object) -> tuple[()]:  # type: ignore[override]
        return ()


@hookimpl
def _register_schedulers(register: Callable[..., None]) -> None:
    register("direct", Direct)


def test_an_object_can_be_handed_in() -> None:
    plugin = SimpleNamespace(register_schedulers=_register_schedulers)
    registry = Registry.load(extra=[plugin, plugin])
    assert isinstance(registry.create("scheduler", "direct"), Direct)


def test_metadata_without_a_name_harms_no_plugin(install: Install, tmp_path: Path) -> None:
    install("nameless", POLICY + HOOK)
    (tmp_path / "nameless-1.0.dist-info" / "METADATA").unlink()
    assert Registry.load().create("scheduler", "tidal")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("no_such_module:Name", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("json:Name", "AttributeError: module 'json' has no attribute 'Name'"),
        ("json:decoder", "TypeError: 'json:decoder' is <module 'json.decoder' .*>, which cannot be called"),
    ],
)
def test_a_lazy_factory_that_is_not_there_is_no_fault_of_who_looked_for_it(path: str, message: str) -> None:
    """Messages named the line of Python's own importlib."""

    @hookimpl
    def register_schedulers(register: Callable[..., None]) -> None:
        register("lazy", path)

    registry = Registry.load(extra=[SimpleNamespace(register_schedulers=register_schedulers)])
    with pytest.raises(PluginError, match=f"cannot be loaded: {message}$"):
        registry.create("scheduler", "lazy")


def test_what_is_disabled_is_not_even_imported(
    install: Install, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """By the name of the plugin or of its package, in the configuration or in the environment."""
    module = install("bad-plugin", "raise RuntimeError")
    for name in ("bad-plugin", "bad_plugin_plugin"):
        (entry,) = [e for e in Registry.load(disabled=[name]).entries() if e.state != "ok"]
        assert (entry.state, entry.distribution) == ("disabled", "bad-plugin")
    monkeypatch.setenv("TURNOUT_DISABLE_PLUGINS", " bad-plugin, nobody ")
    registry = Registry.load(strict=True)
    assert module not in sys.modules
    assert [r.message for r in caplog.records] == [
        "no plugin is called 'nobody', so none is disabled by that name"
    ]
    with pytest.raises(PluginError, match="disabled by --disable-plugin or TURNOUT_DISABLE_PLUGINS"):
        registry.create("scheduler", "bad_plugin_plugin")


def test_ours_cannot_be_disabled() -> None:
    with pytest.raises(ConfigError, match="'builtin' has Turnout's own policies, which cannot be disabled"):
        Registry.load(disabled=["turnout"])


def test_under_strict_plugins_a_broken_one_is_fatal_even_if_unused(install: Install) -> None:
    install("bad-plugin", "1 / 0")
    with pytest.raises(PluginError, match=r"bad-plugin 1.0(?s:.*)ZeroDivisionError"):
        Registry.load(strict=True)


def test_the_hooks_of_a_broken_plugin_do_not_watch(install: Install) -> None:
    watching = "@hookimpl\ndef step_finished(step): ...\n"
    install("sound", f"from turnout.core.registry.hookspecs import hookimpl\n{watching}")
    install("half", POLICY + watching + HOOK + "    raise RuntimeError('out of luck')")
    (observer,) = Observers(**Registry.load().observers()).all()
    assert "sound" in observer.name


FAMILY = """
from turnout.core.registry.hookspecs import hookimpl
from turnout.core.interfaces.models import ModelFamily

class Toy(ModelFamily):
    architectures = ("ToyForCausalLM",)
    def spec(self, config): ...
    def build(self, spec): ...

@hookimpl
def register_models(register):
    register("NAME", Toy)
"""


def test_a_family_is_found_by_architecture(install: Install) -> None:
    install("toy-family", FAMILY.replace("NAME", "toy"))
    registry = Registry.load()
    assert type(registry.family("ToyForCausalLM")).__name__ == "Toy"
    with pytest.raises(ModelError, match=r"'ToyForCausal'; supported: .*; did you mean 'ToyForCausalLM'"):
        registry.family("ToyForCausal")


def test_an_architecture_of_two_families_names_both(install: Install) -> None:
    install("toy-one", FAMILY.replace("NAME", "toy1"))
    install("toy-two", FAMILY.replace("NAME", "toy2"))
    with pytest.raises(PluginError, match=r"'toy1' of toy-one 1.0.*and.*'toy2' of toy-two 1.0"):
        Registry.load().family("ToyForCausalLM")


def test_a_family_that_cannot_be_imported_harms_no_other(
    install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    install("toy-one", FAMILY.replace('"NAME", Toy', '"toy1", "no_such_module:Toy"'))
    install("toy-two", FAMILY.replace("NAME", "toy2"))
    assert type(Registry.load().family("ToyForCausalLM")).__name__ == "Toy"
    (record,) = caplog.records
    assert record.message.startswith("model 'toy1' of toy-one 1.0 (plugin 'toy_one_plugin') cannot be loaded")
