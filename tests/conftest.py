"""What all tests share."""

from __future__ import annotations

import os

# Before anything imports them: no test may reach for a hub or wait for one.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
