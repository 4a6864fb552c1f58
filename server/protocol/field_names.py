"""What errors call a field: as the client knows it, who may have asked in the words of another API."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from turnout.core.errors import RequestError

__all__ = ["client_names"]


@contextmanager
def client_names(names: Mapping[str, str]) -> Iterator[None]:
    """Make errors raised in the block name fields as the client does.

    names: ours to the client's; a longer one, such as ``response_format.json_schema``, goes before a shorter.
    ``[]`` in both stands for the same index.
    """
    try:
        yield
    except RequestError as error:
        if error.param is not None and (theirs := _renamed(error.param, names)) != error.param:
            message = _renamed(str(error), names)
            error.args = (re.sub(rf"\b{re.escape(error.param)}=", f"{theirs}=", message),)
            error.param = theirs
        raise


def _renamed(text: str, names: Mapping[str, str]) -> str:
    """A field, or a message that begins with one, by the client's name for it."""
    for ours in sorted(names, key=len, reverse=True):
        if found := re.match(re.escape(ours).replace(r"\[\]", r"\[(\d+)\]") + r"(?!\w)", text):
            theirs = names[ours].replace("[]", f"[{found[1]}]") if "[]" in ours else names[ours]
            return theirs + text[found.end() :]
    return text
