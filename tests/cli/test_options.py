"""Options that several commands share."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from dagflow.cli.options import conf_option, redaction, unknown


@click.command()
@conf_option
def show(conf: dict[str, str]) -> None:
    click.echo(sorted(conf.items()))


def test_spark_settings_are_split_at_the_first_equals_sign() -> None:
    """Values such as JVM options hold equals signs of their own; the last of two settings counts."""
    done = CliRunner().invoke(show, ["--conf", "a=-Dx=1", "--conf", " b =", "--conf", "a=2"])
    assert done.stdout == "[('a', '2'), ('b', '')]\n"


@pytest.mark.parametrize("value", ["", "spark.ui.enabled", "=true", " =true"])
def test_a_setting_without_key_or_value_is_refused(value: str) -> None:
    """A forgotten equals sign is no setting."""
    done = CliRunner().invoke(show, ["--conf", value])
    assert done.exit_code == 2
    assert "is not KEY=VALUE" in done.stderr


def test_an_unknown_name_gets_the_nearest_one_or_all() -> None:
    """A slip of the finger is put right, a guess is answered with the choice."""
    assert unknown("operator", "BlokReader", ["BlockReader", "RecordFilter"]).endswith("did you mean 'BlockReader'?")
    assert unknown("operator", "x", ["BlockReader", "RecordFilter"]).endswith("there are: BlockReader, RecordFilter")


def test_values_from_the_environment_are_shown_as_their_references() -> None:
    """The longest value first, because one may hold another; digits are left alone."""
    redact = redaction({"hush": "${A}", "hush-hush": "${B}", "8": "${N}"})
    assert redact("hush-hush failed 8 times: hush") == "${B} failed 8 times: ${A}"
