"""Create a folder with a random-weight model that Turnout and transformers can serve.

python scripts/make_model.py --shape qwen2.5-0.5b --out /tmp/qwen
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import click

from turnout.core.errors import ConfigError, TurnoutError
from turnout.models.checkpoints.checkpoint import read_config, read_generation_config
from turnout.models.hub.resolve import resolve_model
from turnout.models.random.shapes import ARCHITECTURES, ROPES, SHAPES, config_of

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
)


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="Folder to write."
)
@click.option("--shape", type=click.Choice(list(SHAPES)), default="m2", help="Shape to start from.")
@click.option("--family", type=click.Choice(list(ARCHITECTURES)), default="qwen2")
@click.option("--rope", type=click.Choice(list(ROPES)), default="default", help="Kind of rope scaling.")
@click.option("--dtype", type=click.Choice(["float32", "bfloat16", "float16"]), default="bfloat16")
@click.option("--seed", type=int, default=0)
@click.option("--shards", type=click.IntRange(min=1), default=1, help="Into how many files at most.")
@click.option("--hidden", type=int, help="Hidden size.")
@click.option("--layers", type=int)
@click.option("--heads", type=int, help="Query heads.")
@click.option("--kv-heads", type=int)
@click.option("--intermediate", type=int, help="Inner size of the MLP.")
@click.option("--vocab", type=int, help="Vocabulary size.")
@click.option("--max-positions", type=int)
@click.option("--theta", type=float, help="Base of the rotary frequencies.")
@click.option("--tied/--untied", default=None, help="Does the head share the embedding?")
def main(
    out: Path, shape: str, family: str, rope: str, dtype: str, seed: int, shards: int, **overrides: Any
) -> None:
    from turnout.models.random.random_weights import write_random_checkpoint  # after --help: it imports torch

    given = {key: value for key, value in overrides.items() if value is not None}
    config = config_of(dataclasses.replace(SHAPES[shape], **given), family, rope=rope, dtype=dtype)
    try:
        tokenizer = resolve_model("turnout-tiny")
        check_vocabulary(config, tokenizer)
        config |= special_tokens(tokenizer)
        write_random_checkpoint(out, config, seed=seed, dtype=dtype, shards=shards)
        copy_tokenizer(tokenizer, out)
    except TurnoutError as error:
        raise click.ClickException(str(error)) from error
    click.echo(out)


def check_vocabulary(config: dict[str, Any], source: Path) -> None:
    needed = read_config(source)["vocab_size"]
    if config["vocab_size"] < needed:
        raise ConfigError(f"--vocab {config['vocab_size']} is less than the {needed} of the tokenizer")


def special_tokens(source: Path) -> dict[str, Any]:
    """The token ids that go with the tokenizer of the model in `source`."""
    known = {**read_config(source), **read_generation_config(source)}
    return {key: known[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id") if key in known}


def copy_tokenizer(source: Path, out: Path) -> None:
    for name in TOKENIZER_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, out / name)
    (out / "generation_config.json").write_text(json.dumps(special_tokens(source), indent=2) + "\n")


if __name__ == "__main__":
    main()
