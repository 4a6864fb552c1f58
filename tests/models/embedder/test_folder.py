"""Folders of sentence-transformers are read as that library reads them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from turnout.core.errors import ModelError
from turnout.core.types.pooling import EmbedderConfig
from turnout.models.embedder.folder import read_embedder
from turnout.models.embedder.projections import load_projections

OLD = "sentence_transformers.models"
CPU = torch.device("cpu")


def put(folder: Path, modules: list[tuple[str, str]], **files: object) -> None:
    """files: by name, with ``__`` for ``/``, without ``.json``."""
    listed = [{"idx": n, "path": path, "type": f"{OLD}.{kind}"} for n, (kind, path) in enumerate(modules)]
    for name, content in {"modules": listed, **files}.items():
        path = folder / f"{name.replace('__', '/')}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content))


def test_a_folder_without_modules_says_nothing(tmp_path: Path) -> None:
    assert read_embedder(tmp_path) is None


def test_a_whole_folder(tmp_path: Path) -> None:
    put(
        tmp_path,
        [("Transformer", ""), ("Pooling", "1_Pooling"), ("Dense", "2_Dense"), ("Normalize", "3_Normalize")],
        **{
            "1_Pooling__config": {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False},
            "sentence_bert_config": {"max_seq_length": 256, "do_lower_case": True},
            "config_sentence_transformers": {
                "prompts": {"query": "query: ", "document": ""},
                "default_prompt_name": "query",
                "similarity_fn_name": "dot",
            },
        },
    )
    assert read_embedder(tmp_path) == EmbedderConfig(
        pooling="cls",
        normalize=True,
        projections=(tmp_path / "2_Dense",),
        max_length=256,
        lower_case=True,
        prompts={"query": "query: ", "document": ""},
        default_prompt="query",
        similarity="dot",
    )


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"pooling_mode": "lasttoken"}, "last"),
        ({"pooling_mode_weightedmean_tokens": True}, "weighted-mean"),
        ({"pooling_mode_mean_sqrt_len_tokens": True}, "sqrt-mean"),
        ({"pooling_mode_max_tokens": True}, "max"),
        ({}, "mean"),
    ],
)
def test_poolings(tmp_path: Path, config: object, name: str) -> None:
    put(tmp_path, [("Transformer", ""), ("Pooling", "1_Pooling")], **{"1_Pooling__config": config})
    found = read_embedder(tmp_path)
    assert found is not None and (found.pooling, found.normalize) == (name, False)


@pytest.mark.parametrize(
    ("modules", "config", "words"),
    [
        ([("Transformer", ""), ("Pooling", "1_Pooling")], {"include_prompt": False}, "include_prompt"),
        ([("Transformer", ""), ("Pooling", "1_Pooling")], {"pooling_mode": ["cls", "mean"]}, "pooling"),
        ([("Transformer", ""), ("WordWeights", "1_Pooling")], {}, "WordWeights"),
        ([("BoW", ""), ("Pooling", "1_Pooling")], {}, "BoW"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(
    tmp_path: Path, modules: list[tuple[str, str]], config: object, words: str
) -> None:
    put(tmp_path, modules, **{"1_Pooling__config": config})
    with pytest.raises(ModelError, match=words):
        read_embedder(tmp_path)


@pytest.mark.parametrize(("second", "expected"), [(5, (3, 5)), (None, (3,))])
def test_a_score_by_the_logits_of_tokens(
    tmp_path: Path, second: int | None, expected: tuple[int, ...]
) -> None:
    config = {"true_token_id": 3, "false_token_id": second}
    put(tmp_path, [("Transformer", ""), ("LogitScore", "1_LogitScore")], **{"1_LogitScore__config": config})
    found = read_embedder(tmp_path)
    assert found is not None and found.score_tokens == expected
    (tmp_path / "1_LogitScore" / "config.json").write_text('{"true_token_id": "yes"}')
    with pytest.raises(ModelError, match="should be token ids"):
        read_embedder(tmp_path)


def test_a_cross_encoders_activation(tmp_path: Path) -> None:
    activation = {"activation_fn": "torch.nn.modules.linear.Identity"}
    (tmp_path / "config.json").write_text(json.dumps({"sentence_transformers": activation}))
    assert read_embedder(tmp_path) == EmbedderConfig(activation="none")


@pytest.mark.parametrize("modules", [[], [("Transformer", ""), ("LogitScore", "1_LogitScore")]])
def test_a_cross_encoders_newer_settings_hold_before_its_config(
    tmp_path: Path, modules: list[tuple[str, str]]
) -> None:
    """They were not read, so that its scores went through a sigmoid."""
    older = {"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Sigmoid"}}
    newer = {"activation_fn": "torch.nn.modules.linear.Identity"}
    put(tmp_path, modules, **{"1_LogitScore__config": {"true_token_id": 3}, "config": older})
    found = read_embedder(tmp_path)
    assert found is not None and found.activation == "sigmoid"
    put(tmp_path, modules, config_sentence_transformers=newer)
    found = read_embedder(tmp_path)
    assert found is not None and found.activation == "none"
    put(tmp_path, modules, config_sentence_transformers={"activation_fn": "torch.nn.Tanh"})
    with pytest.raises(
        ModelError, match=r"config_sentence_transformers\.json: the activation 'torch.nn.Tanh'"
    ):
        read_embedder(tmp_path)


def test_the_dimensions_that_are_kept(tmp_path: Path) -> None:
    put(tmp_path, [("Transformer", "")], config_sentence_transformers={"truncate_dim": 16})
    found = read_embedder(tmp_path)
    assert found is not None and found.truncate_dim == 16
    put(tmp_path, [("Transformer", "")], config_sentence_transformers={"truncate_dim": "16"})
    with pytest.raises(ModelError, match="truncate_dim = '16' should be a number of dimensions"):
        read_embedder(tmp_path)


def test_projections(tmp_path: Path) -> None:
    config = {"in_features": 4, "out_features": 3, "activation_function": "torch.nn.modules.activation.Tanh"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=r"model\.safetensors"):
        load_projections([tmp_path], 4, CPU)
    weight, bias, x = torch.randn(3, 4), torch.randn(3), torch.randn(2, 4)
    save_file({"linear.weight": weight, "linear.bias": bias}, tmp_path / "model.safetensors")
    layers = load_projections([tmp_path], 4, CPU)
    assert layers is not None and torch.allclose(layers(x), torch.tanh(x @ weight.T + bias), atol=1e-6)
    with pytest.raises(ModelError, match="in_features = 4 should be 8, the size of the vectors"):
        load_projections([tmp_path], 8, CPU)
    (tmp_path / "config.json").write_text(json.dumps({**config, "in_features": 5}))
    with pytest.raises(ModelError, match="does not hold the layer"):
        load_projections([tmp_path], 4, CPU)
