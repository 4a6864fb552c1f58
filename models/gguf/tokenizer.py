"""Makes the tokenizer of a GGUF file, which holds tokens, their kinds, and merges or scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from turnout.core.errors import ModelError
from turnout.models.gguf.header import GGUFHeader

__all__ = ["tokenizer_config_of", "tokenizer_of"]

CONTROL, USER_DEFINED = 3, 4
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


def tokenizer_of(header: GGUFHeader) -> Tokenizer:
    """Returns the tokenizer. Raises ModelError for a kind that is not read."""
    kind = str(header.metadata.get("tokenizer.ggml.model"))
    if kind not in KINDS:
        raise ModelError(
            f"{header.path}: tokenizer.ggml.model = {kind!r} is not read, only {' and '.join(KINDS)}; put "
            "the model's tokenizer.json beside the file"
        )
    tokens = _listed(header, "tokens")
    made = KINDS[kind](header, tokens)
    types = _listed(header, "token_type", needed=False) or [1] * len(tokens)
    for token, type_ in zip(tokens, types, strict=True):
        if type_ == CONTROL:
            made.add_special_tokens([AddedToken(token, normalized=False, special=True)])
        elif type_ == USER_DEFINED:
            made.add_tokens([AddedToken(token, normalized=False, special=False)])
    if header.metadata.get("tokenizer.ggml.add_bos_token", kind == "llama" or _pre(header) in LLAMA3_NAMES):
        _begin_with(made, tokens, header)
    return made


def tokenizer_config_of(header: GGUFHeader) -> dict[str, Any]:
    """Returns what ``tokenizer_config.json`` says: special tokens, and the chat template."""
    tokens, said = _listed(header, "tokens"), {}
    for name, key in {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}.items():
        token = header.metadata.get(f"tokenizer.ggml.{key}_token_id")
        if type(token) is int and token < len(tokens):
            said[f"{name}_token"] = tokens[token]
    template = header.metadata.get("tokenizer.chat_template")
    return said | ({"chat_template": template} if isinstance(template, str) else {})


LLAMA3_NAMES = ("llama-bpe", "llama3", "llama-v3")


def _pre(header: GGUFHeader) -> str:
    return str(header.metadata.get("tokenizer.ggml.pre", "default"))


def _bytes(header: GGUFHeader, tokens: list[str]) -> Tokenizer:
    """Byte-level BPE."""
    vocabulary = {token: index for index, token in enumerate(tokens)}
    merges = [tuple(merge.split(" ", 1)) for merge in _listed(header, "merges")]
    pre = _pre(header)
    made = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=pre in LLAMA3_NAMES))
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
        raise ModelError(
            f"{header.path}: tokenizer.ggml.pre = {pre!r} is not read, only {known}; put the model's "
            "tokenizer.json beside the file"
        )
    by_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pre not in SPLITS)
    made.pre_tokenizer = pre_tokenizers.Sequence([*split, by_bytes])
    made.decoder = decoders.ByteLevel()
    if pre in COMPOSED:
        made.normalizer = normalizers.NFC()
    return made


def _sentencepiece(header: GGUFHeader, tokens: list[str]) -> Tokenizer:
    """SentencePiece's BPE: merges follow from the tokens' scores."""
    scores = _listed(header, "scores")
    vocabulary = {token: index for index, token in enumerate(tokens)}
    unknown = header.metadata.get("tokenizer.ggml.unknown_token_id", 0)
    merges = _merges(vocabulary, scores)
    made = Tokenizer(
        models.BPE(vocabulary, merges, unk_token=tokens[unknown], fuse_unk=True, byte_fallback=True)
    )
    prefixed = header.metadata.get("tokenizer.ggml.add_space_prefix", True)
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


def _begin_with(made: Tokenizer, tokens: list[str], header: GGUFHeader) -> None:
    """Lets every text begin with the token that the metadata names."""
    token = header.metadata.get("tokenizer.ggml.bos_token_id")
    if type(token) is int and token < len(tokens):
        first = tokens[token]
        made.post_processor = processors.TemplateProcessing(
            single=f"{first} $A", pair=f"{first} $A {first} $B", special_tokens=[(first, token)]
        )


def _listed(header: GGUFHeader, key: str, *, needed: bool = True) -> list[Any]:
    found = header.metadata.get(f"tokenizer.ggml.{key}")
    if not isinstance(found, list):
        if not needed:
            return []
        raise ModelError(
            f"{header.path}: the metadata lacks tokenizer.ggml.{key}; put the model's "
            "tokenizer.json beside the file"
        )
    return found


KINDS: Mapping[str, Callable[[GGUFHeader, list[str]], Tokenizer]] = {"gpt2": _bytes, "llama": _sentencepiece}
