"""The pages as a person meets them, in Debian's Chromium: what is drawn, the keyboard, live updates, accessibility."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.errors import DagflowError
from dagflow.plan.load import load_app
from dagflow.storage.context import StorageContext
from dagflow.web.api import report_data, single_page
from dagflow.web.checkpoints import Checkpoint
from dagflow.web.server import serving
from tests.engine.test_driver import crashing
from tests.web.conftest import APP, ROWS, finish, with_table
from tests.web.following import await_window, following

CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.nightly,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install chromium"),
]
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install '.[test]'")

FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)
SCREENS = ("graph", "windows", "files", "rejects", "tables", "scaling", "app", "log")
SIZES = {"1280": {"width": 1280, "height": 800}, "390": {"width": 390, "height": 844}}
HOSTILE = ("<script>alert(1)<.csv", "a \"b\" 'c' &amp;.csv", "two\nlines.csv", "\u202egnp.exe.csv", "x" * 240 + ".csv")


@dataclass
class Site:
    """A server with a finished, a killed, a running app, and one with a table whose files have hostile names."""

    url: str
    checkpoints: dict[str, Path]

    def address(self, app: str, screen: str = "", query: str = "") -> str:
        """The address of a screen."""
        return f"{self.url}#/apps/{app}/{screen}{query}" if app else f"{self.url}#/"


def _prepare(folder: Path, app: str, names: tuple[str, ...]) -> Path:
    folder.mkdir()
    text = APP.replace("name: sample", f"name: {app}").replace("out/sample", f"out/{app}")
    text = with_table(text) if app == "hostile" else text
    # Some windows for each file, and not the hundred that blocks of 16 bytes would make.
    (folder / "app.yaml").write_text(text.replace("block_size: 16,", "block_size: 600,"))
    (folder / "in").mkdir()
    for name in names:
        (folder / "in" / name).write_bytes(ROWS + b"<b>fox</b>,<script>alert(1)</script>\n" + b"y" * 4096 + b",no\n")
    return folder


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server of four apps."""
    root = tmp_path_factory.mktemp("site")
    folders = {app: _prepare(root / app, app, ("a.csv",)) for app in ("finished", "killed", "running")}
    folders["hostile"] = _prepare(root / "hostile", "hostile", HOSTILE)
    checkpoints = {app: place / "out" / f"{app}.journal" for app, place in folders.items()}
    locations = [Checkpoint(str(each), StorageContext.default()) for each in checkpoints.values()]
    monkeypatch = pytest.MonkeyPatch()
    # A page that ends early, because the machine is busy, would hold fewer rows.
    monkeypatch.setattr("dagflow.web.checkpoints.READING_S", 600.0)
    with following(folders["running"]) as running:
        with following(folders["killed"]) as killed:
            # These are run while the other two start.
            for app in ("finished", "hostile"):
                with contextlib.chdir(folders[app]):
                    finish()
            await_window(folders["killed"], killed)
        await_window(folders["running"], running)
        with serving(locations) as address:
            yield Site(address.url, checkpoints)
    monkeypatch.undo()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One browser for all tests."""
    with playwright.sync_playwright() as engine:
        started = engine.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield started
        started.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page whose errors fail the test."""
    context = browser.new_context(viewport=SIZES["1280"])
    opened = context.new_page()
    errors: list[str] = []

    def hear(message: Any) -> None:
        if message.type in ("error", "warning"):
            errors.append(message.text)

    def refuse(dialog: Any) -> None:
        errors.append("a record opened a dialog")
        dialog.dismiss()

    opened.on("console", hear)
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.on("dialog", refuse)
    yield opened
    context.close()
    assert errors == []


# The navigation changes with the screen: what is drawn beside it is the new screen, and not the one before.
DRAWN = """() => document.querySelector("nav [aria-current]")?.hash === location.hash.split("?")[0]
    && document.querySelector("main") && !document.querySelector(".skeleton")"""
