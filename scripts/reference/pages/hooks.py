"""docs/reference/plugins/README.md: every hook, from the specifications."""

from __future__ import annotations

import inspect

from turnout.core.registry import hookspecs
from turnout.scripts.reference.blocks import Blocks
from turnout.scripts.reference.tables import code, paragraph, table

HOOKS = {name: hook for name, hook in vars(hookspecs).items() if hasattr(hook, "turnout_spec")}
TOLD = {
    "register_schedulers": "schedulers",
    "register_length_predictors": "length-predictors",
    "register_kv_backends": "kv-backends",
    "register_evictions": "evictions",
    "register_quantizers": "quantizers",
    "register_decodings": "decoding",
    "register_proposers": "proposers",
    "register_poolings": "poolings",
    "register_admissions": "admissions",
    "register_routers": "routers",
    "register_launchers": "launchers",
    "register_formats": "formats",
    "register_logits_processors": "logits-processors",
    "register_models": "models",
    "register_observers": "observers",
    "step_finished": "observers",
    "request_arrived": "observers",
    "request_preempted": "observers",
    "request_finished": "observers",
    "engine_closed": "observers",
}
"""The page that tells more of a hook."""


def blocks() -> Blocks:
    return {"hooks": _hooks}


def _hooks() -> str:
    """Raises KeyError for a hook without a page."""
    rows = [
        (_called(name), paragraph(inspect.getdoc(hook) or ""), f"[{TOLD[name]}]({TOLD[name]}.md)")
        for name, hook in HOOKS.items()
    ]
    return table(("hook", "what it does", "page"), rows)


def _called(name: str) -> str:
    return code(f"{name}({', '.join(inspect.signature(HOOKS[name]).parameters)})")
