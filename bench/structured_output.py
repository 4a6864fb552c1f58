"""Measures what structured output costs a token: compiling a schema, finding its masks, applying them.

One JSON text is followed under its schema, with turnout-tiny's vocabulary and with one made up that is as
large as Qwen2.5's. xgrammar is measured beside llguidance where it is installed.
"""

from __future__ import annotations

import importlib
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click
import torch
from llguidance import LLMatcher, LLTokenizer
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from turnout.core.engine.logits_processing import LogitsProcessors, adjust
from turnout.core.interfaces.logits_processor import Row, ServedModel
from turnout.core.types.request import Request, RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.core.types.structured_outputs import StructuredOutputs
from turnout.models.hub.resolve import resolve_model
from turnout.plugins.decoding.greedy import Greedy
from turnout.plugins.logits_processors.structured.vocabulary import SLICES
from turnout.plugins.logits_processors.structured_output import StructuredOutput
from turnout.text.token_bytes import token_bytes

LARGE = 151_936
PASSES = 3
LETTERS = "etaoinshrdlucmfwypvbgkjqxz"
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 5},
        "kind": {"enum": ["a", "b", "cde"]},
        "address": {
            "type": "object",
            "properties": {"street": {"type": "string"}, "zip": {"type": "string", "pattern": "^[0-9]{5}$"}},
            "required": ["street", "zip"],
            "additionalProperties": False,
        },
    },
    "required": ["name", "age", "tags", "kind", "address"],
    "additionalProperties": False,
}
VALUE = {
    "name": "Some 中文 name here",
    "age": 42,
    "tags": ["one", "two three"],
    "kind": "cde",
    "address": {"street": "A long street with words 12", "zip": "12345"},
}

# ------------------------------------------------------------------ vocabularies


def made_up(folder: Path, size: int) -> None:
    """A byte-level tokenizer.json: English-looking words, Chinese ones, punctuation."""
    rng = random.Random(0)
    texts = dict.fromkeys(pre_tokenizers.ByteLevel.alphabet())
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    while len(texts) < size - 1:
        ((text, _),) = level.pre_tokenize_str(_word(rng))
        texts[text] = None
    tokenizer = Tokenizer(models.BPE({text: id for id, text in enumerate(texts, 1)} | {"<|end|>": 0}, []))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|end|>", special=True)])
    tokenizer.save(str(folder / "tokenizer.json"))


