"""The stores that dagflow knows, by URL scheme. To add one, write its Backend in one file and add one line here."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Final

from dagflow.errors import StorageError
from dagflow.plugins import plugin_path, plugins
from dagflow.storage.base import Backend
from dagflow.storage.location import scheme_of
from dagflow.storage.options import FAMILIES, StorageOptions, backend_option

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


def archive_backend(store: Backend, storage: object) -> Backend:
    """The backend of the members of archives in a store, which the context `storage` reaches."""
    archive_class = import_module(f"{_BUILT_IN}.archive").ArchiveBackend
    backend: Backend = archive_class(store, storage)
    return backend


def known_protocols() -> list[str]:
    """The protocols that options can be given for."""
    # Heavy: only apps with options pay for the import of fsspec.
    known = import_module(f"{_BUILT_IN}.fsspec.client").available_protocols()
    return sorted({*known, *BACKENDS, *plugins("stores"), *(name for family in FAMILIES for name in family)} - {""})


def _class_of(name: str) -> Callable[[str, StorageOptions], Backend]:
    module, _, class_name = name.rpartition(".")
    backend_class: Callable[[str, StorageOptions], Backend] = getattr(import_module(module), class_name)
    return backend_class
