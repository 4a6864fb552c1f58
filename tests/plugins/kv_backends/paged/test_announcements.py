"""What a pool tells of the prefixes that it keeps, for routers."""

from __future__ import annotations

import random
from itertools import islice

from steps import compute, release, sequence
from toy import toy_kv

from turnout.core.engine.prefix_index import PrefixIndex
from turnout.core.interfaces.router import Routable
from turnout.core.types.block_events import marks

BLOCK = 4


def test_a_pool_tells_what_it_keeps_however_it_is_used() -> None:
    """The index equals what a sequence would find, rounded down to marks, after every step."""
    rng, kv, index = random.Random(0), toy_kv(12, BLOCK), PrefixIndex()
    kv.announce()
    prompts = [[first, *range(rng.randrange(8, 30))] for first in range(4)]
    for _ in range(200):
        prompt = rng.choice(prompts)
        one = sequence([*prompt, rng.randrange(100, 200)])
        compute(kv, one)
        release(kv, one)
        index.note("a", kv.announced())
        for each in prompts:
            length = kv.cached(sequence([*each, 999]))
            told = index.find(Routable("r", each, 1)).get("a", 0)
            assert told == max([0, *(mark for mark in islice(marks(BLOCK), 9) if mark <= length)])
