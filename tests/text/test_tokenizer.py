"""Loading tokenizers and rendering chats, held against transformers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from turnout.core.errors import ConfigError, ModelError, RequestError
from turnout.text.chat_template import ChatTemplate
from turnout.text.tokenizer import Tokenizer, load_tokenizer

MESSAGES = [{"role": "user", "content": "你好"}, {"role": "assistant", "content": "Hi "}]

FEATURES = """
{%- for m in messages if m.role != 'system' -%}
    {% if loop.index > 9 %}{% break %}{% endif %}
    {{ {'é': m.role} | tojson }}{% generation %}{{ m.content | trim }}{% endgeneration %}
{%- endfor %}
{{ bos_token }}{{ tools is none }}{{ flag is defined and flag }}
{%- set ns = namespace(x=1) %}{{ ns.x }}{{ strftime_now('%Y') | length }}
{% if add_generation_prompt %}go{% endif %}
"""


@pytest.fixture
def folder(bytewise: Tokenizer, tmp_path: Path) -> Path:
    bytewise.backend.save(str(tmp_path / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": {"__type": "AddedToken", "content": "<|eos|>"},
        "bos_token": "<|start|>",
        "chat_template": FEATURES,
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    return tmp_path


def test_loads(folder: Path, bytewise: Tokenizer) -> None:
    tokenizer = load_tokenizer(folder)
    assert tokenizer.eos_token_id == 0
    assert tokenizer.special_ids == {0, 1, 2, 3}
    assert tokenizer.vocab_size == bytewise.vocab_size
    assert tokenizer.decode(tokenizer.encode("你好 <|eos|>")) == "你好 "


def test_agrees_with_transformers(folder: Path) -> None:
    from transformers import AutoTokenizer

    ours, theirs = load_tokenizer(folder), AutoTokenizer.from_pretrained(folder)
    for options in (
        {"add_generation_prompt": True},
        {"add_generation_prompt": False, "flag": True},
        {"add_generation_prompt": False, "continue_final_message": True},
    ):
        expected = theirs.apply_chat_template(MESSAGES, tokenize=True, return_dict=False, **options)
        assert ours.apply_chat_template(MESSAGES, **options) == expected
    text = "def f(x): return x  # 你好 🚀 <|end|>"
    assert ours.encode(text) == theirs.encode(text)


def test_transformers_builds_what_has_no_tokenizer_json(folder: Path) -> None:
    content = json.loads((folder / "tokenizer.json").read_bytes())["model"]
    (folder / "vocab.json").write_text(json.dumps(content["vocab"]))
    merges = "\n".join(" ".join(pair) for pair in content["merges"])
    (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}\n")
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "GPT2Tokenizer"}))
    tokenizer = load_tokenizer(folder)
    assert tokenizer.decode(tokenizer.encode("你好 world")) == "你好 world"


def test_a_missing_tokenizer_names_folder_and_files(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"holds no tokenizer; looked for tokenizer\.json") as caught:
        load_tokenizer(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_a_damaged_tokenizer_is_named(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match="cannot read the tokenizer in"):
        load_tokenizer(folder)
    (folder / "tokenizer_config.json").write_text("{")
    with pytest.raises(ModelError, match="cannot be read as JSON"):
        load_tokenizer(folder)


def test_where_templates_come_from(folder: Path) -> None:
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["chat_template"] = [{"name": "tools", "template": "T"}, {"name": "default", "template": "D"}]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = load_tokenizer(folder)
    assert tokenizer.decode(tokenizer.apply_chat_template(MESSAGES)) == "D"
    (folder / "chat_template.jinja").write_text("F")
    tokenizer = load_tokenizer(folder)
    assert tokenizer.decode(tokenizer.apply_chat_template(MESSAGES)) == "F"


def test_conversations_with_tools_are_rendered_by_the_template_for_them(folder: Path) -> None:
    """As transformers' `apply_chat_template` has it; one for tools alone renders all."""
    from transformers import AutoTokenizer

    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["chat_template"] = [
        {"name": "default", "template": "D"},
        {"name": "tool_use", "template": "{{ tools[0].function.name }}"},
    ]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    tools = [{"type": "function", "function": {"name": "find", "description": "", "parameters": {}}}]
    ours, theirs = load_tokenizer(folder), AutoTokenizer.from_pretrained(folder)
    for given in (None, tools):
        assert ours.chat_text(MESSAGES, tools=given) == theirs.apply_chat_template(
            MESSAGES, tools=given, tokenize=False
        )
    assert ours.chat_text(MESSAGES, tools=[]) == ours.chat_template.source == "D"
    assert load_tokenizer(folder, "{{ 'G' }}").chat_text(MESSAGES, tools=tools) == "G"

    config["chat_template"] = config["chat_template"][1:]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    assert load_tokenizer(folder).chat_template.source == ours.tools_template.source


def test_no_template_is_the_requests_error(spaced: Tokenizer) -> None:
    with pytest.raises(RequestError, match="has no chat template"):
        spaced.apply_chat_template(MESSAGES)


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('roles must alternate') }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
    ],
)
def test_what_a_template_refuses_is_the_requests_error(source: str) -> None:
    with pytest.raises(RequestError, match="the chat template cannot render"):
        ChatTemplate(source, {}).render(MESSAGES)


def test_half_a_surrogate_pair_is_the_requests_error(bytewise: Tokenizer) -> None:
    with pytest.raises(RequestError, match="surrogate"):
        bytewise.encode("\ud83d")


def test_single_tokens(bytewise: Tokenizer, spaced: Tokenizer) -> None:
    ids = bytewise.encode("🦀")
    assert b"".join(bytewise.token_bytes(id) or b"" for id in ids) == "🦀".encode()
    assert bytewise.token_text(3) == "<|特殊|>"
    assert bytewise.token_bytes(10**6) is None
    assert spaced.token_text(spaced.backend.token_to_id("</s>")) == "</s>"


def test_loading_needs_neither_torch_nor_transformers(folder: Path) -> None:
    script = (
        "import sys, pathlib\n"
        "from turnout.text.tokenizer import load_tokenizer\n"
        "load_tokenizer(pathlib.Path(sys.argv[1])).apply_chat_template([{'role': 'user', 'content': 'x'}])\n"
        "assert not {'torch', 'transformers', 'numpy'} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", script, str(folder)], check=True)


# ------------------------------------------------------------------ --chat-template


def test_a_given_template_is_taken_instead(folder: Path, tmp_path: Path) -> None:
    inline = "{% for m in messages %}[{{ m.content }}]{% endfor %}"
    (tmp_path / "own.jinja").write_text(inline + "\n")
    for given in (inline, str(tmp_path / "own.jinja")):
        tokenizer = load_tokenizer(folder, given)
        assert tokenizer.chat_text(MESSAGES).rstrip() == "[你好][Hi ]"
        assert tokenizer.description["chat_template"].rstrip() == inline


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("nowhere.jinja", "nowhere.jinja cannot be read: .*No such file"),
        (".", "cannot be read"),
        ("{% for %}", "line 1: "),
        ("a\n{{ b", "line 2: "),
    ],
)
def test_a_given_template_that_will_not_do_is_told(folder: Path, given: str, why: str) -> None:
    with pytest.raises(ConfigError, match=f"--chat-template: .*{why}"):
        load_tokenizer(folder, given)
