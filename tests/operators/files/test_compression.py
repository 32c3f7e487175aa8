"""Which names promise a compression."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from operators.files.compression import COMPRESSIONS, compression_of_name, has_compressed_name
from operators.files.small_file_batch import NameColumn

SUFFIXES = st.sampled_from([suffix for compression in COMPRESSIONS for suffix in compression.suffixes])
ENDINGS = (
    SUFFIXES | SUFFIXES.map(str.upper) | st.sampled_from([".lz", "gz", ".gz.", ".g\nz", ".\u017fz", ".gz\n", "\udcff"])
)
NAMES = st.builds(str.__add__, st.text("aZ./\n", max_size=4), ENDINGS | st.just(""))


@given(st.lists(NAMES, max_size=5))
@example([])
@example(["a.gz\n", "b"])
def test_many_names_promise_what_one_of_them_does(names: list[str]) -> None:
    """In any case, at the end of a name only, and wherever it stands among the others."""
    assert has_compressed_name(NameColumn.of(names)) == any(compression_of_name(name) is not None for name in names)
