"""The arguments of a call as a value of an answer's JSON, for the APIs that have them so."""

from __future__ import annotations

import msgspec

__all__ = ["arguments_value"]


def arguments_value(arguments: str) -> msgspec.Raw:
    """The arguments as they were written, without white space.

    An empty object where they are no JSON, such as those of a call that was cut short.
    """
    try:
        return msgspec.Raw(msgspec.json.format(arguments.encode(), indent=-1))
    except (msgspec.DecodeError, RecursionError):  # a model may nest lists without end
        return msgspec.Raw(b"{}")
