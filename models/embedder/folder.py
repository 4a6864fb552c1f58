"""Reads the files that sentence-transformers keeps beside a checkpoint, as that library reads them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from turnout.core.errors import ModelError
from turnout.core.types.pooling import Activation, EmbedderConfig, Similarity
from turnout.models.checkpoints.checkpoint import read_json

__all__ = ["module_files", "read_embedder"]

POOLINGS = {
    "cls": "cls",
    "lasttoken": "last",
    "max": "max",
    "mean": "mean",
    "mean_sqrt_len_tokens": "sqrt-mean",
    "weightedmean": "weighted-mean",
}
"""Turnout's strategies, by the library's names."""
FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""The library's names, by the flags of older folders."""
SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")
ACTIVATIONS = {"Sigmoid": "sigmoid", "Identity": "none", "Softmax": "softmax"}
"""Of a cross-encoder, by the names of PyTorch's classes."""
LENGTH_FILES = tuple(
    f"sentence_{name}_config.json"
    for name in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
MODULE_FILES: Mapping[str, tuple[str, ...]] = {
    "Pooling": ("config.json",),
    "LogitScore": ("config.json",),
    "Dense": ("config.json", "model.safetensors"),
}
"""What is read of a module's folder, by its kind."""
OPTIONS = ("add_generation_prompt", "enable_thinking")
"""What a folder may give to its chat template; other keys are about padding and the like."""
SETTINGS = "config_sentence_transformers.json"
NO_LIMIT = 10**6
"""A ``model_max_length`` of so many tokens says that there is none."""


def read_embedder(folder: Path) -> EmbedderConfig | None:
    """Returns what a folder says; None where it is none of sentence-transformers, nor a cross-encoder.

    Raises ModelError, naming the file, for what is not supported.
    """
    activation = _activation(folder)
    modules = _modules(folder / "modules.json")
    if not modules:
        return None if activation is None else EmbedderConfig(activation=activation)
    kinds = [kind for kind, _ in modules]
    if kinds[0] != "Transformer" or modules[0][1] != folder:
        raise _refused(folder, f"it should begin with a Transformer in the folder itself, not {kinds[0]}")
    pooling, projections, normalized = None, [], False
    score_tokens: tuple[int, ...] = ()
    for kind, path in modules[1:]:
        if kind == "Pooling" and pooling is None:
            pooling = _pooling(path / "config.json")
        elif kind == "LogitScore" and kinds == ["Transformer", "LogitScore"]:
            score_tokens = _score_tokens(path / "config.json")
        elif kind == "Dense" and not normalized:
            projections.append(path)
        elif kind == "Normalize":
            normalized = True
        elif kind != "Dropout":
            raise _refused(folder, f"a module {kind} is not supported there; it has {', '.join(kinds)}")
    length, lower, options = _texts(folder)
    prompts, default, similarity = _prompts(folder / SETTINGS)
    return EmbedderConfig(
        pooling=pooling,
        normalize=normalized,
        projections=tuple(projections),
        max_length=length,
        lower_case=lower,
        prompts=prompts,
        default_prompt=default,
        similarity=similarity,
        score_tokens=score_tokens,
        template_options=options,
        activation=activation,
        truncate_dim=_truncate_dim(folder / SETTINGS),
    )


def module_files(folder: Path) -> list[str]:
    """Returns the files that serving reads in the folders of an embedder's modules, by their relative paths.

    Raises ModelError where ``modules.json`` cannot be read.
    """
    files = (
        os.path.relpath(path / file, folder)
        for kind, path in _modules(folder / "modules.json")
        for file in MODULE_FILES.get(kind, ())
    )
    return [file for file in files if Path(file).parts[0] != os.pardir]


def _modules(path: Path) -> list[tuple[str, Path]]:
    """Returns the kind of each module, and its folder; none where there is no such file."""
    if not path.is_file():
        return []
    try:
        listed = json.loads(path.read_text(encoding="utf-8"))
        return [
            (str(each["type"]).rpartition(".")[2], path.parent / str(each.get("path", ""))) for each in listed
        ]
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ModelError(f"{path} should list modules, each with type and path; fetch it again") from error


def _pooling(path: Path) -> str:
    config = read_json(path)
    named = config.get("pooling_mode")
    modes = [named] if isinstance(named, str) else named
    if modes is None:
        modes = [mode for flag, mode in FLAGS.items() if config.get(flag)] or ["mean"]
    if not isinstance(modes, list) or len(modes) != 1 or modes[0] not in POOLINGS:
        raise ModelError(f"{path}: pooling should be one of {', '.join(POOLINGS)}, not {modes!r}")
    if config.get("include_prompt", True) is not True:
        raise ModelError(
            f"{path}: include_prompt=false, which leaves prompts out of pooling, is not supported"
        )
    return POOLINGS[modes[0]]


def _score_tokens(path: Path) -> tuple[int, ...]:
    """Returns the token of "yes", and that of "no" if it counts."""
    config = read_json(path)
    first, second = config.get("true_token_id"), config.get("false_token_id")
    if type(first) is not int or not isinstance(second, int | None) or isinstance(second, bool):
        raise ModelError(f"{path}: true_token_id and false_token_id should be token ids")
    return (first,) if second is None else (first, second)


def _texts(folder: Path) -> tuple[int | None, bool, Mapping[str, Any]]:
    """Returns the most tokens of a text, whether texts are lowered, and what a chat template is given."""
    found = next((folder / name for name in LENGTH_FILES if (folder / name).is_file()), None)
    config = {} if found is None else read_json(found)
    length = config.get("max_seq_length")
    if length is None:
        length = read_json(folder / "tokenizer_config.json", needed=False).get("model_max_length")
    if length is not None and (isinstance(length, bool) or not isinstance(length, int | float) or length < 1):
        raise ModelError(f"{found or folder}: max_seq_length = {length!r} should be a positive number")
    limit = None if length is None or length >= NO_LIMIT else int(length)
    processing = config.get("processing_kwargs")
    options = processing.get("chat_template") if isinstance(processing, dict) else None
    given = (
        {name: value for name, value in options.items() if name in OPTIONS}
        if isinstance(options, dict)
        else {}
    )
    return limit, bool(config.get("do_lower_case", False)), given


def _prompts(path: Path) -> tuple[Mapping[str, str], str | None, Similarity]:
    config = read_json(path, needed=False)
    prompts, default = config.get("prompts") or {}, config.get("default_prompt_name")
    if not isinstance(prompts, dict) or not all(isinstance(each, str | None) for each in prompts.values()):
        raise ModelError(f"{path}: prompts should be texts by name")
    prompts = {str(name): text or "" for name, text in prompts.items()}
    if default is not None and default not in prompts:
        raise ModelError(f"{path}: default_prompt_name = {default!r} is none of {', '.join(prompts)}")
    similarity = config.get("similarity_fn_name") or "cosine"
    if similarity not in SIMILARITIES:
        raise ModelError(f"{path}: similarity_fn_name = {similarity!r} is none of {', '.join(SIMILARITIES)}")
    return prompts, default, cast(Similarity, similarity)


def _truncate_dim(path: Path) -> int | None:
    kept = read_json(path, needed=False).get("truncate_dim")
    if kept is not None and (type(kept) is not int or kept < 1):
        raise ModelError(f"{path}: truncate_dim = {kept!r} should be a number of dimensions from 1 on")
    return kept


def _activation(folder: Path) -> Activation | None:
    """Returns the activation that a cross-encoder's folder names; None: it names none.

    The newest place that has one holds.
    """
    config: Mapping[str, Any] = read_json(folder / "config.json", needed=False)
    own = config.get("sentence_transformers")
    older = own.get("activation_fn") if isinstance(own, dict) else None
    places = (
        (SETTINGS, read_json(folder / SETTINGS, needed=False).get("activation_fn")),
        ("config.json", older or config.get("sbert_ce_default_activation_function")),
    )
    file, named = next(((file, named) for file, named in places if named is not None), ("", None))
    if named is None:
        return None
    name = str(named).rpartition(".")[2]
    if name not in ACTIVATIONS:
        raise ModelError(f"{folder / file}: the activation {named!r} is none of {', '.join(ACTIVATIONS)}")
    return cast(Activation, ACTIVATIONS[name])


def _refused(folder: Path, why: str) -> ModelError:
    return ModelError(f"{folder / 'modules.json'}: {why}")
