"""Prompts that have a model fill in the middle of a text, by the tokens that its tokenizer has for that.

Which tokens, and in which order, is each family's own; a tokenizer that has none of these sets cannot do it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from turnout.core.errors import RequestError
from turnout.text.tokenizer import Tokenizer

__all__ = ["NO_FILL_IN", "FillIn", "fill_in_of", "needed_fill_in"]

PROJECT = "project"
"""A name for the repository, which Qwen2.5-Coder and StarCoder2 expect before files."""
GUARD = "☺"
"""Stands before a text to keep SentencePiece's space from it, as CodeLlama's own code does."""
NO_FILL_IN = (
    "this model cannot fill in the middle of a text: its tokenizer has no tokens for that (known are those "
    "of Qwen2.5-Coder, StarCoder, CodeLlama, CodeGemma, DeepSeek-Coder, Codestral and CodeGeeX)"
)
"""Why a request that fills in is refused."""


@dataclass(frozen=True)
class Markers:
    """The tokens of a family, as its vocabulary spells them."""

    prefix: str
    suffix: str
    middle: str = ""
    """Where the missing part begins; empty: behind the prefix, which then comes last."""
    ends: tuple[str, ...] = ()
    """Tokens that end the missing part, beside the model's own end, where the vocabulary has them."""
    repository: str = ""
    """Comes before a repository's name."""
    file: str = ""
    """Comes before a file's name."""


FAMILIES = (
    Markers(  # Qwen2.5-Coder, https://arxiv.org/abs/2409.12186
        "<|fim_prefix|>",
        "<|fim_suffix|>",
        "<|fim_middle|>",
        ("<|endoftext|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"),
        "<|repo_name|>",
        "<|file_sep|>",
    ),
    Markers(  # CodeGemma, https://ai.google.dev/gemma/docs/codegemma/model_card
        "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", ("<|file_separator|>",)
    ),
    Markers(  # StarCoder2, https://arxiv.org/abs/2402.19173
        "<fim_prefix>",
        "<fim_suffix>",
        "<fim_middle>",
        ("<|endoftext|>", "<file_sep>", "<repo_name>", "<fim_pad>"),
        "<repo_name>",
        "<file_sep>",
    ),
    Markers(  # StarCoder, https://arxiv.org/abs/2305.06161, and Granite
        "<fim_prefix>", "<fim_suffix>", "<fim_middle>", ("<|endoftext|>", "<fim_pad>", "<filename>")
    ),
    Markers(  # SantaCoder
        "<fim-prefix>", "<fim-suffix>", "<fim-middle>", ("<|endoftext|>", "<fim-pad>")
    ),
    Markers("▁<PRE>", "▁<SUF>", "▁<MID>", ("▁<EOT>",)),  # CodeLlama, https://arxiv.org/abs/2308.12950
    Markers(  # DeepSeek-Coder, https://arxiv.org/abs/2401.14196: a hole between prefix and suffix
        "<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>", ("<|EOT|>",)
    ),
    Markers("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>", ("<|endoftext|>",)),  # CodeGeeX
    Markers("[PREFIX]", "[SUFFIX]"),  # Codestral: the suffix first
)
"""The first whose tokens the vocabulary has, all of them, is taken."""


