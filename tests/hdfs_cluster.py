"""A real HDFS on loopback for tests: a NameNode and DataNodes, each in its own process.

It runs from the servers' jars of Hadoop 2.7, which no package of today brings along; DAGFLOW_HDFS_JARS names the
directories that hold them, separated by colons, those that shall be found first in front. docs/storage.md says where
they come from.
"""

import contextlib
import os
import socket
import subprocess
import time
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from dagflow.runtime.java import use_java

JARS = os.environ.get("DAGFLOW_HDFS_JARS", "")
_START_S = 60.0
_OPENED = [
    "--add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
]
_SERVER = "org.apache.hadoop.hdfs.server"


def free_ports(count: int) -> list[int]:
    """Return free ports."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _configuration(settings: dict[str, str]) -> str:
    properties = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>" for name, value in settings.items()
    )
    return f'<?xml version="1.0"?><configuration>{properties}</configuration>'


def _configure(folder: Path, port: int, http_port: int) -> None:
    for app in ("hdfs", "datanode"):
        place = folder / "conf" / "webapps" / app / "WEB-INF"
        place.mkdir(parents=True)
        (place / "web.xml").write_text("<web-app></web-app>")
    core = {"fs.defaultFS": f"hdfs://127.0.0.1:{port}", "ipc.server.tcpnodelay": "true"}
    own = {
        "dfs.namenode.name.dir": f"file://{folder}/name",
        "dfs.namenode.http-address": f"127.0.0.1:{http_port}",
        "dfs.replication": "2",
        "dfs.permissions.enabled": "false",
        "dfs.namenode.datanode.registration.ip-hostname-check": "false",
        "dfs.namenode.safemode.extension": "0",
        "dfs.blocksize": "1048576",
        "dfs.namenode.fs-limits.min-block-size": "1048576",
        "dfs.namenode.replication.considerLoad": "false",
    }
    (folder / "conf" / "core-site.xml").write_text(_configuration(core))
    (folder / "conf" / "hdfs-site.xml").write_text(_configuration(own))


@contextlib.contextmanager
def running_cluster(folder: Path, datanodes: int = 2) -> Iterator[str]:
    """Start a cluster with its data in a folder, and yield its URL."""
    use_java()
    java = Path(os.environ["JAVA_HOME"]) / "bin" / "java" if "JAVA_HOME" in os.environ else Path("java")
    port, http_port, *others = free_ports(2 + 3 * datanodes)
    _configure(folder, port, http_port)
    path = ":".join([str(folder / "conf"), *(f"{directory}/*" for directory in JARS.split(":"))])
    command = [str(java), "-Xmx256m", "-XX:TieredStopAtLevel=1", *_OPENED, "-cp", path]
    namenode = [*command, f"{_SERVER}.namenode.NameNode"]
    with contextlib.ExitStack() as stack:
        log = stack.enter_context((folder / "log").open("ab"))

        def start(arguments: list[str]) -> None:
            process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.kill)

        subprocess.run([*namenode, "-format", "-nonInteractive"], check=True, stdout=log, stderr=log)
        start(namenode)
        for number in range(datanodes):
            data, ipc, http = others[3 * number : 3 * number + 3]
            own = {
                "dfs.datanode.data.dir": f"file://{folder}/data{number}",
                "dfs.datanode.address": f"127.0.0.1:{data}",
                "dfs.datanode.ipc.address": f"127.0.0.1:{ipc}",
                "dfs.datanode.http.address": f"127.0.0.1:{http}",
            }
            settings = [f"-D{name}={value}" for name, value in own.items()]
            start([*command, f"{_SERVER}.datanode.DataNode", *(part for s in settings for part in ("-D", s[2:]))])
        _wait_until_ready(http_port, datanodes, folder / "log")
        yield f"hdfs://127.0.0.1:{port}"


def _wait_until_ready(http_port: int, datanodes: int, log: Path) -> None:
    deadline = time.monotonic() + _START_S
    address = f"http://127.0.0.1:{http_port}/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            answer = urllib.request.urlopen(address, timeout=2).read().decode()
            if f'"NumLiveDataNodes" : {datanodes}' in answer and '"FSState" : "Operational"' in answer:
                return
        time.sleep(0.1)  # the servers do not report that they are ready
    raise RuntimeError(f"HDFS did not start:\n{log.read_text()[-3000:]}")


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a cluster; skipped without its jars."""
    if not JARS:
        pytest.skip("DAGFLOW_HDFS_JARS does not name the jars of HDFS's servers")
    with running_cluster(tmp_path_factory.mktemp("hdfs")) as url:
        yield url


@pytest.fixture
def hdfs_root(hdfs: str) -> str:
    """The URL of an empty directory."""
    return f"{hdfs}/{uuid.uuid4().hex}"
