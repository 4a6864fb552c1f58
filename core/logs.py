"""The log of a process: to standard error, a line of text or of JSON for each record.

A record may have fields besides its message, as ``extra={"fields": {...}}``; those that its message says
already are named by ``said``. A line says which request it is about where its task, or `about`, says so.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, NamedTuple

import msgspec

__all__ = [
    "JsonLines",
    "LogStyle",
    "TextLines",
    "about",
    "current_request",
    "logs_json",
    "start_logging",
]

TEXT = "%(levelname)s %(name)s: %(message)s"
_PLAIN = re.compile(r"[\w./:+,@%-]+")
"""Values that text lines have without quotes."""
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")
"""What would end a line or steer a terminal; a tab may stay."""


class LogStyle(NamedTuple):
    """What a process logs, and how."""

    level: str = "info"
    form: str = "text"


current_request: ContextVar[str] = ContextVar("turnout.request", default="")
"""The name of the request that this task serves; empty outside of requests."""


@contextmanager
def about(request: str) -> Iterator[None]:
    """Has what is logged in the block name a request."""
    token = current_request.set(request)
    try:
        yield
    finally:
        current_request.reset(token)


def start_logging(style: LogStyle, **process: str) -> None:
    """Write this process's log to standard error. Called once, before anything is logged.

    style: with ``json``, warnings and errors that nothing catches are lines of JSON too. process: what each
    line of JSON says of the process, such as ``process="engine"``; empty values are left out.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines(process) if style.form == "json" else TextLines())
    logging.basicConfig(level=style.level.upper(), handlers=[handler])
    if style.form == "json":
        logging.captureWarnings(True)
        sys.excepthook = _log_uncaught
        threading.excepthook = _log_uncaught_in_thread


def logs_json() -> bool:
    """Whether this process writes its log as JSON."""
    return any(isinstance(handler.formatter, JsonLines) for handler in logging.getLogger().handlers)


class TextLines(logging.Formatter):
    """``LEVEL logger: [request] message name=value …``; a traceback follows on lines of its own."""

    def __init__(self) -> None:
        super().__init__(TEXT)

    def formatMessage(self, record: logging.LogRecord) -> str:
        text = f"{record.levelname} {record.name}:{_named(current_request.get())} {record.message}"
        said = getattr(record, "said", ())
        for name, value in _fields_of(record).items():
            if name not in said:
                text += f" {name}={_shown(value)}"
        return _CONTROL.sub(_escaped, text)


class JsonLines(logging.Formatter):
    """An object a line: ``time``, ``level``, ``logger``, ``message``, then what is known of the process, the
    request, the fields of the record, and ``exception``."""

    def __init__(self, process: Mapping[str, str]) -> None:
        super().__init__()
        self._process = {name: value for name, value in process.items() if value}

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _time(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self._process,
            "pid": record.process,
        }
        if request := current_request.get():
            line["request_id"] = request
        line.update(_fields_of(record))
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = record.stack_info
        return _encode(line)


def _fields_of(record: logging.LogRecord) -> Mapping[str, object]:
    fields = getattr(record, "fields", None)
    return fields if isinstance(fields, Mapping) else {}


def _named(request: str) -> str:
    return f" [{request}]" if request else ""


def _shown(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if _PLAIN.fullmatch(text) else _encode(text)


def _escaped(found: re.Match[str]) -> str:
    return repr(found[0])[1:-1]


def _encode(value: object) -> str:
    """As JSON on one line; what a plugin logs may hold what JSON and UTF-8 cannot."""
    try:
        return msgspec.json.encode(value, enc_hook=str).decode()
    except (TypeError, ValueError, OverflowError):
        return msgspec.json.encode(_printable(value)).decode()


def _printable(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(_printable(str(name))): _printable(each) for name, each in value.items()}
    if value is None or isinstance(value, bool | int | float):
        return str(value) if isinstance(value, int) and abs(value) >= 2**63 else value
    return str(value).encode(errors="backslashreplace").decode()


def _time(seconds: float) -> str:
    """As ISO 8601, in UTC."""
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1000):03d}Z"


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
    else:
        logging.getLogger("turnout").critical("an error ended the process", exc_info=(kind, error, trace))


def _log_uncaught_in_thread(given: threading.ExceptHookArgs) -> None:
    error = given.exc_value or given.exc_type()
    name = given.thread.name if given.thread else "?"
    logging.getLogger("turnout").error("an error ended the thread %s", name, exc_info=error)
