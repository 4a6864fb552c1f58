"""``turnout quantize`` writes a checkpoint with quantized weights."""

from __future__ import annotations

from pathlib import Path

import click

from turnout.core.registry.registry import Registry

__all__ = ["command"]


@click.command(name="quantize")
@click.argument("model")
@click.option(
    "--quantization", required=True, metavar="NAME", help="Quantizer, as NAME or NAME:option=value,…."
)
@click.option(
    "--out", required=True, type=click.Path(path_type=Path), metavar="DIR", help="New folder to write to."
)
@click.option(
    "--smooth",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="TEXT",
    help="Text by which to move outliers of activations into weights first (SmoothQuant); may be repeated.",
)
@click.option(
    "--smooth-strength",
    default=0.5,
    show_default=True,
    type=click.FloatRange(0, 1),
    help="Share of the outliers to move: 0 moves nothing, 1 moves all.",
)
@click.option("--revision", help="Branch, tag or commit on the hub.")
@click.option(
    "--force", is_flag=True, help="Replace the checkpoint that DIR holds, once the new one is complete."
)
@click.option(
    "--plugins-folder",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder whose turnout_plugins.py is loaded as a plugin.",
)
def command(
    model: str,
    quantization: str,
    out: Path,
    smooth: tuple[Path, ...],
    smooth_strength: float,
    revision: str | None,
    force: bool,
    plugins_folder: Path | None,
) -> None:
    """Write a checkpoint of MODEL with quantized weights, which then starts without quantizing.

    MODEL is a folder, a hub name or a short name. The built-in quantizers write the layout of
    compressed-tensors, which other engines read, too. An interrupted run continues where it stopped when the
    same command is given again.
    """
    registry = Registry.load(config_folder=plugins_folder)
    registry.check("quantization", quantization)
    # Imported here, so that an error above is reported without waiting for torch.
    from turnout.quantize.quantize import quantize_checkpoint
    from turnout.quantize.smoothquant import Calibration

    calibration = Calibration(smooth, smooth_strength) if smooth else None
    click.echo(
        quantize_checkpoint(
            registry, model, quantization, out, revision=revision, force=force, calibration=calibration
        )
    )
