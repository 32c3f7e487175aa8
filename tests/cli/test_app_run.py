"""Command lines that messages name."""

from __future__ import annotations

import shlex

from hypothesis import given
from hypothesis import strategies as st

from dagflow.cli.app_run import replay_command, resume_command
from dagflow.engine.run_setup import RunOptions


def test_the_command_repeats_what_was_typed_without_fresh() -> None:
    """Starting over once more would throw away what is to be continued."""
    options = RunOptions(
        checkpoint="out/my journal", master="local[2]", conf={"spark.ui.enabled": "true"}, follow=True, fresh=True
    )
    assert resume_command("a b.yaml", ["reader.max_readers=4"], options) == (
        "dagflow run 'a b.yaml' --set reader.max_readers=4"
        " --master 'local[2]' --conf spark.ui.enabled=true --checkpoint 'out/my journal' --follow"
    )


def test_no_secret_is_repeated() -> None:
    """What was typed on a command line ends in a log otherwise."""
    options = RunOptions(checkpoint="s3://key:hush@bucket/j", conf={"spark.hadoop.fs.s3a.secret.key": "hush"})
    command = resume_command("a.yaml", ["source.password=hush", "source.url=redis://u:hush@h/0"], options)
    assert "hush" not in command
    assert "--set 'source.password=***'" in command
    words = ["source.dsn=host=db pw=hush", "source.passphrase=hush", "source.headers={X-Api-Key: hush}"]
    words += ["source.dsn=jdbc:redis://u:hush@h/0", "source.note=see https://u:hush@h"]
    assert "hush" not in resume_command("a.yaml", words, RunOptions())


def test_what_is_no_secret_stays_in_the_command() -> None:
    """Names of operators, columns that are keys, and switches hold no secrets: the command works when it is pasted."""
    options = RunOptions(conf={"spark.authenticate": "true"})
    command = resume_command("a.yaml", ["token_filter.keep=a", "dedupe.key=id"], options)
    assert command == "dagflow run a.yaml --set token_filter.keep=a --set dedupe.key=id --conf spark.authenticate=true"


@given(st.text(min_size=1), st.lists(st.text(alphabet="ab.=' \"\n$", min_size=1)))
def test_a_shell_reads_the_command_back(app: str, values: list[str]) -> None:
    """Whatever the names hold, the command can be pasted."""
    overrides = [f"op.name={value}" for value in values]
    words = shlex.split(resume_command(app, overrides, RunOptions()))
    assert words[:3] == ["dagflow", "run", app]
    assert words[4::2] == overrides


def test_a_replay_has_the_settings_of_its_run() -> None:
    """The checkpoint is the one that the run used; what only a run takes is left out."""
    options = RunOptions(checkpoint="out/my journal", master="local[2]", follow=True)
    expected = "dagflow replay 'out/my journal' --set reader.max_readers=4 --master 'local[2]'"
    assert replay_command("journal", ["reader.max_readers=4"], options) == expected
    assert replay_command("journal", [], RunOptions()) == "dagflow replay journal"
