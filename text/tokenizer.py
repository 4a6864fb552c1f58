"""Turns text into token ids and back.

Uses the `tokenizers` library directly: importing transformers takes seconds, and only checkpoints without a
``tokenizer.json`` need it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from tokenizers import Tokenizer as Backend

from turnout.core.errors import ContextExceeded, ModelError, RequestError
from turnout.models.checkpoints.checkpoint import read_json
from turnout.models.gguf.given import given_name
from turnout.text.chat_template import ChatTemplate, chosen_template, given_template, named_templates
from turnout.text.library_faults import is_fault, refused_by_library
from turnout.text.prefix_cuts import cuts, is_cut_at_spaces
from turnout.text.processes.control_tokens import control_ids, literal_backend
from turnout.text.processes.tokenizers import TokenizerProcesses
from turnout.text.quick_tokenizers import is_quick
from turnout.text.text_length import check_length
from turnout.text.token_bytes import TokenBytes, token_bytes

__all__ = ["FAST", "Side", "Tokenizer", "is_marker", "load_tokenizer", "template_source", "tokenizer_json"]

FAST = "tokenizer.json"
OTHERS = ("tokenizer.model", "vocab.json")
"""Files that transformers can build a tokenizer from when there is no ``tokenizer.json``."""

MANY = 1024
"""Tokens from which on decoding them takes as long as giving other threads their turn."""
MOST_SHARED = 2**20
"""Ids of which there is one object each."""
CHARACTERS = 6
"""Of a token that is read first where some tokens of a long text are asked for: most texts have fewer."""
MAX_FILE = 256 * 2**20
"""Bytes of a tokenizer's file: several times what the largest vocabularies take."""

Side = Literal["left", "right"]
UNTYPED = ("TokenizersBackend", "PreTrainedTokenizer", "AlbertTokenizer")
"""The classes of transformers 5, less "Fast", that give no types of tokens though files make some."""

SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def load_tokenizer(folder: Path, chat_template: str | None = None) -> Tokenizer:
    """The tokenizer of a checkpoint. Raises ModelError when it is missing or damaged.

    chat_template: as of ``--chat-template``, in place of the checkpoint's.
    """
    config = read_json(folder / "tokenizer_config.json", needed=False)
    if (side := config.get("truncation_side")) not in (None, "left", "right"):
        raise ModelError(
            f"{given_name(folder)}/tokenizer_config.json: truncation_side = {side!r} should be left or right"
        )
    special = {**read_json(folder / "special_tokens_map.json", needed=False), **config}
    names = {name: text for name in SPECIAL_NAMES if (text := _token_text(special.get(name)))}
    templates = _templates(folder, config, chat_template)
    return Tokenizer(_load_backend(folder), names, templates, config)


def template_source(folder: Path, chat_template: str | None = None, *, tools: bool = False) -> str | None:
    """The chat template of a checkpoint; None if it has none. Raises ModelError when it cannot be read.

    chat_template: as of `load_tokenizer`; tools: the template for conversations with tools.
    """
    config = read_json(folder / "tokenizer_config.json", needed=False)
    return chosen_template(_templates(folder, config, chat_template), tools=tools)


def _templates(folder: Path, config: Mapping[str, Any], given: str | None) -> dict[str, str]:
    return {"default": given_template(given)} if given else named_templates(folder, config)


def tokenizer_json(folder: Path) -> str:
    """The text of a checkpoint's ``tokenizer.json``, for other libraries that read one. Raises ModelError."""
    if (folder / FAST).is_file():
        return (folder / FAST).read_text(encoding="utf-8")
    text: str = _load_backend(folder).to_str()
    return text


