"""A model that babbles: it writes any token that a grammar allows."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence

import llguidance.numpy as masks
import numpy as np
import torch
from llguidance import LLMatcher, LLTokenizer, grammar_from

from turnout.core.types.structured_outputs import FreeText
from turnout.models.hub.resolve import resolve_model
from turnout.plugins.logits_processors.structured.masks.free_text import FreeTextMasks
from turnout.plugins.logits_processors.structured.masks.token_bytes import special
from turnout.plugins.logits_processors.structured.masks.token_starts import TokenStarts
from turnout.text.tokenizer import load_tokenizer, tokenizer_json

__all__ = ["Babbler"]

MARKED = 0.3
"""How often it takes a special token where one is allowed: among thousands it would hardly ever come."""
SPELLED = 0.2
"""How often it begins to spell out a marker, as far as the grammar allows."""


class Babbler:
    """The embedded model's vocabulary with special tokens of its own, and no opinion on what to write."""

    def __init__(self, specials: Sequence[str], ends: Sequence[str] = (), words: Sequence[str] = ()) -> None:
        """specials: the texts of special tokens. ends: those of them that end an output.

        words: texts that it writes now and then, such as markers: by chance it would hardly ever write one.
        """
        folder = resolve_model("turnout-tiny")
        self._tokenizer = load_tokenizer(folder)
        self._first = self._tokenizer.vocab_size
        self.tokens = {text: self._first + number for number, text in enumerate(specials)}
        """The ids of the special tokens by their texts."""
        self._special = f"({'|'.join(map(re.escape, specials))})"
        self._texts = {id: text for text, id in self.tokens.items()}
        eos = self._tokenizer.eos_token_id
        assert eos is not None
        self._ends = {eos, *(self.tokens[text] for text in ends)}
        self._words = [self._tokenizer.encode(word, add_special_tokens=False) for word in words if word]
        self._masks: tuple[str, FreeTextMasks] | None = None
        self._table = self._with_specials(json.loads(tokenizer_json(folder)))
        self._starts = TokenStarts([self._bytes(token) for token in range(self._first)])

    def output(
        self,
        grammar: str,
        rng: random.Random,
        most: int = 300,
        begin: str = "",
        free: FreeText | None = None,
    ) -> str | None:
        """Returns an output of this grammar, in Lark; None where it has not ended after `most` tokens.

        begin: a text that the output begins with, as far as the grammar allows. free: where its text is free;
        AssertionError where the masks that are kept for that are not those of the grammar.
        """
        kept = None if free is None else self._kept(grammar, free)
        state = None if kept is None else kept.start
        matcher = LLMatcher(self._table, grammar_from("grammar", grammar))
        assert not matcher.is_error(), f"the grammar is wrong: {matcher.get_error()}\n{grammar}"
        mask = masks.allocate_token_bitmask(1, self._table.vocab_size)
        written: list[int] = []
        word = self._tokenizer.encode(begin, add_special_tokens=False)  # what it is about to write
        while not matcher.is_stopped() and len(written) < most:
            masks.fill_next_token_bitmask(matcher, mask)
            if kept is not None and state is not None:
                known = kept.find(state) or kept.derived(state, lambda id: matcher.validate_tokens([id]) == 1)
                if known is None:
                    kept.keep(state, torch.from_numpy(mask[0]))
                else:
                    assert np.array_equal(known.words.numpy(), mask[0]), (
                        f"after {self._text(written)!r}: {state}"
                    )
            allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()
            if not word and self._words and rng.random() < SPELLED:
                word = rng.choice(self._words).copy()
            marked = [token for token in allowed if token >= self._first]
            if word and word[0] in allowed:
                token = word.pop(0)
            else:
                word = []
                token = rng.choice(marked if marked and rng.random() < MARKED else allowed)
            if token in self._ends:
                return self._text(written)
            matcher.consume_token(token)
            written.append(token)
            if kept is not None and state is not None:
                state = kept.behind(state, [token])
        return self._text(written) if matcher.is_stopped() else None

    def may_write(self, grammar: str, output: str) -> bool:
        """Whether an output is one of this grammar, in Lark."""
        matcher = LLMatcher(self._table, grammar_from("grammar", grammar))
        written = [token for piece in re.split(self._special, output) for token in self._ids(piece)]
        return all(map(matcher.consume_token, written)) and matcher.is_accepting()

    def _kept(self, grammar: str, free: FreeText) -> FreeTextMasks:
        """The masks of outputs so far, if these were of the same grammar."""
        if self._masks is None or self._masks[0] != grammar:
            self._masks = grammar, FreeTextMasks(free, self._bytes, self._starts)
        return self._masks[1]

    def _bytes(self, token: int) -> bytes:
        if token in self._texts or token in self._ends:
            return special(token)
        return self._tokenizer.token_bytes(token) or b""

    @property
    def kept_masks(self) -> FreeTextMasks | None:
        """Those of the last grammar."""
        return None if self._masks is None else self._masks[1]

    def _ids(self, piece: str) -> list[int]:
        """The tokens of a special token's text, or of a text without one."""
        return [self.tokens[piece]] if piece in self.tokens else self._table.tokenize_str(piece)

    def _with_specials(self, described: dict[str, list[object]]) -> LLTokenizer:
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        for id in self._texts:  # under other names, so that no text becomes one
            described["added_tokens"].append(
                {"id": id, "content": f"<hidden-{id}>", "special": True, **flags}
            )
        size = self._first + len(self._texts)
        return LLTokenizer(json.dumps(described), n_vocab=size, eos_token=sorted(self._ends))

    def _text(self, tokens: Sequence[int]) -> str:
        pieces = (
            self._texts[id].encode() if id in self._texts else self._tokenizer.token_bytes(id) or b""
            for id in tokens
        )
        return b"".join(pieces).decode(errors="replace")
