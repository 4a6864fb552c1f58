"""The built-in formats pass the suite that third parties' are tested with."""

from __future__ import annotations

from typing import ClassVar
from unittest import SkipTest

import pytest

from turnout.plugins.formats.deepseek import BEGIN, CALL, CALL_END, END, SEPARATOR
from turnout.testing import OutputFormatSuite
from turnout.testing.checks.babbler import Babbler
from turnout.testing.suites.output_format import TOOLS
from turnout.text.output.events import ToolBegin
from turnout.text.output.grammar.call_grammar import Wanted

DEEPSEEK = (BEGIN, END, CALL, CALL_END, SEPARATOR)


class TestHermes(OutputFormatSuite):
    spec = "hermes"
    specials = ("<tool_call>", "</tool_call>", "<think>", "</think>")


class TestHermesWithoutSpecialTokens(OutputFormatSuite):
    spec = "hermes"


class TestThinking(OutputFormatSuite):
    spec = "thinking"


class TestLlama3Json(OutputFormatSuite):
    spec = "llama3-json"


class TestMistral(OutputFormatSuite):
    spec = "mistral"
    specials = ("[TOOL_CALLS]", "[ARGS]")


class TestMistralList(OutputFormatSuite):
    spec = "mistral-list"
    specials = ("[TOOL_CALLS]",)


class TestDeepSeekV3(OutputFormatSuite):
    spec = "deepseek-v3"
    specials = DEEPSEEK


class TestDeepSeekV31(OutputFormatSuite):
    spec = "deepseek-v3.1"
    specials = DEEPSEEK


class TestHarmony(OutputFormatSuite):
    spec = "harmony"
    ends: ClassVar = ("<|call|>", "<|return|>")
    specials = ("<|channel|>", "<|message|>", "<|constrain|>", "<|start|>", "<|end|>", *ends)


class TestQwen3Coder(OutputFormatSuite):
    spec = "qwen3-coder"
    specials = ("<tool_call>", "</tool_call>", "<think>", "</think>")


class TestGlm45(OutputFormatSuite):
    spec = "glm-4.5"
    specials = ("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")


class TestMiniMaxM2(OutputFormatSuite):
    spec = "minimax-m2"
    specials = ("<minimax:tool_call>", "</minimax:tool_call>")


class TestKimiK2(OutputFormatSuite):
    spec = "kimi-k2"
    specials = (
        "<|tool_calls_section_begin|>",
        "<|tool_calls_section_end|>",
        "<|tool_call_begin|>",
        "<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
    )


class TestLlama4Json(OutputFormatSuite):
    spec = "llama4-json"
    specials = ("<|python_start|>", "<|python_end|>")


class TestPythonic(OutputFormatSuite):
    spec = "pythonic"


class TestLlama4Pythonic(OutputFormatSuite):
    spec = "llama4-pythonic"
    specials = ("<|python_start|>", "<|python_end|>")


class TestGemma3ToolCode(OutputFormatSuite):
    spec = "gemma3-tool-code"


class TestFunctionGemma(OutputFormatSuite):
    spec = "functiongemma"
    specials = ("<start_function_call>", "<end_function_call>", "<escape>")


class TestGemma4(OutputFormatSuite):
    spec = "gemma4"
    specials = ("<|tool_call>", "<tool_call|>", '<|"|>', "<|channel>", "<channel|>")


class TestGemma4WithoutSpecialTokens(OutputFormatSuite):
    spec = "gemma4"


def test_calls_are_tried_where_the_model_chooses() -> None:
    """No output came to an end, and the test of these passed."""
    written = TestGemma3ToolCode()._written(Wanted(TOOLS))
    assert any(isinstance(event, ToolBegin) for events, _ in written for event in events)


def test_a_format_without_an_output_that_ends_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Babbler, "output", lambda *arguments, **more: None)
    with pytest.raises(SkipTest, match="none of 16 outputs"):
        TestHermes().test_calls_are_valid_where_one_is_required()
