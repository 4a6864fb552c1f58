"""What a server keeps in files, as far as its configuration names any."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

from turnout.config import ServerConfig
from turnout.core.errors import ConfigError
from turnout.server.storage.batch_store import BatchStore
from turnout.server.storage.file_store import FileStore
from turnout.server.storage.response_store import Bounds, ResponseStore

__all__ = ["Stores", "check_storage"]


@dataclass(frozen=True)
class Stores:
    """Each is None where the server keeps nothing of the kind."""

    responses: ResponseStore | None = None
    files: FileStore | None = None
    batches: BatchStore | None = None

    @classmethod
    def open(cls, config: ServerConfig) -> Stores:
        """Raises ConfigError for a file that cannot be used."""
        responses = None
        if config.response_store is not None:
            bounds = Bounds(
                config.response_store_entries, config.response_store_size, config.response_store_days
            )
            responses = ResponseStore(Path(config.response_store), bounds)
        if config.batch_dir is None:
            return cls(responses)
        files = FileStore(Path(config.batch_dir), config.batch_dir_size)
        return cls(responses, files, BatchStore(files))

    def close(self) -> None:
        for store in (self.responses, self.files):
            if store is not None:
                store.close()


def check_storage(config: ServerConfig) -> None:
    """Raises ConfigError for a file or folder that cannot be used, which need not wait for the model."""
    Stores.open(config).close()
    if config.profile_dir is not None and not config.replica:  # workers have the folder on their machines
        _check_folder(Path(config.profile_dir))


def _check_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigError(
            f"the folder {folder} of --profile-dir cannot be written: {error.strerror}; name a folder, which "
            "need not exist yet"
        ) from None
