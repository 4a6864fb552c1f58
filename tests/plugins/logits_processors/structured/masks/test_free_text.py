"""Masks that are kept for free text are those of the grammar, wherever a marker is begun and broken off."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from llguidance import LLMatcher, LLTokenizer, grammar_from
from torch import Tensor

from turnout.core.interfaces.logits_processor import ServedModel
from turnout.core.registry.registry import Registry
from turnout.core.types.output_format import OutputFormat, Region
from turnout.models.hub.resolve import resolve_model
from turnout.plugins.formats.hermes import THINK
from turnout.plugins.logits_processors.structured.bitmasks import Bitmasks, draft_paths
from turnout.plugins.logits_processors.structured.grammars import Grammars
from turnout.plugins.logits_processors.structured.masks.free_text import FreeTextMasks
from turnout.plugins.logits_processors.structured.masks.mask_time import MaskTime
from turnout.plugins.logits_processors.structured.matchers import Position
from turnout.plugins.logits_processors.structured.vocabulary import SLICES
from turnout.testing.checks.babbler import Babbler
from turnout.text.output.grammar.call_grammar import Wanted, call_form
from turnout.text.output.markers import markers
from turnout.text.output.tools import Tool
from turnout.text.tokenizer import load_tokenizer, tokenizer_json

TOOLS = [
    Tool("write", {"type": "object", "properties": {"path": {"type": "string"}, "to": {"type": "string"}}}),
    Tool(
        "note",
        {
            "type": "object",
            "properties": {
                "to": {"type": ["string", "null"]},
                "lines": {"type": "array", "items": {"type": "string"}},
                "day": {"type": "string", "pattern": "^[a-z<]+$"},
            },
        },
    ),
]
SPECIALS = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<|channel|>", "<|message|>", "<|end|>"]
SPECIALS += ["<|start|>", "<|return|>", "<|call|>", "[TOOL_CALLS]", "[THINK]", "[/THINK]"]
ENDS = ["<|return|>", "<|call|>"]


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry.load()


def wanted_ones() -> Iterator[tuple[Wanted, Region | None]]:
    for within in (None, THINK):
        yield Wanted(TOOLS), within
        yield Wanted(TOOLS, "required"), within
        yield Wanted(TOOLS, answer='%json {"type": "string"}'), within


def check(registry: Registry, name: str, specials: list[str], outputs: int, seed: int = 0) -> int:
    """The babbler compares each mask that is kept; returns how many were."""
    format = registry.create("format", name)
    assert isinstance(format, OutputFormat)
    begun = [marker[:length] for marker in markers(format) for length in (1, 3, len(marker) - 1)]
    babbler = Babbler(specials, ENDS if specials else (), [*markers(format), *begun, "é中", " \n", "a\n"])
    rng = random.Random(seed)
    kept = 0
    for wanted, within in wanted_ones():
        if within is not None and within not in format.regions:
            continue
        form = call_form(format, wanted, babbler.tokens, ends=ENDS, within=within)
        for _ in range(outputs):
            babbler.output(form.grammar or "", rng, most=80, free=form.free)
        kept += len(babbler.kept_masks or ())
    return kept


@pytest.mark.parametrize("specials", [[], SPECIALS], ids=["spelled", "special"])
@pytest.mark.parametrize("name", ["hermes", "qwen3-coder", "harmony"])
def test_kept_masks_are_the_grammars(registry: Registry, name: str, specials: list[str]) -> None:
    assert check(registry, name, specials, 3) or (name == "harmony" and not specials)


@pytest.mark.slow
@pytest.mark.parametrize("specials", [[], SPECIALS], ids=["spelled", "special"])
def test_kept_masks_are_the_grammars_of_all_formats(registry: Registry, specials: list[str]) -> None:
    for name in registry.names("format"):
        check(registry, name, specials, 60, seed=1)


def test_behind_drafts_they_are_the_grammars_too(registry: Registry) -> None:
    """Positions behind draft tokens, which may leave the grammar, beam by beam."""
    folder = resolve_model("turnout-tiny")
    tokenizer = load_tokenizer(folder)
    size = tokenizer.vocab_size
    eos = tokenizer.eos_token_id
    assert eos is not None
    table = LLTokenizer(tokenizer_json(Path(folder)), n_vocab=size, eos_token=[eos], slices=SLICES)
    hermes = registry.create("format", "hermes")
    assert isinstance(hermes, OutputFormat)
    form = call_form(hermes, Wanted(TOOLS), {})
    kept = FreeTextMasks(form.free, lambda id: tokenizer.token_bytes(id) or b"\xff") if form.free else None
    start = LLMatcher(table, grammar_from("grammar", form.grammar or ""))
    words = ["<tool_call>", "<tool", "<", '{"name": ', '"note"', "中文", "a", "\n"]
    ids = [tokenizer.encode(word, add_special_tokens=False) for word in words]
    bitmasks, clock, rng = Bitmasks(size, [eos]), MaskTime(), random.Random(3)
    for _ in range(20):
        written = [token for _ in range(rng.randint(0, 4)) for token in rng.choice(ids)]
        matcher = start.deep_copy()
        written = written[: matcher.try_consume_tokens(written)]
        drafts = [token for _ in range(3) for token in rng.choice(ids)][:5]
        positions = [tuple(drafts[:length]) for length in range(len(drafts) + 1)]
        positions += [(token,) for token in rng.choice(ids)[:1]]
        assert kept is not None
        found = []
        for masks in (None, kept, kept):
            state = None if masks is None else masks.behind(masks.start, written)
            paths = draft_paths(Position(matcher, masks, state), positions)
            computed = bitmasks.of([path for path in paths if not path.known], clock)
            masks_of = [{at: mask.words for at, mask in path.known.items()} for path in paths]
            for path, known in zip(paths, masks_of, strict=True):
                known |= {} if path.known else {at: computed[mask] for at, mask in path.masks.items()}
            found.append({at: mask for known in masks_of for at, mask in known.items()})
        plain, *others = found
        for other in others:
            assert all(torch.equal(plain[at], other[at]) for at in plain), (written, drafts)


def test_the_first_mask_is_there_and_those_of_markers_that_begin_are_derived(registry: Registry) -> None:
    """With 152,000 tokens, each of these masks takes milliseconds to compute."""
    folder = resolve_model("turnout-tiny")
    tokenizer = load_tokenizer(folder)
    eos = tokenizer.eos_token_id
    assert eos is not None
    hermes = registry.create("format", "hermes")
    assert isinstance(hermes, OutputFormat)
    form = call_form(hermes, Wanted(TOOLS), {})
    grammar = Grammars(ServedModel(folder, tokenizer.vocab_size, frozenset({eos})), 3.0).get(form)
    kept = grammar.masks
    assert kept is not None
    first = kept.find(kept.start)
    assert first is not None and torch.equal(first.words, mask_of(grammar.matcher))
    plain = tokenizer.encode("A word", add_special_tokens=False)
    matcher = grammar.matcher.deep_copy()
    assert matcher.consume_tokens(plain)
    kept.keep(kept.behind(kept.start, plain), mask_of(matcher))
    marker = "<tool_call>"
    for text in [f" {marker[:length]}" for length in range(1, len(marker))] + [" <<", " <tool<to"]:
        at, ids = matcher.deep_copy(), tokenizer.encode(text, add_special_tokens=False)
        assert at.consume_tokens(ids)
        derived = kept.derived(
            kept.behind(kept.start, [*plain, *ids]), lambda id, at=at: at.validate_tokens([id]) == 1
        )
        assert derived is not None and torch.equal(derived.words, mask_of(at)), text


def mask_of(matcher: LLMatcher) -> Tensor:
    return torch.frombuffer(bytearray(matcher.deep_copy().compute_bitmask()), dtype=torch.int32)
