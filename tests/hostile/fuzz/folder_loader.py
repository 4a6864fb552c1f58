"""Loads model folders, each in a process of its own with little time and memory.

As a script it reads a folder's path from each line of its input, forks, and writes how the child ended.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

SECONDS = 60
"""A folder of two megabytes loads in less than one."""
MEMORY = 2**30
"""What loading may add to the process's address space."""


class FolderLoader:
    """The process that forks."""

    def __init__(self) -> None:
        command = [sys.executable, __file__]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def load(self, folder: Path) -> dict[str, Any]:
        """How it went: `error`, None if the folder was loaded; `refused`, whether by a TurnoutError."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{folder}\n")
        self._process.stdin.flush()
        outcome: dict[str, Any] = json.loads(self._process.stdout.readline())
        return outcome

    def close(self) -> None:
        self._process.communicate()


def main() -> None:
    import turnout.runner.assembly  # noqa: F401  each child would import it

    for line in sys.stdin:
        read, write = os.pipe()
        child = os.fork()
        if not child:
            os.close(read)
            with os.fdopen(write, "w") as report:
                json.dump(outcome(Path(line.rstrip("\n"))), report)
                report.flush()
                os._exit(0)
        os.close(write)
        with os.fdopen(read) as report:
            text = report.read()
        _, status = os.waitpid(child, 0)
        print(text or json.dumps({"error": f"ended with status {status}", "refused": False}), flush=True)


def outcome(folder: Path) -> dict[str, Any]:
    import traceback

    from turnout.config import EngineConfig
    from turnout.core.errors import TurnoutError
    from turnout.runner.assembly import build_engine
    from turnout.text.tokenizer import load_tokenizer

    address_space = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (address_space + MEMORY, address_space + MEMORY))
    signal.setitimer(signal.ITIMER_PROF, SECONDS)  # of processor time: the machine may be busy
    try:
        load_tokenizer(folder)
        build_engine(EngineConfig(model=str(folder), device="cpu", kv_memory="64MiB", max_model_len=64))
    except TurnoutError as error:
        return {"error": str(error), "refused": True}
    except BaseException:  # a panic of a Rust library is no Exception
        return {"error": traceback.format_exc(), "refused": False}
    return {"error": None, "refused": False}


if __name__ == "__main__":
    main()
