"""The training text: the source of the Python standard library that runs this."""

import hashlib
import sysconfig
from dataclasses import dataclass
from pathlib import Path

# Tests, data tables written as code, and applications or generated code that
# would teach the model lists of constants rather than how Python is written.
EXCLUDED_FOLDERS = frozenset(
    {
        "site-packages",
        "test",
        "tests",
        "idlelib",
        "idle_test",
        "lib2to3",
        "encodings",
        "pydoc_data",
        "lib-dynload",
        "_bundled",
        "__pycache__",
        "__phello__",
    }
)
EXCLUDED_FILES = frozenset({"stringprep.py", "entities.py", "this.py"})
EXCLUDED_PREFIXES = ("_sysconfigdata", "config-")

HELD_OUT_PER_MILLE = 30


@dataclass(frozen=True)
class Document:
    """One module: its dotted name and its source."""

    module: str
    text: str


@dataclass(frozen=True)
class Corpus:
    train: list[Document]
    held_out: list[Document]


def load_corpus() -> Corpus:
    """The standard library, split by module so that no file is on both sides."""
    root = Path(sysconfig.get_path("stdlib"))
    files = sorted(path for path in root.rglob("*.py") if _wanted(path.relative_to(root)))
    documents = [_read(path, root) for path in files]
    documents = [document for document in documents if document.text.strip()]
    return Corpus(
        train=[document for document in documents if not is_held_out(document.module)],
        held_out=[document for document in documents if is_held_out(document.module)],
    )


def is_held_out(module: str) -> bool:
    """A hash of the name alone: the split survives new modules and new interpreters."""
    digest = hashlib.sha256(module.encode()).digest()
    return int.from_bytes(digest[:4], "big") % 1000 < HELD_OUT_PER_MILLE


def _wanted(path: Path) -> bool:
    return (
        EXCLUDED_FOLDERS.isdisjoint(path.parts)
        and path.name not in EXCLUDED_FILES
        and not any(part.startswith(EXCLUDED_PREFIXES) for part in path.parts)
    )


def _read(path: Path, root: Path) -> Document:
    module = ".".join(path.relative_to(root).with_suffix("").parts)
    return Document(module, path.read_text(encoding="utf-8", errors="replace"))
