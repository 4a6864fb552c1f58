"""What befalls a server from outside: signals, starvation, and commands while it is busy."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import resource
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import aiohttp
import psutil
from disk import SmallDisk

__all__ = ["ALL", "FEW", "Torment", "Victim"]

MEGABYTE = 2**20
ENGINE = "turnout.server.engine.main"


@dataclass
class Victim:
    """A server's process, and a client for its admin commands."""

    process: psutil.Process
    port: int
    admin: aiohttp.ClientSession
    drawn: random.Random = field(default_factory=random.Random)
    disk: SmallDisk | None = None
    """Where its files are; None: on a disk that other programs need."""

    @property
    def engine(self) -> psutil.Process | None:
        """None while no engine runs."""
        return next(iter(self.engines), None)

    @property
    def engines(self) -> list[psutil.Process]:
        """One for each replica that has one."""
        return [child for child in self.process.children() if ENGINE in _command(child)]

    @property
    def helpers(self) -> list[psutil.Process]:
        """The processes that compile forms and render templates, for the server or its engine."""
        return [child for child in self.process.children(recursive=True) if ENGINE not in _command(child)]


def _command(process: psutil.Process) -> list[str]:
    """Empty if the process has ended."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


Torment = Callable[[Victim], Awaitable[None]]


def signalled(number: signal.Signals) -> Torment:
    async def torment(victim: Victim) -> None:
        if victim.engine is not None:
            victim.engine.send_signal(number)

    torment.__name__ = number.name
    return torment


async def stopped(victim: Victim) -> None:
    """The engine stands still for some seconds."""
    if (engine := victim.engine) is None:
        return
    engine.suspend()
    await asyncio.sleep(victim.drawn.uniform(0.5, 3))
    with contextlib.suppress(psutil.NoSuchProcess):
        engine.resume()


async def died_while_stopped(victim: Victim) -> None:
    if (engine := victim.engine) is not None:
        engine.suspend()
        await asyncio.sleep(1)
        engine.kill()


async def killed_twice(victim: Victim) -> None:
    """The engine that takes over dies while it starts."""
    for _ in range(2):
        await signalled(signal.SIGKILL)(victim)
        await asyncio.sleep(victim.drawn.uniform(0.5, 2))


async def helpers_killed(victim: Victim) -> None:
    for helper in victim.helpers:
        with contextlib.suppress(psutil.NoSuchProcess):
            helper.kill()


async def helpers_stopped(victim: Victim) -> None:
    """They hang, and are waited for no longer than they may take."""
    helpers = victim.helpers
    for helper in helpers:
        with contextlib.suppress(psutil.NoSuchProcess):
            helper.suspend()
    await asyncio.sleep(victim.drawn.uniform(1, 5))
    for helper in helpers:
        with contextlib.suppress(psutil.NoSuchProcess):
            helper.resume()


async def hogged(victim: Victim) -> None:
    """Other processes want the processors."""
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    await asyncio.sleep(4)
    for hog in hogs:
        hog.kill()
        hog.wait()


async def reniced(victim: Victim) -> None:
    """The engine has the lowest priority for some seconds: beside busy processes, next to no time."""
    if (engine := victim.engine) is None:
        return
    for priority in (19, engine.nice()):
        with contextlib.suppress(psutil.NoSuchProcess):
            for thread in engine.threads():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.setpriority(os.PRIO_PROCESS, thread.id, priority)
        await asyncio.sleep(3)


def limited(kind: int, room: Callable[[psutil.Process], int], *, server: bool = False) -> Torment:
    """A process may take so much of a resource and no more, for some seconds."""

    async def torment(victim: Victim) -> None:
        process = victim.process if server else victim.engine
        if process is None:
            return
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            before = resource.prlimit(process.pid, kind)
            resource.prlimit(process.pid, kind, (room(process), before[1]))
            await asyncio.sleep(victim.drawn.uniform(2, 4))
            resource.prlimit(process.pid, kind, before)

    return torment


def all_descriptors(process: psutil.Process) -> int:
    return max((int(name) for name in os.listdir(f"/proc/{process.pid}/fd")), default=10) + 2


memory_limited = limited(resource.RLIMIT_AS, lambda process: process.memory_info().vms + 4 * MEGABYTE)
memory_limited.__name__ = "memory of the engine"
engine_descriptors = limited(resource.RLIMIT_NOFILE, all_descriptors)
engine_descriptors.__name__ = "descriptors of the engine"
server_descriptors = limited(resource.RLIMIT_NOFILE, all_descriptors, server=True)
server_descriptors.__name__ = "descriptors of the server"


async def died_without_descriptors(victim: Victim) -> None:
    """The engine dies while the server has no descriptor for another one."""
    limiting = asyncio.create_task(server_descriptors(victim))
    await asyncio.sleep(0.2)
    await signalled(signal.SIGKILL)(victim)
    await limiting


unwritable = limited(resource.RLIMIT_FSIZE, lambda process: 0, server=True)
unwritable.__name__ = "no byte into any file"


async def disk_full(victim: Victim) -> None:
    """No file can be made or written."""
    if victim.disk is not None:
        with victim.disk.full():
            await asyncio.sleep(victim.drawn.uniform(1, 4))


async def died_with_a_full_disk(victim: Victim) -> None:
    """The engine dies, and another one finds no room for the socket's folder and for its notes."""
    if victim.disk is not None:
        victim.disk.forget_notes()
        with victim.disk.full():
            await signalled(signal.SIGKILL)(victim)
            await asyncio.sleep(victim.drawn.uniform(1, 6))


async def died_without_bytes(victim: Victim) -> None:
    """The engine dies while the server, and what it starts, may write into no file."""
    limiting = asyncio.create_task(unwritable(victim))
    await asyncio.sleep(0.2)
    await signalled(signal.SIGKILL)(victim)
    await limiting


async def idle_connections(victim: Victim) -> None:
    """Connections that ask for nothing, and a few that begin to."""
    connections = [await asyncio.open_connection("127.0.0.1", victim.port) for _ in range(150)]
    for _, writer in connections[::3]:
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
    await asyncio.sleep(3)
    for _, writer in connections:
        writer.close()


async def commanded(victim: Victim) -> None:
    """Other policies, and prefixes that are pinned and unpinned, while it serves."""
    for scheduler in ("mlfq", "sjf", "fcfs"):
        await _told(victim, "POST", "/admin/scheduler", {"name": scheduler})
        prefix = {"name": scheduler, "prompt": "import os\n" * 20}
        await _told(victim, "POST", "/admin/prefixes", prefix)
        await _told(victim, "GET", "/metrics", None)
        await _told(victim, "DELETE", f"/admin/prefixes/{scheduler}", None)


async def _told(victim: Victim, method: str, path: str, body: object) -> None:
    """Commands may fail while the engine is away; then they say so in time."""
    async with victim.admin.request(method, path, json=body) as response:
        await response.read()
        assert response.status in (200, 404, 503, 504), (path, response.status, await response.text())


FEW: list[Torment] = [
    signalled(signal.SIGKILL),
    stopped,
    helpers_killed,
    signalled(signal.SIGSEGV),
    commanded,
]
ALL: list[Torment] = [
    *FEW,
    signalled(signal.SIGABRT),
    signalled(signal.SIGTERM),
    died_while_stopped,
    killed_twice,
    helpers_killed,
    helpers_stopped,
    hogged,
    reniced,
    memory_limited,
    engine_descriptors,
    server_descriptors,
    died_without_descriptors,
    disk_full,
    died_with_a_full_disk,
    unwritable,
    died_without_bytes,
    idle_connections,
]
