"""A follower that computes on the CPU as it does on a GPU."""

from __future__ import annotations

from as_on_gpus import as_on_gpus

from turnout.runner.follower.main import main

with as_on_gpus():
    main()
