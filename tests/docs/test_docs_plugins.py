"""docs/reference/plugins says when methods are called, and its examples work."""

from __future__ import annotations

import tomllib
from types import ModuleType

import pytest
from documents import DOCS, PLUGINS, README, ROOT, Document, code, rows
from toy import drive, expected, toy_engine, toy_kv, toy_request

from turnout.cli.plugins.skeletons import SKELETONS
from turnout.core.interfaces.scheduling import SchedulingPolicy
from turnout.core.registry.hookspecs import HOOK_API_VERSION
from turnout.core.registry.kinds import KINDS
from turnout.core.registry.registry import Registry
from turnout.core.types.request import RequestSpec
from turnout.scripts.reference.pages import types
from turnout.scripts.reference.pages.examples import NAMES
from turnout.scripts.reference.pages.hooks import HOOKS
from turnout.scripts.reference.pages.interfaces import BASES

# ------------------------------------------------------------------ what is documented


def page(name: str) -> Document:
    return Document(ROOT / "docs" / "reference" / "plugins" / f"{name}.md")


def test_every_kind_has_a_base_class_that_is_described() -> None:
    assert {kind.base for kind in KINDS.values()} <= set(BASES)
    assert {kind.hook for kind in KINDS.values()} <= HOOKS.keys()


def test_every_kind_has_an_example() -> None:
    """`python scripts/write_reference.py` writes them; tests/third_party runs the suites on them."""
    assert NAMES.keys() == SKELETONS.keys()


def test_every_page_with_an_example_is_linked() -> None:
    pages = [each.path.name for each in DOCS if "write_reference.py: example of" in each.text]
    assert len(pages) == len(NAMES)
    assert all(f"]({name})" in PLUGINS.text for name in pages)


@pytest.mark.parametrize("base", BASES, ids=lambda base: base.__name__)
def test_it_is_said_when_a_method_is_called(base: type) -> None:
    (where,) = [each for each in DOCS if f": members of {base.__name__} -->" in each.text]
    cells = " ".join(row[0] for row in rows(where.section("When it is called")))
    for name in getattr(base, "__abstractmethods__", ()):
        if not getattr(base, "_is_protocol", False):
            assert f"`{name}`" in cells, name


ELSEWHERE = {"Drop", "Share", "Completion", "ExportedLayer"}
"""Described with the methods that take or give them."""


def test_all_that_plugins_are_given_is_listed() -> None:
    """By the list that the code is held against."""
    recorded = (ROOT / "tests" / "core" / "hook_api.txt").read_text().splitlines()
    promised = {line.removeprefix("given ") for line in recorded if line.startswith("given ")} - types.UNTOLD
    listed = set()
    for part in page("types").text.split("\n**")[1:]:
        kind = part.partition("**")[0]
        listed |= {f"{kind}.{code(row[0])[0].partition('(')[0]}" for row in rows(part)}
    assert not {name for name in promised - listed if name.partition(".")[0] not in ELSEWHERE}
    assert not listed - promised


def test_the_version_is_the_version() -> None:
    assert f"`turnout_hook_api = {HOOK_API_VERSION}`" in PLUGINS.prose
    assert f"which is {HOOK_API_VERSION} now" in PLUGINS.prose


def test_names_are_where_they_are_said_to_be() -> None:
    paragraph = PLUGINS.prose.partition("Names not exported by")[2].partition("`TokenSequence`")[0]
    module, found = None, 0
    for name in code(paragraph)[1:]:
        if name.startswith("turnout."):
            module = __import__(name, fromlist=["_"])
        else:
            assert hasattr(module, name), f"{module} has no {name}"
            found += 1
    assert found > 8


# ------------------------------------------------------------------ what is shown


def examples() -> list[object]:
    """Every block of Python that is a plugin, in any document."""
    return [
        pytest.param(block, id=f"{document} {number}")
        for document in (README, *DOCS)
        for number, block in enumerate(document.blocks("python"), 1)
        if "\n@hookimpl" in block
    ]


