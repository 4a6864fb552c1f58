"""Measures what a grammar of calls costs: to build, to compile, and for each token's mask.

An answer that calls a tool is followed under the grammar of each format; its masks are timed one by one.
Markers are spelled out, since the made-up vocabulary has no tokens for them: the worst case.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import click
from llguidance import LLMatcher, LLTokenizer, grammar_from
from structured_output import (  # type: ignore[import-not-found]  # a script beside this one
    LARGE,
    longest_first,
    made_up,
    tokens_of,
)

from turnout.core.registry.registry import Registry
from turnout.plugins.logits_processors.structured.bitmasks import Bitmasks, draft_paths
from turnout.plugins.logits_processors.structured.masks.free_text import FreeTextMasks
from turnout.plugins.logits_processors.structured.masks.mask_time import MaskTime
from turnout.plugins.logits_processors.structured.masks.token_starts import TokenStarts
from turnout.plugins.logits_processors.structured.matchers import Position
from turnout.plugins.logits_processors.structured.vocabulary import SLICES
from turnout.text.output.grammar.call_grammar import Wanted, call_form
from turnout.text.output.tools import Tool

PASSES = 4
TEXT = "A long answer with words and 中文, and lines.\n" * 3
BODIES = {
    "hermes": '<tool_call>\n{"name": "tool_7", "arguments": {"path": "%s", "lines": [1, 20], "deep": true}}\n'
    "</tool_call>",
    "qwen3-coder": "<tool_call>\n<function=tool_7>\n<parameter=path>\n%s\n</parameter>\n<parameter=lines>\n"
    "[1, 20]\n"
    "</parameter>\n<parameter=deep>\ntrue\n</parameter>\n</function>\n</tool_call>",
    "pythonic": '[tool_7(path="%s", lines=[1, 20], deep=True)]',
}
PARAMETERS = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "where " * 50},
        "lines": {"type": "array", "items": {"type": "integer"}, "maxItems": 2},
        "deep": {"type": "boolean"},
        "mode": {"enum": ["read", "write"]},
        "note": {"type": ["string", "null"]},
    },
    "required": ["path"],
    "additionalProperties": False,
}


@click.command()
@click.option("--tools", "count", default=40, show_default=True, help="Tools that the request offers.")
@click.option("--tokens", default=LARGE, show_default=True, help="Tokens of the vocabulary.")
def main(count: int, tokens: int) -> None:
    """Prints, for each format, the time to build and compile the grammar, and that of a mask."""
    registry = Registry.load()
    offered = [Tool(f"tool_{number}", PARAMETERS) for number in range(count)]
    with tempfile.TemporaryDirectory() as folder:
        made_up(Path(folder), tokens)
        texts = tokens_of(Path(folder))
        table = LLTokenizer(
            (Path(folder) / "tokenizer.json").read_text(), n_vocab=len(texts), eos_token=[0], slices=SLICES
        )
    starts = TokenStarts(texts)
    for name, body in BODIES.items():
        begun = time.perf_counter()
        form = call_form(registry.create("format", name), Wanted(offered), {})  # type: ignore[arg-type]
        built = time.perf_counter()
        grammar = form.grammar or ""
        matcher = LLMatcher(table, grammar_from("grammar", grammar), log_level=0)
        compiled = time.perf_counter()
        masks = None if form.free is None else FreeTextMasks(form.free, texts.__getitem__, starts)
        said = body % ("src/a file.py " * 10)
        ids = longest_first(texts, (said if name == "pythonic" else TEXT + said).encode())
        passes = [mask_times(Position(matcher.deep_copy(), masks), ids, len(texts)) for _ in range(PASSES)]
        later = [each for times in passes[1:] for each in times]
        click.echo(
            f"{name}: grammar of {len(grammar):,} characters built in {1e3 * (built - begun):.1f} ms, "
            f"compiled in {1e3 * (compiled - built):.1f} ms; mask of {len(ids)} tokens, mean of the first "
            f"request {statistics.mean(passes[0]):.0f} µs, of later ones {statistics.mean(later):.0f} µs, "
            f"median {statistics.median(later):.0f} µs"
        )


def mask_times(at: Position, ids: list[int], vocab_size: int) -> list[float]:
    """Microseconds of processor time for each token: its mask, and following the output to it."""
    times: list[float] = []
    bitmasks, clock = Bitmasks(vocab_size, ()), MaskTime()
    state = None if at.masks is None else at.masks.start
    for token in ids:
        start = time.thread_time()
        paths = draft_paths(Position(at.matcher, at.masks, state), [()])
        bitmasks.of([path for path in paths if not path.known], clock)
        if at.masks is not None and state is not None:
            state = at.masks.behind(state, [token])
        times.append((time.thread_time() - start) * 1e6)
        if not at.matcher.consume_token(token):
            raise SystemExit(f"the grammar does not allow the token {token}")
    return times


if __name__ == "__main__":
    main()
