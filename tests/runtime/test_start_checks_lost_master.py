"""A master that Spark has given up, as Spark 4.3 reports it in its log."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagflow.errors import DagflowError
from dagflow.runtime.start_checks import master_named

MASTER = "spark://host:7077"
TRIED = """\
26/11/24 02:29:16 ERROR TransportClientFactory: Exception while bootstrapping client after 28 ms
java.lang.RuntimeException: java.lang.RuntimeException: {cause}
\tat org.apache.spark.network.crypto.AuthClientBootstrap.doBootstrap(AuthClientBootstrap.java:122)
26/11/24 02:29:16 WARN StandaloneAppClient$ClientEndpoint: Failed to connect to master 127.0.0.1:17078
org.apache.spark.SparkException: Exception thrown in awaitResult:
Caused by: org.apache.spark.SparkException: Message is dropped because Outbox is stopped
"""
REFUSED = """\
26/11/24 02:29:17 WARN StandaloneAppClient$ClientEndpoint: Failed to connect to master 127.0.0.1:17077
org.apache.spark.SparkException: Exception thrown in awaitResult:
Caused by: {cause}
"""
GAVE_UP = (
    "26/11/24 02:29:56 ERROR StandaloneSchedulerBackend: Application has been killed. Reason: All masters are "
    "unresponsive! Giving up.\n"
)
STARTED = "Setting Spark log level to WARN.\n"
LOGS = {
    REFUSED.format(
        cause="java.lang.RuntimeException: java.lang.IllegalStateException: Expected SaslMessage, received something "
        "else (maybe your client does not have SASL enabled?)"
    ): ("it asks for a secret, and this run has none", r"give spark\.authenticate: 'true' and"),
    TRIED.format(
        cause="javax.security.sasl.SaslException: DIGEST-MD5: digest response format violation. Mismatched response."
    ): ("it has another secret than this run", r"spark\.authenticate\.secret as the master and the workers have them"),
    TRIED.format(cause="java.io.EOFException"): ("this run asks for a secret, and it has none", "or leave them out"),
    REFUSED.format(cause="java.net.ConnectException: finishConnect(..) failed with error(-111): Connection refused"): (
        "Connection refused",
        "start it, or give another one",
    ),
}


@pytest.mark.parametrize("log", LOGS)
def test_a_failed_start_names_the_master_and_what_is_wrong(tmp_path: Path, log: str) -> None:
    """Spark itself fails with what it was asked after it had stopped, such as a broadcast."""
    (tmp_path / "log").write_text(STARTED + log + GAVE_UP)
    why, advice = LOGS[log]
    match = rf"(?s)Spark got no connection to the master {MASTER}: .*{why}.*{advice}"
    with pytest.raises(DagflowError, match=match), master_named(MASTER, tmp_path / "log"):
        raise DagflowError("Cannot call methods on a stopped SparkContext")


@pytest.mark.parametrize("log", [STARTED, STARTED + TRIED.format(cause="java.io.EOFException")])
def test_another_error_of_a_start_stays_as_it_is(tmp_path: Path, log: str) -> None:
    """Also where an attempt failed, and a later one did not."""
    (tmp_path / "log").write_text(log)
    with pytest.raises(DagflowError, match="an executor lacks a package"), master_named(MASTER, tmp_path / "log"):
        raise DagflowError("an executor lacks a package")
