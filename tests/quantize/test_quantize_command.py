"""`turnout quantize` writes what loading would have made, and never harms what is there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result
from family_checkpoints import write_checkpoint
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from turnout.cli.main import cli
from turnout.core.interfaces.compute import ComputeContext
from turnout.core.registry.registry import Registry
from turnout.kernels import choose_kernels
from turnout.models.hub.resolve import resolve_model
from turnout.quantize import shards
from turnout.runner.checkpoint import open_checkpoint
from turnout.runner.weights import load_weights

REGISTRY = Registry.load()
Tensors = dict[str, torch.Tensor]
SCHEMES = ["int8", "int8wo", "int4wo", "int4wo:group_size=32", "fp8", "fp8wo"]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["quantize", *map(str, arguments)])


def loaded(model: object, quantization: str = "none") -> nn.Module:
    checkpoint = open_checkpoint(REGISTRY, str(model))
    device = torch.device("cpu")
    return load_weights(
        REGISTRY, checkpoint, quantization, ComputeContext(device, torch.float32), progress=False
    )


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_is_written_loads_as_what_loading_makes(scheme: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = run("turnout-tiny", "--quantization", scheme, "--out", out)
    assert result.exit_code == 0, result.output
    assert "56 linear layers quantized" in result.output and f"turnout serve {out}" in result.output
    stored, made = loaded(out), loaded("turnout-tiny", scheme)
    x = torch.randn(9, 256)
    for name, layer in made.named_modules():
        if name.endswith(("q_proj", "up_proj")):
            assert torch.equal(stored.get_submodule(name)(x), layer(x)), name
    assert not (tmp_path / "out.partial").exists()


@pytest.mark.parametrize("kernels", ["native", "torch"])
def test_a_quantized_head_beside_a_stored_embedding_leaves_it(kernels: str, tmp_path: Path) -> None:
    """Of a config that ties both: the embedding was refused, or read off the rounded head."""
    write_checkpoint("llama", tmp_path / "plain")
    out, cpu = tmp_path / "out", torch.device("cpu")
    assert run(tmp_path / "plain", "--quantization", "int8:lm_head=true", "--out", out).exit_code == 0
    config = json.loads((out / "config.json").read_text())
    (out / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": True}))
    chosen = choose_kernels(kernels, cpu, torch.float32).kernels
    model = load_weights(
        REGISTRY,
        open_checkpoint(REGISTRY, str(out)),
        "none",
        ComputeContext(cpu, torch.float32, chosen),
        progress=False,
    )
    stored = load_file(next(out.glob("*.safetensors")))["model.embed_tokens.weight"]
    assert torch.equal(model.model.embed_tokens(torch.arange(9)), stored[:9])


def test_tokenizer_and_all_that_is_no_weight_comes_along(tmp_path: Path) -> None:
    run("turnout-tiny", "--quantization", "int8", "--out", tmp_path / "out")
    source = resolve_model("turnout-tiny")
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja"):
        assert (tmp_path / "out" / name).read_bytes() == (source / name).read_bytes()
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["quantization_config"]["format"] == "int-quantized"
    assert config["quantization_config"]["ignore"] == ["lm_head"]


def test_an_embedders_modules_come_along(tmp_path: Path) -> None:
    """They lie in folders, and were left behind: what was written could not be served."""
    source, out = tmp_path / "plain", tmp_path / "out"
    write_checkpoint("llama", source)
    modules = [
        {"path": path, "type": f"models.{kind}"} for kind, path in (("Transformer", ""), ("Pooling", "1_P"))
    ]
    (source / "modules.json").write_text(json.dumps(modules))
    (source / "1_P").mkdir()
    (source / "1_P" / "config.json").write_text('{"pooling_mode": "max"}')
    assert run(source, "--quantization", "int8", "--out", out).exit_code == 0
    embedder = open_checkpoint(REGISTRY, str(out)).embedder
    assert embedder is not None and embedder.pooling == "max"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_others_read_it(scheme: str, tmp_path: Path) -> None:
    """Where compressed-tensors is installed: its decompression gives the weights."""
    pytest.importorskip("compressed_tensors")
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationConfig

    run("turnout-tiny", "--quantization", scheme, "--out", tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())["quantization_config"]
    groups = QuantizationConfig(**config).config_groups
    layer = "model.layers.0.mlp.down_proj"
    group = next(g for g in groups.values() if g.targets == ["Linear"] or layer in g.targets)
    tensors = {}
    for file in (tmp_path / "out").glob("*.safetensors"):
        tensors.update(load_file(file))
    parts = {key.rpartition(".")[2]: value for key, value in tensors.items() if key.startswith(f"{layer}.")}
    compressor = BaseCompressor.load_from_registry(str(group.format or config["format"]))
    weight = compressor.decompress(parts, group)["weight"].float()
    original = load_file(resolve_model("turnout-tiny") / "model.safetensors")[f"{layer}.weight"]
    assert (weight - original).norm() < (0.15 if "int4" in scheme else 0.03) * original.norm()


def test_it_goes_on_where_it_was_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "SHARD_ELEMENTS", 2**20)
    written: list[Path] = []
    write = shards.save_tensors

    def failing(tensors: Tensors, path: Path, metadata: dict[str, str]) -> None:
        if len(written) == 2:
            raise KeyboardInterrupt
        write(tensors, path, metadata)
        written.append(path)

    arguments = ("turnout-tiny", "--quantization", "int4wo", "--out", tmp_path / "out")
    monkeypatch.setattr(shards, "save_tensors", failing)
    assert run(*arguments).exit_code == 130
    assert not (tmp_path / "out").exists() and (tmp_path / "out.partial").is_dir()
    assert len(written) == 2

    rest: list[Path] = []
    monkeypatch.setattr(shards, "save_tensors", lambda t, path, m: (write(t, path, m), rest.append(path)))
    assert run(*arguments).exit_code == 0
    files = sorted((tmp_path / "out").glob("model-*.safetensors"))
    assert len(files) == len(written) + len(rest) and len(rest) >= 1
    x = torch.randn(3, 256)
    made = loaded("turnout-tiny", "int4wo").model.layers[0].mlp.up_proj(x)
    assert torch.equal(loaded(tmp_path / "out").model.layers[0].mlp.up_proj(x), made)


def test_another_scheme_starts_afresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shards, "save_tensors", interrupted)
        run("turnout-tiny", "--quantization", "int8", "--out", tmp_path / "out")
    assert run("turnout-tiny", "--quantization", "fp8", "--out", tmp_path / "out").exit_code == 0
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["quantization_config"]["format"] == "float-quantized"


def test_a_mark_that_is_cut_short_starts_afresh(tmp_path: Path) -> None:
    """As a full disk leaves it: the same command ended in a traceback."""
    partial = tmp_path / "out.partial"
    (partial / "folder").mkdir(parents=True)
    (partial / "source.json").write_text('{"source": "/mod')
    (partial / "model-00001-of-00001.safetensors").write_text("of another checkpoint")
    result = run("turnout-tiny-draft", "--quantization", "int8", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "out" / "model-00001-of-00001.safetensors").stat().st_size > 2**20
    assert not partial.exists()
    assert not (tmp_path / "out" / "folder").exists() and not (tmp_path / "out" / "source.json").exists()


def test_the_folder_that_one_is_in_can_be_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--out .` was a traceback: it has no name."""
    out = tmp_path / "out"
    run("turnout-tiny-draft", "--quantization", "int8", "--out", out)
    monkeypatch.chdir(out)
    result = run("turnout-tiny-draft", "--quantization", "fp8", "--out", ".", "--force")
    assert result.exit_code == 0, result.output
    assert "float-quantized" in (out / "config.json").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_link_to_a_checkpoint_leads_to_what_is_replaced(tmp_path: Path) -> None:
    """Links cannot be removed as folders are, which was found out when all was written."""
    out, link = tmp_path / "out", tmp_path / "link"
    run("turnout-tiny-draft", "--quantization", "int8", "--out", out)
    link.symlink_to(out)
    refused = run("turnout-tiny-draft", "--quantization", "fp8", "--out", link)
    assert refused.exit_code == 2 and "exists already" in refused.output
    result = run("turnout-tiny-draft", "--quantization", "fp8", "--out", link, "--force")
    assert result.exit_code == 0, result.output
    assert link.is_symlink() and "float-quantized" in (out / "config.json").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "out"]


