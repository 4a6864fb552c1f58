"""The grammar of an output with tool calls: text is free, and a call, once begun, can only become valid.

It is written in llguidance's variant of Lark, from the same format as the splitter reads.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from turnout.core.types.output_format import Calls, JsonCall, OutputFormat, Region
from turnout.text.output.schemas import constraint

__all__ = ["Tool", "Wanted", "call_grammar"]


@dataclass(frozen=True)
class Tool:
    """A tool that a model may call."""

    name: str
    parameters: Mapping[str, Any]
    """The JSON schema of its arguments, an object's."""
    strict: bool = False
    """Keywords of the schema that cannot be held are refused instead of ignored."""


@dataclass(frozen=True)
class Wanted:
    """What an output may consist of."""

    tools: Sequence[Tool] = ()
    choice: Literal["auto", "required"] = "auto"
    """``auto``: text, calls or both; ``required``: calls alone, at least one."""
    parallel: bool = True
    """More than one call may be made."""
    answer: str | None = None
    """The form of the text, where no tool is called, as an expression in Lark; None: any text."""


def call_grammar(
    format: OutputFormat,
    wanted: Wanted,
    tokens: Mapping[str, int],
    *,
    ends: Collection[str] = (),
    within: Region | None = None,
) -> str:
    """Returns the grammar.

    tokens: the ids of special tokens by their texts. ends: those that end an output, and so are not part of
    it. within: the region that the prompt ended in.
    """
    calls = format.calls if wanted.tools else None
    return _Grammar(format, calls, wanted, tokens, ends).text(within)


