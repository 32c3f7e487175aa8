"""What `dagflow init` proposes for files with titles, stray quotes, stack traces and bad values."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from dagflow.cli.scaffold.format_guess import FormatGuess, guess_format
from tests.cli.commands.inspected_app import invoke


def guess(text: str) -> FormatGuess:
    """The format of a file with this text."""
    return guess_format(text.encode(), is_whole=True)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ('1\t"hello\tx\n2\tworld"\ty\n3\tz\tw\n', {"delimiter": "\t", "quote": "none", "header": False}),
        ('1\t5" pipe\n2\t6"\n3\t"so" he said\n', {"delimiter": "\t", "quote": "none", "header": False}),
        ('id,note\n1,"a" b\n2,"c, d"\n3,"e"\n', {"stray_quotes": "keep"}),
        ('id,note\n1,"a"\n2,"b"\n', {}),
        ("id,note\n1,'a, b'\n2,'it''s'\n", {"quote": "'"}),
        ("id,note\n1,it's\n2,'tis\n", {}),
        ('id,note\n1,"a\nb, c"\n2,"d"\n', {}),
        ('id,a\n1,"John, Doe\n2,"Bob"\n' + '3,"x, y"\n' * 40, {}),
    ],
)
def test_files_with_stray_quotes_are_read_as_they_were_meant(text: str, options: dict[str, Any]) -> None:
    """Without quoting where each line is whole without it, as Excel does where each line is whole so."""
    found = guess(text)
    assert (found.name, dict(found.options)) == ("csv", options)


@pytest.mark.parametrize("title", ["Report of March\n", "Report, of March\n\n", "Sales\nby region\n\n"])
def test_titles_above_the_header_are_passed_over(title: str) -> None:
    """Empty lines are never counted."""
    found = guess(f"{title}id,name,n\n1,x,2\n2,y,3\n")
    assert (found.name, dict(found.options)) == ("csv", {"skip_header": len(title.strip().splitlines())})
    assert [column.name for column in found.columns] == ["id", "name", "n"]
    assert guess("Dear John\nhello, world\nand, so\non, and on\n").name == "lines"


def test_a_line_that_is_no_json_makes_no_document_of_many_objects() -> None:
    """It is refused; a document over several lines is one still."""
    found = guess('{"a":1}\n' * 50 + "garbage\n")
    assert (found.name, found.evidence[0]) == (
        "json_lines",
        "50 of 51 lines are JSON objects, and the others are refused",
    )
    assert guess('{\n  "a": 1\n}\n').name == "whole_file"


TIMES = {
    "syslog": "Jan  5 10:01:02 host sshd[1]: x",
    "syslog with a priority": "<34>Oct 11 22:14:15 host su: x",
    "syslog of RFC 5424": "<34>1 2003-10-11T22:14:15.003Z host app - - x",
    "Apache's errors": "[Wed Oct 11 14:32:52.123456 2000] [error] x",
    "Apache's requests": '127.0.0.1 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 1',
    "nginx's errors": "2024/01/05 10:00:00 [error] 1#1: x",
    "Spark": "24/01/05 10:00:00 INFO SparkContext: x",
    "Android": "01-05 10:01:02.123  1234  1234 E Tag: x",
    "glog": "E0105 10:01:02.123456 1 a.cc:1] x",
    "Tomcat": "05-Jan-2024 10:00:00.123 SEVERE [main] x",
    "java.util.logging": "Jan 05, 2024 10:00:00 AM a.B c",
    "logback": "10:01:02.123 [main] ERROR x",
    "a level first": "ERROR 2024-01-05 10:00:00,123 x",
    "a level in brackets": "[ERROR] [2024-01-05T10:00:00Z] x",
    "Python": "2024-01-05 10:00:00,123 ERROR x",
}


@pytest.mark.parametrize("line", TIMES.values(), ids=list(TIMES))
def test_stack_traces_belong_to_the_line_with_a_time_before_them(line: str) -> None:
    """Whatever program has written the time; lines alone have columns where their form is known."""
    trace = "java.lang.Error: a, b\n\tat a.B(C.java:1)\nCaused by: x\n"
    found = guess(f"{line}\n{trace}{line}\n{line}\n{trace}")
    assert found.name == "regex"
    assert re.match(found.options["pattern"], line)
    alone = guess(f"{line}\n{line}\n")
    assert alone.name == "lines" or alone.has_columns


def test_lines_with_as_many_fields_each_are_not_said_to_be_uneven() -> None:
    """`3 to 3 fields` says nothing."""
    assert not any("3 to 3" in line for line in guess("a b, c, d\n").evidence)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_a_mark_names_the_encoding(encoding: str) -> None:
    """A file in it is no binary one."""
    found = guess_format("a,b\n1,2\n".encode(encoding), is_whole=True)
    assert (found.name, found.options) == ("csv", {"encoding": encoding})
    assert f"it is in {encoding}, by its byte order mark" in found.evidence


def test_one_bad_value_of_thousands_does_not_make_its_column_text(tmp_path: Path) -> None:
    """The type of the others is proposed, and the row is a reject that init names; a few of a hundred make text."""
    rows = [f"{number},{number * 2}" for number in range(3000)]
    rows[1500] = "1500,late"
    (tmp_path / "a.csv").write_text("id,n\n" + "\n".join(rows) + "\n")
    (tmp_path / "b.csv").write_text("id,n\n" + "1,2\n" * 50 + "2,late\n" * 2)
    with contextlib.chdir(tmp_path):
        code, out, err = invoke("init", "x", "--from", "a.csv")
        assert (code, out.splitlines()[-1]) == (0, "    n: int64")
        assert "warning: a.csv: 1 record refused, such as: column 'n' (int64): 'late' is no whole number" in err
        app = (tmp_path / "x" / "app.yaml").read_text()
        assert "n: int64   # such as 0; 1 of 3,000 values is refused: 'late'" in app
        assert yaml.safe_load(app)["steps"][1]["read"]["columns"]["n"] == "int64"
        assert invoke("init", "y", "--from", "b.csv")[1].splitlines()[-1] == "    n: string"


def test_one_bad_object_of_thousands_does_not_make_lines_of_text(tmp_path: Path) -> None:
    """Columns are found out all the same, and the object is a reject that init names."""
    rows = [json.dumps({"id": number, "n": number * 2}) for number in range(3000)]
    rows[1500] = '{"id": 1500, "n": "late"}'
    (tmp_path / "a.jsonl").write_text("\n".join(rows) + "\n")
    with contextlib.chdir(tmp_path):
        code, _, err = invoke("init", "x", "--from", "a.jsonl")
        assert (code, "warning: a.jsonl: 1 record refused, such as: column 'n' (int64, as inferred)" in err) == (
            0,
            True,
        )
        app = yaml.safe_load((tmp_path / "x" / "app.yaml").read_text())
        assert app["steps"][1]["read"] == {"type": "json_lines", "columns": "infer"}
