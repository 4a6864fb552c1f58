"""Text files that commands read."""

from __future__ import annotations

from pathlib import Path

from turnout.core.errors import ConfigError

__all__ = ["utf8"]


def utf8(file: Path) -> str:
    """Returns the file's text. Raises ConfigError if it is not UTF-8."""
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8 text: {error}") from None