# What has the focus in the moment in which the panel is gone.
WATCH_PANEL = """() => { window.focusedWhenClosed = new Promise((resolve) => {
    const watcher = new MutationObserver(() => {
        if (!document.querySelector(".panel")) resolve(document.activeElement.href);
    });
    watcher.observe(document.body, { childList: true, subtree: true });
}); }"""


def show(page: Any, address: str) -> None:
    """Open an address, and wait until its content is drawn."""
    page.goto(address)
    page.wait_for_function(DRAWN, timeout=30_000)


def require_sound(page: Any, screen: str) -> None:
    """Refuse a screen with an error, without content, or with something beyond the edge of the page."""
    assert page.locator("[role=alert]").count() == 0, screen
    assert page.locator("main").inner_text().strip(), screen
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), screen


@pytest.mark.parametrize("app", ["hostile", "finished", "killed", "running"])
def test_each_screen_is_drawn_at_both_sizes(site: Site, page: Any, app: str) -> None:
    """Each screen has content, no error, and nothing beyond the edge of a narrow or a wide page."""
    show(page, site.address(""))
    assert page.locator("tr.linked").count() == 4
    for screen in SCREENS:
        show(page, site.address(app, screen))
        for size in SIZES.values():
            page.set_viewport_size(size)
            require_sound(page, screen)


def test_states_of_apps_are_said_in_words(site: Site, page: Any) -> None:
    """The fleet page shows which app is finished, killed or running, and that bytes add up."""
    show(page, site.address(""))
    text = page.locator("main").inner_text()
    assert all(word in text for word in ("completed", "killed", "running"))
    assert (
        page.locator("tr.linked", has_text="finished")
        .locator("xpath=following-sibling::tr[1]")
        .locator(".equation.holds")
        .count()
        == 1
    )
    assert page.locator(".equation").count() == 4


def test_a_failed_run_shows_what_waits_and_why_there_are_no_more_records(page: Any, tmp_path: Path) -> None:
    """What its planned windows hold is not called nothing, and a sample shows what a run ends with."""
    folder = _prepare(tmp_path / "failed", "failed", ("a.csv",))
    with contextlib.chdir(folder), pytest.raises(DagflowError, match="the lights went out"):
        run(load_app("app.yaml"), RunOptions(), runtime=crashing(after=1))
    lines = (folder / "app.yaml").read_text().splitlines(keepends=True)
    (folder / "app.yaml").write_text("".join(each for each in lines if not each.startswith(("  refused:", "  bad:"))))
    with serving([Checkpoint(str(folder / "out/failed.journal"), StorageContext.default())]) as at:
        show(page, f"{at.url}#/apps/failed/graph?node=filter")
        assert "nothing waits" not in page.locator("main").inner_text()
        page.locator(".panel .tools button").click()
        page.wait_for_selector("table[aria-label=Sample]")
        assert "a run ends where a record is refused" in page.locator(".panel [role=alert]").inner_text()
        page.goto("about:blank")  # which hears no more of the server


def test_hostile_names_are_text(site: Site, page: Any) -> None:
    """Names and records with markup, quotes, newlines and marks of direction are shown, and do nothing."""
    show(page, site.address("hostile", "files"))
    text = page.locator("main").inner_text()
    assert "<script>alert(1)<.csv" in text
    assert "two\\nlines.csv" in text
    assert "\\u202egnp.exe.csv" in text
    show(page, site.address("hostile", "rejects"))
    links = page.locator("section[aria-label=Rejects] a.row-link")
    links.nth(0).click()
    first = page.locator(".panel .raw").inner_text()
    links.nth(1).click()
    page.wait_for_selector("section[aria-label=Rejects] tr.selected:nth-child(2)")
    assert "<script>alert(1)</script>" in first + page.locator(".panel .raw").inner_text()


