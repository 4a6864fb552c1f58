"""The files that the console is made of, and the headers they are sent with."""

from __future__ import annotations

import mimetypes
from functools import cache
from pathlib import Path

__all__ = ["ASSETS", "HEADERS", "console_file"]

ASSETS = Path(__file__).parent / "assets"
PAGE = "index.html"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
"""Of every file: nothing from elsewhere, no inline script or style, no frame around it."""


def console_file(path: str) -> tuple[bytes, str] | None:
    """A file's content and media type; None if there is no such file.

    path: relative to ``/console/``; empty: the page itself, which refers to its files as ``console/main.js``,
    since it has no slash at its end. Asked for as ``/console/``, it finds them too.
    """
    return _files().get(path.removeprefix("console/") or PAGE)


@cache
def _files() -> dict[str, tuple[bytes, str]]:
    """All files, by their paths below `ASSETS`: no other file can be asked for."""
    found = [path for path in ASSETS.rglob("*") if path.is_file()]
    return {path.relative_to(ASSETS).as_posix(): (path.read_bytes(), _media_type(path)) for path in found}


def _media_type(path: Path) -> str:
    if path.suffix == ".js":  # which some systems' tables give another type
        return "text/javascript"
    return mimetypes.guess_type(path.name)[0] or "application/octet-stream"
