"""What the source says of a class's members: the docstrings below its fields, which Python does not keep."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from itertools import pairwise


def class_body(kind: type) -> list[ast.stmt]:
    (tree,) = ast.parse(inspect.cleandoc("\n" + inspect.getsource(kind))).body
    assert isinstance(tree, ast.ClassDef)
    return tree.body


def documented(body: list[ast.stmt]) -> Iterator[tuple[ast.AnnAssign | ast.Assign, str]]:
    """Assignments that a string follows, and the string."""
    for node, after in pairwise(body):
        match node, after:
            case ast.AnnAssign() | ast.Assign(), ast.Expr(ast.Constant(str(text))):
                yield node, inspect.cleandoc(text)


def own_docstrings(kind: type) -> dict[str, str]:
    """Of the fields that the class itself declares, by their names."""
    return {
        node.target.id: text
        for node, text in documented(class_body(kind))
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


def field_docstrings(kind: type) -> dict[str, str]:
    """By the field's name; those that it inherits from our classes too."""
    owners = [owner for owner in reversed(kind.__mro__) if owner.__module__.startswith("turnout.")]
    return {name: text for owner in owners for name, text in own_docstrings(owner).items()}
