"""Runs an app in the kernel of a notebook, interrupts it, and runs it again; ends with an error where it should not.

python -m tests.runtime.notebook DIRECTORY, where the directory has the apps of test_spark_session.py.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any

from tests.cli.processes import PATIENCE_S

SESSION = """
from pathlib import Path
from pyspark.sql import SparkSession
from dagflow import App
from tests.runtime.test_spark_session import published, state_of

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.range(1).count()
before = state_of(spark.sparkContext)
"""
RUN = "result = App.load('first.yaml').run(); assert result.state == 'completed', result"
LEFT = """
assert state_of(spark.sparkContext) == before
assert spark.range(5).count() == 5
"""
AGAIN = """
Path("go").touch()
assert App.load("first.yaml").run(spark=spark).state == "completed"
assert published(Path("first")) == list(range(100))
assert App.load("second.yaml").run().state == "completed"
assert published(Path("second")) == list(range(100))
"""


def run_cells(folder: Path) -> None:
    """Run the cells one after the other; the second one is interrupted, as by the button of a notebook."""
    # Installed for this alone.
    import nbformat
    from jupyter_client.manager import KernelManager
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    cells = [nbformat.v4.new_code_cell(text) for text in (SESSION, RUN, LEFT, AGAIN, LEFT)]
    manager: Any = KernelManager(kernel_name="python3")
    client: Any = NotebookClient(
        nbformat.v4.new_notebook(cells=cells),
        km=manager,
        timeout=int(PATIENCE_S),
        resources={"metadata": {"path": str(folder)}},
    )

    def interrupt() -> None:
        while not (folder / "begun").exists():
            time.sleep(0.05)
        # Through the kernel's own signal, as the button does.
        manager.provisioner.process.send_signal(2)

    with client.setup_kernel():
        client.execute_cell(cells[0], 0)
        threading.Thread(target=interrupt, daemon=True).start()
        try:
            client.execute_cell(cells[1], 1)
        except CellExecutionError as error:
            assert error.ename == "KeyboardInterrupt", error
        else:
            raise AssertionError("the run was not interrupted")
        for number in (2, 3, 4):
            client.execute_cell(cells[number], number)


if __name__ == "__main__":
    run_cells(Path(sys.argv[1]))
