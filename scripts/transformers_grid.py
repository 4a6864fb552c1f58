"""Try every causal model of the installed transformers, and write which the adapter serves, and why not.

python scripts/transformers_grid.py            # writes scripts/reference/transformers_grid.json
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import transformers
from transformers import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as NAMES

from turnout.core.errors import ModelError
from turnout.models.transformers_adapter.check import MOST, flat_difference, prove_exchanges
from turnout.models.transformers_adapter.reading import read_spec
from turnout.models.transformers_adapter.small import shrunk
from turnout.models.transformers_adapter.trial import Trial, on_one_thread

RESULTS = Path(__file__).parent / "reference" / "transformers_grid.json"

SIZES: Mapping[str, Mapping[str, Any]] = {
    "deepseek_v2": {"num_experts_per_tok": 2, "n_routed_experts": 4, "n_shared_experts": 1},
    "dots1": {"num_experts_per_tok": 2, "n_routed_experts": 4, "n_shared_experts": 1},
    "glm4_moe_lite": {"head_dim": 8},
    "hunyuan_v1_dense": {"head_dim": 16},
    "hunyuan_v1_moe": {"head_dim": 16},
    "ministral": {"head_dim": 16},
    "nemotron": {"head_dim": 16},
    "phi4_multimodal": {"num_hidden_layers": 2, "vision_config": {}, "audio_config": {}},
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
    if not kinds:
        result = {"transformers": transformers.__version__, "models": dict(sorted(found.items()))}
        out.write_text(json.dumps(result, indent=1) + "\n")


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


if __name__ == "__main__":
    main()
