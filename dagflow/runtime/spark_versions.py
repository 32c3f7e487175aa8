"""The versions of Spark that dagflow runs on, and the one that is installed.

Importing this module takes little time: the version is known before PySpark is imported.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dagflow.errors import DagflowError

OLDEST, NEWEST = "3.5.5", "4.3"
RANGE = "pyspark>=3.5.5,<4.4"
"""The same for pip, as in setup.cfg."""

_REMEDY = f"install another: pip install '{RANGE}', or run without Spark: --local, in Python app.run(local=True)"


def version_numbers(version: str) -> tuple[int, ...]:
    """The first three numbers of a version, comparable like versions; empty for an empty version."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def installed_spark() -> Path:
    """The directory of PySpark, which may be in a zip file."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise DagflowError("PySpark is not installed", hint=_REMEDY)
    return Path(spec.origin).parent


def spark_version() -> str:
    """The version of the installed PySpark, such as 4.3.0; "" where it does not say."""
    file = installed_spark() / "version.py"
    loader: Any = getattr(importlib.util.find_spec("pyspark"), "loader", None)
    try:
        text = loader.get_data(str(file)).decode()
    except (OSError, AttributeError):
        return ""
    version = re.search(r"^__version__[^=]*= *['\"]([^'\"]+)", text, re.MULTILINE)
    return version[1] if version else ""


def require_version(environ: Mapping[str, str] = os.environ) -> str:
    """Refuse a PySpark that dagflow does not run on, or that is not that of SPARK_HOME; returns its version."""
    version = spark_version()
    numbers = version_numbers(version)
    if not version_numbers(OLDEST) <= numbers or numbers[:2] > version_numbers(NEWEST):
        known = version or "of no known version"
        raise DagflowError(f"PySpark is {known}, and dagflow runs on {OLDEST} to {NEWEST}", hint=_REMEDY)
    home = environ.get("SPARK_HOME")
    for jar in Path(home).glob("jars/spark-core_*.jar") if home else ():
        other = jar.stem.partition("-core_")[2].partition("-")[2]
        if version_numbers(other)[:2] != numbers[:2]:
            raise DagflowError(
                f"PySpark is {version}, and the Spark in SPARK_HOME ({home}) is {other}",
                hint=f"unset SPARK_HOME, or install the same version: pip install 'pyspark=={other}'",
            )
    return version
