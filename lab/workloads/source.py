"""A workload as it is named on the command line.

::

    workload   PATH | part { " + " part }
    part       GENERATOR [ ":" option "=" value { "," option "=" value } ]

``trace.jsonl`` is a file, as it is. ``poisson:rate=4,requests=500`` makes requests up.
``trace:file=t.csv,speed=10`` is a file with changes.
``poisson:rate=4,client=chat + constant:rate=0.1,requests=5,prompt=3000`` is two at once.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from pathlib import Path

from turnout.core import limits
from turnout.core.errors import ConfigError, did_you_mean
from turnout.core.registry.options import Option, Options
from turnout.core.registry.spec import PluginSpec
from turnout.lab.jobs.job import Workload
from turnout.lab.traces.tokens import CountTokens, estimated_tokens
from turnout.lab.workloads.generators import GENERATORS, Generator
from turnout.lab.workloads.replay import Trace

__all__ = ["SOURCES", "load_workload", "source_options"]

Source = Generator | Trace

SOURCES: dict[str, type[Generator] | type[Trace]] = {**GENERATORS, "trace": Trace}
"""By the name that a workload begins with."""

FORM = "NAME:option=value,option=value"
_QUOTED_OR_PLUS = re.compile(r"""=\s*(?:"[^"]*"|'[^']*')|(\s\+\s)""")
"""A quoted value, in which a plus separates nothing, or the plus between two parts."""
_FORM = re.compile(r"[\w-]+(:.*=.*)?", re.DOTALL)
"""What is not a file's path; a file's name has a dot, which no source's name has."""


def load_workload(spec: str, seed: int, tokens: CountTokens = estimated_tokens) -> Workload:
    """The same in every process, for the same `spec`, `seed` and file.

    `tokens` tells how many tokens a text has, for traces that hold texts (ShareGPT).
    Raises ConfigError, in one line, for a spec or file that cannot be read.
    """
    sources = [_source(part) for part in _parts(spec)]
    _check_jobs(spec, sources)
    parts = [
        source.workload(seed, part) if isinstance(source, Generator) else source.workload(seed, part, tokens)
        for part, source in enumerate(sources)
    ]
    merged = _merged(spec, parts)
    if not math.isfinite(merged.jobs[-1].at):
        raise ConfigError(
            f"workload {spec!r}: its last request would never arrive; give a higher rate or speed"
        )
    return replace(merged, name=spec)


def source_options(name: str) -> list[Option]:
    """What may follow a name of `SOURCES`."""
    return Options(SOURCES[name], None).describe()


def _parts(spec: str) -> list[str]:
    if _is_file(spec):
        return [spec]
    pluses = [match.span() for match in _QUOTED_OR_PLUS.finditer(spec) if match[1]]
    ends, begins = [begin for begin, _ in pluses], [end for _, end in pluses]
    return [spec[begin:end] for begin, end in zip([0, *begins], [*ends, len(spec)], strict=True)]


def _check_jobs(spec: str, sources: Sequence[Source]) -> None:
    """Raises ConfigError for more jobs than a trace may have, before they are made."""
    if sum(source.requests for source in sources if isinstance(source, Generator)) > limits.TRACE_JOBS.most:
        raise ConfigError(
            f"workload {spec!r} has more than {limits.TRACE_JOBS.amount}; ask for fewer `requests`"
        )


def _is_file(text: str) -> bool:
    """Path.is_file raises OSError for what is too long for a name."""
    return os.path.isfile(text)


def _source(text: str) -> Source:
    text = text.strip()
    if _is_file(text):
        return Trace(file=Path(text))
    if not _FORM.fullmatch(text):
        raise ConfigError(f"workload {text!r}: there is no such file, and it does not have the form {FORM}")
    spec = PluginSpec.parse(text)
    if spec.name not in SOURCES:
        raise ConfigError(
            f"no workload is called {spec.name!r}; expected a file or one of {', '.join(SOURCES)}"
            f"{did_you_mean(spec.name, SOURCES)}"
        )
    try:
        source: Source = Options(SOURCES[spec.name], "source").validate(spec.options)["source"]
    except ConfigError as error:
        raise ConfigError(f"workload {spec.name!r}: {'; '.join(str(error).splitlines())}") from None
    return source


def _merged(spec: str, parts: list[Workload]) -> Workload:
    if len(parts) == 1:
        return parts[0]
    if any(part.concurrency for part in parts):
        raise ConfigError(f"workload {spec!r}: a closed loop cannot be mixed with others")
    jobs = sorted(chain.from_iterable(part.jobs for part in parts), key=attrgetter("at"))
    return Workload(spec, jobs, notes=tuple(note for part in parts for note in part.notes))