def test_what_was_not_looked_at_is_not_called_missing(site: Site, page: Any) -> None:
    """Where a request ends before the oldest window, Files and Rejects speak of the newest ones, and offer to go on."""
    everything = [("files", "?search=no", "No such file was taken"), ("rejects", "?file=no", "No record was refused")]
    for screen, query, title in everything:
        show(page, site.address("hostile", screen, query))
        assert page.locator(".state b").first.inner_text() == title
        assert page.get_by_text("Look in older windows").count() == 0

    def end_early(route: Any) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json=answer.json() | {"next": "2"})

    page.route(re.compile("=nothing"), end_early)
    for screen, query, title in everything:
        show(page, site.address("hostile", screen, f"{query}thing"))
        assert page.locator(".state b").first.inner_text() != title
        assert page.get_by_text("Look in older windows").count() == 1


def test_the_keyboard_reaches_everything(site: Site, page: Any) -> None:
    """The first Tab offers to skip, arrows move in lists, Enter opens, Escape closes and gives the focus back."""
    show(page, site.address("finished", "windows"))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("Tab")
    first = page.evaluate("document.activeElement.href")
    page.keyboard.press("ArrowDown")
    second = page.evaluate("document.activeElement.href")
    assert first != second
    page.keyboard.press("Enter")
    page.wait_for_selector(".panel .facts-list")
    assert page.evaluate("document.activeElement.tagName") == "H2"
    page.evaluate(WATCH_PANEL)
    page.keyboard.press("Escape")
    assert page.evaluate("window.focusedWhenClosed") == second


def test_a_committed_window_appears_by_itself(site: Site, page: Any) -> None:
    """A window that a run commits while the page is open is drawn without a reload."""
    show(page, site.address("running", "windows"))
    page.wait_for_selector("a.row")
    newest = page.locator("a.row").first
    before = newest.get_attribute("href")
    folder = site.checkpoints["running"].parent.parent / "in"
    (folder / ".next").write_bytes(ROWS)
    (folder / ".next").rename(folder / "next.csv")
    playwright.expect(newest).not_to_have_attribute("href", before, timeout=20_000)


def test_a_lost_connection_is_said(site: Site, browser: Any) -> None:
    """A page whose server is gone says so with the time of what it shows, and goes on showing it."""
    location = Checkpoint(str(site.checkpoints["finished"]), StorageContext.default())
    context = browser.new_context()
    page = context.new_page()
    with serving([location]) as address:
        show(page, f"{address.url}#/apps/finished/windows")
        page.wait_for_selector("a.row")
    page.wait_for_selector(".connection")
    assert "Connection lost, showing the state of" in page.locator(".connection").inner_text()
    assert page.locator("a.row").count() > 0
    context.close()


def test_a_screen_is_drawn_without_the_list_of_apps(site: Site, browser: Any) -> None:
    """It has what it needs, also when the connection is lost before the list has come."""
    context = browser.new_context()
    page = context.new_page()
    page.route("**/api/v1/apps", lambda route: route.abort())
    show(page, site.address("finished", "windows"))
    page.wait_for_selector("a.row")
    show(page, site.address(""))
    page.wait_for_selector("[role=alert]")
    assert "The server does not answer" in page.locator("main").inner_text()
    context.close()


SET_HIDDEN = """(hidden) => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
    document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_hidden_tabs_leave_their_connections_to_others(site: Site, browser: Any) -> None:
    """A browser has six to a server: with more tabs than that the newest one is drawn, and an old one when shown."""
    context = browser.new_context()
    tabs: list[Any] = []
    for _ in range(7):
        for tab in tabs[-1:]:
            tab.evaluate(SET_HIDDEN, True)
        tabs.append(context.new_page())
        show(tabs[-1], site.address("running", "windows"))
        tabs[-1].wait_for_selector("a.row")
    before = tabs[0].locator("a.row").first.get_attribute("href")
    folder = site.checkpoints["running"].parent.parent / "in"
    (folder / ".tabs").write_bytes(ROWS)
    (folder / ".tabs").rename(folder / "tabs.csv")
    for tab in (tabs[-1], tabs[0]):
        tab.evaluate(SET_HIDDEN, False)
        playwright.expect(tab.locator("a.row").first).not_to_have_attribute("href", before, timeout=20_000)
    context.close()


def test_a_late_answer_is_said_until_it_comes(site: Site, page: Any) -> None:
    """A page that waits says so, though the server's events come; with the answer it goes on."""
    page.clock.install()
    show(page, site.address("finished", "windows"))
    held: list[Any] = []
    page.route("**/api/v1/apps/**", lambda route: held.append(route))  # playwright sets an attribute of it
    with page.expect_request("**/api/v1/apps/**"):
        page.get_by_role("link", name="Files").click()
    page.clock.fast_forward(11_000)
    page.wait_for_selector(".connection")
    assert "The server takes long to answer, showing the state of" in page.locator(".connection").inner_text()
    for route in held:
        route.continue_()
    page.wait_for_function(DRAWN)
    page.wait_for_selector(".connection", state="detached")


