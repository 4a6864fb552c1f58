"""The bytes of tokens: in byte-level vocabularies, and in those that spell unknown characters in bytes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from turnout import LLM, SamplingParams, StructuredOutputs
from turnout.core.errors import RequestError
from turnout.models.random.random_weights import write_random_checkpoint
from turnout.models.random.shapes import Shape, config_of

TEXTS = ['{"key": "value", "中文": [1, 2, true, null]}', "some words, and 你好 too"] * 20
SCHEMA = {
    "type": "object",
    "properties": {
        "中文": {"enum": ["你好", "🙂", "naïve"]},
        "n": {"type": "integer", "minimum": 0, "maximum": 99},
    },
    "required": ["中文", "n"],
    "additionalProperties": False,
}


def byte_level() -> Tokenizer:
    """As Qwen2's and GPT-2's."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=330, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def byte_fallback() -> Tokenizer:
    """As Llama 2's: ▁ for a space, <0xE4> for a byte."""
    pieces = [
        "<unk>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        *'▁{}[]":,0123456789abckeyvalu中',
        "▁:",
        "▁好",
    ]
    tokenizer = Tokenizer(
        models.BPE({piece: id for id, piece in enumerate(pieces)}, [], unk_token="<unk>", byte_fallback=True)
    )
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return tokenizer


def model_of(tokenizer: Tokenizer, folder: Path) -> LLM:
    """With random weights, and more logits than tokens, as many models have."""
    tokenizer.add_special_tokens([AddedToken("</s>", special=True)])
    size = tokenizer.get_vocab_size()
    shape = Shape(32, 1, 2, 1, 48, size + 30, max_positions=1024, theta=10_000.0)
    write_random_checkpoint(folder, config_of(shape, "llama", dtype="float32"))
    (folder / "generation_config.json").write_text(
        json.dumps({"eos_token_id": tokenizer.token_to_id("</s>")})
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    return LLM(str(folder), kv_memory="16MiB", device="cpu")


@pytest.mark.parametrize("kind", [byte_level, byte_fallback])
def test_characters_of_many_bytes_come_whole(kind, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    llm = model_of(kind(), tmp_path)
    params = [
        SamplingParams(seed=seed, max_tokens=200, structured_outputs=StructuredOutputs(json=SCHEMA))
        for seed in range(20)
    ]
    outputs = llm.generate([[5, 6]] * 20, params, progress=False)
    values = [json.loads(output.outputs[0].text) for output in outputs]
    assert {value["中文"] for value in values} == {"你好", "🙂", "naïve"}


def test_a_model_without_an_end_of_sequence_cannot(tmp_path: Path) -> None:
    model_of(byte_level(), tmp_path)
    (tmp_path / "generation_config.json").unlink()
    llm = LLM(str(tmp_path), kv_memory="16MiB", device="cpu")
    form = StructuredOutputs(json_object=True)
    with pytest.raises(RequestError, match="not possible with this model: it names no end-of-sequence token"):
        llm.generate([[5]], SamplingParams(structured_outputs=form), progress=False)
    assert llm.generate([[5]], SamplingParams(max_tokens=2), progress=False)


def test_a_model_without_a_tokenizer_cannot(tmp_path: Path) -> None:
    from turnout.config import EngineConfig
    from turnout.core.types.request import RequestSpec
    from turnout.runner.assembly import build_engine

    model_of(byte_level(), tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    engine = build_engine(EngineConfig(model=str(tmp_path), kv_memory="16MiB", device="cpu")).engine
    params = SamplingParams(structured_outputs=StructuredOutputs(json_object=True))
    with pytest.raises(RequestError, match=r"not possible with this model: .* holds no tokenizer"):
        engine.add(RequestSpec(id="r", prompt=[1], params=params, seed=0))
