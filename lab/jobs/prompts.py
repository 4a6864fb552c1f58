"""The token ids of jobs' prompts: made up, but the same in every process.

A job says how long its prompt is and what it shares; what it says is a hash's output. Equal blocks are equal
tokens and all else is unlike anything else, so a prefix cache finds what the workload says, and no more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import shake_128

import numpy as np

from turnout.lab.jobs.job import Job

__all__ = ["DEFAULT_VOCABULARY", "Prompts", "ordinary_tokens"]

DEFAULT_VOCABULARY = 4096
"""Used where the vocabulary's size is not given: every model has as many tokens."""


def ordinary_tokens(vocabulary: int) -> range:
    """Token ids that are not special in any vocabulary we know of.

    Special tokens stand in the first thousand (Llama 2, Gemma, Mistral) or in the last hundredth (Qwen,
    Llama 3, DeepSeek). Of small vocabularies the first quarter and the last twentieth are left out.
    """
    return range(min(1000, vocabulary // 4), vocabulary - vocabulary // 20)


class Prompts:
    """Of one run of a workload: keeps what its sessions have said, until their last turn.

    `seed` makes other texts, so that a server that has seen a run before finds nothing of it in its cache.
    """

    def __init__(
        self,
        jobs: Sequence[Job] | Mapping[int, Job],
        seed: int,
        vocabulary: int = DEFAULT_VOCABULARY,
    ) -> None:
        """`jobs`: of a workload, by their index in it."""
        self._jobs = jobs
        self._seed = seed
        self._ordinary = ordinary_tokens(vocabulary)
        numbered = jobs.items() if isinstance(jobs, Mapping) else enumerate(jobs)
        self._last_turns = {job.session: index for index, job in numbered if job.session}
        self._said: dict[str, tuple[int, list[int]]] = {}
        """By session: the job asked for last, with its prompt and answer."""

    def of(self, index: int) -> list[int]:
        """The prompt of the workload's job of this number; turns of a session are asked for in order.

        It begins with the job's blocks or, if more, with what its session has said; the rest is its own.
        """
        job = self._jobs[index]
        prompt = [token for name in job.blocks for token in self.made(f"block {name}", job.block_size)]
        _, said = self._said.get(job.session, (index, []))
        if said[: len(prompt)] == prompt:
            prompt = said
        prompt = prompt[: job.prompt] + self.made(f"prompt {index}", job.prompt - len(prompt))
        if job.session:
            # Until the true answer is known, and where it never is: something of its length.
            self._say(index, prompt + self.made(f"answer {index}", job.output))
        return prompt

    def answered(self, index: int, tokens: Sequence[int]) -> None:
        """The answer in truth, with which the session's next turn goes on, unless that is made already."""
        job = self._jobs[index]
        latest, said = self._said.get(job.session, (-1, []))
        if latest == index:
            self._say(index, said[: len(said) - job.output] + list(tokens))

    def _say(self, index: int, said: list[int]) -> None:
        session = self._jobs[index].session
        if index == self._last_turns[session]:
            self._said.pop(session, None)
        else:
            self._said[session] = index, said

    def made(self, name: str, count: int) -> list[int]:
        """Tokens that are a function of the seed and `name`."""
        if count <= 0:
            return []
        drawn = np.frombuffer(shake_128(f"{self._seed} {name}".encode()).digest(4 * count), "<u4")
        made: list[int] = (drawn % len(self._ordinary) + self._ordinary.start).tolist()
        return made
