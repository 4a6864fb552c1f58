"""A custom tool is a function to the model, and what it writes as the argument is the tool's input again."""

from __future__ import annotations

import json
import random
from itertools import combinations, pairwise

import pytest

from turnout.core.errors import RequestError
from turnout.core.types.output_format import OutputFormat
from turnout.plugins.formats.hermes import hermes
from turnout.plugins.formats.llama import pythonic
from turnout.plugins.formats.qwen import qwen3_coder
from turnout.text.output.custom_tools import InputReader, parameters_of
from turnout.text.output.earlier_calls import with_calls_read
from turnout.text.output.events import Event, Text, ToolArguments, ToolBegin, ToolEnd, ToolInput, merged
from turnout.text.output.reading.custom_calls import CustomCallSplitter
from turnout.text.output.tools import Tool

TEXTS = [
    "",
    "print('hi')",
    'a "b" \\ /\n\t\r\b\f',
    "é \u2028 漢",
    "😀 and 👍🏽",
    "\\u00e9 \\",
    "\x00\x7f",
    '{}: "input"',
]
TOOLS = [Tool("run", parameters_of(), custom=True), Tool("look", parameters_of())]


def read(pieces: list[str]) -> list[str]:
    reader = InputReader()
    return [reader.feed(piece) for piece in pieces]


def escaped_wholly(text: str) -> str:
    """JSON of a text in which every character is an escape, of pairs for those that need two."""
    units = text.encode("utf-16-be", "surrogatepass").hex()
    return '"' + "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4)) + '"'


@pytest.mark.parametrize("text", TEXTS)
def test_however_the_json_is_cut_the_text_is_the_same(text: str) -> None:
    writings = [json.dumps(text), json.dumps(text, ensure_ascii=False), escaped_wholly(text)]
    writings.append(json.dumps(text).replace("/", r"\/"))
    for written in writings:
        arguments = f' {{ "input" :\n {written} }}'
        assert "".join(read(list(arguments))) == text  # character by character
        for cut in range(len(arguments)):
            assert "".join(read([arguments[:cut], arguments[cut:]])) == text, cut


def test_pieces_cut_at_random_give_the_same_text() -> None:
    draw = random.Random(5)
    for _ in range(500):
        text = "".join(draw.choice('a"\\\n😀é\ud7ff\U0010ffff') for _ in range(draw.randrange(12)))
        arguments = '{"input": ' + draw.choice([json.dumps(text), escaped_wholly(text)]) + "}"
        cuts = sorted(draw.sample(range(len(arguments)), 5))
        ends = [0, *cuts, len(arguments)]
        assert "".join(read([arguments[a:b] for a, b in pairwise(ends)])) == text


def test_the_text_comes_as_it_is_written() -> None:
    assert read(['{"inp', 'ut": "pri', "nt", "\\", 'n"', "}"]) == ["", "pri", "nt", "", "\n", ""]


def test_a_pair_is_one_character_and_no_half_of_it_comes() -> None:
    assert read(['{"input": "a\\ud8', "3d", "\\u", 'de00b"}']) == ["a", "", "", "😀b"]


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (r"\ud83d", "\ufffd"),
        (r"\ude00", "\ufffd"),
        (r"\ud83da", "\ufffda"),
        (r"\ud83d\n", "\ufffd\n"),
        (r"\ud83d\ud83d\ude00", "\ufffd😀"),
        (r"\ude00\ud83d", "\ufffd\ufffd"),
    ],
)
def test_half_of_a_pair_is_the_sign_for_what_is_no_character(written: str, text: str) -> None:
    arguments = f'{{"input": "{written}"}}'
    for cuts in combinations(range(len(arguments)), 2):
        pieces = [arguments[: cuts[0]], arguments[cuts[0] : cuts[1]], arguments[cuts[1] :]]
        assert "".join(read(pieces)) == text


def test_what_is_cut_has_no_half_of_an_escape() -> None:
    written = r'{"input": "ab\u00e9\ud83d\ude00'
    texts = ["".join(read([written[:length]])) for length in range(len(written) + 1)]
    assert texts[-1] == "abé😀" and set(texts) == {"", "a", "ab", "abé", "abé😀"}


def call(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>\n'


def events_of(pieces: list[str], format: OutputFormat | None = None) -> list[Event]:
    splitter = CustomCallSplitter(format or hermes(), TOOLS)
    return merged([event for piece in pieces for event in splitter.feed(piece)] + splitter.finish())


def test_custom_calls_have_an_input_and_calls_of_functions_arguments() -> None:
    output = (
        "So.\n"
        + call("run", '{"input": "a\\nb"}')
        + call("look", '{"input": "c"}')
        + call("run", '{"input": ""}')
    )
    events = [
        Text("So."),
        *(ToolBegin(0, "run", custom=True), ToolInput(0, "a\nb"), ToolEnd(0)),
        *(ToolBegin(1, "look"), ToolArguments(1, '{"input": "c"}'), ToolEnd(1)),
        *(ToolBegin(2, "run", custom=True), ToolEnd(2)),
    ]
    assert events_of([output]) == events_of(list(output)) == events


def test_a_call_that_is_cut_has_no_end() -> None:
    output = call("run", '{"input": "a\\nb"}')
    cut = events_of([output[: output.index("nb")]])
    assert cut == [ToolBegin(0, "run", custom=True), ToolInput(0, "a")]


def test_an_earlier_call_is_a_functions() -> None:
    custom = {"id": "call_1", "type": "custom", "custom": {"name": "run", "input": 'a "b"'}}
    (message,) = with_calls_read([{"role": "assistant", "tool_calls": [custom]}])
    assert message["tool_calls"] == [
        {"id": "call_1", "type": "function", "function": {"name": "run", "arguments": {"input": 'a "b"'}}}
    ]


@pytest.mark.parametrize("custom", [None, {}, {"name": "run"}, {"name": "run", "input": {}}, {"input": "a"}])
def test_an_earlier_call_without_a_name_or_an_input_is_refused(custom: object) -> None:
    call = {"id": "call_1", "type": "custom", "custom": custom}
    with pytest.raises(RequestError, match=r"messages\[0\]\.tool_calls\[0\] should have a custom tool with"):
        with_calls_read([{"role": "assistant", "tool_calls": [call]}])


CODE = 'if a:\n  b = "\\t" # é 😀'
WRITTEN = {
    "json": (hermes(), call("run", json.dumps({"input": CODE}))),
    "python": (pythonic(), f"[run(input={CODE!r})]"),
    "tags": (
        qwen3_coder(),
        f"<tool_call>\n<function=run>\n<parameter=input>\n{CODE}\n</parameter>\n</function>\n</tool_call>",
    ),
    "a text like a number": (
        qwen3_coder(),
        "<tool_call>\n<function=run>\n<parameter=input>\n12\n</parameter>\n</function>\n</tool_call>",
    ),
}


@pytest.mark.parametrize("name", list(WRITTEN))
def test_the_text_is_the_same_in_every_notation(name: str) -> None:
    format, output = WRITTEN[name]
    text = "12" if "number" in name else CODE
    events = [ToolBegin(0, "run", custom=True), ToolInput(0, text), ToolEnd(0)]
    for pieces in ([output], list(output)):
        assert events_of(pieces, format) == events
