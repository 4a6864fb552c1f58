"""The errors that Turnout raises on purpose. Commands and handlers derive further ones.

TurnoutError
├── ConfigError            a flag, key or option that cannot be used as given
│   ├── NoRoom             memory, threads or processes that the system does not give now
│   ├── UnknownPlugin      a policy name that is not registered
│   └── PluginError        a plugin that failed, is misspelt or conflicts with another
│       └── PolicyError    a policy that gave an invalid answer
├── ModelError             a checkpoint that is missing, damaged or not supported
│   └── Unsupported        one that is whole, and asks for what its family does not compute
├── RequestError           one request that cannot be served; the others go on
│   ├── ContextExceeded    one that the model's context does not hold
│   ├── Overloaded         one that could be served, but not now
│   ├── Dropped            one that the scheduling policy dropped
│   └── Interrupted        one that was begun and cannot go on in another engine
├── StorageError           a file in which the server keeps things cannot be used
└── EngineError            the engine failed, at one request or as a whole
    └── EngineGone         the whole engine failed or ended
        └── CollectiveError    the ranks of an engine on several devices cannot go on together
            └── RankLost       one of them ended, or is silent
"""

from __future__ import annotations

import difflib
import errno
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Self, TypeVar

__all__ = [
    "CollectiveError",
    "ConfigError",
    "ContextExceeded",
    "Dropped",
    "EngineError",
    "EngineGone",
    "Interrupted",
    "ModelError",
    "NoRoom",
    "Overloaded",
    "PluginError",
    "PolicyError",
    "RankLost",
    "RequestError",
    "StorageError",
    "TurnoutError",
    "UnknownPlugin",
    "Unsupported",
    "as_no_room",
    "as_plugin_errors",
    "describe_error",
    "did_you_mean",
    "map_numbered",
    "naming",
    "shortened",
]


NO_MEMORY = ("can't allocate memory", "Cannot allocate memory", "failed to map segment")
"""What torch and the loader of libraries say where the system gives them no memory."""
NO_THREADS = ("can't start new thread", "Resource temporarily unavailable")
"""What Python and libraries say where the system lets them start no thread and no process."""

T = TypeVar("T")
R = TypeVar("R")


class TurnoutError(Exception):
    """The base of all errors. Its message says what was wrong, what was expected and what to do.

    ``outputs``: where a prompt of a call of `LLM` failed while others ran, the output of each prompt in its
    place, and None in that of one that failed; None: there are no outputs.
    """

    outputs: Sequence[object] | None = None


class ConfigError(TurnoutError):
    """A flag, key or option that cannot be used as given."""


class NoRoom(ConfigError):
    """Memory, threads or processes that the system does not give now. It may later, as when another process
    has ended."""


class UnknownPlugin(ConfigError):
    """A policy name that is not registered."""


class PluginError(ConfigError):
    """A plugin that failed, is misspelt or conflicts with another. The message names it."""


class PolicyError(PluginError):
    """A policy that gave an invalid answer. The message names it."""


class ModelError(TurnoutError):
    """A checkpoint that is missing, damaged or not supported."""


class Unsupported(ModelError):
    """A checkpoint that is whole, and asks for what its family does not compute. Another may."""


class RequestError(TurnoutError):
    """One request that cannot be served; the others go on.

    ``param`` names the field that is at fault, if one is.
    """

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class ContextExceeded(RequestError):
    """A prompt that the model's context does not hold, alone or with the output that is wanted.

    Clients that shorten a conversation and try again look for the words that `of` begins with, as OpenAI's
    API and vLLM have them.
    """

    @classmethod
    def of(cls, limit: int, reason: str, param: str | None = "prompt") -> Self:
        """`limit`: tokens of the context. `reason`: what does not fit, and what to do."""
        return cls(f"this model's maximum context length is {limit} tokens, but {reason}", param)


