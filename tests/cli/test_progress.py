"""Which display a run has, and what is logged there."""

from __future__ import annotations

import logging
import socket
from threading import Thread

import pytest
from py4j.java_gateway import GatewayClient  # type: ignore[import-untyped]  # ships no types
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]  # ships no types

from dagflow.cli.display import Display, LineDisplay
from dagflow.cli.progress import display_for, logging_to
from tests.cli.samples import APP, summary


def test_quiet_shows_nothing_and_remembers_the_figures(capsys: pytest.CaptureFixture[str]) -> None:
    """Under -q only errors are printed; a failed run's summary still needs the last figures."""
    display = display_for(APP, is_quiet=True)
    with display:
        display.progress(summary(6.0))
        display.notice("news")
        display.stopping()
        display.finish(summary(7.0))
    assert capsys.readouterr() == ("", "")
    assert display.last == summary(7.0)


def test_where_stderr_is_no_terminal_lines_are_written() -> None:
    """A log file gets no escapes."""
    assert type(display_for(APP, is_quiet=False)) is LineDisplay


class NoticeRecordingDisplay(Display):
    """Keeps its notices."""

    def __init__(self) -> None:
        super().__init__(APP)
        self.notices: list[str] = []

    def notice(self, text: str) -> None:
        self.notices.append(text)


@pytest.mark.parametrize(("is_verbose", "levels"), [(False, ["WARNING"]), (True, ["DEBUG", "WARNING"])])
def test_the_log_is_shown_as_far_as_it_is_asked_for(is_verbose: bool, levels: list[str]) -> None:
    """Warnings always, the rest under --verbose, and nothing after the run."""
    display = NoticeRecordingDisplay()
    logger = logging.getLogger("dagflow.engine")
    with logging_to(display, is_verbose=is_verbose):
        logger.debug("planned window=%d", 7)
        logger.warning("slow window=%d", 7)
    logger.warning("after the run")
    assert [notice.split()[0] for notice in display.notices] == levels
    assert display.notices[-1] == "WARNING dagflow.engine: slow window=7"


@pytest.mark.parametrize("is_verbose", [False, True])
def test_what_py4j_logs_of_a_dead_jvm_is_shown_on_request(is_verbose: bool) -> None:
    """It says so by the root logger and by its own; the error of the driver says it better."""
    display = NoticeRecordingDisplay()
    with socket.create_server(("127.0.0.1", 0)) as server, logging_to(display, is_verbose=is_verbose):
        java = Thread(target=lambda: server.accept()[0].close())
        java.start()
        client = GatewayClient(port=server.getsockname()[1])
        client.send_command("x\n", retry=False)
        java.join()
        server.close()
        with pytest.raises(Py4JNetworkError, match="trying to connect to the Java server"):
            client.send_command("x\n")
        logging.getLogger().warning("of another program")
    said = ["ERROR root:", "ERROR py4j.java_gateway:"] if is_verbose else []
    assert [" ".join(each.split()[:2]) for each in display.notices] == [*said, "WARNING root:"]
