"""A run's access to storage: the options of each protocol, the named roots, and a backend for each scheme."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final

from dagflow.errors import MissingError, StorageError
from dagflow.plugins import plugin_path, plugins
from dagflow.storage.base import Backend, ObjectStore
from dagflow.storage.files import FileStat, ReadableFile
from dagflow.storage.location import Roots, absolute, archive_of, is_local, scheme_of
from dagflow.storage.options import FAMILIES, StorageOptions, backend_option, name_one_store
from dagflow.storage.pending import Durability, PendingWriter

_BUILT_IN: Final = "dagflow.storage.backends"
BACKENDS: Final = {
    "": f"{_BUILT_IN}.local.LocalBackend",
    "s3": f"{_BUILT_IN}.s3.S3Backend",
    "s3a": f"{_BUILT_IN}.s3.S3Backend",
    "http": f"{_BUILT_IN}.http.HttpBackend",
    "https": f"{_BUILT_IN}.http.HttpBackend",
    "hdfs": f"{_BUILT_IN}.hdfs.HdfsBackend",
    "viewfs": f"{_BUILT_IN}.hdfs.HdfsBackend",
}
"""The class of each scheme's backend, by name: a module is imported when a URL needs it, so that local runs load
neither fsspec nor a client."""

ANY_OTHER: Final = f"{_BUILT_IN}.fsspec.FsspecBackend"
"""The backend of every other scheme that fsspec knows, and of chains such as `zip://a::s3://b/c`."""

ARCHIVES: Final = f"{_BUILT_IN}.archive.ArchiveBackend"
"""The backend of the members of archives, which is made with that of the archives and a context."""


def backend_of(url: str, options: StorageOptions) -> Backend:
    """The backend of a URL's scheme: the app's own, one of dagflow's, or fsspec's file system."""
    scheme = scheme_of(url)
    name = backend_option(options, scheme)
    if not name:
        return _class_of(BACKENDS.get(scheme) or plugin_path("stores", scheme) or ANY_OTHER)(scheme, options)
    try:
        backend_class = _class_of(name)
    except (ImportError, AttributeError, ValueError) as error:
        hint = f"attributes: {{storage: {{{scheme}: {{backend: package.module.Class}}}}}}"
        raise StorageError(f"no class {name} for {scheme}://: {error}", url=scheme, hint=hint) from error
    return backend_class(scheme, options)


def known_protocols() -> list[str]:
    """The protocols that options can be given for."""
    # Heavy: only apps with options pay for the import of fsspec.
    known = import_module(f"{_BUILT_IN}.fsspec.client").available_protocols()
    return sorted({*known, *BACKENDS, *plugins("stores"), *(name for family in FAMILIES for name in family)} - {""})


def _class_of(name: str) -> Callable[..., Backend]:
    module, _, class_name = name.rpartition(".")
    backend_class: Callable[..., Backend] = getattr(import_module(module), class_name)
    return backend_class


@dataclass(frozen=True)
class StorageContext:
    """Reaches every store that an app names; picklable, and the same in the driver and in tasks.

    Attributes:
        options: Options of file systems by protocol, including credentials.
        roots: The app's named roots.
    """

    options: StorageOptions = field(default_factory=dict, repr=False)
    roots: Roots = field(default_factory=Roots)
    # Connections are not pickled: each process makes its own backends.
    _backends: dict[str, Backend] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return StorageContext, (self.options, self.roots)

    @classmethod
    def default(cls) -> StorageContext:
        """A context without options and named roots: stores are reached by the settings of the environment."""
        return cls()

    @classmethod
    def of(cls, options: StorageOptions, roots: Mapping[str, str]) -> StorageContext:
        return cls(options, Roots.of(roots))

    def backend(self, url: str) -> Backend:
        """The kind of store of a location; the same object for all of a scheme that are in archives, or are not."""
        scheme = scheme_of(url)
        backend = self._backends.get(scheme)
        if backend is None:
            backend = self._backends.setdefault(scheme, backend_of(url, self.options))
        if archive_of(url) is None:
            return backend
        members = self._backends.get(f"{scheme}!")
        return members or self._backends.setdefault(f"{scheme}!", _class_of(ARCHIVES)(backend, self))

    def named_like(self, url: str, other: str) -> str:
        """A location to compare with another one: with the other's scheme, if both schemes reach one store."""
        scheme, wanted = scheme_of(url), scheme_of(other)
        return wanted + url[len(scheme) :] if name_one_store(self.options, scheme, wanted) else url

    def open_file(self, url: str, expected: FileStat | None = None) -> ReadableFile:
        """Open a file, and check that it has the planned version; see Files.open."""
        return self.backend(url).files.open(absolute(url), expected)

    def stat(self, url: str) -> FileStat:
        """The file or directory at a location; symbolic links are followed."""
        return self.backend(url).files.stat(absolute(url))

    def find(self, url: str) -> FileStat | None:
        """As stat(); None where there is nothing."""
        try:
            return self.stat(url)
        except MissingError:
            return None

    def has(self, url: str, size_bytes: int) -> bool:
        """Whether there is a file of this length."""
        found = self.find(url)
        return found is not None and found.size_bytes == size_bytes

    def is_also_directory(self, url: str) -> bool:
        """Whether there is anything below the name of a file; see Files.is_also_directory."""
        return self.backend(url).files.is_also_directory(absolute(url))

    def list_directory(self, url: str) -> Iterator[FileStat]:
        """The files and directories directly in a directory, sorted by the bytes of their names; see Files.list.

        A remote location is used unchanged: in S3 a slash at its end is part of the directory's name.
        """
        return self.backend(url).files.list(absolute(url) if is_local(url) else url)

    def objects(self, url: str) -> ObjectStore:
        """The objects below a URL, as a journal needs them; nothing is created before the first object."""
        if not url:
            # Read as the working directory, it would let any file there be listed, and deleted as an orphan.
            raise StorageError("an empty location holds no objects", url=url)
        return self.backend(url).objects(absolute(url), self.roots)

    def open_pending(
        self, final_url: str, *, tag: str, durability: Durability = "process", checksum: bool = False
    ) -> PendingWriter:
        """Start a file that readers do not see before it is published; see PendingFiles.open."""
        final_url = absolute(final_url)
        return self.backend(final_url).pending.open(final_url, tag=tag, durability=durability, checksum=checksum)

    def open_held(
        self, final_url: str, *, tag: str, durability: Durability = "process", checksum: bool = False
    ) -> PendingWriter:
        """Start a file that is read at its pending_url, and not published; see PendingFiles.open_held."""
        final_url = absolute(final_url)
        return self.backend(final_url).pending.open_held(final_url, tag=tag, durability=durability, checksum=checksum)
