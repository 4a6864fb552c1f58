"""The options of the ranking policies, as a server is given them."""

from __future__ import annotations

import pytest

from turnout.core.errors import ConfigError
from turnout.core.registry.registry import Registry

REGISTRY = Registry.load()


@pytest.mark.parametrize(
    "spec",
    [
        "sjf:by=prompt,aging=0",
        "ljf:by=max_tokens,aging=2.5",
        "srpt:aging=1,preemptive=false",
        "hrrn:prompt_cost=0.5",
        "priority",
        "fair:input_weight=1,output_weight=3,remember=100",
        """fair:weights='{"paid": 4, "batch": 0.5}'""",
    ],
)
def test_options_are_accepted(spec):
    assert REGISTRY.create("scheduler", spec)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("sjf:by=luck", "by: .*'prompt', 'max_tokens' or 'predicted'"),
        ("ljf:aging=-1", "aging must be a number of at least 0, not -1"),
        ("srpt:aging=nan", "aging must be a number of at least 0, not nan"),
        ("hrrn:prompt_cost=inf", "prompt_cost must be a number of at least 0, not inf"),
        ("fair:output_weight=-2", "output_weight must be a number of at least 0"),
        ("fair:remember=-1", "remember must be"),
        ("""fair:weights='{"a": 0}'""", "weights: 'a' must have a weight above 0, not 0"),
        ("fair:weights=a", "weights: "),
    ],
)
def test_options_that_make_no_sense_are_refused_by_name(spec, message):
    with pytest.raises(ConfigError, match=message):
        REGISTRY.create("scheduler", spec)
