"""Create a folder with a larger model that says exactly what another one says, for measurements of speed.

Its MLPs are wider: the units they are widened by are random, and their output is multiplied by zero. Layers
that are added write nothing to the residual stream. So time and memory are those of a larger model, and every
logit is the same.

python scripts/widen_model.py --model turnout-tiny --mlp 8 --out /tmp/wide
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import click
import torch
from safetensors.torch import load_file
from torch import Tensor

from turnout.core.errors import TurnoutError
from turnout.models.checkpoints.checkpoint import SINGLE_FILE, read_config
from turnout.models.checkpoints.saving import save_tensors
from turnout.models.hub.resolve import resolve_model

SILENT = ("self_attn.o_proj", "mlp.down_proj")
"""The last matrix of each branch: where it is zero, the branch adds nothing."""


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--model", default="turnout-tiny", help="What to enlarge; its weights are in one file.")
@click.option("--mlp", type=click.IntRange(min=1), default=8, help="How many times as wide the MLPs get.")
@click.option("--layers", type=click.IntRange(min=1), default=1, help="How many times as many layers.")
@click.option("--seed", type=int, default=0)
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="Folder to write."
)
def main(model: str, mlp: int, layers: int, seed: int, out: Path) -> None:
    try:
        widen(resolve_model(model), out, mlp=mlp, layers=layers, seed=seed)
    except TurnoutError as error:
        raise click.ClickException(str(error)) from error
    click.echo(out)


def widen(source: Path, out: Path, *, mlp: int, layers: int = 1, seed: int = 0) -> None:
    generator = torch.Generator().manual_seed(seed)
    config = read_config(source)
    tensors = {
        name: _widened(name, value, mlp, generator) for name, value in load_file(source / SINGLE_FILE).items()
    }
    count = config["num_hidden_layers"]
    for layer in range(count, count * layers):
        tensors |= _silent_layer(tensors, layer % count, layer)
    config["intermediate_size"] *= mlp
    config["num_hidden_layers"] *= layers
    if "layer_types" in config:
        config["layer_types"] *= layers
    out.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        if file.is_file() and file.name not in (SINGLE_FILE, "config.json"):
            shutil.copyfile(file, out / file.name)
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_tensors(tensors, out / SINGLE_FILE, {})


def _widened(name: str, value: Tensor, times: int, generator: torch.Generator) -> Tensor:
    if ".mlp." not in name or times == 1:
        return value
    if "down_proj" in name:
        return torch.cat([value, value.new_zeros(value.shape[0], value.shape[1] * (times - 1))], dim=1)
    more = torch.empty(value.shape[0] * (times - 1), *value.shape[1:]).normal_(std=0.02, generator=generator)
    return torch.cat([value, more.to(value.dtype)])


def _silent_layer(tensors: dict[str, Tensor], source: int, layer: int) -> dict[str, Tensor]:
    """A copy of another layer that adds nothing."""
    prefix = f"model.layers.{source}."
    copied = {name: value.clone() for name, value in tensors.items() if name.startswith(prefix)}
    return {
        name.replace(prefix, f"model.layers.{layer}.", 1): torch.zeros_like(value)
        if any(part in name for part in SILENT)
        else value
        for name, value in copied.items()
    }


if __name__ == "__main__":
    main()
