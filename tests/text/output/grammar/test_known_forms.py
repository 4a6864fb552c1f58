"""A form is made once for what is wanted, and anew for anything else."""

from __future__ import annotations

from turnout.core.types.structured_outputs import StructuredOutputs
from turnout.plugins.formats.hermes import THINK
from turnout.text.output.grammar import known_forms
from turnout.text.output.grammar.call_grammar import Wanted
from turnout.text.output.grammar.known_forms import KnownForms
from turnout.text.output.tools import Tool

NUMBER = {"type": "object", "properties": {"a": {"type": "number", "maximum": 10**30}}}
TEXT = {"type": "object", "properties": {"a": {"type": "string"}}}


def test_what_differs_in_anything_is_another_form() -> None:
    forms, made = KnownForms(), []

    def make() -> StructuredOutputs:
        made.append(StructuredOutputs(regex=f"a{len(made)}"))
        return made[-1]

    asked = [
        (Wanted([Tool(name, schema, strict)], choice, parallel, answer), within)
        for name in ("f", "g")
        for schema in (NUMBER, TEXT)
        for strict in (False, True)
        for choice in ("auto", "required")
        for parallel in (False, True)
        for answer in (None, "TEXT")
        for within in (None,)
    ][: known_forms.MOST - 1]
    asked.append((Wanted([Tool("f", NUMBER)]), THINK))
    first = [forms.get(wanted, within, make) for wanted, within in asked]
    assert len(made) == len(asked) == len(set(first))
    again = [forms.get(wanted, within, make) for wanted, within in asked]
    assert all(one is other for one, other in zip(first, again, strict=True)) and len(made) == len(asked)


def test_the_oldest_is_forgotten() -> None:
    forms = KnownForms()

    def get(number: int) -> StructuredOutputs:
        return forms.get(Wanted([Tool(f"f{number}", TEXT)]), None, lambda: StructuredOutputs(regex="a"))

    first = get(0)
    for number in range(known_forms.MOST - 1):
        get(number + 1)
    assert get(0) is first
    get(known_forms.MOST)  # in place of the second
    assert get(0) is first
    second = get(1)
    assert get(1) is second
