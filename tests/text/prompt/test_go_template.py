"""Ollama's templates of one prompt, held against what Go's text/template makes of them."""

from __future__ import annotations

from contextlib import suppress

import pytest

from turnout.core.errors import RequestError
from turnout.text.prompt.go_template import render

SYSTEM = "{{ if .System }}<|system|>{{ .System }}{{ end }}{{ if .Prompt }}<|user|>{{ .Prompt }}{{ end }}"
TOLD = {"System": "Be short.", "Prompt": "Hi", "Suffix": ""}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ .Prompt }}", "Hi"),
        ("plain", "plain"),
        (SYSTEM, "<|system|>Be short.<|user|>Hi"),
        ("{{ .Prompt }}<|end|>{{ .Response }}<|end|>", "Hi<|end|>"),
        ("{{ if .Suffix }}<PRE>{{ else }}plain {{ end }}{{ .Prompt }}", "plain Hi"),
        ("{{ if .Suffix }}a{{ else if .System }}b{{ else }}c{{ end }}", "b"),
        ("{{ if .Suffix }}{{ .Response }}{{ end }}{{ .Prompt }}", "Hi"),
        ("{{ if .System }}{{ if .Suffix }}a{{ else }}b{{ end }}{{ else }}c{{ end }}", "b"),
        ("a \n {{- .Prompt -}} \n b", "aHib"),
        ("a {{- /* nothing */ -}} b", "ab"),
        ("{{ if and .System .Prompt }}a{{ end }}{{ if or .Suffix .Prompt }}b{{ end }}", "ab"),
        ("{{ if not .Suffix }}a{{ end }}", "a"),
        ("{{.Prompt}}{{if .System}}!{{end}}", "Hi!"),
    ],
)
def test_what_a_template_makes(template: str, expected: str) -> None:
    assert render(template, TOLD) == expected


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{{ range .Messages }}{{ end }}", "range .Messages"),
        ("{{ .Nothing }}", ".Nothing"),
        ("{{ if .Prompt }}", "no 'end'"),
        ("{{ .Prompt", "has no }}"),
        ("{{ if  }}{{ end }}", "{{"),
        ("{{ if .Prompt }}" * 100, "64 branches"),
        ("{{ .Prompt }}" * 600_000, "more than 1,048,576 characters"),
        ("{{ end }}", "without an 'if'"),
        ("{{ else }}", "without an 'if'"),
        ("{{ if eq .Prompt .System }}a{{ end }}", "if eq"),
        ("{{ if .Suffix }}{{ else where }}{{ end }}", "else where"),
    ],
)
def test_what_is_not_known_is_refused_by_name(template: str, why: str) -> None:
    with pytest.raises(RequestError) as refused:
        render(template, TOLD)
    assert why in str(refused.value) and refused.value.param == "template"


def test_a_long_template_takes_no_longer_than_its_length() -> None:
    """A regular expression tried each space anew: 100,000 of them took minutes."""
    branch = "{{ if .Prompt }}{{ end }}"
    for template in (" " * 10**6, "{{" + " " * 10**6 + "}}", branch + "{" * 10**6 + "}}", branch * 50_000):
        with suppress(RequestError):
            render(template, TOLD)
