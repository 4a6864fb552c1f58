"""Makes the tokenizer of a GGUF file, which holds tokens, their kinds, and merges or scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from turnout.core.errors import ModelError
from turnout.models.gguf.configs import token_id
from turnout.models.gguf.header import GGUFHeader
from turnout.models.gguf.metadata import Metadata

__all__ = ["tokenizer_config_of", "tokenizer_of"]

NORMAL, CONTROL, USER_DEFINED = 1, 3, 4
INSTEAD = "put the model's tokenizer.json beside the file"
LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = rf"{ENDINGS}|{LETTERS}|\p{{N}}{{1,3}}|{REST}"
QWEN2 = rf"{ENDINGS}|{LETTERS}|\p{{N}}|{REST}"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CASED = rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{{0}}|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{{0}}"
REST_WITH_SLASH = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEKKEN = rf"{CASED.replace('{0}', '')}|\p{{N}}|{REST_WITH_SLASH}"
GPT4O = rf"{CASED.replace('{0}', ENDINGS + '?')}|\p{{N}}{{1,3}}|{REST_WITH_SLASH}"
SYMBOLS = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
MARKED = r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
DEEPSEEK3 = (r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+", f"{SYMBOLS}|{MARKED}")

SPLITS: Mapping[str, str | tuple[str, ...]] = {
    "llama-bpe": LLAMA3,
    "llama3": LLAMA3,
    "llama-v3": LLAMA3,
    "falcon3": LLAMA3,
    "dbrx": LLAMA3,
    "smaug-bpe": LLAMA3,
    "qwen2": QWEN2,
    "deepseek-r1-qwen": QWEN2,
    "tekken": TEKKEN,
    "gpt-4o": GPT4O,
    "llama4": GPT4O,
    "deepseek-v3": DEEPSEEK3,
}
"""The expressions that split text before merging, by ``tokenizer.ggml.pre``: one, or several in turn."""
GPT2 = ("default", "gpt-2", "olmo", "phi-2", "jina-en", "roberta-bpe", "granite-docling")
"""Those that split as GPT-2."""
DIGITS = ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone")
"""Those that split as GPT-2 after every digit was split off."""
COMPOSED = ("qwen2", "deepseek-r1-qwen")
"""Those that compose characters first (NFC)."""
LLAMA3_KINDS = ("llama-bpe", "llama3", "llama-v3", "falcon3", "tekken")
"""Those that take a word that is a token as that token, whatever its merges give, and whose texts begin with
a token where the metadata does not say it."""


def tokenizer_of(header: GGUFHeader) -> Tokenizer:
    """Returns the tokenizer. Raises ModelError for a kind that is not read, and for damaged vocabularies."""
    said = header.tokenizer
    kind = said.text("model")
    if kind not in KINDS:
        raise said.wrong("model", f"is not read, only {' and '.join(KINDS)}; {INSTEAD}")
    tokens = _as_many(header, "tokens", said.texts("tokens"))
    types = _as_many(header, "token_type", said.integers("token_type") or [NORMAL] * len(tokens), len(tokens))
    try:
        made = KINDS[kind](header, tokens)
        for token, type_ in zip(tokens, types, strict=True):
            if type_ in (CONTROL, USER_DEFINED):
                made.add_tokens([AddedToken(token, normalized=False, special=type_ == CONTROL)])
        _surround(made, header, tokens, bos=kind == "llama" or _pre(header) in LLAMA3_KINDS)
    except ModelError:
        raise
    except Exception as error:  # the library raises bare Exception
        raise ModelError(
            f"{header.path}: tokenizer.ggml.tokens make no tokenizer: {error}; {INSTEAD}"
        ) from error
    return made


def tokenizer_config_of(header: GGUFHeader) -> dict[str, Any]:
    """Returns what ``tokenizer_config.json`` says: special tokens, and the chat templates."""
    tokens, said = header.tokenizer.texts("tokens"), {}
    for name, key in {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}.items():
        token = token_id(header, key)
        if token is not None and token < len(tokens):
            said[f"{name}_token"] = tokens[token]
    return said | _templates(header)


def _templates(header: GGUFHeader) -> dict[str, Any]:
    """Returns ``chat_template``: a text, or where there are several a list with their names."""
    default = header.whole.text("tokenizer.chat_template", "")
    others = Metadata(header.path, header.metadata, "tokenizer.chat_template.")
    templates = ({"default": default} if default else {}) | {
        name: others.text(name) for name in others.names()
    }
    if not templates.keys() - {"default"}:
        return {"chat_template": default} if default else {}
    return {"chat_template": [{"name": name, "template": text} for name, text in templates.items()]}


def _pre(header: GGUFHeader) -> str:
    return header.tokenizer.text("pre", "default")


def _bytes(header: GGUFHeader, tokens: list[str]) -> Tokenizer:
    """Byte-level BPE."""
    vocabulary = {token: index for index, token in enumerate(tokens)}
    pre, merges = _pre(header), _known_merges(header, vocabulary)
    if pre in SPLITS:
        rules = SPLITS[pre]
        steps = (rules,) if isinstance(rules, str) else rules
        split: list[Any] = [pre_tokenizers.Split(Regex(each), behavior="isolated") for each in steps]
    elif pre in DIGITS:
        split = [pre_tokenizers.Digits(individual_digits=True)]
    elif pre in GPT2:
        split = []
    else:
        known = ", ".join(sorted({*SPLITS, *DIGITS, *GPT2}))
        raise header.tokenizer.wrong("pre", f"is not read, only {known}; {INSTEAD}")
    made = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=pre in LLAMA3_KINDS))
    by_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pre not in SPLITS)
    made.pre_tokenizer = pre_tokenizers.Sequence([*split, by_bytes])
    made.decoder = decoders.ByteLevel()
    if pre in COMPOSED:
        made.normalizer = normalizers.NFC()
    return made


def _known_merges(header: GGUFHeader, vocabulary: Mapping[str, int]) -> list[tuple[str, str]]:
    merges = []
    for index, merge in enumerate(_as_many(header, "merges", header.tokenizer.texts("merges"))):
        first, _, second = merge.partition(" ")
        if not second or not {first, second, first + second} <= vocabulary.keys():
            raise ModelError(
                f"{header.path}: tokenizer.ggml.merges[{index}] = {merge!r:.80} should be two tokens, with a "
                f"space between them, that make a third; {INSTEAD}"
            )
        merges.append((first, second))
    return merges


def _sentencepiece(header: GGUFHeader, tokens: list[str]) -> Tokenizer:
    """SentencePiece's BPE: merges follow from the tokens' scores."""
    scores = _as_many(header, "scores", header.tokenizer.numbers("scores"), len(tokens))
    vocabulary = {token: index for index, token in enumerate(tokens)}
    unknown = header.tokenizer.integer("unknown_token_id", 0, least=0)
    if unknown >= len(tokens):
        raise header.tokenizer.wrong("unknown_token_id", f"is none of {len(tokens):,} tokens; {INSTEAD}")
    merges = _merges(vocabulary, scores)
    made = Tokenizer(
        models.BPE(vocabulary, merges, unk_token=tokens[unknown], fuse_unk=True, byte_fallback=True)
    )
    prefixed = header.tokenizer.flag("add_space_prefix", True)
    steps = [normalizers.Prepend("▁")] if prefixed else []
    made.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "▁")])
    back: list[Any] = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    made.decoder = decoders.Sequence([*back, *([decoders.Strip(" ", 1, 0)] if prefixed else [])])
    return made


def _merges(vocabulary: Mapping[str, int], scores: list[float]) -> list[tuple[str, str]]:
    """Returns all pairs of tokens that make a token, those of the best token first."""
    ranked = []
    for token, index in vocabulary.items():
        pairs = ((token[:cut], token[cut:]) for cut in range(1, len(token)))
        known = [pair for pair in pairs if pair[0] in vocabulary and pair[1] in vocabulary]
        known.sort(key=lambda pair: (vocabulary[pair[0]], vocabulary[pair[1]]))
        ranked += [(scores[index], pair) for pair in known]
    ranked.sort(key=lambda entry: entry[0], reverse=True)
    return [pair for _, pair in ranked]


def _surround(made: Tokenizer, header: GGUFHeader, tokens: list[str], *, bos: bool) -> None:
    """Lets every text begin with one token and end with another, where the metadata says so.

    bos: whether texts begin with one where the metadata does not say it.
    """
    first, last = _added(header, tokens, "bos", bos), _added(header, tokens, "eos", False)
    if first or last:
        one = [*(["bos"] if first else []), "$A", *(["eos"] if last else [])]
        two = [piece.replace("$A", "$B") for piece in one]
        made.post_processor = processors.TemplateProcessing(
            single=one, pair=[*one, *two], special_tokens=[*first, *last]
        )


def _added(header: GGUFHeader, tokens: list[str], name: str, default: bool) -> list[dict[str, Any]]:
    """Returns the token that is added to texts, as the library describes it; empty: none is."""
    said, wanted = header.tokenizer, f"add_{name}_token"
    if not said.flag(wanted, default):
        return []
    id = token_id(header, name)
    if id is not None and id < len(tokens):
        return [{"id": name, "ids": [id], "tokens": [tokens[id]]}]
    if not said.has(wanted):
        return []
    raise said.wrong(wanted, f"needs a {said.prefix}{name}_token_id among the {len(tokens):,} tokens")


def _as_many(header: GGUFHeader, key: str, found: list[Any], count: int | None = None) -> list[Any]:
    """Returns a list of the metadata. Raises ModelError where it is empty, or has not `count` entries."""
    if not found:
        raise ModelError(f"{header.path}: the metadata lacks tokenizer.ggml.{key}; {INSTEAD}")
    if count is not None and len(found) != count:
        raise ModelError(
            f"{header.path}: tokenizer.ggml.{key} has {len(found):,} entries for {count:,} tokens; {INSTEAD}"
        )
    return found


KINDS: Mapping[str, Callable[[GGUFHeader, list[str]], Tokenizer]] = {"gpt2": _bytes, "llama": _sentencepiece}
