"""A Spark standalone cluster of real processes, on hosts that can be cut off, slowed down, filled up and killed.

Where root and iproute2 allow it, each host is a network namespace with an address and mounts of its own;
elsewhere all hosts are the loopback device, and tests that need a network between them are skipped.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
import time
import venv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyspark

from dagflow.runtime.java import archive_options, use_java
from dagflow.runtime.probe import NEEDED

SPARK_HOME = Path(pyspark.__file__).parent
START_S = 90.0
ADDRESSES = {"master": "10.77.0.1", "driver": "10.77.0.2", "one": "10.77.0.11", "two": "10.77.0.12"}
WORKERS = ("one", "two")
# Heartbeats and timeouts of workers in seconds instead of minutes.
DAEMON_JAVA = "-Dspark.worker.timeout=6 -Dspark.master.rest.enabled=false"
SLICE_S = 0.05
"""How long a slowed host runs at a time."""

PACKAGES = (
    *(*NEEDED, "re2", "google_re2", "typing_extensions.py", "numpy.libs"),
    *("pydantic_core", "annotated_types", "typing_inspection"),
)
"""What dagflow says that its tasks need, and what that needs in turn."""


def quick_java() -> str:
    """Return options with which Spark's Java processes start quickly, if `dagflow warm` was run."""
    return " ".join(("-XX:TieredStopAtLevel=1", *archive_options(use_java())))


def wait_until(is_so: Callable[[], bool], what: str, most_s: float = START_S) -> None:
    """Wait until a condition holds.

    Raises:
        TimeoutError: The condition did not hold within most_s seconds.
    """
    deadline = time.monotonic() + most_s
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"after {most_s} s still not: {what}")
        time.sleep(0.05)


def bare_python(folder: Path, without: Sequence[str] = ()) -> str:
    """Make an interpreter with the packages that tasks need, without dagflow and PySpark.

    Args:
        folder: Where to make it.
        without: Packages to leave out.
    """
    venv.create(folder, symlinks=True)
    base = {"base": str(folder), "platbase": str(folder)}
    target = Path(sysconfig.get_path("purelib", "venv", base))
    # The environment may have borrowed its packages from another one.
    source = Path(pa.__file__).parent.parent
    for name in PACKAGES:
        if name not in without and (source / name).exists():
            (target / name).symlink_to(source / name)
    shipped = {name.removesuffix(".py") for name in PACKAGES if name not in without}
    for information in source.glob("*.dist-info"):
        if information.name.partition("-")[0] in shipped:
            (target / information.name).symlink_to(information)
    return str(folder / "bin" / "python")


def pretend_version(folder: Path, minor: int) -> None:
    """Let an interpreter of bare_python() report another minor version."""
    (target,) = (folder / "lib").glob("python*/site-packages")
    lines = ["import sys", f"sys.version_info = type('V', (tuple,), dict(major=3, minor={minor}))((3, {minor}, 0))"]
    (target / "sitecustomize.py").write_text("\n".join(lines))