@dataclass
class _Grammar:
    format: OutputFormat
    calls: Calls | None
    wanted: Wanted
    tokens: Mapping[str, int]
    ends: Collection[str]
    _rules: list[str] = field(default_factory=list)

    def text(self, within: Region | None) -> str:
        self._rule("start", self._start(within))
        if self.calls is not None:
            self._rule("tools", self._call_list(self.calls))
        for number, tool in enumerate(self.wanted.tools):
            self._tool(number, tool)
        self._rules += [
            r"SPACE: /[ \t\r\n]{1,4}/",
            r"TEXT: /(.|\n)*/",
            "space: SPACE?",
        ]
        return "%llguidance {}\n" + "\n".join(self._rules) + "\n"

    # -------------------------------------------------------------- the message

    def _start(self, within: Region | None) -> str:
        if self.format.outside == "skip":
            return self._channels(within)
        after = self._answer()
        if within is not None:
            return f"{self._region(within, opened=True)} {after}"
        opening = " | ".join(f"space {self._region(each, opened=False)}" for each in self.format.regions)
        return f"({opening})? {after}" if opening else after

    def _answer(self) -> str:
        """The rule of what follows reasoning."""
        self._rule("answer", " | ".join(self._answers()))
        return "answer"

    def _answers(self) -> Iterator[str]:
        """The ways to answer."""
        if self.calls is None:
            yield self._final()
            return
        marker = self.calls.marker
        if self.wanted.choice == "required":
            yield f"space {self._marker(marker)} tools"
        elif self.wanted.answer is not None:
            yield f"space {self._marker(marker)} tools"
            yield self._final()
        elif marker:
            yield f"{self._text_up_to(marker)} tools"
            yield self._final()
        else:
            yield "space tools"
            # Without a marker, a text that begins as a call does would be read as one.
            self._rules.append(r"NO_CALL: /[ \t\r\n]*([^{ \t\r\n](.|\n)*)?/")
            yield "NO_CALL"

    def _region(self, region: Region, *, opened: bool) -> str:
        """A rule for a region, from behind its opening marker on if it is opened."""
        name = f"region_{self.format.regions.index(region)}" + "_opened" * opened
        rest = self._text_up_to(region.close) + (" space" if self.format.outside == "text" else "")
        self._rule(name, rest if opened else f"{self._marker(region.open)} {rest}")
        return name

    def _channels(self, within: Region | None) -> str:
        """Messages one after the other, each behind its header; what comes last is an answer or a call."""
        before, last = [], []
        if self.calls is not None:
            last.append(f"{self._marker(self.calls.marker)} tools")
        for region in self.format.regions:
            if region.close not in self.ends:
                before.append(self._region(region, opened=False))
            elif self.wanted.choice == "auto":
                last.append(f"{self._marker(region.open)} {self._final()}")
        self._rule("last", " | ".join(last))
        header = self._marker(self.format.between)
        rest = f"(({' | '.join(before)}) {header})* last" if before else "last"
        if within is None:
            return rest
        if within.close in self.ends:
            return self._final()
        return f"{self._region(within, opened=True)} {header} {rest}"

    def _final(self) -> str:
        return f"space {self.wanted.answer}" if self.wanted.answer is not None else "TEXT"

    # -------------------------------------------------------------- calls

    def _call_list(self, calls: Calls) -> str:
        """The calls, from behind the marker of the first on."""
        call = "(" + " | ".join(f"tool_{n}" for n in range(len(self.wanted.tools))) + ")"
        close = (
            ""
            if calls.close in self.ends
            else f"{self._space_before(calls.close)} {self._marker(calls.close)}"
        )
        lead = f"space {self._marker(calls.lead)} space" if calls.lead else ""
        following = f"{self._marker(calls.between)} space {self._marker(calls.open)}"
        several = self.wanted.parallel and (calls.between or calls.open) and calls.close not in self.ends
        more = f"(space {following} space {call} {close})*" if several else ""
        return f"{lead} space {call} {close} {more} space {self._marker(calls.after)}"

    def _tool(self, number: int, tool: Tool) -> None:
        schema = _literal(constraint(tool.parameters, strict=tool.strict))
        self._rule(f"arguments_{number}", f"%json {schema}")
        assert self.calls is not None
        body = self.calls.body
        if isinstance(body, JsonCall):
            texts = ["{", _literal(body.name), ":", _literal(tool.name), ",", _literal(body.arguments), ":"]
            before = " space ".join(map(_literal, texts))
            rule = f'{before} space arguments_{number} space "}}"'
        else:
            rule = f"{_literal(tool.name)} {self._marker(body.separators[0])} space arguments_{number}"
        self._rule(f"tool_{number}", rule)

    # -------------------------------------------------------------- markers

    @staticmethod
    def _space_before(marker: str) -> str:
        """A rule for what models write before a marker, such as Qwen's line break before ``</tool_call>``."""
        return "space" if marker and not marker[0].isspace() else ""

    def _text_up_to(self, marker: str) -> str:
        """A rule for any text that ends with its first `marker`."""
        name = f"text_{len(self._rules)}"
        spelled = f"{name}_spelled"
        self._rules.append(f"{spelled}[lazy]: TEXT {_literal(marker)}")
        pieces = self._pieces(marker)
        if isinstance(pieces[0], int):
            self._rule(name, f"{spelled} | TEXT {self._marker(marker)}")
            return name
        return spelled

    def _marker(self, marker: str) -> str:
        """A marker as the tokens and texts that it consists of; white space around it is free."""
        return " ".join(
            f"<[{piece}]>" if isinstance(piece, int) else _literal(piece) for piece in self._pieces(marker)
        )

    def _pieces(self, marker: str) -> list[int | str]:
        return list(_pieces(marker, self.tokens)) if marker else []

    def _rule(self, name: str, body: str) -> None:
        self._rules.append(f"{name}: {body}")


def _pieces(marker: str, tokens: Mapping[str, int]) -> Iterator[int | str]:
    inside = [text for text in tokens if text in marker]
    if not inside:
        yield marker
        return
    pattern = "|".join(re.escape(text) for text in sorted(inside, key=len, reverse=True))
    for piece in re.split(f"({pattern})", marker):
        if piece:
            yield tokens.get(piece, piece)


def _literal(value: object) -> str:
    """A text or a schema as JSON, which is how Lark has them, too."""
    return json.dumps(value, ensure_ascii=False)
