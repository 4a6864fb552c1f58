"""What all suites share: which plugin is under test, and how it is built."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn, TypeVar
from unittest import SkipTest

import msgspec

from turnout.core.registry.kinds import kind_named
from turnout.core.registry.registry import Registry
from turnout.core.registry.spec import PluginSpec

if TYPE_CHECKING:
    from turnout.testing.suites.embedded import Embedded

__all__ = ["Suite", "is_slow", "shown", "skip", "slow"]

Plugin = TypeVar("Plugin")
Test = TypeVar("Test", bound=Callable[..., None])

HEAVY = ("torch", "transformers")
FRESH = """
import importlib.util, sys
sys.path[:] = {path!r}
try:
    importlib.import_module({module!r})
except ModuleNotFoundError as error:
    if error.name != {module!r}:
        raise
    spec = importlib.util.spec_from_file_location({module!r}, {file!r})  # turnout_plugins.py: on no path
    sys.modules[spec.name] = loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
print(" and ".join(name for name in {heavy!r} if name in sys.modules))
"""


class Suite(Generic[Plugin]):
    """What holds for every plugin of a kind; each method called ``test_…`` checks one thing.

    For pytest, derive a class whose name starts with ``Test``, and say what is under test: either `spec`, and
    then the installed plugin of that name is built as a server would build it, or `make`.
    """

    kind: ClassVar[str]
    spec: ClassVar[str] = ""
    """``NAME`` or ``NAME:option=value,…``, as it would be chosen."""
    trials: ClassVar[int] = 25
    """Random workloads to serve in each test that draws some."""
    light: ClassVar[bool] = False
    """Importing it must not import torch: plugins of this kind live in integers."""

    def registry(self) -> Registry:
        """Where `spec` is looked up: by default all that is installed."""
        return _installed()

    def make(self) -> Plugin:
        """A new one of what is under test."""
        assert self.spec, f"{type(self).__name__} must have a `spec`, such as 'mine', or define `make`"
        made: Any = self.registry().create(self.kind, self.spec)
        return made  # type: ignore[no-any-return]

    def embedded(self) -> Embedded:
        """The embedded model, served by what `registry` has."""
        if not self.spec:
            skip("`make` builds it, and an engine looks plugins up by name; give `spec` to try it on a model")
        from turnout.testing.suites.embedded import Embedded

        return Embedded(self.registry())

    # -------------------------------------------------------------- what holds for any kind

    def test_it_is_of_its_kind(self) -> None:
        base = kind_named(self.kind).base
        made = self.make()
        assert isinstance(made, base), f"got a {type(made).__name__}, which is no {base.__name__}"
        assert self.make() is not made, "each one built must be another object: engines share no state"

    def test_it_is_offered_under_its_name(self) -> None:
        """By an entry point, or whatever else the registry reads."""
        if not self.spec:
            skip("`make` builds it, so no name is known; give `spec` to test how it is found")
        entry = self.registry().entry(self.kind, PluginSpec.parse(self.spec).name)
        assert entry.state == "ok", entry.error
        assert entry.docstring, f"{entry.title} has no docstring for `turnout plugins show`"
        for option in self.registry().options(self.kind, entry.name):
            assert re.fullmatch(r"[a-z][a-z0-9_]*", option.name), f"{option.name!r} is no name for an option"

    def test_importing_it_imports_no_torch(self) -> None:
        """It is imported by the server's own process, and whenever plugins are listed."""
        if not self.light:
            skip(f"a {self.kind} plugin may import torch where it computes")
        module = type(self.make()).__module__
        if module == "__main__" or module not in sys.modules or not _importable(module):
            skip(f"{module} cannot be imported again by its name")
        found = _imports(module)
        assert not found, f"importing {module} imports {found}: import it inside the methods that need it"


def slow(test: Test) -> Test:
    """Marks a test that takes seconds, which ``pytest -m slow`` and ``turnout plugins check --slow`` run."""
    test.turnout_slow = True  # type: ignore[attr-defined]
    return test


def is_slow(test: object) -> bool:
    return bool(getattr(test, "turnout_slow", False))


def skip(why: str) -> NoReturn:
    """This test has nothing to say about this plugin. pytest and `turnout plugins check` understand it."""
    raise SkipTest(why)


def shown(struct: msgspec.Struct) -> str:
    """Parameters, or a request, for a message: what was set of it."""
    return str(msgspec.to_builtins(struct))


@cache
def _installed() -> Registry:
    return Registry.load()


def _importable(module: str) -> bool:
    from importlib.util import find_spec

    try:
        return find_spec(module) is not None
    except ValueError:  # made by hand
        return False


@cache
def _imports(module: str) -> str:
    """Which of the heavy packages a module brings in, in a fresh interpreter that sees the same path."""
    file = getattr(sys.modules[module], "__file__", None)
    code = FRESH.format(path=sys.path, module=module, file=file, heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, f"{module} cannot be imported on its own: {done.stderr[-500:]}"
    return done.stdout.strip()
