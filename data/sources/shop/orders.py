# ruff: noqa
"""Another sample."""

from __future__ import annotations

import csv
import json
from pathlib import Path

for path in Path("orders").glob("*.csv"):
    print(json.dumps(list(csv.reader(path.open()))))
