"""What a GGUF file says beside its weights, and what is wrong with one."""

from __future__ import annotations

import json
import os
import resource
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf_files import write_gguf

from turnout.core.errors import ModelError
from turnout.models.checkpoints.checkpoint import read_config, read_generation_config
from turnout.models.gguf.header import read_header
from turnout.models.gguf.summary import describe_types
from turnout.models.hub.resolve import resolve_model
from turnout.text.tokenizer import load_tokenizer

GGUF = Callable[..., Path]
TEXTS = ("def main():\n    return 1234", "Größe  naïve 北京\n\n\t x", "it's <|im_end|>\nno", "", " a  b ")


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """The embedded model, with its tokenizer."""
    return write_gguf(resolve_model("turnout-tiny"), tmp_path / "tiny.gguf", tokenizer=True)


def test_the_tokenizer_is_that_of_the_checkpoint(tiny: Path) -> None:
    theirs, ours = load_tokenizer(resolve_model("turnout-tiny")), load_tokenizer(resolve_model(str(tiny)))
    for text in TEXTS:
        assert ours.encode(text) == theirs.encode(text)
        assert ours.decode(ours.encode(text)) == theirs.decode(theirs.encode(text))
    assert ours.special_tokens["eos_token"] == theirs.special_tokens["eos_token"]
    assert ours.special_ids == theirs.special_ids


def test_the_chat_template_and_the_ends_of_turns_come_from_the_file(tiny: Path) -> None:
    folder = resolve_model(str(tiny))
    stated = json.loads((folder / "tokenizer_config.json").read_text())["chat_template"]
    assert stated == (resolve_model("turnout-tiny") / "chat_template.jinja").read_text()
    assert read_generation_config(folder) == {"eos_token_id": [0, 2]}


def test_a_tokenizer_beside_the_file_is_taken_instead(tiny: Path) -> None:
    source = resolve_model("turnout-tiny")
    (tiny.parent / "tokenizer.json").write_text((source / "tokenizer.json").read_text())
    folder = resolve_model(str(tiny))
    assert (folder / "tokenizer.json").read_text() == (source / "tokenizer.json").read_text()
    own = json.loads((folder / "tokenizer_config.json").read_text())
    assert own["eos_token"] == load_tokenizer(source).special_tokens["eos_token"]
    assert own["chat_template"] == (source / "chat_template.jinja").read_text()


