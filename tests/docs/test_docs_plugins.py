"""docs/reference/plugins has every hook and method with its exact signature, and the examples work."""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Iterator
from types import ModuleType

import pytest
from documents import DOCS, PLUGINS, README, ROOT, Document, code, rows
from toy import drive, expected, toy_engine, toy_kv, toy_request

from turnout.cli.plugins.skeletons import SKELETONS
from turnout.core import interfaces
from turnout.core.interfaces import eviction, logits_processor, proposer, router
from turnout.core.interfaces import scheduling as policy
from turnout.core.interfaces.scheduling import SchedulingPolicy
from turnout.core.registry import hookspecs
from turnout.core.registry.hookspecs import HOOK_API_VERSION
from turnout.core.registry.kinds import KINDS
from turnout.core.registry.registry import Registry
from turnout.core.types.request import RequestSpec, RequestView
from turnout.core.types.views import View
from turnout.scripts.reference import types
from turnout.scripts.reference.examples import NAMES

# ------------------------------------------------------------------ what is documented

HOOKS = {name: hook for name, hook in vars(hookspecs).items() if hasattr(hook, "turnout_spec")}

PAGES = {
    policy.SchedulingPolicy: "schedulers",
    policy.LengthPredictor: "length-predictors",
    interfaces.KVBackend: "kv-backends",
    interfaces.KVCache: "kv-backends",
    interfaces.PrefixPins: "kv-backends",
    eviction.EvictionPolicy: "evictions",
    interfaces.AttentionBackend: "kv-backends",
    interfaces.Quantizer: "quantizers",
    interfaces.Adopter: "quantizers",
    interfaces.Exporter: "quantizers",
    interfaces.Decoding: "decoding",
    proposer.Proposer: "proposers",
    router.Router: "routers",
    logits_processor.LogitsProcessor: "logits-processors",
    interfaces.ModelFamily: "models",
}


def page(name: str) -> Document:
    return Document(ROOT / "docs" / "reference" / "plugins" / f"{name}.md")


def members(base: type) -> Iterator[tuple[str, object]]:
    """What a plugin may implement: public, or called."""
    for owner in base.__mro__:
        if owner.__module__.startswith("turnout."):
            for name, member in vars(owner).items():
                if (not name.startswith("_") or name == "__call__") and callable(_function(member)):
                    yield name, _function(member)


def _function(member: object) -> object:
    return member.fget if isinstance(member, property) else member


def signature(function: object) -> str:
    """As it stands in the source."""
    return str(inspect.signature(function)).replace("'", "")  # type: ignore[arg-type]


def test_every_hook_is_there_with_its_exact_signature() -> None:
    listed = [code(row[0])[0] for row in rows(PLUGINS.text.partition("\n## ")[0])]
    hooks = [f"{name}({', '.join(inspect.signature(hook).parameters)})" for name, hook in HOOKS.items()]
    assert sorted(listed) == sorted(hooks)


def test_every_kind_has_a_base_class_that_is_described() -> None:
    assert {kind.base for kind in KINDS.values()} <= PAGES.keys()
    assert {kind.hook for kind in KINDS.values()} <= HOOKS.keys()


@pytest.mark.parametrize(
    ("base", "name"),
    [pytest.param(base, name, id=f"{base.__name__}.{name}") for base in PAGES for name, _ in members(base)],
)
def test_every_method_is_there_with_its_exact_signature(base: type, name: str) -> None:
    function = dict(members(base))[name]
    # However it is wrapped: a long signature takes several lines.
    stated = "".join(page(PAGES[base]).text.split())
    assert "".join(f"def {name}{signature(function)}: ...".split()) in stated


@pytest.mark.parametrize("base", PAGES, ids=lambda base: base.__name__)
def test_abstract_methods_are_marked(base: type) -> None:
    section = page(PAGES[base]).text
    for name in getattr(base, "__abstractmethods__", ()):
        if not getattr(base, "_is_protocol", False):
            described = section.partition(f"\ndef {name}(")[2].partition("```\n")[2]
            assert described.lstrip().startswith("*Must be implemented.*"), name


@pytest.mark.parametrize("base", PAGES, ids=lambda base: base.__name__)
def test_every_class_attribute_is_there(base: type) -> None:
    section = page(PAGES[base]).text
    for name, annotation in base.__annotations__.items():
        if "ClassVar" in annotation and not name.startswith("_"):
            assert f"`{name}`, a class attribute" in section


def test_every_kind_has_an_example() -> None:
    """`python scripts/write_reference.py` writes them; tests/third_party runs the suites on them."""
    assert NAMES.keys() == SKELETONS.keys()


def test_every_page_with_an_example_is_linked() -> None:
    pages = [each.path.name for each in DOCS if "write_reference.py: example of" in each.text]
    assert len(pages) == len(NAMES)
    assert all(f"]({name})" in PLUGINS.text for name in pages)


@pytest.mark.parametrize("base", PAGES, ids=lambda base: base.__name__)
def test_it_is_said_when_a_method_is_called(base: type) -> None:
    cells = " ".join(row[0] for row in rows(page(PAGES[base]).section("When it is called")))
    for name in getattr(base, "__abstractmethods__", ()):
        if not getattr(base, "_is_protocol", False):
            assert f"`{name}`" in cells, name


def test_all_that_a_policy_sees_is_there() -> None:
    section = page("schedulers").text
    of_requests = [name for name in vars(RequestView) if not name.startswith("_")]
    assert {"arrival", "pending"} <= set(of_requests)
    for name in (*View._fields, *of_requests):
        assert re.search(rf"`{name}[`.(]", section), name


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
