"""How long others wait, and how much memory the server takes, while clients mean it harm.

    python bench/hostile/clients.py                 # all attacks, each with 100 clients
    python bench/hostile/clients.py --clients 20 --attack headers

Each attack runs against a served turnout-tiny of its own. Meanwhile another process asks ``/health`` on new
connections. A line says what the attackers got, the median and the longest time of ``/health``, and the most
memory that the server's process took, besides what it takes at rest.
"""

from __future__ import annotations

import json
import multiprocessing
import socket
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection

import click
import psutil
from served import served

HEAD = "Host: localhost\r\nContent-Type: application/json\r\n"
SECONDS = 20.0
"""How long an attack takes at most."""
MILLION = 10**6


def _post(content: bytes, path: str = "/v1/completions") -> bytes:
    return f"POST {path} HTTP/1.1\r\n{HEAD}Content-Length: {len(content)}\r\n\r\n".encode() + content


def _ids(number: int) -> bytes:
    return b'{"prompt": [' + b",".join([b"12345"] * number) + b"]}"


def _fields(number: int) -> bytes:
    return b",".join(b'"k%d":1' % k for k in range(number))


def _json(path: str = "/v1/completions", **fields: object) -> bytes:
    return _post(json.dumps({"ignore_eos": True, **fields}).encode(), path)


ATTACKS: dict[str, Callable[[], bytes]] = {
    "a header of 97 MB": lambda: f"GET /version HTTP/1.1\r\n{HEAD}X: ".encode() + b"x" * 97 * MILLION,
    "100,000 requests ahead": lambda: f"GET /version HTTP/1.1\r\n{HEAD}\r\n".encode() * 100_000,
    "27 MB of []": lambda: _post(b'{"prompt": [' + b",".join([b"[]"] * 9 * MILLION) + b"]}"),
    "a million fields": lambda: _post(
        b'{"prompt": "a", ' + b",".join(b'"k%d":1' % k for k in range(MILLION)) + b"}"
    ),
    "2 million token ids": lambda: _post(_ids(2 * MILLION)),
    "220,000 fields of an object": lambda: _post(
        b'{"prompt": "a", "vllm_xargs": {' + _fields(220_000) + b"}}"
    ),
    "a text of 30 MB": lambda: _post(b'{"prompt": "' + b"word, " * 5 * MILLION + b'"}'),
    "20 MB of a body of 30 MB": lambda: _post(b"x" * 30 * MILLION)[: -10 * MILLION],
    "nothing": lambda: b"",
    "half a request": lambda: f"GET /version HTTP/1.1\r\n{HEAD}".encode(),
    "a stream that is not read": lambda: _json(
        prompt="def f(x):", max_tokens=400, n=8, stream=True, logprobs=20
    ),
    "1 MB to tokenize": lambda: _json("/tokenize", prompt="word, " * 170_000, return_token_strs=True),
    "260,000 tokens to text": lambda: _json("/detokenize", tokens=[5] * 260_000),
    "2,000 tokens and their logprobs": lambda: _json(prompt=[5] * 2000, prompt_logprobs=20, n=2),
    "16 choices with logprobs": lambda: _json(prompt="a", n=16, logprobs=20, max_tokens=400),
    "16,000 messages": lambda: _json(
        "/v1/chat/completions", messages=[{"role": "user", "content": "a"}] * 16_000
    ),
    "2,000 prompts": lambda: _json(prompt=["a"] * 2000, max_tokens=16),
}


@click.command()
@click.option("--clients", default=100, show_default=True, help="Attackers at once.")
@click.option("--attack", "wanted", default="", help="Only attacks whose name has this text.")
def main(clients: int, wanted: str) -> None:
    """Measure what hostile clients do to others."""
    for name, content in ATTACKS.items():
        if wanted in name:
            with served("--kv-memory", "64MiB") as (process, port):
                print(f"{name:>28}: {_attacked(process, port, content(), clients)}", flush=True)


def _attacked(process: psutil.Process, port: int, content: bytes, clients: int) -> str:
    rest, most, stop = process.memory_info().rss, [0], threading.Event()

    def weigh() -> None:
        while not stop.wait(0.02):
            most[0] = max(most[0], process.memory_info().rss)

    ours, theirs = multiprocessing.Pipe()
    watching = multiprocessing.Process(target=_watch, args=(port, theirs))
    weighing = threading.Thread(target=weigh)
    watching.start()
    weighing.start()
    deadline = time.monotonic() + SECONDS
    with ThreadPoolExecutor(clients) as pool:
        answers = Counter(pool.map(lambda _: _answer(port, content, deadline), range(clients)))
    ours.send(None)
    times = ours.recv()
    stop.set()
    for thread in (watching, weighing):
        thread.join()
    return (
        f"{', '.join(f'{count} {answer}' for answer, count in answers.most_common())}; /health "
        f"{1e3 * statistics.median(times):.0f} ms, at most {1e3 * max(times):.0f} ms; memory "
        f"{rest / 1e6:.0f} + {max(0, most[0] - rest) / 1e6:.0f} MB"
    )


def _watch(port: int, stop: Connection) -> None:
    """Ask ``/health`` again and again; sends how long it took each time."""
    times = []
    while not stop.poll(0.02):
        begun = time.perf_counter()
        with socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
            connection.sendall(f"GET /health HTTP/1.1\r\n{HEAD}Connection: close\r\n\r\n".encode())
            assert connection.recv(100).startswith(b"HTTP/1.1 200 ")
        times.append(time.perf_counter() - begun)
    stop.send(times)


def _answer(port: int, content: bytes, deadline: float) -> str:
    """The status that an attacker gets."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
            connection.settimeout(max(0.1, deadline - time.monotonic()))
            try:
                connection.sendall(content)
            except TimeoutError:
                return "not read"
            except OSError:
                pass  # closed; the answer may be there all the same
            if b'"stream": true' in content:
                time.sleep(max(0.0, deadline - time.monotonic()))
            connection.settimeout(max(0.1, deadline - time.monotonic()))
            return connection.recv(100).decode("latin-1")[9:12] or "closed"
    except TimeoutError:
        return "no answer"
    except OSError:
        return "reset"


if __name__ == "__main__":
    main()
