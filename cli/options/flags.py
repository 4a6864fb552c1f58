"""Flags from the fields of a configuration: a field's name is the flag, its description the help.

A flag passes its text on unchanged; the field parses and checks it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar, get_args, get_origin

import click
from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo

from turnout.core.sizes import ByteSize, SizeOrZero, parse_bytes

__all__ = ["config_options", "is_size", "size_text"]

Function = TypeVar("Function", bound=Callable[..., Any])


def config_options(*models: type[BaseModel]) -> Callable[[Function], Function]:
    """Decorates a command with a flag for each field. A flag that is not given arrives as None."""

    def decorate(function: Function) -> Function:
        fields = [item for model in models for item in model.model_fields.items()]
        for name, field in reversed(fields):  # click lists first what was applied last
            function = _flag(name, field)(function)
        return function

    return decorate


SHORT = {
    "tensor_parallel_size": ("-tp",),
    "pipeline_parallel_size": ("-pp",),
    "enable_expert_parallel": ("-ep",),
}
"""Short forms, which other servers have too."""


def _flag(name: str, field: FieldInfo) -> Callable[[Function], Function]:
    flag, short = name.replace("_", "-"), SHORT.get(name, ())
    if bool in (field.annotation, *get_args(field.annotation)):
        return click.option(*short, f"--{flag}/--no-{flag}", name, default=None, help=_help(field))
    if get_origin(field.annotation) is tuple:
        return click.option(
            f"--{flag}", name, multiple=True, callback=_none_if_empty, metavar="NAME", help=_described(field)
        )
    if get_origin(field.annotation) is Literal:
        choice = click.Choice(get_args(field.annotation))
        return click.option(f"--{flag}", name, type=choice, help=_help(field))
    return click.option(*short, f"--{flag}", name, metavar=_metavar(field), help=_help(field))


def _none_if_empty(
    ctx: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...] | None:
    return value or None


def _help(field: FieldInfo) -> str:
    text, default = _described(field), field.default
    if default is None or field.annotation is bool:
        return text
    return f"{text}  [default: {size_text(default) if is_size(field) else default}]"


def _described(field: FieldInfo) -> str:
    """Without the backticks that mark code in the documents."""
    return (field.description or "").replace("`", "")


def _metavar(field: FieldInfo) -> str:
    if is_size(field):
        return "SIZE"
    for kind, metavar in ((int, "INTEGER"), (float, "FLOAT")):
        if kind in (field.annotation, *get_args(field.annotation)):
            return metavar
    return "TEXT"


def is_size(field: FieldInfo) -> bool:
    """Whether the field is a number of bytes, which people write as ``2GiB``."""
    marks = (mark for mark in field.metadata if isinstance(mark, BeforeValidator))
    optional = any(size in get_args(field.annotation) for size in (ByteSize, SizeOrZero))
    return optional or any(mark.func is parse_bytes for mark in marks)


def size_text(number: int) -> str:
    """A number of bytes as people write it."""
    for unit, bits in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if number % 2**bits == 0:
            return f"{number >> bits}{unit}"
    return str(number)
