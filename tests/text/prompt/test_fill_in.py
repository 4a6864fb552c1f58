"""Prompts with a missing part, in the order and by the tokens of each family."""

from __future__ import annotations

import pytest
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from turnout.core.errors import RequestError
from turnout.text.prompt.fill_in import FAMILIES, Markers, fill_in_of, needed_fill_in
from turnout.text.tokenizer import Tokenizer


def tokenizer_with(*markers: str) -> Tokenizer:
    """One token for each byte, and the markers."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Backend(models.BPE(vocab={letter: id for id, letter in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(marker, normalized=False) for marker in markers if marker])
    return Tokenizer(backend)


def prompt(tokenizer: Tokenizer, prefix: str, suffix: str, said: str = "") -> str:
    fill_in = needed_fill_in(tokenizer, "suffix", 1000)
    tokens = fill_in.prompt(prefix, fill_in.suffix(suffix), said)
    return tokenizer.decode(tokens, skip_special_tokens=False)


@pytest.mark.parametrize(
    ("markers", "expected"),
    [
        (
            ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>"],
            "<|fim_prefix|>A<|fim_suffix|>B<|fim_middle|>",
        ),
        (["<fim_prefix>", "<fim_suffix>", "<fim_middle>"], "<fim_prefix>A<fim_suffix>B<fim_middle>"),
        (["<fim-prefix>", "<fim-suffix>", "<fim-middle>"], "<fim-prefix>A<fim-suffix>B<fim-middle>"),
        (["▁<PRE>", "▁<SUF>", "▁<MID>"], "▁<PRE>A▁<SUF>B▁<MID>"),
        (
            ["<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"],
            "<｜fim▁begin｜>A<｜fim▁hole｜>B<｜fim▁end｜>",
        ),
        (["[PREFIX]", "[SUFFIX]"], "[SUFFIX]B[PREFIX]A"),
    ],
)
def test_each_family_has_its_order(markers: list[str], expected: str) -> None:
    assert prompt(tokenizer_with(*markers), "A", "B") == expected
    assert prompt(tokenizer_with(*markers), "A", "B", "said") == expected + "said"


@pytest.mark.parametrize("markers", FAMILIES)
def test_control_tokens_that_a_file_spells_are_plain_text(markers: Markers) -> None:
    """They moved the missing part, or ended the file."""
    names = [text for text in (markers.prefix, markers.suffix, markers.middle, *markers.ends) if text]
    tokenizer = tokenizer_with(*names, markers.repository, markers.file)
    file = f"x = {names}"
    fill_in = needed_fill_in(tokenizer, "suffix", 1000)
    assert file in tokenizer.decode(fill_in.file("a.py", file))
    tokens = fill_in.prompt(file, fill_in.suffix(file), file)
    assert tokenizer.decode(tokens) == file * 3
    made = len(names) - len(markers.ends)
    assert sum(token in tokenizer.special_ids for token in tokens) == made


def test_a_prefix_may_be_tokens() -> None:
    tokenizer = tokenizer_with("<fim_prefix>", "<fim_suffix>", "<fim_middle>")
    fill_in = needed_fill_in(tokenizer, "suffix", 1000)
    as_text, as_tokens = fill_in.prompt("ab", []), fill_in.prompt(tokenizer.encode("ab"), [])
    assert as_text == as_tokens


def test_the_tokens_that_end_the_part_are_those_that_there_are() -> None:
    tokenizer = tokenizer_with("<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<fim_pad>")
    fill_in = fill_in_of(tokenizer)
    assert fill_in is not None
    assert [tokenizer.spelling(token) for token in fill_in.ends] == ["<fim_pad>"]


def test_a_tokenizer_without_such_tokens_is_refused_by_the_fields_name() -> None:
    tokenizer = tokenizer_with("<fim_prefix>", "<fim_suffix>")
    assert fill_in_of(tokenizer) is None
    with pytest.raises(RequestError, match="leave out input_suffix") as refused:
        needed_fill_in(tokenizer, "input_suffix", 1000)
    assert refused.value.param == "input_suffix"


def test_other_files_come_first() -> None:
    qwen = tokenizer_with(*(text for text in vars(FAMILIES[0]).values() if isinstance(text, str)))
    fill_in = needed_fill_in(qwen, "input_extra", 1000)
    files = [fill_in.file("a.py", "x = 1"), fill_in.file("b.py", "y")]
    own = fill_in.prompt("A", [])
    tokens = fill_in.behind(files, own, 1000)
    assert qwen.decode(tokens, skip_special_tokens=False) == (
        "<|repo_name|>project\n<|file_sep|>a.py\nx = 1\n<|file_sep|>b.py\ny\n<|file_sep|>filename\n"
        "<|fim_prefix|>A<|fim_suffix|><|fim_middle|>"
    )
    room = len(tokens) - 1
    assert "a.py" not in qwen.decode(fill_in.behind(files, own, room)), "the first is left out"
    assert len(fill_in.behind(files, own, room)) <= room
    assert fill_in.behind(files, own, len(own) + 3) == own


def test_the_beginning_of_a_sequence_stays_first() -> None:
    from tokenizers.processors import TemplateProcessing

    tokenizer = tokenizer_with("<s>", "<fim_prefix>", "<fim_suffix>", "<fim_middle>")
    begin = tokenizer.backend.token_to_id("<s>")
    tokenizer.backend.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", begin)])
    tokenizer.special_tokens["bos_token"] = "<s>"
    fill_in = needed_fill_in(tokenizer, "suffix", 1000)
    made = fill_in.prompt("A", [])
    assert made[0] == begin and made.count(begin) == 1
    with_files = fill_in.behind([fill_in.file("a", "b")], made, 1000)
    assert "snippet" in tokenizer.decode(with_files)
    assert with_files[0] == begin and with_files.count(begin) == 1


def test_a_suffix_has_no_space_of_sentencepiece() -> None:
    """CodeLlama's tokenizer puts a space before each text; in the middle of a line that would be one more."""
    pieces = ["<unk>", "▁", "a", "b", "▁a", "▁b", "☺", "▁☺"]
    backend = Backend(
        models.BPE(
            vocab={piece: id for id, piece in enumerate(pieces)},
            merges=[("▁", "a"), ("▁", "b"), ("▁", "☺")],
            unk_token="<unk>",
        )
    )
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    backend.add_special_tokens(["▁<PRE>", "▁<SUF>", "▁<MID>"])
    tokenizer = Tokenizer(backend)
    fill_in = needed_fill_in(tokenizer, "suffix", 1000)
    assert [tokenizer.spelling(token) for token in tokenizer.encode("ba")] == ["▁b", "a"]
    assert [tokenizer.spelling(token) for token in fill_in.suffix("ba")] == ["b", "a"]
