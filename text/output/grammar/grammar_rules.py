"""The rules of a grammar in llguidance's variant of Lark, as they come together."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from turnout.core.types.structured_outputs import Pieces

__all__ = ["GrammarRules", "literal"]

SHARED = (
    r"SPACE: /[ \t\r\n]{1,4}/",
    r"TEXT: /(.|\n)*/",
    "space: SPACE?",
)


@dataclass
class GrammarRules:
    """The rules of one grammar, and how markers are written in it."""

    tokens: Mapping[str, int]
    """The ids of special tokens by their texts."""
    ends: Collection[str] = ()
    """Those that end an output, and so are not part of it."""
    _rules: dict[str, str] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)

    def text(self) -> str:
        """The grammar."""
        return "\n".join(
            ["%llguidance {}", *(f"{n}: {body}" for n, body in self._rules.items()), *SHARED, ""]
        )

    def add(self, name: str, body: str) -> str:
        """Adds a rule, and returns its name."""
        self._rules[name] = body
        return name

    def named(self, body: str, *, terminal: bool = False, attributes: str = "") -> str:
        """The name of a rule with this body, or of a terminal: of the one that there is, or a new one's."""
        known = f"{terminal}{attributes}{body}"
        if known not in self._names:
            name = f"{'T' if terminal else 'r'}{len(self._names)}"
            self._names[known] = name
            self._rules[name + attributes] = body
        return self._names[known]

    def reserved(self) -> str:
        """A name for a rule that is still to come, and may refer to itself."""
        name = f"r{len(self._names)}"
        self._names[f"reserved {name}"] = name
        return name

    # -------------------------------------------------------------- markers

    def marker(self, marker: str) -> str:
        """A marker as the tokens and texts that it consists of."""
        return " ".join(
            f"<[{piece}]>" if isinstance(piece, int) else literal(piece) for piece in self.pieces(marker)
        )

    def text_up_to(self, marker: str) -> str:
        """A rule for any text that ends with its first `marker`."""
        spelled = self.named(f"TEXT {literal(marker)}", attributes="[lazy]")
        if isinstance(self.pieces(marker)[0], int):
            return self.named(f"{spelled} | TEXT {self.marker(marker)}")
        return spelled

    def string_up_to(self, form: str, marker: str, without: str = "") -> str:
        """A rule for a text of a form, a terminal's body, that ends with its first `marker`.

        without: what the text must not hold either; by default the marker.
        """
        free = f"({form}) & ~/(?s:.)*{_regex_of(without or marker)}(?s:.)*/"
        pieces = self.pieces(marker)
        if isinstance(pieces[0], int):
            return self.named(f"{self.named(free, terminal=True)} {self.marker(marker)}")
        first, *rest = pieces
        assert isinstance(first, str)
        whole = self.named(f"({free}) {literal(first)}", terminal=True)
        return f"{whole} {self.marker(''.join(map(str, rest)))}" if rest else whole

    def pieces(self, marker: str) -> Pieces:
        """The special tokens and texts that a marker consists of."""
        return tuple(_pieces(marker, self.tokens)) if marker else ()


def literal(value: object) -> str:
    """A text or a schema as JSON, which is how Lark has them, too."""
    return json.dumps(value, ensure_ascii=False)


def _regex_of(text: str) -> str:
    """A text as a regular expression between slashes."""
    return re.sub(r"[\\.+*?()|\[\]{}^$#&~/-]", r"\\\g<0>", text).replace("\n", r"\n")


def _pieces(marker: str, tokens: Mapping[str, int]) -> Iterator[int | str]:
    inside = [text for text in tokens if text and text in marker]
    if not inside:
        yield marker
        return
    pattern = "|".join(re.escape(text) for text in sorted(inside, key=len, reverse=True))
    for piece in re.split(f"({pattern})", marker):
        if piece:
            yield tokens.get(piece, piece)
