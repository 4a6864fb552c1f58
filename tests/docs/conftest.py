"""The examples in the documents run on the toy model of the core's tests."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "core"))
