"""docs/reference/limits.md tells every limit, as core/limits.py has it."""

from __future__ import annotations

from turnout.config import EngineConfig, ServerConfig
from turnout.core.limits import all_limits
from turnout.scripts import write_limits


def test_the_page_is_current() -> None:
    """`python scripts/write_limits.py` writes it."""
    assert write_limits.PAGE.read_text(encoding="utf-8") == write_limits.page()


def test_every_option_that_changes_a_limit_exists() -> None:
    fields = EngineConfig.model_fields | ServerConfig.model_fields
    for name, limit in all_limits().items():
        field = limit.option.removeprefix("--").replace("-", "_")
        assert not field or field in fields, name
