"""How something that plugins rely on goes: it warns for one minor version, and is gone with the next.

=========================  =====================================================================
a hook                     ``@hookspec(warn_on_impl=gone.warning())``
a hook's parameter         ``@hookspec(warn_on_impl_args={"name": gone.warning()})``
a method or an attribute   ``deprecated_members = {"name": gone}`` in the base class: whoever builds
that plugins define        a plugin that defines it is warned, and it is still called as before
what plugins are given,    ``@gone.when_used`` on the function, or on a property's; a field of a
or call                    tuple becomes such a property
=========================  =====================================================================

A method's parameters do not change: one that needs others is another method, and the first goes as any does.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

__all__ = ["Deprecation", "PluginDeprecationWarning", "deprecated_by"]

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")


class PluginDeprecationWarning(FutureWarning):
    """Something that a plugin relies on goes with the next minor version.

    Shown by default, unlike a DeprecationWarning: who has installed the plugin must know, too.
    """


@dataclass(frozen=True)
class Deprecation:
    name: str
    """As a plugin's author knows it: ``RequestView.pending``, ``the hook register_models``."""
    since: str
    """The minor version that warns, such as ``1.4``; 1.5 has it no more."""
    instead: str
    """What to do: ``use RequestView.wanted``."""

    @property
    def gone_in(self) -> str:
        major, minor = self.since.split(".")
        return f"{major}.{int(minor) + 1}"

    def warning(self, plugin: str = "") -> PluginDeprecationWarning:
        uses = f"{plugin} defines {self.name}, which" if plugin else self.name
        return PluginDeprecationWarning(
            f"{uses} is deprecated since Turnout {self.since}, and gone in {self.gone_in}: {self.instead}"
        )

    def when_used(self, function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
        """A decorator: whoever calls the function is warned, at the line that does."""

        @functools.wraps(function)
        def warning(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Returned:
            warnings.warn(self.warning(), stacklevel=2)
            return function(*args, **kwargs)

        return warning


def deprecated_by(plugin: type, base: type) -> Iterator[Deprecation]:
    """What `plugin` defines of the `deprecated_members` of `base`."""
    members: Mapping[str, Deprecation] = getattr(base, "deprecated_members", {})
    for name, deprecation in members.items():
        if any(name in vars(owner) for owner in plugin.__mro__[: plugin.__mro__.index(base)]):
            yield deprecation
