"""docs/reference/dependencies.md names each dependency that pyproject.toml has, and no other."""

from __future__ import annotations

import re
import tomllib

from documents import ROOT, Document, code, rows

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PAGE = Document(ROOT / "docs" / "reference" / "dependencies.md")


def names(requirements: list[str]) -> list[str]:
    return [re.match(r"[\w.-]+", requirement)[0] for requirement in requirements]


def test_every_dependency_says_what_it_is_for():
    main, _, extras = PAGE.text.partition("Extras:")
    assert sorted(code(row[0])[0].replace("_", "-") for row in rows(main)) == sorted(
        name.replace("_", "-") for name in names(PROJECT["dependencies"])
    )
    extra = {name: names(some) for name, some in PROJECT["optional-dependencies"].items() if name != "dev"}
    told = [(code(package)[0], code(name)[0]) for package, name, _ in rows(extras)]
    assert sorted(told) == sorted((package, name) for name, some in extra.items() for package in some)
