"""Try all models of the installed transformers: which run, and why others do not.

python scripts/transformers_grid.py            # writes scripts/reference/transformers_grid.json
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import transformers
from transformers import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as NAMES
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES as MASKED
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES as CLASSIFIERS,
)
from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES as BODIES

from turnout.core.errors import ModelError
from turnout.core.types.layer_attention import NOT_CAUSAL
from turnout.models.bodies.naming import body_named
from turnout.models.transformers_adapter.building import has_causal
from turnout.models.transformers_adapter.check import MOST, flat_difference, prove_exchanges
from turnout.models.transformers_adapter.encoders.classes import encoder_class
from turnout.models.transformers_adapter.encoders.reading import read_encoder
from turnout.models.transformers_adapter.reading import read_spec
from turnout.models.transformers_adapter.small import shrunk
from turnout.models.transformers_adapter.trial import Trial, on_one_thread
from turnout.scripts.transformers_texts import text_names, tried_text

RESULTS = Path(__file__).parent / "reference" / "transformers_grid.json"

MAMBA: Mapping[str, Any] = {"head_dim": 16, "num_heads": 8}
SIZES: Mapping[str, Mapping[str, Any]] = {
    "deepseek_v2": {"num_experts_per_tok": 2, "n_routed_experts": 4, "n_shared_experts": 1},
    "bamba": {"attn_layer_indices": [1]},
    "dots1": {"num_experts_per_tok": 2, "n_routed_experts": 4, "n_shared_experts": 1},
    "glm4_moe_lite": {"head_dim": 8},
    "granitemoehybrid": {"layer_types": ["attention"] * 4, "num_hidden_layers": 4},
    "hunyuan_v1_dense": {"head_dim": 16},
    "hunyuan_v1_moe": {"head_dim": 16},
    "lfm2": {"layer_types": ["conv", "conv", "full_attention"], "num_hidden_layers": 3},
    "lfm2_moe": {"layer_types": ["conv", "conv", "full_attention"], "num_hidden_layers": 3},
    "mamba2": MAMBA,
    "ministral": {"head_dim": 16},
    "nemotron": {"head_dim": 16, "num_key_value_heads": 2},
    "phi4_multimodal": {
        "num_hidden_layers": 2,
        "vision_config": {"num_hidden_layers": 2},
        "audio_config": {"num_blocks": 2},
    },
}
"""What the default config of a class lacks, or what does not fit the other sizes."""


@click.command(help=__doc__)
@click.argument("kinds", nargs=-1)
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS, show_default=True)
def main(kinds: tuple[str, ...], out: Path) -> None:
    """Tries them one after the other, in a few minutes."""
    logging.disable()
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    found = {}
    for kind in kinds or NAMES:
        with on_one_thread():
            found[kind] = {"architecture": NAMES[kind], **tried(kind)}
        click.echo(f"{kind}: {found[kind]}")
    encoders = of_names(encoder_names(), tried_encoder, kinds)
    texts = of_names(text_names(), tried_text, kinds)
    if not kinds:
        result = {
            "transformers": transformers.__version__,
            "models": dict(sorted(found.items())),
            "encoders": encoders,
            "texts": texts,
        }
        out.write_text(json.dumps(result, indent=1) + "\n")


def of_names(
    names: Iterator[tuple[str, str]], trial: Callable[[str, str], dict[str, Any]], kinds: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Returns what `trial` finds of each name, in their order. kinds: of which types alone; empty: of all."""
    found = {}
    for kind, name in names:
        if not kinds or kind in kinds:
            with on_one_thread():
                found[name] = trial(kind, name)
            click.echo(f"{name}: {found[name]}")
    return dict(sorted(found.items()))


def tried(kind: str) -> dict[str, Any]:
    """Returns the features of attention and the difference that was found, or why the model is refused."""
    try:
        small = shrunk(CONFIG_MAPPING[kind](), **SIZES.get(kind, {}))
        spec = read_spec({**small.to_dict(), "architectures": [NAMES[kind]], "model_type": kind})
        trial = Trial.of(small)
        difference = flat_difference(trial, prove_exchanges(trial))
    except ModelError as error:
        return {"refused": str(error)}
    except Exception as error:  # its default config has no small form
        return {"untried": f"{type(error).__name__}: {error}".splitlines()[0][:120]}
    if difference > MOST:
        return {"refused": f"a flat batch differs by {difference:.1e} of the largest logit"}
    return {"features": sorted(spec.attention_features()), "difference": f"{difference:.0e}"}


def encoder_names() -> Iterator[tuple[str, str]]:
    """Yields the types of encoders of text, each with the names of its bare model and of its classifier."""
    for kind in sorted({*MASKED, *CLASSIFIERS}):
        for name in (BODIES.get(kind), CLASSIFIERS.get(kind)):
            config = CONFIG_MAPPING[kind]()
            if not isinstance(name, str) or encoder_class(config, name) is None:
                continue
            body = body_named(name)
            if body is None or not has_causal({**config.to_dict(), "model_type": kind}, body.causal):
                yield kind, name


def tried_encoder(kind: str, name: str) -> dict[str, Any]:
    """Returns as `tried`."""
    try:
        small = shrunk(CONFIG_MAPPING[kind](), **SIZES.get(kind, {}))
        described = {**small.to_dict(), "id2label": {"0": "a", "1": "b"}, "label2id": {"a": 0, "b": 1}}
        found = read_encoder({**described, "architectures": [name], "model_type": kind})
    except ModelError as error:
        return {"refused": str(error)}
    except Exception as error:  # its default config has no small form
        return {"untried": f"{type(error).__name__}: {error}".splitlines()[0][:120]}
    features = sorted(found.spec.attention_features() - {NOT_CAUSAL})
    return {"features": features, "difference": f"{found.found.difference:.0e}"}


if __name__ == "__main__":
    main()