class Tokenizer:
    """A checkpoint's vocabulary and chat templates. Safe to use from several threads."""

    def __init__(
        self,
        backend: Backend,
        special_tokens: Mapping[str, str] | None = None,
        chat_templates: Mapping[str, str] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """config: what ``tokenizer_config.json`` says."""
        backend.no_truncation()
        backend.no_padding()
        self.backend = backend
        self.special_tokens = dict(special_tokens or {})
        """The text of each special token, by the name that chat templates use, such as ``eos_token``."""
        self.special_ids = frozenset(id for id, t in backend.get_added_tokens_decoder().items() if t.special)
        self.markers = {
            t.content: id
            for id, t in backend.get_added_tokens_decoder().items()
            if is_marker(t.special, t.content)
        }
        """The ids of the tokens that structured output names by their ids, since no text may hold them."""
        self.vocab_size = backend.get_vocab_size(with_added_tokens=True)
        self._processes = None if is_quick(backend) else TokenizerProcesses(backend)
        """Where texts are tokenized by rules that a text may make slow; None: in this process."""
        self._templates = dict(chat_templates or {})
        self._config = dict(config or {})

    @property
    def eos_token_id(self) -> int | None:
        return self.backend.token_to_id(self.special_tokens.get("eos_token", ""))

    @property
    def ends_texts(self) -> bool:
        """Whether its configuration says that a text ends with the end token, as transformers has it."""
        return self._config.get("add_eos_token") is True

    @property
    def types_tokens(self) -> bool:
        """Whether models read the types of tokens, which tell the texts of a pair apart.

        Its configuration says so, or else its class in transformers does.
        """
        inputs = self._config.get("model_input_names")
        if isinstance(inputs, list):
            return "token_type_ids" in inputs
        return str(self._config.get("tokenizer_class", "")).removesuffix("Fast") not in UNTYPED

    @property
    def truncation_side(self) -> Side:
        """The side on which its configuration has texts cut that are too long."""
        return "left" if self._config.get("truncation_side") == "left" else "right"

    def encode(self, text: str, *, add_special_tokens: bool = True, limit: int | None = None) -> list[int]:
        """The token ids of a text; other threads run meanwhile.

        Raises RequestError for text that is not valid Unicode and, before encoding it, for text that must
        have more than `limit` tokens.
        """
        size = _utf8_size(text)
        if limit is not None:
            if (least := len(text) // self._most_characters) > limit:
                raise ContextExceeded.of(
                    limit,
                    f"the prompt has {len(text)} characters, which are at least {least}; shorten the prompt",
                )
            check_length(text, size, limit, lambda piece: len(self._ids(piece, False)))
        return self._shared(self._ids(text, add_special_tokens))

    def encode_literally(self, text: str, *, limit: int | None = None) -> list[int]:
        """As `encode` without special tokens; control tokens that the text spells are plain text."""
        ids = self.encode(text, add_special_tokens=False, limit=limit)
        return ids if self._control_ids.isdisjoint(ids) else self._shared(self._literal_ids(text))

    def first_ids(self, text: str, count: int) -> list[int]:
        """The first `count` token ids of a text without special tokens, or all that it has.

        Of a much longer text the beginning alone is tokenized, where that gives the same ids. Errors as of
        `encode`.
        """
        if len(text) <= count or not self._cut_at_spaces:
            return self.encode(text, add_special_tokens=False)[:count]
        _utf8_size(text)  # of all of it, which must be valid Unicode
        ids: list[int] = []
        for place in cuts(text, CHARACTERS * count):
            ids = self.encode(text[:place], add_special_tokens=False)
            if len(ids) >= count:
                break
        return ids[:count]

    @cached_property
    def _cut_at_spaces(self) -> bool:
        return is_cut_at_spaces(self.backend)

    def _ids(self, text: str, add_special_tokens: bool) -> list[int]:
        if self._processes is not None:
            return self._processes.ids(text, add_special_tokens=add_special_tokens)
        with refused_by_library("this text cannot be tokenized", "prompt"):
            # Unlike `encode`, the batch variants release the interpreter lock; `fast` leaves offsets out.
            (encoding,) = self.backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        ids: list[int] = encoding.ids
        return ids

    def _literal_ids(self, text: str) -> list[int]:
        if self._processes is not None:
            return self._processes.literal_ids(text)
        with refused_by_library("this text cannot be tokenized", "prompt"):
            (encoding,) = self._literal_backend.encode_batch_fast([text], add_special_tokens=False)
        ids: list[int] = encoding.ids
        return ids

    @cached_property
    def _control_ids(self) -> frozenset[int]:
        return control_ids(self.backend)

    @cached_property
    def _literal_backend(self) -> Backend:
        """Made when a text first spells a control token, since it takes as much memory as `backend`."""
        return literal_backend(self.backend.to_str())

    def _shared(self, ids: Sequence[int]) -> list[int]:
        shared, known = self._shared_ids, len(self._shared_ids)
        return [shared[id] if id < known else id for id in ids]

    @cached_property
    def _shared_ids(self) -> list[int]:
        """One object for each id: a prompt of those takes a fifth of the memory."""
        return list(range(min(self.vocab_size, MOST_SHARED)))

    @cached_property
    def _most_characters(self) -> int:
        """The most characters a token can stand for; normalizing may make one of up to four."""
        return 4 * max((len(token) for token in self.backend.get_vocab(with_added_tokens=True)), default=1)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text of token ids; unknown ids are left out."""
        with refused_by_library("these tokens cannot be decoded", "tokens"):
            if len(ids) < MANY:
                text: str = self.backend.decode(ids, skip_special_tokens=skip_special_tokens)
            else:  # unlike `decode`, this releases the interpreter lock
                (text,) = self.backend.decode_batch([ids], skip_special_tokens=skip_special_tokens)
        return text

    # -------------------------------------------------------------- single tokens

    @cached_property
    def bytes_of(self) -> TokenBytes | None:
        """The bytes of each token; None unless decoding is the concatenation of the tokens' bytes."""
        return token_bytes(self.backend)

    def token_bytes(self, id: int) -> bytes | None:
        """The bytes of a token, which may be part of a character; None for unknown ids."""
        if self.backend.id_to_token(id) is None:
            return None
        if self.bytes_of is not None:
            return self.bytes_of(id)
        return self.decode([id], skip_special_tokens=False).encode()

    def spelling(self, id: int) -> str:
        """A token as the vocabulary spells it; empty for unknown ids."""
        return self.backend.id_to_token(id) or ""

    def token_text(self, id: int) -> str:
        """A token as text to read, special tokens included; U+FFFD stands for part of a character."""
        return (self.token_bytes(id) or b"").decode(errors="replace")

    # -------------------------------------------------------------- chat

    @property
    def has_chat_template(self) -> bool:
        return bool(chosen_template(self._templates, tools=False))

    @cached_property
    def chat_template(self) -> ChatTemplate:
        """The checkpoint's template. Raises RequestError where it has none."""
        return self._template(tools=False)

    @cached_property
    def tools_template(self) -> ChatTemplate:
        """The checkpoint's template for conversations with tools: the same, unless one is named for them.

        Raises RequestError where it has none.
        """
        return self._template(tools=True)

    def _template(self, *, tools: bool) -> ChatTemplate:
        source = chosen_template(self._templates, tools=tools)
        if not source:
            raise RequestError(
                "this model has no chat template, so it reads no conversations; send a prompt instead",
                "messages",
            )
        return ChatTemplate(source, self.special_tokens)

    @property
    def description(self) -> dict[str, Any]:
        """The checkpoint's ``tokenizer_config.json``, with the chat template wherever that is kept."""
        known = {"tokenizer_class": "PreTrainedTokenizerFast", **self.special_tokens}
        return {**known, **self._config, "chat_template": chosen_template(self._templates, tools=False)}

    def apply_chat_template(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> list[int]:
        """The prompt for a conversation, as token ids. Options and errors are those of `chat_text`."""
        return self.encode(self.chat_text(messages, **options), add_special_tokens=False)

    def chat_text(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        chat_template: str | None = None,
        **variables: Any,
    ) -> str:
        """The prompt for a conversation, as text. Encode it without special tokens, which the template adds.

        Raises RequestError when the template cannot render the conversation.
        """
        own = self.tools_template if variables.get("tools") else self.chat_template
        template = ChatTemplate(chat_template, self.special_tokens) if chat_template else own
        return template.render(
            messages,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            **variables,
        )


def _load_backend(folder: Path) -> Backend:
    try:
        if (folder / FAST).is_file():
            _check_size(folder / FAST)
            return Backend.from_file(str(folder / FAST))
        if any((folder / name).is_file() for name in OTHERS):
            return _convert(folder)
    except BaseException as error:  # the tokenizers library raises bare Exception for damaged files
        if isinstance(error, ModelError) or not is_fault(error):
            raise
        raise ModelError(
            f"cannot read the tokenizer in {given_name(folder)}: {error}; fetch the model's tokenizer files "
            "again"
        ) from error
    raise ModelError(
        f"{given_name(folder)} holds no tokenizer; looked for {', '.join((FAST, *OTHERS))}; fetch the "
        "model's there"
    )


def _check_size(path: Path) -> None:
    if (size := path.stat().st_size) > MAX_FILE:
        raise ModelError(f"{path} has {size:,} bytes; at most {MAX_FILE:,} are read")


def _convert(folder: Path) -> Backend:
    from transformers import AutoTokenizer  # imports torch and takes seconds

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(backend, Backend):
        raise ModelError(f"a {type(tokenizer).__name__} cannot be converted to {FAST}")
    return backend


def is_marker(special: bool, text: str) -> bool:
    """Whether llguidance treats an added token as special."""
    return special or (text.startswith("<") and text.endswith(">"))


def _token_text(token: object) -> str | None:
    """The text of a special token, which older checkpoints give as an object."""
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else None


def _utf8_size(text: str) -> int:
    """The bytes of a text. Raises RequestError for text that is not valid Unicode."""
    try:
        return len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError:
        raise RequestError("the text holds half of a surrogate pair, which is not valid Unicode") from None
