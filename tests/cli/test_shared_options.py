"""Options that several commands share."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from dagflow.cli.shared_options import Seconds, conf_option, master_option, unknown


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


def test_a_master_among_the_settings_of_spark_is_refused() -> None:
    """It would be ignored, as the run has its master before Spark reads settings."""
    done = CliRunner().invoke(show, ["--conf", " spark.master =spark://far:7077"])
    assert done.exit_code == 2
    assert "it takes no spark.master; give the master with --master" in done.stderr


@click.command()
@click.option("--wait", type=Seconds())
def wait(wait: float) -> None:
    click.echo(wait)


@pytest.mark.parametrize(
    ("value", "code"), [("0", 0), ("1.5", 0), ("nan", 2), ("inf", 2), ("-inf", 2), ("1e306", 2), ("-1", 2), ("x", 2)]
)
def test_a_number_of_seconds_is_finite(value: str, code: int) -> None:
    """What no clock can count is a mistake on the command line."""
    assert CliRunner().invoke(wait, ["--wait", value]).exit_code == code


@click.command()
@master_option
def connect(master: str | None) -> None:
    click.echo(master)


@pytest.mark.parametrize("master", ["local", "local[3]", "local[*]", "local[2, 4]", "local-cluster[2,1,1024]", "yarn"])
def test_a_master_that_spark_may_know_is_taken(master: str) -> None:
    """The master is used as it was given, also a URL that only Spark understands."""
    assert CliRunner().invoke(connect, ["--master", master]).stdout == f"{master}\n"


@pytest.mark.parametrize("master", ["local[0]", "local[*", "local[x]"])
def test_a_local_master_that_spark_does_not_know_is_refused(master: str) -> None:
    """Before Spark is started."""
    done = CliRunner().invoke(connect, ["--master", master])
    assert done.exit_code == 2
    assert f"expected a Spark master, such as local[4], local[*] or spark://host:7077, got '{master}'" in done.stderr


def test_an_unknown_name_gets_the_nearest_one_or_all() -> None:
    """A slip of the finger is put right, a guess is answered with the choice."""
    assert unknown("operator", "BlokReader", ["BlockReader", "RecordFilter"]).endswith("did you mean 'BlockReader'?")
    assert unknown("operator", "x", ["BlockReader", "RecordFilter"]).endswith("there are: BlockReader, RecordFilter")