# ------------------------------------------------------------------ what is refused


def test_a_second_run_to_the_same_folder_is_refused_at_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both wrote to one folder, and one of them failed when it was done."""
    command = ("turnout-tiny-draft", "--quantization", "int8", "--out", tmp_path / "out")
    second: list[Result] = []
    write = shards.save_tensors

    def meanwhile(tensors: Tensors, path: Path, metadata: dict[str, str]) -> None:
        if not second:
            second.append(run(*command))
            second.append(run(*command[:-1], tmp_path / "other"))
        write(tensors, path, metadata)

    monkeypatch.setattr(shards, "save_tensors", meanwhile)
    assert run(*command).exit_code == 0
    same, other = second
    assert same.exit_code == 2 and other.exit_code == 0
    assert f"another turnout quantize is writing to {tmp_path / 'out.partial'}; wait" in same.output


def test_an_existing_folder_is_replaced_only_by_force(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run("turnout-tiny", "--quantization", "int8", "--out", out).exit_code == 0
    before = sorted(path.name for path in out.iterdir())
    again = run("turnout-tiny", "--quantization", "fp8", "--out", out)
    assert again.exit_code == 2 and "exists already; choose another folder, or give --force" in again.output
    assert sorted(path.name for path in out.iterdir()) == before
    assert run("turnout-tiny", "--quantization", "fp8", "--out", out, "--force").exit_code == 0
    assert "float-quantized" in (out / "config.json").read_text()


def test_force_replaces_nothing_but_checkpoints(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years")
    result = run("turnout-tiny", "--quantization", "int8", "--out", tmp_path, "--force")
    assert result.exit_code == 2 and "holds no checkpoint" in result.output
    assert (tmp_path / "thesis.txt").read_text() == "years"


def test_a_folder_in_the_way_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out.partial").mkdir()
    result = run("turnout-tiny", "--quantization", "int8", "--out", tmp_path / "out")
    assert result.exit_code == 2 and "is in the way" in result.output


def test_the_source_is_not_written_over(tmp_path: Path) -> None:
    shutil.copytree(resolve_model("turnout-tiny"), tmp_path / "model")
    result = run(tmp_path / "model", "--quantization", "int8", "--out", tmp_path / "model", "--force")
    assert result.exit_code == 2 and "is the checkpoint to be quantized" in result.output


def test_a_checkpoint_that_holds_the_source_is_not_replaced(tmp_path: Path) -> None:
    shutil.copytree(resolve_model("turnout-tiny-draft"), tmp_path / "both" / "model")
    shutil.copy(tmp_path / "both" / "model" / "config.json", tmp_path / "both")
    result = run(tmp_path / "both" / "model", "--quantization", "int8", "--out", tmp_path / "both", "--force")
    assert result.exit_code == 2 and "holds the checkpoint to be quantized" in result.output
    assert (tmp_path / "both" / "model" / "config.json").is_file()


@pytest.mark.parametrize(
    ("quantization", "message"),
    [
        ("none", "'none' cannot be stored in a checkpoint"),
        ("gptq", "'gptq' cannot be stored in a checkpoint"),
        ("int9", "no quantization is called 'int9'"),
        ("int4wo:group_size=7", "quantization 'int4wo': "),
        ("int8:lm_head=true", "wants lm_head, which in this model is its embedding too"),
        ("int8:embeddings=true", "an embedding is stored as it is"),
    ],
)
def test_what_cannot_be_written_is_refused(quantization: str, message: str, tmp_path: Path) -> None:
    result = run("turnout-tiny", "--quantization", quantization, "--out", tmp_path / "out")
    assert result.exit_code == 2 and message in result.output
    assert not list(tmp_path.iterdir())


def test_a_quantized_checkpoint_is_refused(tmp_path: Path) -> None:
    run("turnout-tiny", "--quantization", "int8", "--out", tmp_path / "out")
    result = run(tmp_path / "out", "--quantization", "fp8", "--out", tmp_path / "again")
    assert result.exit_code == 2 and "is quantized already, by compressed-tensors" in result.output


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda weight: None, "lacks the tensor 'model.layers.0.mlp.down_proj.weight'"),
        (lambda weight: weight[:10], "'model.layers.0.mlp.down_proj.weight' has shape [10, 96]"),
        (lambda weight: weight.to(torch.int8), "is torch.int8, a floating point type is expected"),
        (lambda weight: weight.to(torch.float8_e4m3fn), "is torch.float8_e4m3fn, a floating point type"),
    ],
)
def test_what_could_not_be_loaded_is_not_quantized(
    change: Callable[[torch.Tensor], torch.Tensor | None], message: str, tmp_path: Path
) -> None:
    """It was written, codes without their scales as if they were numbers."""
    source, out = tmp_path / "source", tmp_path / "out"
    write_checkpoint("qwen3", source)
    tensors = load_file(source / "model.safetensors")
    name = "model.layers.0.mlp.down_proj.weight"
    changed = change(tensors.pop(name))
    kept = {} if changed is None else {name: changed.contiguous()}
    save_file({**tensors, **kept}, source / "model.safetensors", metadata={"format": "pt"})
    result = run(source, "--quantization", "int8", "--out", out)
    assert result.exit_code == 1 and message in result.output
    assert not out.exists() and not (tmp_path / "out.partial").exists()


def test_tensors_that_would_not_be_read_again_are_refused(tmp_path: Path) -> None:
    """GPT-2 turns its matrices over as it reads them, whatever they are called."""
    source, out = tmp_path / "gpt2", tmp_path / "out"
    write_checkpoint("gpt2", source)
    result = run(source, "--quantization", "int8", "--out", out)
    assert result.exit_code == 1 and "cannot be written quantized" in result.output
    assert not out.exists()


def test_a_full_disk_is_told_in_a_line_and_the_same_command_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It came as a traceback."""

    def no_room(*_: object) -> None:
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    command = ("turnout-tiny", "--quantization", "int8wo", "--out", tmp_path / "out")
    with monkeypatch.context() as patch:
        patch.setattr(shards, "save_tensors", no_room)
        done = run(*command)
    assert done.exit_code == 1 and done.stderr.count("\n") == 1
    assert "out.partial cannot be written: I/O error: No space left on device" in done.stderr
    assert "the same command continues from there" in done.stderr
    assert run(*command).exit_code == 0


def test_a_reason_is_told_where_the_system_gives_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was "cannot be written: None"."""

    def refused(*_: object) -> None:
        raise shutil.SameFileError("they are the same file")

    monkeypatch.setattr(shards, "save_tensors", refused)
    done = run("turnout-tiny-draft", "--quantization", "int8wo", "--out", tmp_path / "out")
    assert done.exit_code == 1 and "cannot be written: they are the same file;" in done.stderr


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run("turnout-tiny", "--quantization", "int8wo", "--out", tmp_path / "file" / "out")
    assert done.exit_code == 1
    assert done.stderr.endswith("cannot be written: Not a directory\n")


def test_what_is_written_may_be_read_by_whom_other_files_may(tmp_path: Path) -> None:
    """Weights were for their owner alone: a server that ran as another user could not open them."""
    out = tmp_path / "out"
    run("turnout-tiny-draft", "--quantization", "int8wo", "--out", out)
    assert len({file.stat().st_mode for file in out.iterdir()}) == 1
