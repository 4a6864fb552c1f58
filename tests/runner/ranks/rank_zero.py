"""Rank 0 as a process of its own: starts two followers, says their process ids, and waits to be killed."""

from __future__ import annotations

import time

from turnout.config import EngineConfig
from turnout.runner.ranks.processes import Ranks

ranks = Ranks.start(EngineConfig(model="toy"), 3, module="fake_follower")
for _ in range(2):
    ranks.receive(60)
print(*(follower.process.pid for follower in ranks._followers if follower.process), flush=True)
time.sleep(60)