@dataclass(frozen=True)
class FillIn:
    """Makes prompts of what stands before and after a missing part."""

    tokenizer: Tokenizer
    markers: Markers
    limit: int | None = None
    """Most tokens of a text; a longer one is refused before it is encoded."""

    @property
    def ends(self) -> list[int]:
        """The tokens that end the missing part, beside the model's own end."""
        return [id for text in self.markers.ends if (id := self._id(text)) is not None]

    def tokens(self, text: str) -> list[int]:
        """The tokens of a text, in which control tokens are plain text. Raises RequestError."""
        return self.tokenizer.encode_literally(text, limit=self.limit) if text else []

    def suffix(self, text: str) -> list[int]:
        """The tokens of what stands after the missing part, without SentencePiece's space before a text."""
        spaced = self.tokens("x")
        if not self.tokenizer.spelling(spaced[0]).startswith("▁"):
            return self.tokens(text)
        alone, joined = self.tokens(GUARD), self.tokens(GUARD + text)
        return joined[len(alone) :] if joined[: len(alone)] == alone else self.tokens(text)

    def prompt(self, prefix: str | Sequence[int], suffix: Sequence[int], said: str = "") -> list[int]:
        """The tokens of a prompt.

        prefix: what stands before the missing part, as text or as tokens.
        suffix: what stands after it, as of `suffix`.
        said: how the missing part begins.
        """
        before = self.tokens(prefix) if isinstance(prefix, str) else list(prefix)
        markers = self.markers
        if not markers.middle:
            return [
                *self._start(),
                self._known(markers.suffix),
                *suffix,
                self._known(markers.prefix),
                *before,
                *self.tokens(said),
            ]
        return [
            *self._start(),
            self._known(markers.prefix),
            *before,
            self._known(markers.suffix),
            *suffix,
            self._known(markers.middle),
            *self.tokens(said),
        ]

    def file(self, name: str, text: str) -> list[int]:
        """The tokens of another file of the repository. Raises RequestError for one that is too long."""
        if not self.markers.repository:
            return self.tokens(f"--- snippet ---\n\n{text}\n")
        return [self._known(self.markers.file), *self.tokens(f"{name}\n{text}\n")]

    def behind(self, files: Sequence[Sequence[int]], prompt: Sequence[int], room: int) -> list[int]:
        """A prompt behind other files, as of `file`: as many of the last ones as fit into `room` tokens."""
        begin, start = self._start(), self._before_files
        own = [*self._named("filename\n"), *prompt[len(begin) :]]
        left = room - len(begin) - len(start) - len(own)
        first = len(files)
        while first and len(files[first - 1]) <= left:
            first -= 1
            left -= len(files[first])
        if first == len(files):
            return list(prompt)
        return [*begin, *start, *(token for file in files[first:] for token in file), *own]

    @property
    def _before_files(self) -> list[int]:
        repository = self.markers.repository
        return [self._known(repository), *self.tokens(f"{PROJECT}\n")] if repository else []

    def _named(self, name: str) -> list[int]:
        """What comes before the file itself."""
        return [self._known(self.markers.file), *self.tokens(name)] if self.markers.repository else []

    # -------------------------------------------------------------- tokens

    def _start(self) -> list[int]:
        """The beginning of a sequence, if the tokenizer adds one."""
        start = self.tokenizer.special_tokens.get("bos_token")
        added = self.tokenizer.encode("", add_special_tokens=True)
        return added[:1] if start is not None and added[:1] == [self._id(start)] else []

    def _known(self, text: str) -> int:
        id = self._id(text)
        assert id is not None, text
        return id

    def _id(self, text: str) -> int | None:
        id: int | None = self.tokenizer.backend.token_to_id(text)
        return id


def fill_in_of(tokenizer: Tokenizer, limit: int | None = None) -> FillIn | None:
    """What fills in for a tokenizer; None for one without tokens for it. `limit`: as of the result."""
    for markers in FAMILIES:
        needed = (markers.prefix, markers.suffix, markers.middle, markers.repository, markers.file)
        if all(tokenizer.backend.token_to_id(text) is not None for text in needed if text):
            return FillIn(tokenizer, markers, limit)
    return None


def needed_fill_in(tokenizer: Tokenizer, asked_by: str, limit: int) -> FillIn:
    """What fills in for a tokenizer. Raises RequestError for a request whose field `asked_by` wants it."""
    found = fill_in_of(tokenizer, limit)
    if found is None:
        raise RequestError(f"{NO_FILL_IN}; leave out {asked_by}", asked_by)
    return found
