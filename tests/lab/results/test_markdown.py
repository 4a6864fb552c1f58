"""Figures are written between their marks and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnout.lab.results.markdown import markdown_table, write_marked

TEXT = "before\n<!-- a: begin -->\nold\n<!-- a: end -->\nbetween\n<!-- b: begin -->\n<!-- b: end -->\nafter\n"


def test_only_the_named_part_changes(tmp_path: Path) -> None:
    file = tmp_path / "doc.md"
    file.write_text(TEXT)
    write_marked(file, "a", "| 你好 |\n")
    assert file.read_text(encoding="utf-8") == TEXT.replace("old", "| 你好 |")
    write_marked(file, "b", "new")
    assert "<!-- b: begin -->\nnew\n<!-- b: end -->\nafter" in file.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "text", ["", "<!-- a: begin -->\n", "<!-- a: end -->\n<!-- a: begin -->\n", TEXT + TEXT]
)
def test_marks_that_are_not_there_are_an_error(tmp_path: Path, text: str) -> None:
    file = tmp_path / "doc.md"
    file.write_text(text)
    with pytest.raises(ValueError, match="each once"):
        write_marked(file, "a", "new")
    assert file.read_text() == text


def test_a_tables_first_column_is_text_and_the_others_are_numbers() -> None:
    assert markdown_table(("a", "b", "c"), [("x", "1", "2")]) == "| a | b | c |\n|---|--:|--:|\n| x | 1 | 2 |"
    assert markdown_table(("a", "b"), [], "ll") == "| a | b |\n|---|---|"
