"""docs/reference/plugins/types.md: every field that plugins are given, from the code's own docstrings."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from importlib import import_module

from turnout.scripts.reference.blocks import ROOT, Blocks
from turnout.scripts.reference.tables import code, paragraph, table
from turnout.server.http.openapi.docstrings import class_body, documented

RECORD = ROOT / "tests" / "core" / "hook_api.txt"
"""What plugins may rely on: only these fields are listed."""

SECTIONS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "Scheduling policies, length predictors": {
        "turnout.core.types.views": ("View", "KVView"),
        "turnout.core.types.request": ("RequestView",),
    },
    "Admission policies": {"turnout.core.interfaces.admission": ("Load", "Refusal")},
    "Eviction policies": {"turnout.core.interfaces.eviction": ("CachedBlock",)},
    "Observers": {
        "turnout.core.interfaces.observers": (
            "StepRecord",
            "ArrivalRecord",
            "PreemptionRecord",
            "RequestRecord",
            "EngineRecord",
        ),
        "turnout.core.types.request": ("Timing",),
    },
    "Logits processors, decoding strategies, proposers": {
        "turnout.core.interfaces.logits_processor": ("Row", "ServedModel"),
        "turnout.core.types.request": ("Sequence", "Request", "RequestSpec"),
        "turnout.core.types.sampling_params": ("SamplingParams",),
        "turnout.core.interfaces.proposer": ("DraftRequest", "Proposal"),
        "turnout.core.types.decision": ("Continuation", "Chosen", "Choice", "Retry"),
        "turnout.core.types.plan": ("Logits",),
        "turnout.core.interfaces.resources": ("Resources", "Companion"),
    },
    "Pooling strategies": {"turnout.core.types.pooling.prompt": ("PoolingParams",)},
    "KV backends": {
        "turnout.core.interfaces.kv": ("Span", "PoolSize"),
        "turnout.core.interfaces.compute": ("ComputeContext",),
        "turnout.core.types.plan": ("Plan", "Chunk", "Move"),
        "turnout.core.types.messages": ("KVSnapshot", "PinnedPrefix"),
    },
    "Routers": {"turnout.core.interfaces.router": ("Routable", "Replica")},
    "Launchers": {
        "turnout.core.interfaces.launcher": ("EngineOrder", "EngineAddress", "ChannelKeys", "Death"),
    },
    "Model families": {
        "turnout.core.types.model_spec": ("ModelSpec",),
        "turnout.core.types.pooling.model": ("ScoreHead",),
        "turnout.core.types.layer_attention": ("LayerAttention",),
        "turnout.core.types.placement": ("Placement",),
    },
    "Output formats": {
        "turnout.core.types.output_format": (
            "Region",
            "Calls",
            "JsonCall",
            "NamedCall",
            "PythonCall",
            "XmlCall",
            "Notation",
        )
    },
}
UNTOLD = {
    "Logits.pick",
    "Sequence.fork",
    "Sequence.held",
    "SamplingParams.generating",
    "SamplingParams.token_ids",
}
"""Promised, and of no use to most plugins."""

Described = tuple[str, str, str]
"""A member as it is written, its type, and what it is."""


def blocks() -> Blocks:
    return {"types": _types}


def _types() -> str:
    """The sections. Raises LookupError, naming the field, where a promised field has no docstring."""
    parts = []
    for section, modules in SECTIONS.items():
        parts.append(f"## {section}\n")
        parts += [_described(module, name) for module, names in modules.items() for name in names]
    return "\n".join(parts)


def _described(module: str, name: str) -> str:
    kind = getattr(import_module(module), name)
    summary = paragraph(inspect.getdoc(kind) or "")
    rows = [(code(what), code(of), text) for what, of, text in _members(kind)]
    return f"**{name}** (`{module}`): {summary}\n\n{table(('', 'type', ''), rows)}"


def _members(kind: type) -> Iterator[Described]:
    promised = {
        line.removeprefix(f"given {kind.__name__}.")
        for line in RECORD.read_text().splitlines()
        if line.startswith(f"given {kind.__name__}.")
    }
    promised -= {name.partition(".")[2] for name in UNTOLD if name.startswith(f"{kind.__name__}.")}
    found = {name: described for name, described in _documented(kind) if name in promised}
    if missing := promised - found.keys():
        raise LookupError(f"{kind.__name__} promises {', '.join(sorted(missing))} without a docstring")
    yield from found.values()


def _documented(kind: type) -> Iterator[tuple[str, Described]]:
    """Fields and methods that have a docstring, in the order of the source."""
    body = class_body(kind)
    yield from _fields(body, {})
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            given = {each.arg: each.annotation for each in node.args.args if each.annotation}
            yield from _fields(node.body, given)
        elif isinstance(node, ast.FunctionDef) and (text := ast.get_docstring(node)):
            returns = ast.unparse(node.returns) if node.returns else ""
            yield node.name, (_called(node), returns, paragraph(text))


def _fields(body: list[ast.stmt], given: Mapping[str, ast.expr]) -> Iterator[tuple[str, Described]]:
    """Assigned names, of a class or of ``self``, that a string follows."""
    for node, text in documented(body):
        match node:
            case (
                ast.AnnAssign(target=ast.Name(id=name), annotation=of)
                | ast.AnnAssign(target=ast.Attribute(attr=name), annotation=of)
            ):
                yield name, (name, ast.unparse(of), paragraph(text))
            case ast.Assign(targets=[ast.Attribute(attr=name)], value=value):
                yield name, (name, _type(value, given), paragraph(text))


def _type(value: ast.expr, given: Mapping[str, ast.expr]) -> str:
    """Of an attribute that is set to a constant, or to a parameter."""
    if isinstance(value, ast.Constant):
        return type(value.value).__name__
    return ast.unparse(given[value.id]) if isinstance(value, ast.Name) and value.id in given else ""


def _called(function: ast.FunctionDef) -> str:
    if any(isinstance(each, ast.Name) and each.id == "property" for each in function.decorator_list):
        return function.name
    return f"{function.name}({', '.join(each.arg for each in function.args.args if each.arg != 'self')})"
