"""The contents of a workload's requests to a server: tokens, text or chats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from turnout.lab.jobs.job import Job
from turnout.lab.jobs.prompts import Prompts
from turnout.lab.load.target import Content, Target

__all__ = ["Contents", "contents_for"]

_COMMON = """
the of and to in is was for that on as with by he at from his it an were are which this also be had or
has first their one its new after but who not they have her she two been other when time during there
into all may more school up years most over only some world would later where between about no such many
then used three out these being made under part year known him state city can since before several well
through until work both second early any life day while name them number along called so said against
area place left house found large end family team
"""
WORDS = _COMMON.split()
"""Words that nearly every vocabulary has as one token, with the space before."""


QUERY_TOKENS = 16
"""Of a query that documents are ranked for."""


class Contents(Protocol):
    def of(self, index: int) -> Content:
        """The content of the job of this index; turns of a session are asked for in order."""

    def answered(self, index: int, text: str) -> None: ...


def contents_for(target: Target, jobs: Sequence[Job], prompts: Prompts) -> Contents:
    if target.pools:
        return _Pooled(jobs, prompts, target)
    if target.prompts == "tokens":
        return _Tokens(prompts)
    return _Text(jobs, prompts, chat=target.endpoint == "chat")


class _Tokens:
    """Prompts as token ids. Servers answer in text, of unknown tokens: sessions go on with stand-ins."""

    def __init__(self, prompts: Prompts) -> None:
        self._prompts = prompts

    def of(self, index: int) -> Content:
        return self._prompts.of(index)

    def answered(self, index: int, text: str) -> None: ...


class _Pooled:
    """A job's prompt, and texts as long as the prompts of the jobs after it; of a ranking, a query before."""

    def __init__(self, jobs: Sequence[Job], prompts: Prompts, target: Target) -> None:
        self._jobs = jobs
        self._prompts = prompts
        self._target = target

    def of(self, index: int) -> Content:
        jobs, made = self._jobs, self._prompts.made
        texts = [self._prompts.of(index)]
        for number in range(1, self._target.texts):
            length = jobs[(index + number) % len(jobs)].prompt
            texts.append(made(f"text {index} {number}", length))
        if self._target.endpoint == "rerank":
            texts.insert(0, made(f"query {index}", QUERY_TOKENS))
        return texts if self._target.prompts == "tokens" else [_words(text) for text in texts]

    def answered(self, index: int, text: str) -> None: ...


def _words(ids: Sequence[int]) -> str:
    return " ".join(WORDS[token % len(WORDS)] for token in ids)


class _Text:
    """Prompts of a word for each token; sessions go on with the true answers."""

    def __init__(self, jobs: Sequence[Job], prompts: Prompts, *, chat: bool) -> None:
        self._jobs = jobs
        self._prompts = prompts
        self._chat = chat
        self._last_turns = {job.session: index for index, job in enumerate(jobs) if job.session}
        self._said: dict[str, list[dict[str, str]]] = {}
        self._tokens: dict[str, int] = {}
        """By session: its tokens so far, as the workload counts them."""

    def of(self, index: int) -> Content:
        job, ids = self._jobs[index], self._prompts.of(index)
        said = self._said.get(job.session, [])
        ids = ids[min(self._tokens.get(job.session, 0), len(ids) - 1) :]
        messages = [*said, {"role": "user", "content": _words(ids)}]
        if job.session:
            self._said[job.session] = messages
            self._tokens[job.session] = job.prompt + job.output
        return messages if self._chat else " ".join(message["content"] for message in messages)

    def answered(self, index: int, text: str) -> None:
        session = self._jobs[index].session
        if not session:
            return
        if index == self._last_turns[session]:
            self._said.pop(session, None)
        elif session in self._said:
            self._said[session] = [*self._said[session], {"role": "assistant", "content": text}]
