"""`turnout eval perplexity`: what a text's tokens cost, and what fewer bits add to that."""

from __future__ import annotations

import inspect
import json.decoder
import math
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

from turnout.cli.main import cli
from turnout.core.errors import ConfigError
from turnout.lab.quality.perplexity import Predict, measure_deviation, measure_quality, of_module
from turnout.models.hub.resolve import resolve_model


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["eval", "perplexity", *map(str, arguments)])


def cells(output: str) -> dict[str, list[str]]:
    """Lines by their first word, but for the heading."""
    return {line.split()[0]: line.split()[1:] for line in output.splitlines()[1:]}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("text") / "decoder.py"
    file.write_text(inspect.getsource(json.decoder))
    return file


def test_fewer_tokens_than_can_be_predicted_are_refused(text: Path) -> None:
    """-1000 read all but the last thousand."""
    done = run("turnout-tiny", "--text", text, "--max-tokens", -1000)
    assert done.exit_code == 2 and "--max-tokens" in done.stderr


def test_perplexity_is_what_transformers_finds(text: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = resolve_model("turnout-tiny")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = AutoTokenizer.from_pretrained(folder)(text.read_text(), return_tensors="pt")["input_ids"][:, :700]
    with torch.inference_mode():
        expected = math.exp(model(input_ids=ids, labels=ids).loss.item())
    result = run("turnout-tiny", "--text", text, "--max-tokens", 700, "--window", 700)
    assert result.exit_code == 0, result.output
    (found,) = cells(result.output)["none"]
    assert float(found) == pytest.approx(expected, rel=2e-3)


def test_schemes_stand_beside_the_model_as_it_is(text: Path) -> None:
    options = ("--quantization", "int8", "--quantization", "int4wo", "--max-tokens", 1500)
    found = cells(run("turnout-tiny", "--text", text, *options).output)
    assert list(found) == ["none", "int8", "int4wo"]
    values = {name: [float(cell.strip("%")) for cell in row] for name, row in found.items()}
    for name, bound in (("int8", 2.0), ("int4wo", 6.0)):
        _, change, agreement, divergence = values[name]
        assert abs(change) < bound and 80 < agreement < 100 and 0 < divergence < 0.1
    assert values["int8"][3] < values["int4wo"][3]


def test_a_quantized_checkpoint_is_compared_with_a_reference(text: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    CliRunner().invoke(cli, ["quantize", "turnout-tiny", "--quantization", "int8", "--out", out])
    options = ("--text", text, "--max-tokens", 600)
    stored = run(out, "--reference", "turnout-tiny", *options).output.splitlines()
    made = run("turnout-tiny", "--quantization", "int8", *options).output.splitlines()
    assert stored[-1].startswith("compressed-tensors (the checkpoint's own) ")
    assert stored[-1].split()[-4:] == made[-1].split()[-4:]


class Uniform(torch.nn.Module):
    """Predicts every token alike."""

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor, attend: object) -> torch.Tensor:
        return torch.zeros(len(tokens), 4)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(hidden), 8)


@pytest.mark.parametrize(("length", "window"), [(2, 2), (20, 5), (21, 5), (17, 100)])
def test_every_token_but_the_first_is_predicted_once(length: int, window: int) -> None:
    tokens = [position % 8 for position in range(length)]
    uniform = of_module(Uniform(), torch.device("cpu"))
    deviation = measure_deviation(uniform, uniform, tokens, window=window)
    assert deviation.own == deviation.reference == measure_quality(uniform, tokens, window=window)
    assert deviation.own.tokens == length - 1
    assert deviation.own.perplexity == pytest.approx(8)
    assert (deviation.agreement, deviation.divergence, deviation.change) == (1, 0, 0)


def fixed(logits: list[float]) -> Predict:
    """The same distribution after every token, a row at a time."""
    return lambda tokens: (torch.tensor([logits]) for _ in tokens)


def test_divergence_is_from_the_reference_to_the_model() -> None:
    """Not the other way round: 0.9 ln(0.9 / 0.5) + 0.1 ln(0.1 / 0.5)."""
    reference, model = fixed([math.log(0.9), math.log(0.1)]), fixed([0.0, 0.0])
    deviation = measure_deviation(model, reference, [1, 0, 0, 1, 0], window=3)
    assert deviation.divergence == pytest.approx(0.9 * math.log(1.8) + 0.1 * math.log(0.2))
    assert deviation.reference.nats == pytest.approx(-(3 * math.log(0.9) + math.log(0.1)) / 4)
    assert deviation.own.nats == pytest.approx(math.log(2))
    assert deviation.agreement == 1


def test_a_text_of_one_token_is_refused() -> None:
    with pytest.raises(ConfigError, match="the text has 1 tokens; two or more"):
        measure_quality(fixed([0.0]), [3], window=8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--quantization", "int9"), "no quantization is called 'int9'"),
        (("--window", 1), "window=1 should be 2 to 2,048"),
        (("--window", 4096), "window=4096 should be 2 to 2,048"),
        (("--dtype", "int3"), "int3"),
    ],
)
def test_wrong_options_are_refused(options: tuple[object, ...], message: str, text: Path) -> None:
    result = run("turnout-tiny", "--text", text, *options)
    assert result.exit_code == 2 and message in result.output


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    result = run("turnout-tiny", "--text", tmp_path / "bytes")
    assert result.exit_code == 2 and "is not UTF-8 text" in result.output
