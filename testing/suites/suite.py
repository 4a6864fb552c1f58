"""What all suites share: which plugin they test, and how it is built."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn, TypeVar
from unittest import SkipTest

from turnout.core.registry.kinds import kind_named
from turnout.core.registry.registry import Registry
from turnout.core.registry.spec import PluginSpec
from turnout.testing.checks.fresh_process import importable, run_fresh, run_otherwise_hashed

if TYPE_CHECKING:
    from turnout.testing.suites.embedded import Embedded

__all__ = ["DoesNotApply", "Suite", "is_slow", "not_for_it", "skip", "slow"]

Plugin = TypeVar("Plugin")
Test = TypeVar("Test", bound=Callable[..., None])

HEAVY = ("torch", "transformers")
LOADED = """
print(" and ".join(name for name in {heavy!r} if name in sys.modules))
"""


class Suite(Generic[Plugin]):
    """Tests what holds for every plugin of a kind; each method called ``test_…`` checks one thing.

    For pytest, derive a class whose name starts with ``Test``, and define either `spec`, to test the
    installed plugin of that name as a server would build it, or `make`, which builds it.
    """

    kind: ClassVar[str]
    spec: ClassVar[str] = ""
    """``NAME`` or ``NAME:option=value,…``, as on the command line."""
    trials: ClassVar[int] = 25
    """Random workloads for each test that draws some."""
    light: ClassVar[bool] = False
    """Importing a plugin of this kind must not import torch."""

    def registry(self) -> Registry:
        """Where `spec` is looked up: by default, all installed plugins."""
        return _installed()

    def make(self) -> Plugin:
        """Build a new instance of the plugin under test."""
        assert self.spec, f"{type(self).__name__} has no `spec`; set one, such as 'mine', or define `make`"
        made: Any = self.registry().create(self.kind, self.spec)
        return made  # type: ignore[no-any-return]

    def embedded(self) -> Embedded:
        """The embedded model, served by the plugins of `registry`."""
        if not self.spec:
            skip("`make` builds it, but an engine looks plugins up by name; set `spec` to test it on a model")
        from turnout.testing.suites.embedded import Embedded

        return Embedded(self.registry())

    def same_elsewhere(
        self, function: Callable[[Plugin, int], object], seeds: Iterable[int], rule: str
    ) -> None:
        """Fail unless `function` of a new plugin and each seed is the same where strings have other hashes.

        A set of strings has another order there. function: from a module, so that a process can import it.
        """
        seeds = list(seeds)
        if not importable(type(self.make()).__module__):
            skip("its module cannot be imported by its name in another process")
        try:
            elsewhere = run_otherwise_hashed(function, [(self.make(), seed) for seed in seeds])
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            skip(f"it cannot be handed to another process: {error}")
        here = [function(self.make(), seed) for seed in seeds]
        assert elsewhere == str(here), (
            f"another process, with other hashes of strings, decides otherwise; {rule}, nor on the order of "
            "a set of strings"
        )

    # -------------------------------------------------------------- tests for every kind

    def test_it_is_of_its_kind(self) -> None:
        base = kind_named(self.kind).base
        made = self.make()
        assert isinstance(made, base), (
            f"the plugin built is a {type(made).__name__}; expected a subclass of {base.__name__}"
        )
        assert self.make() is not made, (
            "building the plugin twice gave the same object; each engine must get its own, without shared "
            "state"
        )

    def test_it_is_offered_under_its_name(self) -> None:
        """The registry finds it, by its entry point or another source."""
        if not self.spec:
            skip("`make` builds it, so its name is not known; set `spec` to test how it is found")
        entry = self.registry().entry(self.kind, PluginSpec.parse(self.spec).name)
        assert entry.state == "ok", f"{entry.title} cannot be used: {entry.error}"
        assert entry.docstring, f"{entry.title} has no docstring; `turnout plugins show` prints it"
        for option in self.registry().options(self.kind, entry.name):
            assert re.fullmatch(r"[a-z][a-z0-9_]*", option.name), (
                f"the option {option.name!r} cannot be given; expected small letters, digits and underscores"
            )

    def test_importing_it_imports_no_torch(self) -> None:
        """The server's own process imports it, and so does every command that lists plugins."""
        if not self.light:
            not_for_it(f"plugins of kind {self.kind} compute with tensors, and may import torch")
        module = type(self.make()).__module__
        if not importable(module):
            skip(f"{module} cannot be imported by its name in another process")
        found = _imports(module)
        assert not found, f"importing {module} imports {found}; import it inside the methods that need it"


def slow(test: Test) -> Test:
    """Mark a test that takes seconds; ``pytest -m slow`` and ``turnout plugins check --slow`` run it."""
    test.turnout_slow = True  # type: ignore[attr-defined]
    return test


def is_slow(test: object) -> bool:
    return bool(getattr(test, "turnout_slow", False))


class DoesNotApply(SkipTest):
    """Ends a test of what this plugin does not claim, or its kind does not promise."""


def skip(why: str) -> NoReturn:
    """End a test that cannot be made as things are, though the plugin should pass it."""
    raise SkipTest(why)


def not_for_it(why: str) -> NoReturn:
    """End a test that does not apply to this plugin."""
    raise DoesNotApply(why)


@cache
def _installed() -> Registry:
    return Registry.load()


@cache
def _imports(module: str) -> str:
    """Which heavy packages importing a module imports, in a fresh interpreter with the same path."""
    return run_fresh(module, LOADED.format(heavy=HEAVY))
