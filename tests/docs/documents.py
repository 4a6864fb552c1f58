"""Reading the documents: their code, sections, tables and links."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^()\s]+)\)")


@dataclass(frozen=True)
class Document:
    path: Path

    def __str__(self) -> str:
        return str(self.path.relative_to(ROOT))

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def prose(self) -> str:
        """Without the fenced code."""
        return _FENCE.sub("", self.text)

    def blocks(self, language: str) -> list[str]:
        return [code for name, code in _FENCE.findall(self.text) if name == language]

    @property
    def links(self) -> list[str]:
        """Targets inside the repository, with their fragments."""
        return [link for link in _LINK.findall(self.prose) if "://" not in link]

    @property
    def anchors(self) -> set[str]:
        """What a link's fragment may name, as GitHub makes it from the headings."""
        headings = re.findall(r"^#+ (.+)$", self.prose, re.MULTILINE)
        return {_slug(heading) for heading in headings} | set(re.findall(r'<a id="([^"]+)">', self.prose))

    def section(self, heading: str) -> str:
        """What stands under a heading, up to the next of its level or above. Code counts as text."""
        match = re.search(rf"^(#+) {re.escape(heading)}$", self.text, re.MULTILINE)
        assert match, f"{self} has no section {heading!r}"
        rest = self.text[match.end() :]
        following = re.search(rf"^#{{1,{len(match[1])}}} ", _FENCE.sub(_blanked, rest), re.MULTILINE)
        return rest[: following.start()] if following else rest


def rows(text: str) -> list[list[str]]:
    """The cells of all table rows in `text`, without the headers."""
    found: list[list[str]] = []
    for line in text.splitlines():
        if re.fullmatch(r"\|[-|]+\|", line):
            found.pop()  # the line above was a header
        elif line.startswith("|"):
            found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def code(cell: str) -> list[str]:
    """What stands between backticks."""
    return re.findall(r"`([^`]+)`", cell)


def _slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _blanked(match: re.Match[str]) -> str:
    """As long as before, so that offsets stay right."""
    return "\n" * len(match[0])


README = Document(ROOT / "README.md")
README_ZH = Document(ROOT / "README.zh-CN.md")
CONTRIBUTING = Document(ROOT / "CONTRIBUTING.md")
CONFIGURATION = Document(ROOT / "docs" / "reference" / "configuration.md")
SERVING = Document(ROOT / "docs" / "how-to" / "serve.md")
HTTP_API = Document(ROOT / "docs" / "reference" / "http-api.md")
PARAMETERS = Document(ROOT / "docs" / "reference" / "parameters.md")
MODELS = Document(ROOT / "docs" / "reference" / "models.md")
PLUGINS = Document(ROOT / "docs" / "reference" / "plugins" / "README.md")
TROUBLESHOOTING = Document(ROOT / "docs" / "how-to" / "troubleshoot.md")
DOCS = [Document(path) for path in sorted((ROOT / "docs").rglob("*.md"))]
ALL = [README, README_ZH, CONTRIBUTING, *DOCS]
