"""The files to which commands write their results."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from turnout.core.errors import TurnoutError

__all__ = ["OutputFile", "writing"]


class OutputFile(click.Path):
    """The type of an option that names an output file; checks before hours of work that it can be written."""

    def __init__(self, *, allow_dash: bool = False) -> None:
        super().__init__(path_type=Path, dir_okay=False, writable=True, allow_dash=allow_dash)

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> Path:
        file = Path(os.fsdecode(super().convert(value, param, ctx)))
        if not (self.allow_dash and str(file) == "-"):
            self._check_folder(file, param, ctx)
            self._check_alone(file, param, ctx)
        return file

    def _check_alone(self, file: Path, param: click.Parameter | None, ctx: click.Context | None) -> None:
        """Fails for the file of another option, which would be overwritten; devices take what comes."""
        if param is None or ctx is None or (file.exists() and not file.is_file()):
            return
        others: dict[Path, click.Parameter] = ctx.meta.setdefault(__name__, {})
        other = others.setdefault(file.resolve(), param)
        if other is not param:
            self.fail(f"{file} is given as {other.opts[0]}, too; give each a file of its own", param, ctx)

    def _check_folder(self, file: Path, param: click.Parameter | None, ctx: click.Context | None) -> None:
        folder = file.absolute().parent
        if not folder.is_dir():
            self.fail(f"{file} cannot be written: there is no folder {folder}", param, ctx)
        if not file.exists() and not os.access(folder, os.W_OK):
            self.fail(f"{file} cannot be written: the folder {folder} may not be written to", param, ctx)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns an error of writing, such as a full disk, into a TurnoutError of one line."""
    try:
        yield
    except OSError as error:
        raise TurnoutError(f"{path} cannot be written: {error.strerror}") from None
