"""What docs/reference/configuration.md says of names, sizes and files is so."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from documents import (
    CONFIGURATION,
    DOCS,
    HTTP_API,
    MODELS,
    PARAMETERS,
    PLUGINS,
    README,
    SERVING,
    TROUBLESHOOTING,
    Document,
    code,
    rows,
)

from turnout.cli.main import COMMANDS
from turnout.cli.options.config_file import build_configs
from turnout.core.registry.kinds import KINDS
from turnout.core.registry.registry import Registry
from turnout.core.sizes import parse_bytes
from turnout.runner.choices import check_policies


def test_sizes_mean_what_is_said() -> None:
    sizes = {
        size: parse_bytes(size) for size in code(CONFIGURATION.section("Sizes")) if re.search(r"\d", size)
    }
    assert sizes == {"512MiB": 512 * 2**20, "2GiB": 2 * 2**30, "1.5g": 3 * 2**29}
    units = [unit for unit in code(CONFIGURATION.section("Sizes")) if unit.isalpha()]
    for unit in units:
        base = 1000 if unit.endswith("B") and "i" not in unit else 1024
        assert parse_bytes(f"1{unit}") == base ** ("kmgt".index(unit[0].lower()) + 1)
    assert len(set(units)) == len(units) == 12


@pytest.mark.parametrize("document", [README, *DOCS], ids=str)
def test_config_files_are_read(document: Document, tmp_path: Path) -> None:
    for block in document.blocks("yaml"):
        file = tmp_path / "serve.yaml"
        file.write_text(block, encoding="utf-8")
        engine, _ = build_configs(file, {})
        check_policies(Registry.load(config_folder=engine.plugins_path), engine)


def test_the_config_file_is_what_it_says(tmp_path: Path) -> None:
    (block,) = CONFIGURATION.blocks("yaml")
    file = tmp_path / "serve.yaml"
    file.write_text(block, encoding="utf-8")
    engine, server = build_configs(file, {"port": "0"})
    assert engine.kv == "paged:block_size=32,prefix_caching=true"
    assert (engine.max_num_seqs, engine.kv_memory) == (64, 256 * 2**20)
    assert (server.model_name, server.port) == ("coder", 0)


def test_every_option_of_a_policy_is_described() -> None:
    """docs/reference/policies.md lists them all."""
    registry = Registry.load()
    for kind in KINDS:
        for name in registry.names(kind):
            for option in registry.options(kind, name):
                assert option.help.endswith("."), f"the option {option.name} of {kind} {name}"


MANUALS = [README, CONFIGURATION, SERVING, HTTP_API, PARAMETERS, PLUGINS, TROUBLESHOOTING]


@pytest.mark.parametrize("document", MANUALS, ids=str)
def test_every_flag_that_is_named_exists(document: Document) -> None:
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", document.text))
    assert named and not named - flags()


def flags() -> set[str]:
    """Of all commands, and those below them."""
    return {"--help"}.union(*(flags_of(lazy.load()) for lazy in COMMANDS.values()))


def flags_of(command: click.Command) -> set[str]:
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    found = {flag for option in options for flag in (*option.opts, *option.secondary_opts)}
    if isinstance(command, click.Group):
        context = click.Context(command)
        below = [command.get_command(context, name) for name in command.list_commands(context)]
        return found.union(*(flags_of(each) for each in below if each is not None))
    return found


def test_environment_variables_are_the_hub_clients() -> None:
    from huggingface_hub import constants

    package = Path(constants.__file__).parent
    source = "".join(file.read_text(encoding="utf-8") for file in package.rglob("*.py"))
    for row in rows(MODELS.section("Environment variables")):
        assert f'"{code(row[0])[0]}"' in source
