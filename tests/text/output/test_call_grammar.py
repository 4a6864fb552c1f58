"""A model that babbles under the grammar of its format writes valid calls, which the splitter reads."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence

import jsonschema
import llguidance.numpy as masks
import numpy as np
import pytest
from llguidance import LLMatcher, LLTokenizer, grammar_from

from turnout.core.types.output_format import OutputFormat, Region
from turnout.models.hub.resolve import resolve_model
from turnout.plugins.formats.deepseek import BEGIN, CALL, CALL_END, END, SEPARATOR, deepseek_v3, deepseek_v31
from turnout.plugins.formats.harmony import harmony
from turnout.plugins.formats.hermes import THINK, hermes
from turnout.plugins.formats.llama import llama3_json
from turnout.plugins.formats.mistral import mistral, mistral_list
from turnout.text.output.call_grammar import Tool, Wanted, call_grammar
from turnout.text.output.events import Event, Text, ToolArguments, ToolBegin, ToolEnd, merged
from turnout.text.output.splitter import OutputSplitter
from turnout.text.tokenizer import load_tokenizer, tokenizer_json

EOS = 2
WEATHER = {
    "type": "object",
    "description": "long " * 10_000,
    "properties": {
        "city": {"type": "string", "maxLength": 12},
        "description": {"enum": ["a", "b"], "description": "kept as a name, dropped as a keyword"},
    },
    "required": ["city", "description"],
    "additionalProperties": False,
}
BITS = {
    "type": "object",
    "properties": {"bits": {"type": "array", "items": {"$ref": "#/$defs/bit"}, "maxItems": 3}},
    "$defs": {"bit": {"type": "boolean"}},
    "required": ["bits"],
    "additionalProperties": False,
}
TOOLS = [Tool("get_weather", WEATHER), Tool("bits.of", BITS)]
SCHEMAS = {tool.name: tool.parameters for tool in TOOLS}

DEEPSEEK = (BEGIN, END, CALL, CALL_END, SEPARATOR)
HARMONY = ("<|channel|>", "<|message|>", "<|constrain|>", "<|start|>", "<|end|>", "<|call|>", "<|return|>")
FORMATS: Mapping[str, tuple[OutputFormat, Sequence[str], Region | None]] = {
    "hermes": (hermes(), ("<tool_call>", "</tool_call>", "<think>", "</think>"), None),
    "hermes, no special tokens": (hermes(), (), None),
    "hermes, reasoning begun": (hermes(), ("<tool_call>", "</tool_call>", "</think>"), THINK),
    "llama3-json": (llama3_json(), (), None),
    "mistral": (mistral(), ("[TOOL_CALLS]", "[ARGS]"), None),
    "mistral-list": (mistral_list(), ("[TOOL_CALLS]",), None),
    "deepseek-v3": (deepseek_v3(), DEEPSEEK, None),
    "deepseek-v3.1": (deepseek_v31(), DEEPSEEK, None),
    "harmony": (harmony(), HARMONY, None),
}


class Babbler:
    """A model that writes any allowed token, special ones often, until it may end."""

    def __init__(self, specials: Sequence[str]) -> None:
        folder = resolve_model("turnout-tiny")
        self.tokenizer = load_tokenizer(folder)
        self.first = self.tokenizer.vocab_size
        self.ids = {text: self.first + number for number, text in enumerate(specials)}
        described = json.loads(tokenizer_json(folder))
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        for id in self.ids.values():
            described["added_tokens"].append(
                {"id": id, "content": f"<hidden-{id}>", "special": True, **flags}
            )
        ends = [EOS, *(self.ids[text] for text in ("<|call|>", "<|return|>") if text in self.ids)]
        self.ends = {text for text, id in self.ids.items() if id in ends}
        self.table = LLTokenizer(json.dumps(described), n_vocab=self.first + len(self.ids), eos_token=ends)

    def output(self, grammar: str, rng: random.Random, most: int = 300) -> str | None:
        """An output; None where it did not end soon enough."""
        matcher = LLMatcher(self.table, grammar_from("grammar", grammar))
        assert not matcher.is_error(), matcher.get_error()
        mask = masks.allocate_token_bitmask(1, self.table.vocab_size)
        tokens: list[int] = []
        while not matcher.is_stopped() and len(tokens) < most:
            masks.fill_next_token_bitmask(matcher, mask)
            allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
            marked = [token for token in allowed if token >= self.first]
            token = int(rng.choice(marked if marked and rng.random() < 0.3 else allowed))
            if token == EOS or self._text(token) in self.ends:
                return self._joined(tokens)
            assert matcher.consume_token(token)
            tokens.append(token)
        return self._joined(tokens) if matcher.is_stopped() else None

    def _text(self, token: int) -> str:
        return next((text for text, id in self.ids.items() if id == token), "")

    def _joined(self, tokens: Sequence[int]) -> str:
        data = b""
        for token in tokens:
            data += self._text(token).encode() or self.tokenizer.token_bytes(token) or b""
        return data.decode(errors="replace")


@pytest.mark.parametrize("parallel", [True, False])
@pytest.mark.parametrize("choice", ["required", "auto"])
@pytest.mark.parametrize("name", FORMATS)
def test_calls_are_valid_whatever_the_model_writes(name: str, choice: str, parallel: bool) -> None:
    format, specials, within = FORMATS[name]
    babbler, rng = Babbler(specials), random.Random(0)
    wanted = Wanted(TOOLS, "required" if choice == "required" else "auto", parallel)
    grammar = call_grammar(format, wanted, babbler.ids, ends=babbler.ends, within=within)
    outputs = [babbler.output(grammar, rng) for _ in range(8)]
    calls = 0
    for output in filter(None, outputs):
        splitter = OutputSplitter(format, tools=True, within=within)
        events = merged(splitter.feed(output) + splitter.finish())
        calls += _check_calls(events, output)
        assert parallel or splitter.calls <= 1, output
        assert choice == "auto" or splitter.calls >= 1, output
        if choice == "required" and format.outside == "text":
            assert not [event for event in events if isinstance(event, Text)], output
    assert calls or not (choice == "required" and within is None)


def _check_calls(events: Sequence[Event], output: str) -> int:
    names = [event.name for event in events if isinstance(event, ToolBegin)]
    arguments = [event.text for event in events if isinstance(event, ToolArguments)]
    assert len(names) == len(arguments) == sum(isinstance(event, ToolEnd) for event in events), output
    for name, text in zip(names, arguments, strict=True):
        jsonschema.validate(json.loads(text), SCHEMAS[name])
    return len(names)


def test_the_answer_has_its_form_where_no_tool_is_called() -> None:
    format, specials, _ = FORMATS["hermes"]
    babbler, rng = Babbler(specials), random.Random(1)
    wanted = Wanted(TOOLS, answer='%json {"type": "boolean"}')
    grammar = call_grammar(format, wanted, babbler.ids)
    texts = []
    for _ in range(12):
        if output := babbler.output(grammar, rng):
            splitter = OutputSplitter(format, tools=True)
            texts += [
                event.text for event in splitter.feed(output) + splitter.finish() if isinstance(event, Text)
            ]
    assert texts and {text.strip() for text in texts} <= {"true", "false"}
