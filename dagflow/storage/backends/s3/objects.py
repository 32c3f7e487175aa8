"""Objects in S3's buckets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from typing_extensions import override

from dagflow.errors import AlreadyExistsError, StorageError
from dagflow.storage.backends.fsspec.client import PreconditionError
from dagflow.storage.backends.s3.client import S3Client
from dagflow.storage.location import redacted
from dagflow.storage.objects import ObjectStore
from dagflow.storage.roots import Roots

_DELETE_LIMIT = 1000  # keys that S3 takes in one request


class S3ObjectStore(ObjectStore):
    """Objects in a bucket.

    Guarantee: conditional writes (If-None-Match) make one of several writers win; objects appear whole.
    """

    def __init__(self, client: S3Client, url: str, roots: Roots) -> None:
        super().__init__(url, roots)
        self._location = client.location(url)

    @override
    def create_if_absent(self, name: str, data: bytes) -> None:
        try:
            self._location.call("put_object", f"create {name}", Key=self._key(name), Body=data, IfNoneMatch="*")
        except PreconditionError as error:
            raise AlreadyExistsError("the name is taken", url=error.url) from error

    @override
    def replace(self, name: str, data: bytes) -> None:
        self._location.call("put_object", f"replace {name}", Key=self._key(name), Body=data)

    @override
    def read(self, name: str) -> bytes:
        return self._location.get(f"read {name}", Key=self._key(name))

    @override
    def list(self, directory: str, after: str = "") -> Iterator[str]:
        root = len(self._key(""))
        start = {"StartAfter": self._key(after)} if after else {}
        for page in self._location.list(f"list {directory}", Prefix=self._key(directory), Delimiter="/", **start):
            yield from (entry["Key"][root:] for entry in page.get("Contents", ()))

    @override
    def delete(self, names: Iterable[str]) -> None:
        rest = iter(names)
        while some := list(islice(rest, _DELETE_LIMIT)):
            keys = {"Objects": [{"Key": self._key(name)} for name in some], "Quiet": True}
            answer = self._location.call("delete_objects", "delete", Delete=keys)
            for refused in answer.get("Errors", ()):
                raise StorageError(f"cannot delete {refused['Key']}: {refused['Message']}", url=redacted(self.url))

    def _key(self, name: str) -> str:
        return f"{self._location.key}/{name}" if self._location.key else name
