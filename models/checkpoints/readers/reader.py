"""The seam between loading and the formats of weight files: a reader gives tensors by name, one at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from pathlib import Path

from torch import Tensor

from turnout.core.types.placement import Index

__all__ = ["WeightFile"]


class WeightFile(ABC):
    """A file of weights, whose tensors have the names that Hugging Face's checkpoints give them."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def configuration(self) -> str:
        """Names what says which tensors there should be."""
        return "config.json"

    def stored_name(self, key: str) -> str:
        """Returns the name that a tensor has in the file itself."""
        return key

    @abstractmethod
    def names(self) -> list[str]:
        """Lists the tensors in the order in which they lie on disk."""

    @abstractmethod
    def shape(self, key: str) -> tuple[int, ...]:
        """Returns a tensor's shape without reading it."""

    @abstractmethod
    def read(self, key: str, take: Index = ()) -> AbstractContextManager[Tensor]:
        """Gives a tensor, or the part `take` of it, as it is stored.

        It may be a view of the file, which is valid inside of the context alone: its pages count as this
        process's memory, and an access after the file was truncated would end the process.
        """

    def blocks(self, key: str) -> str | None:
        """Says in which blocks of few bits a tensor is stored that a layer can hold as they are; None: none.

        `read` gives such a tensor as floating point numbers.
        """
        return None

    def read_blocks(self, key: str, take: Index = ()) -> Tensor:
        """Returns a tensor's rows, or those of `take`, in blocks as they are stored: uint8 [rows, bytes]."""
        raise NotImplementedError(f"{type(self).__name__} stores no blocks")
