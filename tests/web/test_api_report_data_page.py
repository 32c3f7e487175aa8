"""A report has everything that the served page loads."""

from __future__ import annotations

import re

from dagflow.web.api import STATIC, single_page


def test_a_report_has_the_style_sheets_of_the_served_page_in_their_order() -> None:
    """Where two rules apply alike, the later one holds: both pages look the same only in the same order."""
    page = single_page({})
    style = page[page.index("<style>") : page.index("</style>")]
    hrefs = re.findall(r'rel="stylesheet" href="([^"]+)"', (STATIC / "index.html").read_text(encoding="utf-8"))
    positions = [style.find((STATIC / href).read_text(encoding="utf-8")) for href in hrefs]
    assert len(positions) > 1 and -1 not in positions
    assert positions == sorted(positions)
