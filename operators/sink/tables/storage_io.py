"""Files of an Iceberg table in a store, reached by the app's storage; needs pyiceberg, so for the driver alone."""

from __future__ import annotations

import io
from typing import Any

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream
from typing_extensions import override

from dagflow.errors import MissingError
from dagflow.storage.context import StorageContext
from dagflow.storage.location import name_of, parent
from operators.files.python_file import PythonFile

STORAGE = "dagflow.storage"
"""The option of a catalog that holds the StorageContext: an object of this process, which is never written."""


class StorageFileIO(FileIO):
    """Reads and writes by the app's own storage: no credentials are passed to pyiceberg.

    Guarantee: a file appears whole, and under a name that was free. If the answer to a write is lost, the file is read
    back.
    """

    @property
    def _storage(self) -> StorageContext:
        found: Any = self.properties[STORAGE]
        assert isinstance(found, StorageContext)
        return found

    @override
    def new_input(self, location: str) -> InputFile:
        return _StoredFile(location, self._storage)

    @override
    def new_output(self, location: str) -> OutputFile:
        return _NewFile(location, self._storage)

    @override
    def delete(self, location: str | InputFile | OutputFile) -> None:
        url = location if isinstance(location, str) else location.location
        self._storage.backend(url).files.remove(url)


class _Stored:
    """The common interface of both kinds of files."""

    location: str

    def __init__(self, location: str, storage: StorageContext) -> None:
        super().__init__(location=location)  # type: ignore[call-arg]  # of pyiceberg's class beside this one
        self._storage = storage

    def __len__(self) -> int:
        return self._storage.stat(self.location).size_bytes

    def exists(self) -> bool:
        try:
            self._storage.stat(self.location)
        except MissingError:
            return False
        return True


class _StoredFile(_Stored, InputFile):
    @override
    def open(self, seekable: bool = True) -> InputStream:
        return PythonFile(self._storage.open_file(self.location))


class _NewFile(_Stored, OutputFile):
    @override
    def to_input_file(self) -> InputFile:
        return _StoredFile(self.location, self._storage)

    @override
    def create(self, overwrite: bool = False) -> OutputStream:
        return _Created(self.location, self._storage)


class _Created(io.BytesIO):
    """Bytes that become a file when they are closed, unless an exception was raised before."""

    def __init__(self, url: str, storage: StorageContext) -> None:
        super().__init__()
        self._url = url
        self._storage = storage

    @override
    def __exit__(self, *error: Any) -> None:
        if error[0] is not None:
            super().close()
        self.close()

    @override
    def close(self) -> None:
        if not self.closed:
            data = self.getvalue()
            super().close()
            self._storage.objects(parent(self._url)).create(name_of(self._url), data)
