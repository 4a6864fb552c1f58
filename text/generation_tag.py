"""``{% generation %} … {% endgeneration %}`` in chat templates."""

from __future__ import annotations

from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser

__all__ = ["GenerationTag"]


class GenerationTag(Extension):
    """Marks what an assistant wrote, for training; a server renders just what it encloses."""

    tags = {"generation"}  # noqa: RUF012  # declared so by jinja2

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)
