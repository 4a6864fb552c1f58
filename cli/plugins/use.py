"""How to use a plugin: the last line of ``turnout plugins show``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from turnout.core.registry.entry import PluginEntry
from turnout.core.registry.hookspecs import PROJECT
from turnout.core.registry.kinds import OBSERVER_KIND
from turnout.core.registry.options import Option
from turnout.core.registry.spec import PluginSpec

__all__ = ["use_of"]

SERVE = "turnout serve"


def use_of(entry: PluginEntry, options: Sequence[Option]) -> str:
    """Returns a command with the plugin's first option, or says why there is none to choose."""
    use = _USES.get(entry.kind)
    spec = _spec(entry.name, options)
    return use(entry, spec) if use is not None else f"{SERVE} --{entry.kind.replace('_', '-')} {spec}"


def _spec(name: str, options: Sequence[Option]) -> str:
    if not options:
        return name
    default = options[0].default
    return f"{name}:{options[0].name}={default if default not in ('', 'null') else '…'}"


def _router(entry: PluginEntry, spec: str) -> str:
    return f"turnout simulate --replicas 4 --router {spec}"


def _proposer(entry: PluginEntry, spec: str) -> str:
    decoding = str(PluginSpec("speculative", {"proposer": spec}))
    return f"{SERVE} --decoding {decoding if ',' not in decoding else repr(decoding)}"


def _model(entry: PluginEntry, spec: str) -> str:
    family = entry.resolve()
    names = " or ".join(getattr(family, "architectures", ())) or "that it builds"
    known = ", ".join(getattr(family, "checkpoints", ()))
    return (
        f"{SERVE} MODEL, where config.json names the architecture {names}{f'; such as {known}' * bool(known)}"
    )


def _quantizer(entry: PluginEntry, spec: str) -> str:
    if getattr(entry.resolve(), "reads_only", False):
        return f"{SERVE} FOLDER, where quantization_config in config.json has the quant_method {entry.name}"
    return f"{SERVE} --quantization {spec}"


def _processor(entry: PluginEntry, spec: str) -> str:
    return f"nothing to choose: it is active, for the requests that it wants{_unless(entry)}"


def _observer(entry: PluginEntry, spec: str) -> str:
    if not entry.hooked:
        return f"{SERVE} --observer {spec}"
    return f"nothing to choose: it is always called{_unless(entry)}"


def _unless(entry: PluginEntry) -> str:
    ours = entry.distribution == PROJECT
    return "" if ours else f"; --disable-plugin {entry.origin.plugin} leaves it out"


_USES: dict[str, Callable[[PluginEntry, str], str]] = {
    "quantization": _quantizer,
    "router": _router,
    "proposer": _proposer,
    "model": _model,
    "logits_processor": _processor,
    OBSERVER_KIND: _observer,
}
"""How to use the kinds that no flag of ``turnout serve`` chooses by name."""
