"""``python -m turnout …`` is ``turnout …``."""

from __future__ import annotations

from turnout.cli.main import main

__all__: list[str] = []

if __name__ == "__main__":
    main()