class Overloaded(RequestError):
    """A request that could be served, but not now: too many are waiting.

    ``retry_after``: seconds after which the client should try again.
    """

    def __init__(self, message: str, *, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Dropped(RequestError):
    """A request that the scheduling policy dropped."""


class Interrupted(RequestError):
    """A request that an engine began that died, and that cannot go on in another one."""


class StorageError(TurnoutError):
    """A file in which the server keeps what clients gave it cannot be used. The message names it.

    ``full``: there is no room left, on the disk or within a bound.
    """

    def __init__(self, message: str, *, full: bool = False) -> None:
        super().__init__(message)
        self.full = full


class EngineError(TurnoutError):
    """The engine failed, at one request or as a whole."""


class EngineGone(EngineError):
    """The whole engine failed or ended, not one request."""


class CollectiveError(EngineGone):
    """The ranks of an engine on several devices cannot go on together."""


class RankLost(CollectiveError):
    """A rank of the engine has ended, or is silent. `why` is a clause: ``ended by signal SIGKILL``."""

    def __init__(self, rank: int, why: str) -> None:
        super().__init__(f"rank {rank} of the engine {why}")
        self.rank, self.why = rank, why


def describe_error(error: BaseException) -> str:
    """Returns the message of an error, with the type in front unless it is a TurnoutError."""
    name, text = type(error).__name__, str(error)
    if not text:
        return name
    return text if isinstance(error, TurnoutError) else f"{name}: {text}"


@contextmanager
def as_plugin_errors(plugin: str) -> Iterator[None]:
    """Turns errors raised in the block, other than TurnoutErrors, into a PluginError that names `plugin`.

    Where the system gave the plugin no memory or no thread, the error is `NoRoom`.
    """
    try:
        yield
    except (TurnoutError, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # as `plugin_errors` has it, such as `sys.exit`
        if lack := _lack(plugin, error):
            raise NoRoom(lack) from error
        raise PluginError(f"{plugin} failed: {describe_error(error)}") from error


@contextmanager
def as_no_room(who: str) -> Iterator[None]:
    """Turns the errors of a block to which the system gave no memory, or no thread or process, into a NoRoom
    that names `who`."""
    try:
        yield
    except Exception as error:
        if isinstance(error, TurnoutError) or not (lack := _lack(who, error)):
            raise
        raise NoRoom(lack) from error


def _lack(who: str, error: BaseException) -> str:
    """Returns what `who` got too little of, and what to do; empty if the error says nothing of the kind."""
    if _tells(error, errno.ENOMEM, NO_MEMORY) or isinstance(error, MemoryError):
        return (
            f"{who} got too little memory ({describe_error(error)}); take a smaller model or --kv-memory, "
            "free memory, or raise the process's limit (`ulimit -v`)"
        )
    # A stream that takes no more now, such as standard output, says how much it has taken.
    if _tells(error, errno.EAGAIN, NO_THREADS) and not hasattr(error, "characters_written"):
        return (
            f"{who} could start no further thread or process ({describe_error(error)}); raise the limit of "
            "processes (`ulimit -u`, TasksMax= of systemd, --pids-limit of a container)"
        )
    return ""


def _tells(error: BaseException, number: int, texts: Sequence[str]) -> bool:
    if isinstance(error, OSError):
        return error.errno == number
    return isinstance(error, RuntimeError | ImportError | ValueError) and any(
        text in str(error) for text in texts
    )


def map_numbered(what: str, make: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Returns what `make` makes of each item.

    what: the items' name, such as ``prompt``. A RequestError tells which item is at fault, counted from 0;
    where there is only one, it stays as it is.
    """
    made = []
    for number, item in enumerate(items):
        try:
            made.append(make(item))
        except RequestError as error:
            if len(items) > 1:
                error.args = (f"{what} {number}: {error}",)
            raise
    return made


@contextmanager
def naming(*where: object) -> Iterator[None]:
    """Adds what is meant, such as a file and a key, to each line of a ConfigError."""
    try:
        yield
    except ConfigError as error:
        lines = [": ".join(map(str, (*where, line))) for line in str(error).splitlines()]
        raise ConfigError("\n".join(lines)) from None


def shortened(value: object, most: int = 200) -> str:
    """Formats a value for a message, cut after `most` characters: a value can be as long as a file."""
    try:
        text = repr(value)
    except ValueError:  # Python does not print integers of thousands of digits
        return "a huge number"
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns ``"; did you mean 'scheduler'?"`` if a known name is close to `name`, else an empty string."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