def test_a_report_is_one_file_that_needs_no_server(site: Site, page: Any, tmp_path: Path) -> None:
    """The same screens open from a file, without a request."""
    data = report_data(Checkpoint(str(site.checkpoints["hostile"]), StorageContext.default()))
    (tmp_path / "run.html").write_text(single_page(data))
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    for screen in SCREENS:
        show(page, f"file://{tmp_path}/run.html#/apps/hostile/{screen}")
        assert page.locator("[role=alert]").count() == 0, screen
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The source of axe-core, which is not part of the package."""
    if (named := os.environ.get("DAGFLOW_AXE")) is not None:
        return Path(named).read_text()
    if shutil.which("npm") is None:
        pytest.skip("there is no axe-core: DAGFLOW_AXE names none, and there is no npm to fetch it")
    folder = tmp_path_factory.mktemp("axe")
    packed = subprocess.run(["npm", "pack", "--silent", "axe-core@4"], cwd=folder, capture_output=True, check=False)
    if packed.returncode:
        pytest.skip("there is no axe-core: npm could not fetch it")
    shutil.unpack_archive(next(folder.glob("*.tgz")), folder, filter="data")
    return (folder / "package" / "axe.min.js").read_text()


@pytest.mark.parametrize(("theme", "size"), [("dark", "1280"), ("light", "390")])
def test_no_screen_violates_a_rule_of_accessibility(site: Site, browser: Any, axe: str, theme: str, size: str) -> None:
    """Axe finds nothing on any screen, with details open."""
    context = browser.new_context(viewport=SIZES[size], color_scheme=theme, bypass_csp=True)
    page = context.new_page()
    show(page, site.address(""))
    page.evaluate(axe)
    details = {"windows": "?window=1", "graph": "?node=reader"}
    found = []
    for app, screen in [("", ""), *(("hostile", screen) for screen in SCREENS)]:
        show(page, site.address(app, screen, details.get(screen, "")))
        for each in page.evaluate("axe.run()")["violations"]:
            found.append((screen, each["id"], each["nodes"][0]["html"]))
    context.close()
    assert found == []


@pytest.mark.skipif("DAGFLOW_SCREENSHOTS" not in os.environ, reason="DAGFLOW_SCREENSHOTS names no server of the demo")
def test_pictures_of_the_documentation_are_made(browser: Any) -> None:
    """The pictures of docs/ui.md are the screens of the demo, at the address that DAGFLOW_SCREENSHOTS names."""
    url, folder = os.environ["DAGFLOW_SCREENSHOTS"], Path("docs/ui")
    folder.mkdir(exist_ok=True)
    context = browser.new_context(viewport=SIZES["1280"], color_scheme="dark")
    page = context.new_page()
    queries = {"graph": "?node=people", "windows": "", "files": ""}
    for screen in ("fleet", *queries):
        show(page, f"{url}#/apps/follow-logs/{screen}{queries[screen]}" if screen in queries else f"{url}#/")
        if screen == "files":
            page.locator("a.row-link").last.click()
            page.get_by_label("Line", exact=True).fill("1000")
            page.get_by_role("button", name="Find").click()
            page.wait_for_selector(".panel .sentence")
        page.screenshot(path=folder / f"{screen}.png")
        if (tool := shutil.which("pngquant")) is not None:
            subprocess.run([tool, "--force", "--ext", ".png", folder / f"{screen}.png"], check=True)
    context.close()
