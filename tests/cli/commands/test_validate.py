"""All mistakes of an app at once."""

from __future__ import annotations

from pathlib import Path

from tests.cli.commands.inspected_app import APP, folder, invoke

__all__ = ["folder"]


def test_a_valid_app_is_called_valid_on_stderr(folder: Path) -> None:
    """Validate has no result but its exit code."""
    assert invoke("validate", "app.yaml") == (0, "", "app.yaml: app 'sample' is valid: 4 operators, 3 streams\n")


def test_validate_reports_every_mistake_at_once(folder: Path) -> None:
    """Form, properties and wiring in one go, in file order, each at its place, those of --set as well."""
    (folder / "app.yaml").write_text(
        APP.replace("block_size", "blok_size").replace("reader.messages", "reader.mesages")
    )
    code, out, err = invoke("validate", "app.yaml", "--set", "reader.max_reders=3")
    assert (code, out) == (2, "")
    lines = [line for line in err.splitlines() if not line.startswith(" ")]
    assert [line.partition(": ")[0] for line in lines] == [
        "--set reader.max_reders",
        f"app.yaml:4:{APP.splitlines()[3].index('block_size') + 1}",
        "app.yaml:10:19",
    ]
    for near in ("max_readers", "block_size", "messages"):
        assert f"did you mean '{near}'?" in err


def test_an_app_that_is_not_there_is_a_mistake_on_the_command_line(folder: Path) -> None:
    """Exit code 2, and the name as it was typed."""
    code, out, err = invoke("validate", "ap.yaml")
    assert (code, out) == (2, "")
    assert err.startswith("ap.yaml: ")
