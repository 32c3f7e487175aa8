"""The object store that scans and indexes are tried on."""

from tests.s3_server import s3_root, s3_server

__all__ = ["s3_root", "s3_server"]
