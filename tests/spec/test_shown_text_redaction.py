"""Values of the environment are shown as their references, however they are written."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Mapping
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagflow.secret_names import HIDDEN
from dagflow.spec.shown_text import Redactor, redact

SECRET = "hunter2-Tr0ub4dor"
ODD = "pw\\SeCr'Et\"é&\n-next"

WRITTEN: list[Callable[[str], str]] = [
    str,
    repr,
    ascii,
    json.dumps,
    lambda value: json.dumps(value, ensure_ascii=False),
    lambda value: repr(value.encode()),
    lambda value: repr({"k": value}),
    lambda value: repr(RuntimeError(repr({"k": value}))),
    lambda value: repr([f"'{value}'", f'"{value}"']),
    lambda value: json.dumps({"m": repr(value)}),
    quote,
    quote_plus,
    lambda value: quote(value, safe=""),
    html.escape,
]


def test_a_text_that_quotes_a_part_of_a_value_is_withheld() -> None:
    """A reason that shows four characters in a row of a secret is not shown."""
    assert redact("bad user 'hunter'", [(SECRET, "${S}")]) == (
        "the value is refused; the reason is withheld because it quotes ${S}"
    )
    assert redact("no such host", [(SECRET, "${S}")]) == "no such host"


@pytest.mark.parametrize("written", WRITTEN)
@given(value=st.text(st.characters(exclude_categories=["Cs"]), min_size=4, max_size=12))
def test_a_value_is_found_in_whatever_writes_it(written: Callable[[str], str], value: str) -> None:
    """Messages hold objects as Python, JSON, URLs and HTML write them."""
    assert _bare(Redactor({value: "REFERENCE"})(written(value))) == _bare(written("REFERENCE"))


def _bare(text: str) -> str:
    """The text without the quotes that its writer chose around the value."""
    return re.sub(r"[\\'\"]", "", text)


@pytest.mark.parametrize("written", WRITTEN)
def test_no_line_of_an_odd_value_is_left(written: Callable[[str], str]) -> None:
    """Quotes, backslashes and ends of lines hide nothing."""
    shown = Redactor({ODD: "${ODD}"})(f"login with {written(ODD)}")
    assert "${ODD}" in shown and "SeCr" not in shown and "next" not in shown
    assert "SeCr" not in redact(f"login with {written(ODD)}", [(ODD, "${ODD}")])


def test_values_from_the_environment_are_shown_as_their_references() -> None:
    """The longest value first, because one may hold another; digits are left alone."""
    redact = Redactor({"hush": "${A}", "hush-hush": "${B}", "8": "${N}"})
    assert redact("hush-hush failed 8 times: hush") == "${B} failed 8 times: ${A}"


@pytest.mark.parametrize("redacted", [lambda text, given: Redactor(given)(text), lambda t, g: redact(t, g.items())])
def test_a_word_is_replaced_where_it_is_no_part_of_another(
    redacted: Callable[[str, Mapping[str, str]], str],
) -> None:
    """A mode, a directory and a year have the letters and digits of many words and numbers."""
    given = {"part": "${T}", "2026": "${YEAR}"}
    text = "operator 'reader' partition 1 of 120260 bytes: /in/part/2026/part_1.log, party; Part"
    shown = "operator 'reader' partition 1 of 120260 bytes: /in/${T}/${YEAR}/${T}_1.log, party; Part"
    assert redacted(text, given) == shown


@pytest.mark.parametrize("reference", ["${DB_PASSWORD}", "***"])
def test_a_credential_is_replaced_also_within_words(reference: str) -> None:
    """Whatever its letters are: a program may have put others beside it."""
    assert Redactor({"party": reference})("at thirdparty") == f"at third{reference}"
    assert redact("at thirdparty", [("party", reference)]) == f"at third{reference}"


@pytest.mark.parametrize("value", ["hunter2", "hUnter", "hunterhunterhunter", "hunt-er"])
def test_what_is_no_plain_word_is_replaced_within_words(value: str) -> None:
    """A credential whose variable does not say that it is one mixes characters, or is long."""
    assert Redactor({value: "${X}"})(f"x{value}x") == redact(f"x{value}x", [(value, "${X}")]) == "x${X}x"


def test_a_word_is_replaced_behind_an_escaped_character() -> None:
    """The letters that end it belong to no word."""
    texts = [
        r"a\nsesame",
        "in%2Fsesame",
        "in%2fsesame",
        r"\xe9sesame",
        r"\u20acsesame",
        r"\U0001f600sesame",
        "é sesame",
        "&amp;sesame",
    ]
    redact = Redactor({"sesame": "${X}"})
    assert [redact(text) for text in texts] == [text.replace("sesame", "${X}") for text in texts]


def test_a_part_of_a_word_is_a_quote_where_it_stands_alone() -> None:
    """A reason may be cut off anywhere."""
    assert "withheld" in redact("not 'sesa...'", [("sesame", "${X}")])
    assert redact("a sesamoid bone", [("sesame", "${X}")]) == "a sesamoid bone"


def test_a_part_is_replaced_only_of_what_is_named_a_credential() -> None:
    """Six characters in a row of what a name says is a credential; directories share more with each other."""
    redact = Redactor({SECRET: "${DB_PASSWORD}", "/data/logs/web": "${LOGS}"})
    assert redact("refused: hunter2-Tr0u... of user hunter") == "refused: ${DB_PASSWORD}... of user ${DB_PASSWORD}"
    assert redact("hunt for /data/logs/app in /data/logs/web/1") == "hunt for /data/logs/app in ${LOGS}/1"


def test_a_name_with_such_letters_is_no_credential() -> None:
    """A column that is a key, an author and Kansas are none."""
    redact = Redactor({"customer_id": "${KEY_COLUMN}", "Jane Austen": "${AUTHOR}", "/data/kansas": "${KANSAS_DIR}"})
    assert redact("customer_name by Austen in /data/iowa") == "customer_name by Austen in /data/iowa"
    assert redact("customer_id") == "${KEY_COLUMN}"


@pytest.mark.parametrize("date", ["2026-11-22", "20261122", "2026/11", "2026-11-22T05:00Z"])
def test_a_date_is_no_secret_unless_its_name_says_so(date: str) -> None:
    """A message about the input of a day says which day it is; other numbers and words stay hidden."""
    assert Redactor({date: "${DAY}"})(f"in/{date}") == redact(f"in/{date}", [(date, "${DAY}")]) == f"in/{date}"
    assert Redactor({date: "${DB_PASSWORD}"})(f"in/{date}") == "in/${DB_PASSWORD}"
    assert Redactor({date: HIDDEN})(f"in/{date}") == f"in/{HIDDEN}"
    assert Redactor({f"7{date}": "${DAY}"})(f"in/7{date}") == "in/${DAY}"


def test_a_key_is_hidden_line_by_line() -> None:
    """Each line that code prints becomes a message of its own."""
    redact = Redactor({"-----BEGIN-----\nMIISeCrEtAAAA\nQQ==\n": "${PEM}"})
    assert [redact(line) for line in ("-----BEGIN-----", "> MIISeCrEtAAAA", "QQ==")] == ["${PEM}", "> ${PEM}", "QQ=="]


def test_a_document_keeps_what_only_shares_a_part_with_a_credential() -> None:
    """A page holds scripts, which a replaced part would break."""
    redact = Redactor({"document-store": "${DB_PASSWORD}"})
    assert redact.without_values("document.body document-store") == "document.body ${DB_PASSWORD}"
