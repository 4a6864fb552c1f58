"""Chat templates that cannot be read are the checkpoint's fault, and told so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from turnout.core.errors import ModelError
from turnout.text.tokenizer import Tokenizer, load_tokenizer


@pytest.fixture
def folder(bytewise: Tokenizer, tmp_path: Path) -> Path:
    bytewise.backend.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


@pytest.mark.parametrize("given", [5, ["a"], {"default": "a"}, [{"name": "default"}], [{"template": "a"}]])
def test_a_template_of_the_wrong_kind(folder: Path, given: Any) -> None:
    """A KeyError or TypeError, with its traceback, ended `turnout serve`."""
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": given}))
    with pytest.raises(ModelError, match="should be a text, or a list of objects"):
        load_tokenizer(folder)


def test_a_template_that_is_not_utf8(folder: Path) -> None:
    """A UnicodeDecodeError, with its traceback, ended `turnout serve`."""
    (folder / "chat_template.jinja").write_bytes(b"\xff\xfe")
    with pytest.raises(ModelError, match=r"chat_template\.jinja cannot be read"):
        load_tokenizer(folder)
