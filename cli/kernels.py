"""``turnout kernels``."""

from __future__ import annotations

from pathlib import Path

import click

__all__ = ["command"]


@click.group(name="kernels")
def command() -> None:
    """Compile the kernels of CPUs for other machines."""


@command.command()
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the libraries; without it, inside the installed package, where they are found.",
)
def build(out: Path | None) -> None:
    """Compile all variants that the compiler knows, of which each machine then takes the best.

    A machine takes a library from the installed package, or from the folder that TURNOUT_KERNELS names, if it
    was compiled from the same sources; it then needs no compiler. CXX names another compiler, also one for
    another architecture.
    """
    from turnout.kernels.build import BuildError, build_for_shipping
    from turnout.kernels.shipped import shipped_folder

    folder = out or shipped_folder()
    try:
        for variant, result in build_for_shipping(folder):
            click.echo(f"{variant}: {result}")
    except BuildError as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"in {folder}")
