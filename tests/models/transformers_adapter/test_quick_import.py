"""transformers is imported with one list of classes, and with SciPy's optimizers once it calls them."""

from __future__ import annotations

import subprocess
import sys

import pytest

BEGIN = """
import sys
from turnout.models.transformers_adapter.quick_import import quick_import, without_optimizers
"""


def run(code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BEGIN + code], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_what_was_imported_loads_the_module_when_it_is_called() -> None:
    run("""
with without_optimizers():
    from scipy.optimize import linear_sum_assignment
assert "scipy.optimize" not in sys.modules
rows, columns = linear_sum_assignment([[4, 1], [2, 3]])
assert list(columns) == [1, 0]
import scipy.optimize
assert scipy.optimize.linear_sum_assignment is not linear_sum_assignment
""")


def test_anything_else_is_of_the_module_itself() -> None:
    run("""
with without_optimizers():
    from scipy.optimize import minimize
    import scipy.optimize
    assert scipy.optimize.minimize is minimize
assert minimize(lambda x: (x - 3) ** 2, 0.0).x.round(3) == 3
""")


def test_a_module_that_is_loaded_stays() -> None:
    run("""
import scipy.optimize
loaded = scipy.optimize
with without_optimizers():
    from scipy.optimize import linear_sum_assignment
assert sys.modules["scipy.optimize"] is loaded and linear_sum_assignment is loaded.linear_sum_assignment
""")


@pytest.mark.slow  # a process of its own that imports transformers
def test_models_have_the_classes_that_reading_their_files_finds() -> None:
    run("""
with quick_import():
    import transformers.models
quick = sys.modules.pop("transformers.models")
import transformers.utils.import_utils
names = set(vars(quick)["_class_to_module"])
import transformers.models
assert sys.modules["transformers.models"] is not quick
assert names == set(vars(transformers.models)["_class_to_module"]) and len(names) > 2000
assert vars(quick)["_class_to_module"] == vars(transformers.models)["_class_to_module"]
""")


@pytest.mark.slow  # a process of its own that imports transformers
def test_trying_a_model_needs_no_optimizer() -> None:
    run("""
from turnout.models.random.shapes import Shape, config_of
from turnout.models.transformers_adapter.family import TransformersAdapter
shape = Shape(hidden=64, layers=3, heads=4, kv_heads=2, intermediate=96, vocab=160, max_positions=512)
TransformersAdapter().spec({**config_of(shape, "qwen2"), "auto_map": {}})
assert "transformers" in sys.modules and "scipy.optimize" not in sys.modules
""")