def can_make_hosts() -> bool:
    """Return whether hosts can be network namespaces on this machine."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    name = f"dagflow-try-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode == 0
    if made:
        subprocess.run(["ip", "netns", "del", name], check=True)
    return made


@dataclass(slots=True)
class Host:
    """One machine of the cluster.

    Attributes:
        name: Its name.
        address: Its address.
        folder: What its processes write.
        namespace: Its network namespace, or None on the loopback device.
        processes: What was started on it.
    """

    name: str
    address: str
    folder: Path
    namespace: str | None = None
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, command: Sequence[str], log: Path, cwd: Path, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Start a process on this host, in its own session."""
        if self.namespace is not None:
            command = ["ip", "netns", "exec", self.namespace, *command]
        with log.open("ab") as output:
            process = subprocess.Popen(
                command,
                cwd=cwd,
                # The tests may have dagflow on PYTHONPATH; the hosts must not.
                env={**os.environ, "PYTHONPATH": "", "SPARK_LOCAL_IP": self.address, **env},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def members(self) -> dict[int, str]:
        """Return the command of each live process of this host, by process id."""
        sessions = {process.pid for process in self.processes}
        found: dict[int, tuple[int, int, str]] = {}
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError, IndexError):
                state, parent, _, session = (entry / "stat").read_text().rpartition(") ")[2].split()[:4]
                if state != "Z":
                    command = (entry / "cmdline").read_text().replace("\0", " ")
                    found[int(entry.name)] = int(parent), int(session), command
        # On some systems a worker puts its executors into their own sessions: children count as well.
        ours = {pid for pid, (_, session, _) in found.items() if session in sessions}
        while more := {pid for pid, (parent, _, _) in found.items() if parent in ours} - ours:
            ours |= more
        return {pid: found[pid][2] for pid in ours}

    def pids(self, pattern: str) -> list[int]:
        """Return the ids of processes whose command matches a regular expression."""
        return sorted(pid for pid, command in self.members().items() if re.search(pattern, command))

    def seen(self, path: Path) -> Path:
        """Return a path as the worker on this host sees it, with the host's own disks."""
        return Path(f"/proc/{self.pids(r'worker[.]Worker')[0]}/root{path}")

    @contextlib.contextmanager
    def own_disk(self, path: Path, options: str) -> Iterator[None]:
        """Cover a directory by a disk that only this host's worker and its executors see.

        Args:
            path: The directory.
            options: Options of `tmpfs`, such as size=8m.
        """
        enter = ["nsenter", "--mount", "--target", str(self.pids(r"worker[.]Worker")[0])]
        subprocess.run([*enter, "mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)], check=True)
        try:
            yield
        finally:
            # Lazily: an executor may not have closed a file yet.
            subprocess.run([*enter, "umount", "--lazy", str(path)], check=True)

    def executors(self) -> list[int]:
        """Return the ids of the executors' Java processes."""
        return self.pids(r"CoarseGrainedExecutorBackend")

    def signal(self, pids: Sequence[int], number: signal.Signals) -> None:
        """Send a signal to each of the given processes that still exists."""
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def destroy(self) -> None:
        """Kill all processes of this host."""
        members = list(self.members())
        self.signal(members, signal.SIGCONT)
        self.signal(members, signal.SIGKILL)
        for process in self.processes:
            process.wait()
        self.processes.clear()

    @contextlib.contextmanager
    def slowed(self, times: int) -> Iterator[None]:
        """Slow all processes of this host down by a factor."""
        over = threading.Event()

        def hold() -> None:
            members: list[int] = []
            while not over.is_set():
                self.signal(members, signal.SIGSTOP)
                stopped = time.monotonic()
                # Looking for processes takes time, during which none of the known ones may run.
                found = list(self.members())
                over.wait(SLICE_S * (times - 1) - (time.monotonic() - stopped))
                self.signal(members, signal.SIGCONT)
                members = found
                over.wait(SLICE_S)
            self.signal(members, signal.SIGCONT)

        thread = threading.Thread(target=hold)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


class Cluster:
    """One master, two workers, and a host for the driver.

    Args:
        folder: What the processes of the cluster write.
        cores: Cores that each worker offers.
    """

    def __init__(self, folder: Path, cores: int = 2) -> None:
        self.folder = folder
        self.has_network = can_make_hosts()
        self._cores = cores
        prefix = f"dagflow-{os.getpid()}-{os.urandom(2).hex()}"
        self.hosts: dict[str, Host] = {}
        for name, address in ADDRESSES.items():
            (folder / name).mkdir(parents=True)
            host = Host(name, "127.0.0.1", folder / name)
            if self.has_network:
                host = Host(name, address, folder / name, f"{prefix}-{name}")
            self.hosts[name] = host
        self._port = 7077 if self.has_network else _free_port()
        self.url = f"spark://{self.hosts['master'].address}:{self._port}"
        self.python = bare_python(folder / "bare")

    def start(self) -> None:
        """Make the hosts, and start master and workers."""
        if self.has_network:
            self._make_network()
        self.start_master()
        for name in WORKERS:
            self.start_worker(name)
        wait_until(lambda: self.registered() >= len(WORKERS), "two workers are registered")

    def registered(self) -> int:
        """Return how often a worker has registered with the master."""
        log = self.hosts["master"].folder / "master.log"
        return log.read_text().count("Registering worker") if log.exists() else 0

    def start_master(self) -> None:
        """Start the master, which recovers the state of an earlier one."""
        host = self.hosts["master"]
        recovery = f"-Dspark.deploy.recoveryMode=FILESYSTEM -Dspark.deploy.recoveryDirectory={host.folder / 'recovery'}"
        self._daemon(
            host,
            "master",
            ["master.Master", "--host", host.address, "--port", str(self._port), "--webui-port", "0"],
            SPARK_MASTER_OPTS=f"{quick_java()} {DAEMON_JAVA} {recovery}",
        )

    def start_worker(self, name: str) -> None:
        """Start a worker on a host."""
        host = self.hosts[name]
        arguments = ["worker.Worker", "--host", host.address, "--port", "0", "--webui-port", "0"]
        arguments += ["--cores", str(self._cores), "--memory", "2g", "--work-dir", str(host.folder / "work"), self.url]
        local = host.folder / "local"
        local.mkdir(exist_ok=True)
        options = f"{quick_java()} {DAEMON_JAVA}"
        self._daemon(host, "worker", arguments, SPARK_WORKER_OPTS=options, SPARK_LOCAL_DIRS=str(local))

    def _daemon(self, host: Host, name: str, arguments: list[str], **env: str) -> None:
        start = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{arguments[0]}", *arguments[1:]]
        settings = {"SPARK_HOME": str(SPARK_HOME), "SPARK_DAEMON_MEMORY": "256m", **env}
        host.start(start, host.folder / f"{name}.log", host.folder, settings)

    def start_other_master(self, **settings: str) -> str:
        """Start a master without workers on the driver's host; return its URL when it listens."""
        host, port = self.hosts["driver"], _free_port()
        options = " ".join(f"-D{name}={value}" for name, value in settings.items())
        arguments = ["master.Master", "--host", host.address, "--port", str(port), "--webui-port", "0"]
        self._daemon(host, "other-master", arguments, SPARK_MASTER_OPTS=f"{quick_java()} {DAEMON_JAVA} {options}")
        log = host.folder / "other-master.log"
        wait_until(lambda: f"on port {port}." in log.read_text(), "the other master listens")
        return f"spark://{host.address}:{port}"

    def dagflow(self, cwd: Path, *arguments: str, **env: str) -> subprocess.Popen[bytes]:
        """Start `dagflow run --master` on the driver's host; its output goes to run.log."""
        host = self.hosts["driver"]
        root = str(Path(__file__).parents[2])
        settings = {
            "spark.driver.host": host.address,
            "spark.driver.bindAddress": host.address,
            "spark.driver.extraJavaOptions": quick_java(),
            "spark.executor.extraJavaOptions": quick_java(),
            "spark.executor.memory": "512m",
            "spark.network.timeout": "8s",
            "spark.network.timeoutInterval": "2s",
        }
        given = [argument.partition("=")[0] for argument in arguments]
        conf = [f"--conf={key}={value}" for key, value in settings.items() if key not in given]
        python_path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        return host.start(
            [sys.executable, "-m", "dagflow", "run", "app.yaml", "--master", self.url, *conf, *arguments],
            cwd / "run.log",
            cwd,
            {"PYTHONPATH": python_path, "PYSPARK_PYTHON": self.python, **env},
        )

    def kill(self, pattern: str) -> int:
        """Kill matching processes on the first worker's host that has some; return their number."""
        for name in WORKERS:
            pids = self.hosts[name].pids(pattern)
            if pids:
                self.hosts[name].signal(pids, signal.SIGKILL)
                return len(pids)
        return 0

    def busy_host(self) -> str:
        """Return a worker's host that has an executor, or else the first host."""
        return next((name for name in WORKERS if self.hosts[name].executors()), WORKERS[0])

    def mend(self) -> None:
        """Repair what a test has broken, and end what it has started."""
        before, lost = self.registered(), 0
        for name in WORKERS:
            host = self.hosts[name]
            if self.has_network:
                self.heal(name)
            if not host.pids(r"worker\.Worker"):
                host.destroy()
                self.start_worker(name)
                lost += 1
        if not self.hosts["master"].pids(r"master\.Master"):
            self.hosts["master"].destroy()
            self.start_master()
        wait_until(lambda: self.registered() >= before + lost, "the workers are back")

    # The network

    def _make_network(self) -> None:
        """Connect the hosts by a bridge in the master's namespace, which the machine itself does not see."""
        hub = self.hosts["master"].namespace
        for host in self.hosts.values():
            _ip("netns", "add", str(host.namespace))
            _ip("-n", str(host.namespace), "link", "set", "lo", "up")
        _ip("-n", str(hub), "link", "add", "hub", "type", "bridge")
        _ip("-n", str(hub), "addr", "add", f"{self.hosts['master'].address}/24", "dev", "hub")
        _ip("-n", str(hub), "link", "set", "hub", "up")
        for host in self.hosts.values():
            if host.namespace != hub:
                plug = f"to-{host.name}"
                end = ["peer", "name", "eth0", "netns", str(host.namespace)]
                _ip("-n", str(hub), "link", "add", plug, "type", "veth", *end)
                _ip("-n", str(hub), "link", "set", plug, "master", "hub", "up")
                _ip("-n", str(host.namespace), "addr", "add", f"{host.address}/24", "dev", "eth0")
                _ip("-n", str(host.namespace), "link", "set", "eth0", "up")

    def cut(self, name: str) -> None:
        """Take a host off the network; its processes continue."""
        _ip("-n", str(self.hosts[name].namespace), "link", "set", "eth0", "down")

    def heal(self, name: str) -> None:
        """Put a host back on the network."""
        _ip("-n", str(self.hosts[name].namespace), "link", "set", "eth0", "up")

    def destroy(self) -> None:
        """End all processes, and remove the network."""
        for host in self.hosts.values():
            host.destroy()
            if host.namespace is not None:
                subprocess.run(["ip", "netns", "del", host.namespace], capture_output=True, check=False)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
