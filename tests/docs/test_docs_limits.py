"""What docs/reference/limits.md tells of options is so."""

from __future__ import annotations

from turnout.config import EngineConfig, ServerConfig
from turnout.core.limits import all_limits


def test_every_option_that_changes_a_limit_exists() -> None:
    fields = EngineConfig.model_fields | ServerConfig.model_fields
    for name, limit in all_limits().items():
        field = limit.option.removeprefix("--").replace("-", "_")
        assert not field or field in fields, name
