"""docs/reference/plugins: what a plugin of each kind implements, from the docstrings of the interfaces."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

from turnout.core.interfaces.admission import AdmissionPolicy
from turnout.core.interfaces.attention import AttentionBackend
from turnout.core.interfaces.decoding import Decoding
from turnout.core.interfaces.eviction import EvictionPolicy
from turnout.core.interfaces.kv import KVBackend, KVCache, PrefixPins
from turnout.core.interfaces.launcher import LaunchedEngine, Launcher
from turnout.core.interfaces.logits_processor import LogitsProcessor
from turnout.core.interfaces.models import ModelFamily
from turnout.core.interfaces.observers import Observer
from turnout.core.interfaces.pooling import Pooling
from turnout.core.interfaces.proposer import Proposer
from turnout.core.interfaces.quantization import Adopter, Exporter, Quantizer
from turnout.core.interfaces.router import Router
from turnout.core.interfaces.scheduling import LengthPredictor, SchedulingPolicy
from turnout.core.types.output_format import OutputFormat
from turnout.scripts.reference.blocks import Blocks
from turnout.scripts.reference.tables import code
from turnout.server.http.openapi.docstrings import class_body, documented

BASES: tuple[type, ...] = (
    SchedulingPolicy,
    LengthPredictor,
    AdmissionPolicy,
    KVBackend,
    KVCache,
    PrefixPins,
    AttentionBackend,
    EvictionPolicy,
    Quantizer,
    Adopter,
    Exporter,
    Decoding,
    Proposer,
    Pooling,
    Router,
    Launcher,
    LaunchedEngine,
    LogitsProcessor,
    ModelFamily,
    OutputFormat,
    Observer,
)
WIDTH = 110
"""Of a line of code; a longer signature takes several lines."""


def blocks() -> Blocks:
    return {f"members of {base.__name__}": partial(_members, base) for base in BASES}


def _members(base: type) -> str:
    """Methods that must be implemented, the other methods, then attributes."""
    owners = [owner for owner in base.__mro__ if owner.__module__.startswith("turnout.")]
    methods = [node for owner in owners for node in class_body(owner) if isinstance(node, ast.FunctionDef)]
    public = [node for node in methods if not node.name.startswith("_") or node.name == "__call__"]
    public.sort(key=lambda node: not _is_abstract(node))
    attributes = [line for owner in owners for line in _attributes(owner)]
    return "\n".join([*(_method(base, node) for node in public), *attributes])


def _is_abstract(node: ast.FunctionDef) -> bool:
    return "abstractmethod" in map(ast.unparse, node.decorator_list)


def _method(base: type, node: ast.FunctionDef) -> str:
    """Raises LookupError for a method without a docstring."""
    told = ast.get_docstring(node)
    if told is None:
        raise LookupError(f"{base.__name__}.{node.name} has no docstring")
    must = "*Must be implemented.* " if _is_abstract(node) else ""
    return f"```python\n{_signature(base, node.name)}\n```\n\n{must}{prose(told)}\n"


def _signature(base: type, name: str) -> str:
    """As in the source."""
    member = inspect.getattr_static(base, name)
    decorator = "@property\n" if isinstance(member, property) else ""
    function: Any = member.fget if isinstance(member, property) else member
    arguments, _, returns = str(inspect.signature(function)).replace("'", "")[1:].rpartition(") -> ")
    return decorator + signature_lines(name, arguments, returns)


def signature_lines(name: str, arguments: str, returns: str) -> str:
    """A function's head, on as many lines as it needs."""
    line = f"def {name}({arguments}) -> {returns}: ..."
    return line if len(line) <= WIDTH else f"def {name}(\n    {arguments}\n) -> {returns}: ..."


def _attributes(owner: type) -> Iterator[str]:
    for node, text in documented(class_body(owner)):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            kind = "a class attribute" if "ClassVar" in ast.unparse(node.annotation) else "an attribute"
            default = f", {code(ast.unparse(node.value))} by default" if node.value else ""
            yield f"- {code(node.target.id)}, {kind}{default}. {' '.join(prose(text).split())}"


def prose(docstring: str) -> str:
    """In Markdown. A paragraph or an item is a line; the first line and what follows are one paragraph."""
    first, *others = inspect.cleandoc(docstring).split("\n\n")
    if others and not others[0].startswith("- "):
        first = f"{first} {others.pop(0)}"
    lines = ["\n- ".join(" ".join(item.split()) for item in part.split("\n- ")) for part in [first, *others]]
    return re.sub(r"``([^`]+)``", r"`\1`", "\n\n".join(lines))
