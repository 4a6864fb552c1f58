"""The built-in formats pass the suite that third parties' are tested with."""

from __future__ import annotations

from typing import ClassVar

from turnout.plugins.formats.deepseek import BEGIN, CALL, CALL_END, END, SEPARATOR
from turnout.testing import OutputFormatSuite

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
