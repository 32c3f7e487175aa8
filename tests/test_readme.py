"""What README and docs say holds."""

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import dagflow
from dagflow.api.properties import property_model
from dagflow.plan.load import load_app

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(language: str, containing: str) -> str:
    """Return the one code block of README in a language that contains a text."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    found: list[str] = [text for text in blocks if containing in text]
    assert len(found) == 1
    return found[0]


def class_of(source: str) -> str:
    """Return the first class of a source, without the docstrings of its methods."""
    (node,) = (node for node in ast.parse(source).body if isinstance(node, ast.ClassDef))
    for method in node.body:
        if isinstance(method, ast.FunctionDef) and ast.get_docstring(method):
            del method.body[0]
    return ast.unparse(node)


def properties_of(operator: Any) -> dict[str, Any]:
    """All properties of an operator but its format, whose instances are not compared."""
    return {name: getattr(operator, name) for name in property_model(type(operator)).model_fields if name != "format"}


def test_the_app_in_readme_is_the_one_that_runs(tmp_path: Path) -> None:
    """README shows apps/block_reader.yaml in steps, in at most 12 lines, without what only says the default."""
    text = block("yaml", "block-reader")
    (tmp_path / "app.yaml").write_text(text, encoding="utf-8")
    shown, real = load_app(tmp_path / "app.yaml"), load_app(ROOT / "apps" / "block_reader.yaml")
    assert len(text.splitlines()) <= 12
    assert shown.name == real.name and shown.attributes.checkpoint == real.attributes.checkpoint
    for one, other in zip(shown.operators.values(), real.operators.values(), strict=True):
        assert type(one.operator) is type(other.operator) and one.partition == other.partition
        assert all(getattr(other.operator, name) == value for name, value in properties_of(one.operator).items())
    assert [(edge.source.port, edge.target.port) for edge in shown.edges] == [
        (edge.source.port, edge.target.port) for edge in real.edges
    ]


def test_the_operator_in_readme_is_the_one_that_runs() -> None:
    """README shows the operator of apps/drop_comments.py."""
    real = (ROOT / "apps" / "drop_comments.py").read_text(encoding="utf-8")
    assert class_of(block("python", "class DropComments")) == class_of(real)


def test_the_test_in_readme_passes() -> None:
    """The test of the operator in README passes."""
    code = block("python", "class DropComments") + block("python", "run_operator")
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_the_picture_in_readme_is_the_plan_of_its_app() -> None:
    """`dagflow plan apps/block_reader.yaml --format svg` draws docs/block_reader.svg."""
    command = [sys.executable, "-m", "dagflow", "plan", "apps/block_reader.yaml", "--format", "svg"]
    drawn = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    assert drawn == (ROOT / "docs" / "block_reader.svg").read_text(encoding="utf-8")


def test_every_file_that_the_documents_name_is_there() -> None:
    """Links and paths in the documents exist."""
    packages = Path(dagflow.__file__).parent.parent  # as installed
    for document in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]:
        text = document.read_text(encoding="utf-8")
        named = [document.parent / link for link in re.findall(r"\]\((?!https?:)([^)#]+)", text)]
        named += [ROOT / path for path in re.findall(r"`((?:apps|data|docs|tests|benchmarks)/[\w./-]+)`", text)]
        named += [packages / path for path in re.findall(r"`((?:dagflow|operators)/[\w./-]+)`", text)]
        assert [path for path in named if not path.exists()] == [], document


def test_every_heading_that_the_documents_link_to_is_there() -> None:
    """A link to a section leads to a heading of that page."""
    for document in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]:
        for page, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", document.read_text(encoding="utf-8")):
            target = document.parent / page if page else document
            headings = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
            assert anchor in anchors, f"{document}: {page}#{anchor}"


def test_the_glossary_holds_at_most_forty_words() -> None:
    """The project speaks the language of Spark, Flink, Kafka and Arrow, and adds little of its own."""
    rows = re.findall(r"^\| (\w[^|]*) \|", (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) - 1 <= 40  # a heading is no word
    assert rows[1:] == sorted(rows[1:])


def test_benchmarks_are_started_as_modules() -> None:
    """Benchmarks import each other, which a script cannot do."""
    texts = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.py")]
    found = {path.name for path in texts if re.search(r"python3? benchmarks/|, __file__", path.read_text("utf-8"))}
    assert found == set()
