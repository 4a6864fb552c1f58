"""SmoothQuant: outliers of activations, which leave W8A8 no bits for the rest, are moved into weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result
from family_checkpoints import write_checkpoint
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from turnout.cli.main import cli
from turnout.core.errors import ConfigError
from turnout.core.interfaces.compute import ComputeContext
from turnout.core.registry.registry import Registry
from turnout.kernels.attention.dense import DenseAttention
from turnout.lab.quality.perplexity import measure_deviation, of_module
from turnout.models.hub.resolve import resolve_model
from turnout.quantize.smoothquant import Smoothing, find_smoothing
from turnout.runner.checkpoint import open_checkpoint
from turnout.runner.weights import load_weights
from turnout.text.tokenizer import load_tokenizer

REGISTRY = Registry.load()
CPU = torch.device("cpu")
TEXT = Path(__file__).read_text()
READERS = tuple(f"{part}_proj.weight" for part in ("q", "k", "v", "gate", "up"))
"""Of what norms produce."""
OUTLIERS = {17: 300.0, 101: 150.0}
"""By input: how many times as large it is made as it was."""


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded model, computing what it did, with inputs that are far larger than the others."""
    source, folder = resolve_model("turnout-tiny"), tmp_path_factory.mktemp("planted")
    for file in source.iterdir():
        if file.suffix in (".json", ".jinja"):
            (folder / file.name).write_bytes(file.read_bytes())
    tensors = {name: value.float() for name, value in load_file(source / "model.safetensors").items()}
    for name, value in tensors.items():
        for channel, times in OUTLIERS.items():
            if name.endswith("layernorm.weight"):
                value[channel] *= times
            elif name.endswith(READERS):
                value[:, channel] /= times
    save_file(tensors, folder / "model.safetensors")
    return folder


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.py"
    path.write_text(TEXT)
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["quantize", *map(str, arguments)])


def load(folder: object, quantization: str = "none") -> nn.Module:
    checkpoint = open_checkpoint(REGISTRY, str(folder))
    return load_weights(
        REGISTRY, checkpoint, quantization, ComputeContext(CPU, torch.float32), progress=False
    )


def tokens(count: int) -> list[int]:
    return load_tokenizer(resolve_model("turnout-tiny")).encode(TEXT)[:count]


@torch.inference_mode()
def divergence(module: nn.Module) -> float:
    """From the unquantized model's predictions, nats a token."""
    reference = of_module(load("turnout-tiny"), CPU)
    return measure_deviation(of_module(module, CPU), reference, tokens(600), window=300).divergence


@torch.inference_mode()
def logits(module: nn.Module) -> Tensor:
    return module.logits(module(torch.tensor(tokens(40)), torch.arange(40), DenseAttention()))


def test_smoothing_rescues_w8a8_from_outliers(planted: Path, text: Path, tmp_path: Path) -> None:
    assert divergence(load(planted)) < 1e-4
    broken = divergence(load(planted, "int8"))
    out = tmp_path / "out"
    result = run(planted, "--quantization", "int8", "--out", out, "--smooth", text)
    assert result.exit_code == 0, result.output
    rescued = divergence(load(out))
    assert broken > 0.5 and rescued < 0.03


def test_nothing_but_rounding_changes(planted: Path) -> None:
    """The smoothed model, unquantized, gives the same logits."""
    module = load(planted)
    smoothing = find_smoothing(load(planted), tokens(300), 0.5)
    expected = logits(module)
    for name, parameter in module.named_parameters():
        parameter.copy_(smoothing.apply(name, parameter))
    torch.testing.assert_close(logits(module), expected, rtol=1e-3, atol=1e-3)


def test_outliers_are_divided(planted: Path) -> None:
    smoothing = find_smoothing(load(planted), tokens(300), 0.5)
    factor = smoothing.rows["model.layers.0.input_layernorm.weight"]
    assert {int(channel) for channel in factor.topk(2).indices} == set(OUTLIERS)
    assert factor[17] > 50 * factor.median()


def test_what_was_not_smoothed_is_as_it_was() -> None:
    smoothing, value = Smoothing({}, {}), torch.ones(3, dtype=torch.bfloat16)
    assert smoothing.apply("lm_head.weight", value) is value


@pytest.mark.slow
def test_other_text_starts_afresh(
    planted: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from turnout.quantize import shards as quantized_pieces

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(quantized_pieces, "save_tensors", interrupted)
        run(planted, "--quantization", "int8", "--out", out, "--smooth", text)
    before = json.loads((tmp_path / "out.partial" / "source.json").read_text())["smooth"]
    text.write_text(TEXT + "\n# and more\n")
    with monkeypatch.context() as patch:
        patch.setattr(quantized_pieces, "save_tensors", interrupted)
        run(planted, "--quantization", "int8", "--out", out, "--smooth", text)
    assert json.loads((tmp_path / "out.partial" / "source.json").read_text())["smooth"] != before


def test_too_little_text_is_refused(planted: Path, tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("def f():")
    result = run(
        planted, "--quantization", "int8", "--out", tmp_path / "out", "--smooth", tmp_path / "short.txt"
    )
    assert result.exit_code == 2 and "tokens of text are too few; give 64 or more" in result.output
    assert not (tmp_path / "out.partial").exists(), "nothing was written that could be continued"


def test_layers_that_are_not_the_shared_ones_are_refused() -> None:
    with pytest.raises(ConfigError, match="--smooth works on the layers that Turnout's own model families"):
        find_smoothing(nn.Sequential(nn.Linear(4, 4)), list(range(100)), 0.5)


@pytest.mark.parametrize(("kind", "named"), [("mixtral", "SparseMLP"), ("gpt2", "PlainMLP")])
def test_parts_of_layers_that_are_not_the_shared_ones_are_refused(
    kind: str, named: str, tmp_path: Path
) -> None:
    write_checkpoint(kind, tmp_path)
    with pytest.raises(ConfigError, match=f"--smooth works on layers of .* has a {named}"):
        find_smoothing(load(tmp_path), list(range(100)), 0.5)
