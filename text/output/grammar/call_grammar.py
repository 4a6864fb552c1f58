"""The grammar of an output with tool calls: text is free, and a call, once begun, can only become valid.

It is written in llguidance's variant of Lark, from the same format as the splitter reads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from turnout.core.errors import RequestError
from turnout.core.types.output_format import (
    JSON,
    Calls,
    JsonCall,
    OutputFormat,
    PythonCall,
    Region,
    XmlCall,
)
from turnout.core.types.structured_outputs import StructuredOutputs
from turnout.text.output.grammar.faulty_part import tool_rule
from turnout.text.output.grammar.free_places import free_places
from turnout.text.output.grammar.grammar_rules import GrammarRules, literal
from turnout.text.output.grammar.value_grammar import ValueGrammar
from turnout.text.output.grammar.xml_grammar import XmlGrammar
from turnout.text.output.schema_keywords import check_keywords
from turnout.text.output.schemas import constraint
from turnout.text.output.tools import Tool

__all__ = ["Wanted", "call_form", "call_grammar"]

TOOL_STEPS, ALL_STEPS = 20_000, 100_000
"""Steps that the schemas of one tool, and of all tools, may take to be resolved."""


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
    return _Grammar(format, calls, wanted, GrammarRules(tokens, ends)).text(within)


def call_form(
    format: OutputFormat,
    wanted: Wanted,
    tokens: Mapping[str, int],
    *,
    ends: Collection[str] = (),
    within: Region | None = None,
) -> StructuredOutputs:
    """Returns `call_grammar` as a form, with the places where its text is free."""
    grammar = call_grammar(format, wanted, tokens, ends=ends, within=within)
    calls = format.calls if wanted.tools else None
    answer = calls is not None and wanted.choice == "auto" and wanted.answer is None
    free = None
    if wanted.answer is None or format.outside == "text":
        callable = wanted.tools if wanted.answer is None else ()
        rules = GrammarRules(tokens, ends)
        free = free_places(format, calls if answer else None, callable, rules, within)
    return StructuredOutputs(grammar=grammar, free=free)


@dataclass
class _Grammar:
    format: OutputFormat
    calls: Calls | None
    wanted: Wanted
    rules: GrammarRules
    steps_left: int = ALL_STEPS

    def text(self, within: Region | None) -> str:
        self.rules.add("start", self._start(within))
        if self.calls is not None:
            self.rules.add("tools", self._call_list(self.calls))
        return self.rules.text()

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
        self.rules.add("answer", " | ".join(self._answers()))
        return "answer"

    def _answers(self) -> Iterator[str]:
        """The ways to answer."""
        if self.calls is None:
            yield self._final()
            return
        marker = self.calls.marker
        if self.wanted.choice == "required":
            yield f"space {self.rules.marker(marker)} tools"
        elif self.wanted.answer is not None:
            yield f"space {self.rules.marker(marker)} tools"
            yield self._final()
        elif marker:
            yield f"{self.rules.text_up_to(marker)} tools"
            yield self._final()
        else:
            yield "space tools"
            # Without a marker, a text that begins as a call does would be read as one.
            first = "\\[" if self.calls.lead else "{"
            yield self.rules.named(rf"/[ \t\r\n]*([^{first} \t\r\n](.|\n)*)?/", terminal=True)

    def _region(self, region: Region, *, opened: bool) -> str:
        """A rule for a region, from behind its opening marker on if it is opened."""
        name = f"region_{self.format.regions.index(region)}" + "_opened" * opened
        rest = self.rules.text_up_to(region.close) + (" space" if self.format.outside == "text" else "")
        self.rules.add(name, rest if opened else f"{self.rules.marker(region.open)} {rest}")
        return name

    def _channels(self, within: Region | None) -> str:
        """Messages one after the other, each behind its header; what comes last is an answer or a call."""
        before, last = [], []
        if self.calls is not None:
            last.append(f"{self.rules.marker(self.calls.marker)} tools")
        for region in self.format.regions:
            if region.close not in self.rules.ends:
                if region.kind != "text" or self.wanted.answer is None:  # text before a form would break it
                    before.append(self._region(region, opened=False))
            elif self.wanted.choice == "auto":
                last.append(f"{self.rules.marker(region.open)} {self._final()}")
        self.rules.add("last", " | ".join(last))
        header = self.rules.marker(self.format.between)
        rest = f"(({' | '.join(before)}) {header})* last" if before else "last"
        if within is None:
            return rest
        if within.close in self.rules.ends:
            return self._final()
        return f"{self._region(within, opened=True)} {header} {rest}"

    def _final(self) -> str:
        return f"space {self.wanted.answer}" if self.wanted.answer is not None else "TEXT"

    # -------------------------------------------------------------- calls

    def _call_list(self, calls: Calls) -> str:
        """The calls, from behind the marker of the first on."""
        names = [self._tool(calls, number, tool) for number, tool in enumerate(self.wanted.tools)]
        call = "(" + " | ".join(names) + ")"
        close = "" if calls.close in self.rules.ends else self._spaced(calls.close)
        lead = f"space {self.rules.marker(calls.lead)} space" if calls.lead else ""
        begin, end = (f"({self.rules.marker(mark)})?" if mark else "" for mark in calls.around)
        following = f"{self.rules.marker(calls.between)} space {self.rules.marker(calls.open)}"
        several = (
            self.wanted.parallel and (calls.between or calls.open) and calls.close not in self.rules.ends
        )
        more = f"(space {following} space {call} {close})*" if several else ""
        after = self.rules.marker(calls.after)
        return f"{begin} {lead} space {call} {close} {more} space {after} {end}"

    def _tool(self, calls: Calls, number: int, tool: Tool) -> str:
        try:
            check_keywords(tool.parameters)
            with tool.schemas.limited(min(TOOL_STEPS, self.steps_left)):
                call = self._call(calls, tool)
        except RecursionError:
            what = "the schema is nested too deeply, perhaps by its references; nest its objects less"
            raise RequestError(what, tool_rule(number)) from None
        except RequestError as error:
            error.param = tool_rule(number)
            raise
        self.steps_left -= tool.schemas.steps
        return self.rules.add(tool_rule(number), call)

    def _spaced(self, marker: str) -> str:
        """A marker, and what models write before it, such as Qwen's line break before ``</tool_call>``."""
        return f"{'space' if marker and not marker[0].isspace() else ''} {self.rules.marker(marker)}"

    def _call(self, calls: Calls, tool: Tool) -> str:
        """A call of a tool, without the markers around it."""
        body, rules = calls.body, self.rules
        name = literal(tool.name)
        if isinstance(body, JsonCall):
            texts = ["{", literal(body.name), ":", literal(tool.name), ",", literal(body.arguments), ":"]
            return f'{" space ".join(map(literal, texts))} space {self._json(tool)} space "}}"'
        if isinstance(body, XmlCall):
            end = f"space {rules.marker(body.end)}" if body.end else ""
            arguments = XmlGrammar(rules, body, tool).arguments()
            return f"{rules.marker(body.before)} {name} {rules.marker(body.after)} {arguments} {end}"
        if isinstance(body, PythonCall):
            values = ValueGrammar(rules, tool, body.notation)
            return f'{name} "(" space {values.keywords()} space ")"'
        number = f"{literal(body.number)} /[0-9]{{1,3}}/" if body.number else ""
        separator = f"{rules.marker(body.separators[0])} space" if body.separators else ""
        if body.notation == JSON:
            return f"{name} {number} {separator} {self._json(tool)}"
        values = ValueGrammar(rules, tool, body.notation)
        return f"{name} {number} {separator} {values.arguments()}"

    def _json(self, tool: Tool) -> str:
        return self.rules.named(f"%json {literal(constraint(tool.parameters, strict=tool.strict))}")
