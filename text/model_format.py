"""How one served model writes its outputs: its format, and its tokenizer's tokens for the markers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from turnout.core.errors import RequestError
from turnout.core.types.output_format import OutputFormat, Region
from turnout.core.types.structured_outputs import StructuredOutputs
from turnout.text.chat_template import ChatTemplate
from turnout.text.output.earlier_calls import with_calls_read
from turnout.text.output.grammar.call_grammar import Wanted, call_form
from turnout.text.output.grammar.known_forms import KnownForms
from turnout.text.output.markers import markers
from turnout.text.output.reading.custom_calls import CustomCallSplitter
from turnout.text.output.reading.splitter import OutputSplitter
from turnout.text.output.schemas import answer_expression
from turnout.text.output.tool_prompt import DEFAULT_FORMAT, with_tools_described
from turnout.text.output.tools import Tool
from turnout.text.tokenizer import Tokenizer

__all__ = ["ModelFormat"]

NO_FORMAT = OutputFormat(found_by=())


@dataclass(frozen=True)
class ModelFormat:
    """What the server needs to know to offer tools to a model, and to tell the parts of its outputs apart."""

    tokenizer: Tokenizer
    format: OutputFormat | None
    """As the engine found it; None: the chat template is of no known format."""
    eos_token_ids: Sequence[int]
    """The tokens that end a text."""

    @cached_property
    def template_knows_tools(self) -> bool:
        """Whether the chat template describes tools in the form in which calls are read."""
        known = self.format is not None and self.format.calls is not None
        return known and "tools" in self.tokenizer.tools_template.source

    @cached_property
    def used(self) -> OutputFormat:
        """The format of outputs with tools: the model's own, or the default's calls behind its reasoning."""
        own = self.format or NO_FORMAT
        if self.template_knows_tools:
            return own
        return OutputFormat(found_by=own.found_by, calls=DEFAULT_FORMAT.calls, regions=own.regions)

    @property
    def reasons(self) -> bool:
        """Whether reasoning can be told from the answer."""
        return any(region.kind == "reasoning" for region in self.used.regions)

    @cached_property
    def shown(self) -> frozenset[int]:
        """Special tokens that are part of markers, and so must be seen in the text."""
        texts = markers(self.used)
        return frozenset(
            id for marker, id in self.tokenizer.markers.items() if any(marker in text for text in texts)
        )

    @cached_property
    def _ends(self) -> frozenset[str]:
        ends = set(self.eos_token_ids)
        return frozenset(text for text, id in self.tokenizer.markers.items() if id in ends)

    @cached_property
    def _forms(self) -> KnownForms:
        return KnownForms()

    def conversation(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
    ) -> tuple[ChatTemplate, Sequence[Mapping[str, Any]], dict[str, Any]]:
        """Returns the chat template, and messages and variables for it.

        messages, tools: as OpenAI's API has them. Raises RequestError for calls that are none, and where the
        model has no template.
        """
        told, template = with_calls_read(messages), self.tokenizer.chat_template
        if self.template_knows_tools:
            return (
                (self.tokenizer.tools_template, told, {"tools": list(tools)})
                if tools
                else (template, told, {})
            )
        if tools or any(message.get("role") == "tool" or message.get("tool_calls") for message in told):
            return template, with_tools_described(told, tools), {}
        return template, told, {}

    def begun(self, prompt: str, said: str = "", *, must_call: bool = False) -> Region | None:
        """The region that a prompt ends in: chat templates begin the reasoning for the model.

        said: the final message of a prompt that the model goes on with; it may stand in a region, or begin
        one. must_call: only calls are wanted, so no text goes on.
        """
        text = prompt.rstrip()
        start = len(text.removesuffix(said.strip()).rstrip())
        regions = (each for each in self.used.regions if each.kind != "text" or not must_call)
        return next((region for region in regions if _is_open(region, text, start)), None)

    def splitter(
        self, tools: Sequence[Tool], begun: Region | None, *, formed: bool = False
    ) -> Callable[[], OutputSplitter] | None:
        """What makes a splitter for each choice; None: there is nothing to tell apart.

        formed: the client asks for a form of the text.
        """
        if not tools and not self.used.regions:
            return None
        kind = CustomCallSplitter if any(tool.custom for tool in tools) else OutputSplitter
        format = self._used_with(tools)
        return lambda: kind(format, tools, begun, either=formed)

    def form(
        self, wanted: Wanted, asked: StructuredOutputs | None, begun: Region | None
    ) -> StructuredOutputs | None:
        """The structured output that holds an output to its format. Raises RequestError if there is none.

        asked: what the client asks for, which holds for the text alone: not for reasoning, and not for calls.
        """
        if not wanted.tools and (asked is None or not self.used.regions):
            return asked
        answer = None if asked is None else answer_expression(asked)
        if asked is not None and answer is None:
            if not wanted.tools and (begun is None or begun.kind == "text"):
                return asked
            raise RequestError(
                "a grammar goes neither with tools nor with reasoning before the answer; give a schema, a "
                "regular expression or choices, or turn these off",
                "structured_outputs",
            )
        whole = replace(wanted, answer=answer)
        return self._forms.get(whole, begun, lambda: self._made(whole, begun))

    def _made(self, wanted: Wanted, begun: Region | None) -> StructuredOutputs:
        format = self._used_with(wanted.tools)
        return call_form(format, wanted, self.tokenizer.markers, ends=self._ends, within=begun)

    def _used_with(self, tools: Sequence[Tool]) -> OutputFormat:
        """The format by which outputs are split: without tools, the model's own in any case."""
        return self.used if tools else self.format or NO_FORMAT


def _is_open(region: Region, text: str, start: int) -> bool:
    """Whether a text ends in a region that begins where its last message does, or just before."""
    place = text.find(region.open, max(0, start - len(region.open)))
    return (
        place >= 0 and not text[start:place].strip() and region.close not in text[place + len(region.open) :]
    )
