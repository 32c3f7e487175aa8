"""What docs/spark.md says of Kubernetes is what Spark and its operator take."""

from __future__ import annotations

import http.server
import json
import os
import re
import shlex
import subprocess
import threading
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # its stubs are a package that nothing else needs
import pytest
import yaml

PAGE = (Path(__file__).parents[2] / "docs" / "spark.md").read_text("utf-8")
SCHEMA = Path(__file__).parent / "spark_operator" / "SparkApplication.json"
DRIVER = ["local:///opt/app/job.py", "run", "/opt/app/app.yaml"]


def closed(schema: Any) -> Any:
    """The schema without properties that it does not name: Kubernetes would drop them."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    is_whole = isinstance(schema.get("properties"), dict)
    return {name: closed(part) for name, part in schema.items()} | ({"additionalProperties": False} if is_whole else {})


def problems(manifest: Any) -> list[str]:
    """What the operator's schema has against a manifest."""
    checked = jsonschema.Draft202012Validator(closed(json.loads(SCHEMA.read_text())))
    return [error.message for error in checked.iter_errors(manifest)]


def test_the_manifest_is_what_the_operator_takes() -> None:
    """Its schema finds misspelt names, wrong types and what is missing; this manifest has none of these."""
    manifest = yaml.safe_load(next(text for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.S) if "kind:" in text))
    assert problems(manifest) == []
    assert [manifest["spec"]["mainApplicationFile"], *manifest["spec"]["arguments"]] == DRIVER
    del manifest["spec"]["sparkVersion"]
    manifest["spec"]["driver"]["volumeMount"] = []
    manifest["spec"]["executor"]["cores"] = "2"
    assert len(problems(manifest)) == 3


class Kubernetes(http.server.BaseHTTPRequestHandler):
    """Stands for Kubernetes: takes in what is made there."""

    made: dict[str, Any]

    def do_GET(self) -> None:
        """Nothing is there."""
        self._answer(404, {"kind": "Status", "code": 404})

    def do_POST(self) -> None:
        """Make an object."""
        value = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.made[value["kind"]] = value
        self._answer(201, {**value, "metadata": {**value["metadata"], "uid": "1", "resourceVersion": "1"}})

    do_PATCH = do_POST

    def _answer(self, code: int, value: Any) -> None:
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(value).encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


@pytest.mark.spark
@pytest.mark.nightly
def test_the_command_makes_the_pod_of_the_driver() -> None:
    """With the image, the account, the claim and the arguments of the page."""
    made: dict[str, Any] = {}
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Server", (Kubernetes,), {"made": made}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    import pyspark

    home = Path(pyspark.__file__).parent
    command = shlex.split(re.findall(r"spark-submit (--master k8s.*?)\n```", PAGE, re.S)[0].replace("\\\n", " "))
    command[1] = f"k8s://http://127.0.0.1:{server.server_address[1]}"
    options = ["--conf", "spark.kubernetes.submission.waitAppCompletion=false", *command]
    submit = [str(home / "bin" / "spark-submit"), *options]
    try:
        subprocess.run(submit, check=True, capture_output=True, env={**os.environ, "SPARK_HOME": str(home)})
    finally:
        server.shutdown()
        server.server_close()
    pod = made["Pod"]["spec"]
    (container,) = pod["containers"]
    assert container["args"][-3:] == DRIVER
    assert container["image"] == "registry/spark-dagflow:1"
    assert pod["serviceAccountName"] == "spark"
    assert "/data" in [mount["mountPath"] for mount in container["volumeMounts"]]
    claims = [volume["persistentVolumeClaim"]["claimName"] for volume in pod["volumes"] if volume["name"] == "data"]
    assert claims == ["dagflow"]
