"""Filters on the column `_file`, which leave out whole files before they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pyspark.sql import datasource

from dagflow.spark.spark_rows import FILE

# Of 4.1 and later.
_TESTS: dict[str, Callable[[str, Any], bool]] = {
    "EqualTo": str.__eq__,
    "EqualNullSafe": str.__eq__,
    "In": lambda url, values: url in values,
    "IsNotNull": lambda url, _: True,
    "IsNull": lambda url, _: False,
    "StringStartsWith": str.startswith,
    "StringEndsWith": str.endswith,
    "StringContains": str.__contains__,
    "GreaterThan": str.__gt__,
    "GreaterThanOrEqual": str.__ge__,
    "LessThan": str.__lt__,
    "LessThanOrEqual": str.__le__,
}


class FileFilters:
    """Takes in filters that Spark pushes down.

    Spark refuses a reader with a pushFilters of its own where spark.sql.python.filterPushdown.enabled is false. An
    instance of this class stands for that method, and is to Spark that of the base class.
    """

    __func__: Any = staticmethod(getattr(datasource.DataSourceReader, "pushFilters", len))

    def __init__(self) -> None:
        self._tests: list[Callable[[str], bool]] = []

    def __call__(self, filters: Iterable[Any]) -> Iterator[Any]:
        """Take in the filters that only ask for the file; yields the others, which Spark applies itself."""
        for filter in filters:
            if (test := _test_of(filter)) is not None:
                self._tests.append(test)
            else:
                yield filter

    def keeps(self, url: str) -> bool:
        """Whether rows of a file are wanted."""
        return all(test(url) for test in self._tests)

    def __bool__(self) -> bool:
        return bool(self._tests)


def _test_of(filter: Any) -> Callable[[str], bool] | None:
    name = type(filter).__name__
    if name == "Not":
        inner = _test_of(filter.child)
        return None if inner is None else lambda url: not inner(url)
    if name not in _TESTS or filter.attribute != (FILE,):
        return None
    test, value = _TESTS[name], getattr(filter, "value", None)
    return lambda url: test(url, value)
