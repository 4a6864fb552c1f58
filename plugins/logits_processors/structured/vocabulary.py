"""What a process needs to compile forms for a model."""

from __future__ import annotations

import msgspec
from llguidance import LLTokenizer

from turnout.plugins.logits_processors.structured.masks.token_bytes import TokenBytes, special
from turnout.plugins.logits_processors.structured.masks.token_starts import TokenStarts

__all__ = ["SLICES", "Vocabulary"]

CHARACTERS = r'[^"\\\x00-\x1F\x7F]'
SLICES = [CHARACTERS + "{1,10}", CHARACTERS + "{1,30}", CHARACTERS + "+"]
"""Forms of tokens in JSON strings, which are examined once instead of for each mask. They are llguidance's
defaults without the slice for blanks, which does not go with the white space between the parts of JSON.
"""


class Vocabulary(msgspec.Struct, frozen=True, kw_only=True):
    """A model's tokens; plain data, since processes send it to each other."""

    tokenizer: str
    """The text of the changed ``tokenizer.json``."""
    size: int
    """Columns of the logits."""
    ends: list[int]
    """End-of-sequence tokens."""
    specials: dict[str, int]
    """The ids of the special tokens, by their names."""

    def tables(self) -> LLTokenizer:
        """Builds llguidance's tables, which takes about a second for 150,000 tokens."""
        return LLTokenizer(self.tokenizer, n_vocab=self.size, eos_token=self.ends, slices=SLICES)

    def token_bytes(self, tables: LLTokenizer) -> TokenBytes:
        """Returns what tells the bytes of a token. tables: those of this vocabulary."""
        specials = {*self.ends, *self.specials.values()}
        return lambda token: special(token) if token in specials else tables.decode_bytes([token])

    def token_starts(self, tables: LLTokenizer) -> TokenStarts:
        """Returns what finds tokens by how they begin. tables: those of this vocabulary."""
        return TokenStarts(list(map(self.token_bytes(tables), range(self.size))))