def _word(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.7:
        letters = rng.choices(LETTERS, weights=range(len(LETTERS), 0, -1), k=rng.randint(2, 10))
        return rng.choice(["", " "]) + "".join(letters)
    if kind < 0.9:
        return "".join(chr(rng.randint(0x4E00, 0x9FFF)) for _ in range(rng.randint(1, 3)))
    return "".join(rng.choices(' \n\t{}[]":,;()._-=+*/<>!0123456789', k=rng.randint(2, 6)))


def tokens_of(folder: Path) -> list[bytes]:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    bytes_of = token_bytes(tokenizer)
    assert bytes_of is not None
    return [bytes_of(id) for id in range(tokenizer.get_vocab_size())]


def longest_first(tokens: list[bytes], text: bytes) -> list[int]:
    ids = {token: id for id, token in reversed(list(enumerate(tokens))) if token and id}
    found = []
    while text:
        length = next(n for n in range(min(30, len(text)), 0, -1) if text[:n] in ids)
        found.append(ids[text[:length]])
        text = text[length:]
    return found


# ------------------------------------------------------------------ the libraries


class Library(NamedTuple):
    """How a library is used; `begin` compiles the schema anew."""

    vocabulary: Callable[[], object]
    begin: Callable[[], object]
    mask: Callable[[], object]
    accept: Callable[[int], object]


def llguidance(folder: Path, tokens: list[bytes]) -> Library:
    text = (folder / "tokenizer.json").read_text()
    made: dict[str, Any] = {}
    mask = torch.empty((len(tokens) + 31) // 32, dtype=torch.int32)

    def vocabulary() -> None:
        made["vocabulary"] = LLTokenizer(text, n_vocab=len(tokens), eos_token=[0], slices=SLICES)

    def begin() -> None:
        grammar = LLMatcher.grammar_from_json_schema(SCHEMA)
        made["matcher"] = LLMatcher(made["vocabulary"], grammar, log_level=0)

    return Library(
        vocabulary,
        begin,
        lambda: made["matcher"].unsafe_compute_mask_ptr(mask.data_ptr(), 4 * len(mask)),
        lambda token: made["matcher"].consume_token(token),
    )


def xgrammar(folder: Path, tokens: list[bytes]) -> Library:
    xgr: Any = importlib.import_module("xgrammar")  # not among what the project installs

    made: dict[str, Any] = {}
    mask = xgr.allocate_token_bitmask(1, len(tokens))

    def vocabulary() -> None:
        made["vocabulary"] = xgr.TokenizerInfo(
            tokens, vocab_type=xgr.VocabType.RAW, vocab_size=len(tokens), stop_token_ids=[0]
        )

    def begin() -> None:
        compiler = xgr.GrammarCompiler(made["vocabulary"], max_threads=1, cache_enabled=False)
        made["matcher"] = xgr.GrammarMatcher(compiler.compile_json_schema(json.dumps(SCHEMA)))

    return Library(
        vocabulary,
        begin,
        lambda: made["matcher"].fill_next_token_bitmask(mask),
        lambda token: made["matcher"].accept_token(token),
    )


def timed(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def followed(library: Library, path: list[int]) -> list[float]:
    """Seconds: for the schema, then for each token's mask."""
    times = [timed(library.begin)]
    for token in path:
        times.append(timed(library.mask))
        assert library.accept(token)
    return times


def medians(passes: list[list[float]]) -> list[float]:
    """Place by place: a pass that was interrupted says nothing about the place it was at."""
    return [statistics.median(times) for times in zip(*passes, strict=True)]


def compare(folder: Path, tokens: list[bytes], path: list[int]) -> None:
    heads = ("vocabulary", "schema", "mask mean", "median", "p90", "most")
    click.echo(f"{'':12}" + "".join(f"{head:>11}" for head in heads))
    for make in (llguidance, xgrammar):
        try:
            library = make(folder, tokens)
        except ImportError:
            click.echo(f"{make.__name__:12}is not installed")
            continue
        vocabulary = timed(library.vocabulary)
        schema, *masks = medians([followed(library, path) for _ in range(PASSES)])
        masks.sort()
        columns = (statistics.mean(masks), statistics.median(masks), masks[9 * len(masks) // 10], masks[-1])
        cells = [f"{1e3 * vocabulary:.0f} ms", f"{1e3 * schema:.1f} ms"]
        cells += [f"{1e6 * seconds:.0f} us" for seconds in columns]
        click.echo(f"{make.__name__:12}" + "".join(f"{cell:>11}" for cell in cells))


# ------------------------------------------------------------------ the processor


def with_processor(folder: Path, vocab_size: int, path: list[int], rows: int) -> list[float]:
    """Seconds for each step, all rows at the same place in their text."""
    processor = StructuredOutput()
    processor.start(ServedModel(folder, vocab_size, frozenset({0})))
    processors = LogitsProcessors([("structured output", processor)])
    params = SamplingParams(max_tokens=1000, structured_outputs=StructuredOutputs(json=SCHEMA))
    requests = []
    for number in range(rows):
        spec = RequestSpec(id=str(number), prompt=[1], params=params, seed=0)
        requests.append(Request(spec, Greedy(), 0.0, 1001, frozenset({0})))
        requests[-1].processors = processors.wanted(requests[-1])
    asked = [Row(request.live[0], 0) for request in requests]
    logits, times = torch.randn(rows, vocab_size), []
    for token in path:
        times.append(timed(lambda: adjust(logits, asked)))
        for row in asked:
            row.sequence.tokens.append(token)
    assert all(row.request.fault is None for row in asked)
    return times


@click.command(help=__doc__)
@click.option("--rows", multiple=True, default=(1, 8, 32), show_default=True, help="Sequences in a step.")
def main(rows: tuple[int, ...]) -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as large:
        made_up(Path(large), LARGE)
        for name, folder in (("turnout-tiny", resolve_model("turnout-tiny")), ("made up", Path(large))):
            tokens = tokens_of(folder)
            path = longest_first(tokens, json.dumps(VALUE, ensure_ascii=False).encode())
            click.echo(f"\n{name}: {len(tokens):,} tokens, a text of {len(path)}")
            compare(folder, tokens, path)
            for count in rows:
                passes = [with_processor(folder, len(tokens), path, count) for _ in range(PASSES)]
                median = statistics.median(medians(passes))
                each = 1e6 * median / count
                click.echo(f"whole step, {count:>3} rows: {1e3 * median:.2f} ms, {each:.0f} us a row")


if __name__ == "__main__":
    main()