def test_merges_follow_from_the_scores_of_sentencepiece(tmp_path: Path) -> None:
    """The best pair is merged first, whichever stands first; unknown characters are spelt in bytes."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokens += ["▁", "a", "b", "c", "ab", "bc", "▁ab", "abc"]
    scores = [0.0] * 263 + [-4.0, -1.0, -3.0, -2.0]
    writer = gguf.GGUFWriter(tmp_path / "spm.gguf", "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores(scores)
    writer.add_token_types([2, 3, 3] + [6] * 256 + [1] * 8)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    _write(writer)
    from turnout.models.gguf.tokenizer import tokenizer_of

    made = tokenizer_of(read_header(tmp_path / "spm.gguf"))
    assert made.encode("abc").tokens == ["<s>", "▁", "abc"]  # bc before ab, and abc before ▁ab
    assert made.encode("ab é</s>").tokens == ["<s>", "▁ab", "▁", "<0xC3>", "<0xA9>", "</s>"]
    assert made.decode(made.encode("ab é abc").ids) == "ab é abc"


def test_the_configuration_is_read(gguf_file: GGUF) -> None:
    config = read_config(resolve_model(str(gguf_file("Q8_0", "qwen2", tied=False))))
    assert config["architectures"] == ["Qwen2ForCausalLM"]
    assert config["rms_norm_eps"] == 1e-6
    assert config["tie_word_embeddings"] is False
    assert config["quantization_config"] == {"quant_method": "gguf"}


def test_floating_point_weights_are_not_quantized(gguf_file: GGUF) -> None:
    config = read_config(resolve_model(str(gguf_file("BF16"))))
    assert config["dtype"] == "bfloat16" and "quantization_config" not in config


@pytest.mark.parametrize(("kind", "dtype"), [("F16", "float16"), ("F32", "float32"), ("Q8_0", "float32")])
def test_the_dtype_is_the_widest_of_the_file(gguf_file: GGUF, kind: str, dtype: str) -> None:
    """A file of float32 alone was said to be of float16."""
    assert read_config(resolve_model(str(gguf_file(kind))))["dtype"] == dtype


def test_start_up_says_how_types_are_held(gguf_file: GGUF, tmp_path: Path) -> None:
    blocks = resolve_model(str(gguf_file("Q8_0", vocab=32_000)))
    assert describe_types(blocks, "float32", "cpu") == [
        "weights of the file: 2 MB of q8_0, kept in its blocks"
    ]
    shutil.rmtree(blocks.parent)
    shutil.rmtree(tmp_path / "widened")
    numbers = resolve_model(str(gguf_file("F16", vocab=32_000)))
    assert describe_types(numbers, "float32", "cpu") == [
        "weights of the file: 4 MB of f16, widened to float32"
    ]
    assert describe_types(resolve_model("turnout-tiny"), "float32", "cpu") == []


def test_a_gpu_widens_what_it_has_no_kernels_for(gguf_file: GGUF) -> None:
    folder = resolve_model(str(gguf_file("Q4_K", hidden=256, intermediate=512, vocab=256)))
    assert "q4_k, kept in its blocks" in describe_types(folder, "bfloat16", "cpu")[0]
    assert "q4_k, widened to bfloat16" in describe_types(folder, "bfloat16", "cuda")[0]


def test_a_folder_with_one_file_is_the_file(gguf_file: GGUF, tmp_path: Path) -> None:
    file = gguf_file()
    alone = tmp_path / "alone"
    alone.mkdir()
    file.rename(alone / file.name)
    assert (resolve_model(str(alone)) / "model.gguf").resolve() == alone / file.name
    (alone / "other.gguf").touch()
    with pytest.raises(ModelError, match=r"holds 2 GGUF files; name one, such as .*model-Q8_0.gguf"):
        resolve_model(str(alone))


def test_a_full_disk_does_not_get_fuller_with_each_attempt(gguf_file: GGUF, tmp_path: Path) -> None:
    """Each left a folder behind, with what it had written of a tokenizer."""
    file = gguf_file()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(ModelError, match=r"gguf cannot be written \(File too large\)"):
            resolve_model(str(file))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list((tmp_path / "cache").rglob("unfinished-*"))
    assert (resolve_model(str(file)) / "config.json").is_file()


def test_a_changed_file_is_read_anew(gguf_file: GGUF) -> None:
    file = gguf_file("Q8_0")
    before = resolve_model(str(file))
    assert resolve_model(str(file)) == before
    shutil.rmtree(file.parent / "widened")
    assert gguf_file("Q8_0", vocab=192) == file
    assert read_config(resolve_model(str(file)))["vocab_size"] == 192


# ------------------------------------------------------------------ what is wrong with a file


def _write(writer: gguf.GGUFWriter) -> None:
    writer.add_tensor("token_embd.weight", np.zeros((4, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def refusal(file: Path) -> str:
    with pytest.raises(ModelError) as caught:
        resolve_model(str(file))
    return str(caught.value)


def test_another_format_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.gguf"
    file.write_bytes(b"GGML" + bytes(100))
    assert f"{file} is no GGUF file: it begins with b'GGML'; fetch it again" in refusal(file)


def test_other_versions_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.gguf"
    file.write_bytes(b"GGUF" + struct.pack("<IQQ", 1, 0, 0))
    assert "has version 1 of GGUF; versions 2 and 3 are read" in refusal(file)


@pytest.mark.parametrize("kept", [10, 40, 200, 2000])
def test_truncated_files_are_refused(gguf_file: GGUF, kept: int) -> None:
    file = gguf_file()
    file.write_bytes(file.read_bytes()[:kept])
    assert "fetch it again" in refusal(file)


def test_a_file_that_lacks_its_end_names_the_tensor(gguf_file: GGUF) -> None:
    file = gguf_file()
    file.write_bytes(file.read_bytes()[:-100])
    assert "is cut short in the tensor " in refusal(file)


def test_counts_beyond_the_file_are_refused_at_once(tmp_path: Path) -> None:
    file = tmp_path / "x.gguf"
    file.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 2**60, 2**60))
    assert "announces 1,152,921,504,606,846,976 entries, more than it holds" in refusal(file)


def test_long_headers_are_not_read(tmp_path: Path) -> None:
    """Of a list of 3 GB, with nothing on disk, a gigabyte was read, and 48 were to become its numbers."""
    file = tmp_path / "x.gguf"
    key = struct.pack("<Q", 1) + b"a"
    file.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + key + struct.pack("<IIQ", 9, 0, 3 * 2**30 - 99))
    os.truncate(file, 3 * 2**30)
    assert f"{file} has a header of more than 67,108,864 bytes" in refusal(file)


def test_a_name_that_comes_twice_is_refused(tmp_path: Path) -> None:
    """The last one was taken."""
    file = tmp_path / "x.gguf"
    pair = struct.pack("<Q", 1) + b"a" + struct.pack("<II", 4, 7)
    file.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + 2 * pair)
    assert f"{file} holds the key 'a' a second time" in refusal(file)
    info = struct.pack("<Q", 1) + b"b" + struct.pack("<IQIQ", 1, 8, 0, 0)
    file.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 2, 0) + 2 * info + bytes(99))
    assert f"{file} holds the tensor 'b' a second time" in refusal(file)


def test_a_name_that_is_damaged_makes_no_long_message(tmp_path: Path) -> None:
    file = tmp_path / "x.gguf"
    info = struct.pack("<Q", 9000) + 9000 * b"n" + struct.pack("<IQIQ", 9, 8, 0, 0)
    file.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + info)
    assert len(refusal(file)) < 300


def test_unknown_architectures_are_refused_by_name(tmp_path: Path) -> None:
    _write(gguf.GGUFWriter(tmp_path / "x.gguf", "rwkv6"))
    found = refusal(tmp_path / "x.gguf")
    assert "GGUF files of the architecture 'rwkv6' are not read, only deepseek2, " in found
    assert "take the safetensors checkpoint" in found


def test_unknown_splits_of_text_are_refused_by_name(tmp_path: Path) -> None:
    source = resolve_model("turnout-tiny")
    file = write_gguf(source, tmp_path / "x.gguf", tokenizer=True, pre="mine")
    assert "tokenizer.ggml.pre = 'mine' is not read" in refusal(file)
