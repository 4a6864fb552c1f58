"""A follower that does what frames tell it to: ``RANK VERB …``, or ``* VERB …`` for all."""

from __future__ import annotations

import os
import sys
import time

from turnout.core.errors import ModelError
from turnout.runner.ranks.follower_channel import follower_channel

time.sleep(float(os.environ.get("FAKE_FOLLOWER_LOADS", "0")))  # libraries, in its place
with follower_channel() as channel:
    config = channel.config
    part = f"part {config.cpu_engine} of {config.cpu_engines}, {len(os.sched_getaffinity(0))} cores"
    channel.say(f"ready: {config.model}, {part}, {channel.size} ranks".encode())
    for frame in channel.frames():
        rank, verb, *rest = frame.split(b" ", 2)
        if rank not in (b"*", b"%d" % channel.rank):
            continue
        if verb == b"echo":
            channel.say(rest[0])
        elif verb == b"die":
            print("the sky is falling", file=sys.stderr, flush=True)
            os._exit(3)
        elif verb == b"fail":
            raise ModelError("the checkpoint lacks layer 7")
        elif verb == b"linger":
            time.sleep(60)
        elif verb == b"mute":
            channel._words.close()
            time.sleep(60)
