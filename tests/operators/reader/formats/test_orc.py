"""ORC: stripes by the blocks that hold their first bytes, with each compression."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.orc

from operators.testing import TableContract
from tests.operators.reader.formats.test_parquet import orders


def written(table: pa.Table, **options: Any) -> bytes:
    """The bytes of an ORC file."""
    out = io.BytesIO()
    pyarrow.orc.write_table(table, out, **options)
    return out.getvalue()


def numbers(count: int) -> pa.Table:
    """A table whose stripes are long enough for the writer to end them."""
    return pa.table({"n": range(count), "square": [float(row * row % 1009) for row in range(count)]})


class TestStripes(TableContract):
    """Several stripes, one, and none."""

    formats: ClassVar = ["orc"]

    def files(self) -> Sequence[tuple[bytes, Sequence[dict[str, Any]]]]:
        """Files of each compression."""
        table = numbers(4000)
        rows = table.to_pylist()
        several = [
            (written(table, stripe_size=1024, batch_size=512, compression=codec), rows)
            for codec in ("uncompressed", "zlib", "snappy", "lz4", "zstd")
        ]
        plain = orders(9).drop_columns(["kind", "at"])
        return [*several, (written(plain), plain.to_pylist()), (written(plain.slice(0, 0)), [])]


def test_a_file_has_several_stripes_and_other_columns_are_not_read() -> None:
    """The samples of the suite are what they should be."""
    content = TestStripes().files()[0][0]
    assert pyarrow.orc.ORCFile(io.BytesIO(content)).nstripes > 3
