"""What llguidance is told of a tokenizer: the same tokens, and no more changes to a text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, models, normalizers

from turnout.core.interfaces.logits_processor import ServedModel
from turnout.plugins.logits_processors.structured.exact_tokenizer import read_vocabulary


def changed(tokenizer: Tokenizer, folder: Path) -> dict[str, Any]:
    tokenizer.save(str(folder / "tokenizer.json"))
    vocabulary = read_vocabulary(ServedModel(folder, 100, frozenset({0})))
    found: dict[str, Any] = json.loads(vocabulary.tokenizer)
    assert {token["id"] for token in found["added_tokens"]} >= set(vocabulary.specials.values())
    return found


def test_normalizers_go_but_for_those_that_write_spaces(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.BPE({"<unk>": 0, "a": 1}, [], unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(" ", "\u2581")])
    found = changed(tokenizer, tmp_path)["normalizer"]
    assert [part["type"] for part in found["normalizers"]] == ["Replace"]
    tokenizer.normalizer = normalizers.NFKC()
    assert changed(tokenizer, tmp_path)["normalizer"] is None


def test_special_tokens_keep_their_ids_under_other_names(tmp_path: Path) -> None:
    """Those of the model's own vocabulary, the unknown token among them, and those that are added to it."""
    for model in (
        models.BPE({"<unk>": 0, "a": 1}, [], unk_token="<unk>"),
        models.Unigram([("<unk>", 0.0), ("a", -1.0)], 0, False),
    ):
        tokenizer = Tokenizer(model)
        tokenizer.add_special_tokens([AddedToken("<unk>"), AddedToken("[end]")])
        tokenizer.add_tokens([AddedToken("<tool>"), AddedToken("plain")])
        again = Tokenizer.from_str(json.dumps(changed(tokenizer, tmp_path)))
        assert again.get_vocab_size() == tokenizer.get_vocab_size() == 5
        assert [again.token_to_id(name) for name in ("<unk>", "[end]", "<tool>")] == [None] * 3
        assert [again.token_to_id(name) for name in ("a", "plain")] == [1, 4]
