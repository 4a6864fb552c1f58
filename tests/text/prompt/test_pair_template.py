"""What chat templates write around pairs of texts."""

from __future__ import annotations

import pytest

from turnout.core.errors import ModelError, RequestError
from turnout.core.types.pooling import PairTemplate
from turnout.text.chat_template import ChatTemplate
from turnout.text.prompt.pair_template import names_pairs, pair_text, read_pair_template

FLAT = """{% set told = messages | selectattr('role', 'eq', 'system') | map(attribute='content') | first
 | default('judge') %}[{{ told }}]
{{ messages | selectattr('role', 'eq', 'query') | map(attribute='content') | first }}|
{{- messages | selectattr('role', 'eq', 'document') | map(attribute='content') | first }}
{%- if add_generation_prompt %}>{% endif %}"""
PARTS = """Q{{ (messages | selectattr("role", "eq", "query") | first).content[0].text }}
{{- (messages | selectattr("role", "eq", "document") | first).content[0].text }}."""


def test_texts_and_an_instruction_have_their_places() -> None:
    template = read_pair_template(ChatTemplate(FLAT, {}), {"add_generation_prompt": True})
    assert template == PairTemplate(("[judge]\n", "|", ">"), ("[", "]\n", "|", ">"))
    assert pair_text(template, "a", "b") == ("[judge]\na|b", ">")
    assert pair_text(template, "a", "b", "rank") == ("[rank]\na|b", ">")


def test_a_template_that_reads_lists_of_parts() -> None:
    template = read_pair_template(ChatTemplate(PARTS, {}), {})
    assert template == PairTemplate(("Q", "", "."))
    with pytest.raises(RequestError, match="takes no instruction"):
        pair_text(template, "a", "b", "rank")


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages[0].content }}",
        "{{ messages[1].content }}{{ messages[0].content }}",
        "{{ messages[0].content | trim }}{{ messages[1].content | trim }}",
        "{% for m in messages %}{{ m.content }}{{ m.content }}{% endfor %}",
    ],
)
def test_what_loses_or_changes_a_text_is_refused(source: str) -> None:
    with pytest.raises(ModelError, match="--chat-template"):
        read_pair_template(ChatTemplate(source, {}), {})


def test_which_templates_speak_of_pairs() -> None:
    assert names_pairs(FLAT) and names_pairs(PARTS)
    assert not names_pairs("{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %} query document")
