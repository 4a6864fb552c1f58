"""The forms of requests before: clients such as agents offer the same tools each time."""

from __future__ import annotations

import marshal
from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from threading import Lock

from turnout.core.types.output_format import Region
from turnout.core.types.structured_outputs import StructuredOutputs
from turnout.text.output.grammar.call_grammar import Wanted

__all__ = ["KnownForms"]

MOST = 64
"""Forms that are kept; each has some tens of kilobytes."""


class KnownForms:
    """Keeps the forms that were wanted last. For any thread."""

    def __init__(self) -> None:
        self._forms: OrderedDict[bytes, StructuredOutputs] = OrderedDict()
        self._lock = Lock()

    def get(
        self, wanted: Wanted, within: Region | None, make: Callable[[], StructuredOutputs]
    ) -> StructuredOutputs:
        """Returns the form of outputs that begin in a region; makes it where it is not known."""
        key = _key(wanted, within)
        with self._lock:
            known = self._forms.get(key)
            if known is not None:
                self._forms.move_to_end(key)
                return known
        made = make()
        with self._lock:
            self._forms[key] = made
            if len(self._forms) > MOST:
                self._forms.popitem(last=False)
        return made


def _key(wanted: Wanted, within: Region | None) -> bytes:
    tools = [(tool.name, dict(tool.parameters), tool.strict) for tool in wanted.tools]
    region = () if within is None else (within.open, within.close)
    rest = wanted.choice, wanted.parallel, wanted.answer, region
    # In this version, equal values have equal bytes.
    return blake2b(marshal.dumps((tools, rest), 2)).digest()
