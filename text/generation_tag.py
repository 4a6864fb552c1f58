"""The tag ``{% generation %} … {% endgeneration %}`` of chat templates."""

from __future__ import annotations

from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser

__all__ = ["GenerationTag"]


class GenerationTag(Extension):
    """Marks what the assistant wrote, for training. Here the tag renders as its content."""

    tags = {"generation"}  # noqa: RUF012  # as jinja2 declares it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)
