"""What engines of small random models have in common, and a policy that preempts all the time."""

from __future__ import annotations

from typing import Any

PLAIN: dict[str, Any] = {"kv_memory": "64MiB", "device": "cpu", "dtype": "float32", "max_model_len": 128}

SEESAW = '''
from turnout import SchedulingPolicy, hookimpl


class Seesaw(SchedulingPolicy):
    """In every second step the request that ran longest gives way to the newest that waits; no other does."""

    def __init__(self) -> None:
        self._steps = 0

    def order(self, view):
        self._steps += 1
        if self._steps % 2 or not view.waiting:
            return [*view.running, *view.waiting]
        return [view.waiting[-1], *view.running, *view.waiting[:-1]]

    def victim(self, request, running):
        if request in running:
            return running[-1]
        return running[0] if self._steps % 2 == 0 else None


@hookimpl
def register_schedulers(register):
    register("seesaw", Seesaw)
'''
