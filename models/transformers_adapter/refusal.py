"""What is said of a model that transformers has and that is not served."""

from __future__ import annotations

from turnout.core.errors import ModelError

__all__ = ["refused"]


def refused(why: str) -> ModelError:
    """Returns the error to raise: the reason, and what can be done."""
    return ModelError(
        f"{why}; such models are not served: choose one of another architecture, or write a family for it "
        "(turnout plugins new --kind model)"
    )