def plugin(source: str) -> ModuleType:
    module = ModuleType("example_plugin")
    exec(compile(source, "example_plugin.py", "exec"), vars(module))
    return module


def example(document_blocks: list[str], name: str) -> ModuleType:
    (source,) = [block for block in document_blocks if f"class {name}(" in block]
    return plugin(source)


def test_there_are_examples() -> None:
    assert len(examples()) >= 3


@pytest.mark.parametrize("source", examples())
def test_an_example_loads(source: str) -> None:
    registry = Registry.load(extra=[plugin(source)])
    offered = [entry for entry in registry.entries() if entry.distribution == "example_plugin"]
    assert offered and all(entry.state == "ok" for entry in offered), offered
    for entry in offered:
        if entry.kind in KINDS:
            assert registry.create(entry.kind, entry.name)


@pytest.mark.parametrize("source", examples())
def test_a_scheduler_that_is_shown_serves_everything(source: str) -> None:
    """Strictly: a fault would be an error."""
    registry = Registry.load(extra=[plugin(source)])
    for entry in registry.entries():
        if (entry.kind, entry.distribution) == ("scheduler", "example_plugin"):
            serve_everything(registry.create("scheduler", entry.name))


def serve_everything(policy: SchedulingPolicy) -> None:
    engine = toy_engine(policy, toy_kv(12, 4), slots=3, strict=True)
    specs = [toy_request(f"r{i}", [1 + i % 5] * (1 + 7 * i % 11), "greedy", 6) for i in range(12)]
    outcome = drive(engine, [(i // 3, spec) for i, spec in enumerate(specs)])
    for spec in specs:
        assert outcome.outputs(spec.id) == expected(spec)


# Step and length of prompts: the last comes later than the others. The toy's clock ticks when it is read.
ARRIVALS = [(0, 9), (0, 3), (2, 6)]


def order_of_ends(policy: SchedulingPolicy) -> list[int]:
    """Lengths of the prompts, in the order in which they were served, one at a time."""
    engine = toy_engine(policy, toy_kv(64, 4), slots=1, strict=True)
    requests: list[tuple[int, RequestSpec]] = [
        (step, toy_request(f"{length}", [1] * length, "greedy", 5)) for step, length in ARRIVALS
    ]
    return [int(name) for name in drive(engine, requests).finished]


def test_the_readme_serves_the_shortest_prompt_first() -> None:
    registry = Registry.load(extra=[example(README.blocks("python"), "ShortestPromptFirst")])
    assert order_of_ends(registry.create("scheduler", "spf")) == [3, 6, 9]
    assert order_of_ends(registry.create("scheduler", "fcfs")) == [9, 3, 6]


def test_the_option_of_the_example_does_what_it_says() -> None:
    registry = Registry.load(extra=[example(PLUGINS.blocks("python"), "ShortestWithAging")])
    assert order_of_ends(registry.create("scheduler", "aging:aging=0")) == [3, 6, 9]
    assert order_of_ends(registry.create("scheduler", "aging:aging=2")) == [3, 9, 6]
    assert order_of_ends(registry.create("scheduler", "aging:aging=1000")) == [9, 3, 6]


def test_the_options_of_the_example_are_shown_as_they_are() -> None:
    registry = Registry.load(extra=[example(PLUGINS.blocks("python"), "ShortestWithAging")])
    (option,) = registry.options("scheduler", "aging")
    shown = f"  {option.name}  {option.type}  default {option.default}  {option.help}\n"
    assert shown in PLUGINS.section("Registering")


def test_the_entry_point_is_in_the_right_group() -> None:
    (block,) = PLUGINS.blocks("toml")
    assert tomllib.loads(block)["project"]["entry-points"] == {"turnout": {"aging": "turnout_aging"}}
