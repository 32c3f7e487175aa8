"""The attribute `storage` of an app."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagflow.errors import SpecError
from dagflow.spec.app_spec import AppSpec
from tests.spec.apps import spec_of

APP = """\
name: x
attributes:
  storage: {storage}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: data}}}}
"""


def loaded(folder: Path, storage: str) -> AppSpec:
    """An app with these options."""
    (folder / "app.yaml").write_text(APP.format(storage=storage))
    return spec_of(folder / "app.yaml", environ={"KEY": "AKIAQ7ZJ", "DIGITS": "12345678"})


def test_options_are_read_by_protocol(tmp_path: Path) -> None:
    """Numbers stay numbers, but a credential of digits is a text."""
    spec = loaded(
        tmp_path, "{s3: {key: '${KEY}', secret: ${DIGITS}, max_concurrency: 4, client_kwargs: {verify: false}}}"
    )
    assert spec.attributes.storage == {
        "s3": {"key": "AKIAQ7ZJ", "secret": "12345678", "max_concurrency": 4, "client_kwargs": {"verify": False}}
    }


def test_no_credential_is_shown_wherever_it_came_from(tmp_path: Path) -> None:
    """From the environment it is shown by its name, from the file not at all."""
    spec = loaded(tmp_path, "{s3: {key: '${KEY}', secret: from-the-file}}")
    assert spec.redact("AKIAQ7ZJ from-the-file") == "${KEY} ***"
    assert "AKIAQ7ZJ" not in repr(spec) and "from-the-file" not in repr(spec)


def test_a_backend_of_the_authors_own_goes_to_the_executors(tmp_path: Path) -> None:
    """With what its module imports, for a scheme that nothing else knows."""
    imported = "from dagflow.storage.backends.fsspec import FsspecBackend as Base\nimport own_shelf_client\n"
    (tmp_path / "own_shelf.py").write_text(f"{imported}class Shelf(Base):\n    pass\n")
    (tmp_path / "own_shelf_client.py").write_text("")
    spec = loaded(tmp_path, "{shelf: {backend: own_shelf.Shelf}}")
    assert spec.user_modules() == [tmp_path / "own_shelf.py", tmp_path / "own_shelf_client.py"]


@pytest.mark.parametrize(
    ("storage", "complaint"),
    [
        ("{s33: {key: hidden}}", r"app.yaml:3:13: there is no protocol 's33'; did you mean 's3'\?"),
        ("{s3: hidden}", "options of protocol 's3': expected a mapping, got a single value"),
        ("[hidden]", "'storage': expected a mapping, got a list"),
        ("{shelf: {backend: no_shelf.Shelf}}", r":3:30: 'backend' of protocol 'shelf': there is no module 'no_shelf'"),
        ("{shelf: {backend: pathlib.Path}}", "'pathlib.Path' is not a storage backend; derive it from"),
        ("{shelf: {backend: [a]}}", "'backend' of protocol 'shelf': expected the dotted path of a class, such as"),
    ],
)
def test_what_is_no_options_is_said_with_its_place(tmp_path: Path, storage: str, complaint: str) -> None:
    """And without the value, which may be a credential."""
    with pytest.raises(SpecError, match=complaint) as caught:
        loaded(tmp_path, storage)
    assert "hidden" not in str(caught.value)
