"""`bench/quantization.py --write`: tables of the document, some of whose rows are measured anew."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import click
import pytest
from click.testing import CliRunner

from turnout.models.random.random_weights import write_random_checkpoint
from turnout.models.random.shapes import Shape, config_of

BENCH = Path(__file__).parents[2] / "bench"
DOCUMENT = BENCH.parent / "docs" / "explanation" / "quantization.md"
HEAD = "| scheme | a |\n|---|--:|"


@pytest.fixture(scope="module")
def bench() -> Iterator[ModuleType]:
    sys.path.insert(0, str(BENCH))
    spec = spec_from_file_location("bench_quantization", BENCH / "quantization.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(BENCH))


def test_rows_of_schemes_that_were_not_measured_stay_in_their_place(bench: ModuleType) -> None:
    before = f"\nold words\n\n{HEAD}\n| `none` | 1 |\n| `int8wo` | 2 |\n| `bnb-nf4` | 3 |\n"
    content = f"new words\n\n{HEAD}\n| `none` | 10 |\n| `int8` | 20 |\n| `int4wo:group_size=32` | 40 |"
    assert bench.with_others(before, content) == (
        f"new words\n\n{HEAD}\n| `none` | 10 |\n| `int8` | 20 |\n| `int8wo` | 2 |\n| `bnb-nf4` | 3 |\n"
        "| `int4wo:group_size=32` | 40 |"
    )
    assert bench.with_others("\n", content) == content


def test_rows_of_other_columns_are_refused(bench: ModuleType) -> None:
    with pytest.raises(click.ClickException, match=r"has the columns .*measure all schemes"):
        bench.with_others("| scheme | b |\n|---|--:|\n| `none` | 1 |", f"{HEAD}\n| `none` | 1 |")


@pytest.mark.slow
def test_tables_are_written_where_the_document_has_them(bench: ModuleType, tmp_path: Path) -> None:
    shape = Shape(64, 2, 4, 2, 96, 512, max_positions=512, theta=10_000.0)
    write_random_checkpoint(tmp_path / "model", config_of(shape, "qwen2", dtype="float32"), seed=5)
    copy = tmp_path / "copy.md"
    copy.write_text(DOCUMENT.read_text())
    asked = ["--scheme", "int8wo", "--kind", "quality", "--kind", "speed", "--tokens", "200"]
    done = CliRunner().invoke(
        bench.main, [*asked, "--model", str(tmp_path / "model"), "--write", str(copy)], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    before, after = (file.read_text().splitlines() for file in (DOCUMENT, copy))
    changed = [line.split("|")[1].strip() for line in after if line not in before]
    assert changed == ["`none`", "`int8wo`", "`none`", "`int8wo`"]
    assert len(before) == len(after)


def test_what_a_model_is_needed_for_is_refused_without_one(bench: ModuleType) -> None:
    done = CliRunner().invoke(bench.main, ["--kind", "serving"])
    assert done.exit_code == 2 and "--kind serving needs --model" in done.output
