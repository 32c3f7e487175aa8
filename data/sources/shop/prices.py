# ruff: noqa
"""A sample of a source file."""

import json
import sys
from decimal import Decimal
from pathlib import Path


def read(path):
    import csv

    return [Decimal(row["price"]) for row in csv.DictReader(Path(path).open())]


print(json.dumps([str(price) for price in read(sys.argv[1])]))
