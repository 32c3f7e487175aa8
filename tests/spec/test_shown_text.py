"""What of an app file is shown and kept."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagflow.spec.shown_text import MOST_TEXT_BYTES, shown_value, shown_yaml, text_to_keep

MARK = "Zq"
"""It begins each part of a secret, and is nowhere else."""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("secret: abc", "secret: ***"),
        ("  aws_secret_access_key: 'a b'  # was c", "  aws_secret_access_key: ***  # ***"),
        ("password: ${PASSWORD}", "password: ${PASSWORD}"),
        ("storage: {s3: {token: abc, x: 1}}", "storage: {s3: {token: ***, x: 1}}"),
        ("uri: postgresql://me:pw@host/db", "uri: postgresql://***@host/db"),
        ("token_column: x", "token_column: ***"),
        ("path: out", "path: out"),
        ('password: "a,b#c}d"\nx: 1', "password: ***\nx: 1"),
        ("secret: >-\n  abc\n\n  def\nx: 1", "secret: ***\n  ***\n\n  ***\nx: 1"),
        ("secret: [abc,\n  def]\nx: 1", "secret: ***\n  ***\nx: 1"),
        ("secret:\n- abc\n- def\nx: 1", "secret:\n***\n***\nx: 1"),
        ("{password: {a}, x: [1, 2]}", "{password: ***, x: [1, 2]}"),
        (
            "{pass: a, passphrase: b, private_key: c, dbPass: d}",
            "{pass: *, passphrase: *, private_key: *, dbPass: *}".replace("*", "***"),
        ),
        ("storage: {sftp: {auth: a}, abfs: {sas: b}}", "storage: {sftp: {auth: ***}, abfs: {sas: ***}}"),
        ("storage: {s3: {own: [a, 1], host: [b], port: 2}}", "storage: {s3: {own: [***, 1], host: [b], port: 2}}"),
        ("storage: {s3: hunter2}", "storage: {s3: ***}"),
        ("storage: {s3: {key: 12345678}}", "storage: {s3: {key: ***}}"),
        ("key: customer\nkeys: [a]", "key: customer\nkeys: [a]"),
        ("spark.authenticate: true", "spark.authenticate: true"),
        ("password: null", "password: null"),
        ("{password: a,b, x: 1}", "{password: ***,***, x: 1}"),
    ],
)
def test_values_are_hidden_by_their_keys(text: str, shown: str) -> None:
    """In every style; under `storage` all but what says where a store is."""
    assert shown_yaml(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("secret: ${S:-hunter2}", "secret: ***"),
        ('secret: "${S}hunter2"', "secret: ***"),
        ("secret: $${S}", "secret: ***"),
        ("storage: {s3: {secret: '${S}', key: ${K:-a}}}", "storage: {s3: {secret: '${S}', key: ***}}"),
        ("path: ${STORE_SECRET:-hunter2}", "path: ***"),
        ("path: ${OUT:-out}", "path: ${OUT:-out}"),
        ('headers: {Authorization: "Bearer ${T}", X-Key: a}', 'headers: {Authorization: "Bearer ${T}", X-Key: ***}'),
        ('headers: {Authorization: "Bearer abc"}', "headers: {Authorization: ***}"),
    ],
)
def test_a_reference_stays_if_nothing_is_beside_it(text: str, shown: str) -> None:
    """A default, or text around it, may be the secret."""
    assert shown_yaml(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("uri: 'x ftp://me:p/w@d@host/a b@c'", "uri: 'x ftp://***@c'"),
        ("uri: abfs://box@account.dfs.core.windows.net/a", "uri: abfs://box@account.dfs.core.windows.net/a"),
        ("uri: https://host/a?code=b", "uri: https://host/a?***"),
        ("files: in/?.csv", "files: in/?.csv"),
        ('uri: "ftp://me:p\\u0077@host"', "uri: ***"),
        ("dsn: host=db password=hunter2", "dsn: ***"),
        ("command: [notify, --api-token, hunter2, now]", "command: [notify, --api-token, ***, now]"),
        ("command: notify --api-token hunter2", "command: ***"),
        ("alerts: {on: webhook, url: 'https://host/a'}", "alerts: {on: webhook, url: ***}"),
    ],
)
def test_secrets_within_values_are_hidden(text: str, shown: str) -> None:
    """Logins and queries of URLs, assignments, options of commands, and addresses that take no password."""
    assert shown_yaml(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("x: 1 # a remark", "x: 1 # a remark"),
        ("# secret: >-\n#   hunter2\n\n# more\nx: 1", "# ***\n#   ***\n\n# ***\nx: 1"),
        ("#key: AKIA", "#***"),
        ("password: #hunter2\nx: 1 # a remark", "password: #***\nx: 1 # a remark"),
        ("password: ${P} # was hunter2", "password: ${P} # ***"),
        ("password:\n  # hunter2\n  ${P}", "password:\n  # ***\n  ${P}"),
        ("a:\n  storage:\n    s3: {}\n#   s4: hunter2\nx: 1", "a:\n  storage:\n    s3: {}\n#   ***\nx: 1"),
        ("# ftp://me:hunter2@host", "# ***"),
        ("x: &a # password=a\n  b", "x: &a # ***\n  b"),
        ("x: 'a # token'", "x: 'a # token'"),
    ],
)
def test_comments_are_hidden_where_they_may_hold_a_secret(text: str, shown: str) -> None:
    """A comment that speaks of one with its neighbours, and each beside one or within `storage`."""
    assert shown_yaml(text) == shown


def test_names_of_operators_and_streams_reveal_nothing() -> None:
    """Their author chose them, and what they hold is shown."""
    text = "operators:\n  token_reader: {class: X, properties: {path: a}}\nstreams:\n  auth: {from: a, to: b}\n"
    assert shown_yaml(text) == text


def test_an_alias_hides_what_it_stands_for() -> None:
    """The value is hidden where it is written, in the place of every alias and merge."""
    text = "a: &a hunter2\nb: &b {unheard_of: hunter2, x: &x 1}\nstorage: {s3: {<<: *b, secret: *a}}\nc: *a\n"
    shown = "a: &a ***\nb: &b {unheard_of: ***, x: &x 1}\nstorage: {s3: {<<: *b, secret: *a}}\nc: *a\n"
    assert shown_yaml(text) == shown


@pytest.mark.parametrize("text", ["secret: 'a\nb: c\n", "a: *b\nx: hunter2", "a: \x00hunter2", "a: [hunter2"])
def test_a_text_that_is_not_yaml_is_hidden(text: str) -> None:
    """Nothing says where a value of it ends; the lines keep their numbers."""
    shown = shown_yaml(text)
    assert shown.replace("***", "").split() == []
    assert shown.count("\n") == text.count("\n")


def test_nesting_and_aliases_have_no_limits() -> None:
    """Neither deep nesting nor aliases of aliases keep a text from being shown."""
    deep = "a: " + "[" * 900 + "x" + "]" * 900
    bomb = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60))
    assert (shown_yaml(deep), shown_yaml(bomb)) == (deep, bomb)


def test_a_byte_order_mark_moves_nothing(tmp_path: Path) -> None:
    """Some editors write one."""
    (tmp_path / "app.yaml").write_text("\ufeffx: ä\nsecret: abc\ny: 1\n", encoding="utf-8")
    assert text_to_keep(str(tmp_path / "app.yaml")) == "x: ä\nsecret: ***\ny: 1\n"


def test_values_that_were_read_are_shown_as_in_the_text() -> None:
    """By the name of their setting, and by what is in them."""
    given = [("password", "abc"), ("password", "null"), ("path", "s3://me:abc@b/c"), ("own", "pw=abc"), ("path", "out")]
    assert [shown_value(*each) for each in given] == ["***", "null", "s3://***@b/c", "***", "out"]


def test_no_text_is_kept_of_a_file_that_is_long_or_gone(tmp_path: Path) -> None:
    """The journal's snapshots would all hold it."""
    (tmp_path / "app.yaml").write_text("#" * (MOST_TEXT_BYTES + 1))
    assert [text_to_keep(str(tmp_path / name)) for name in ("app.yaml", "none.yaml")] == ["", ""]
    assert text_to_keep("") == ""


PARTS = st.lists(st.sampled_from(f" ,#:'\"}}{{][&*!|>%@\\-=$?ä/{MARK[0]}"), max_size=3).map("".join)
SECRETS = st.lists(PARTS, min_size=1, max_size=4).map(
    lambda parts: "".join(f"{MARK}{n}{p}" for n, p in enumerate(parts))
)
LINES = st.lists(SECRETS, min_size=1, max_size=3)
COMMENTS = st.sampled_from(["", f"  # {MARK}"])


def single(lines: list[str]) -> str:
    """In single quotes, folded."""
    return "'{}'".format("\n\n          ".join(lines).replace("'", "''"))


def double(lines: list[str]) -> str:
    """In double quotes, with continued lines."""
    return '"{}"'.format("\\n\\\n          ".join(json.dumps(line)[1:-1] for line in lines))


def plain(lines: list[str]) -> str:
    """Without quotes, of what may stand so anywhere."""
    return "\n          ".join(re.sub(r"[^\w=$/ä-]", "", line) for line in lines)


@st.composite
def block(draw: st.DrawFn) -> str:
    """As a literal or a folded block, with or without a comment in its first line."""
    header = draw(st.sampled_from(["|", ">", "|-", ">+", "|2"])) + draw(COMMENTS)
    indent = "        " if "2" in header else draw(st.sampled_from(["       ", "          "]))
    return header + "".join(f"\n{indent}{line}" for line in draw(LINES)) + draw(st.sampled_from(["", "\n", "\n\n"]))


QUOTED = st.one_of(LINES.map(single), LINES.map(double), LINES.map(plain))
FLOW = st.one_of(
    QUOTED,
    st.lists(QUOTED, min_size=1, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
    st.lists(QUOTED, min_size=1, max_size=3).map(lambda items: f"{{{', '.join(f'a: {item}' for item in items)}}}"),
    QUOTED.map(lambda text: f"!!str {text}"),
    QUOTED.map(lambda text: f"{{? {text}}}"),
)
BLOCK = st.one_of(
    FLOW,
    block(),
    st.lists(FLOW, min_size=1, max_size=3).map(lambda items: "".join(f"\n      - {item}" for item in items)),
    st.lists(FLOW, min_size=1, max_size=3).map(
        lambda items: "".join(f"\n        a{n}: {x}" for n, x in enumerate(items))
    ),
)
NAMES = st.sampled_from(["secret", "key", "password", "sas", "auth", '"passphrase"', "private_key", "api-token"])
HEAD = """\
# a remark
name: &n sample
attributes:
  checkpoint: 'out # 1' # another
  storage:
    s3:
      anon: true
"""
TAIL = """\
operators: # all
  reader: {class: BlockReader, properties: {files: [a, 'b']}}
  text: |
    # x
    y
"""


def require_hidden(before: str, secret: str, after: str) -> None:
    """Only the secret is another, in as many lines."""
    shown = shown_yaml(before + secret + after)
    assert shown.startswith(before) and shown.endswith(after)
    middle = shown[len(before) : len(shown) - len(after)]
    assert re.fullmatch(r"(?:&a )?[\s*#]*", middle)
    assert middle.count("\n") == secret.count("\n")


@given(NAMES, BLOCK, st.sampled_from(["", "&a "]))
def test_a_secret_is_hidden_in_every_block_style(name: str, secret: str, anchor: str) -> None:
    """Whatever its characters and lines are, and all else is as it was."""
    is_anchored = anchor and not secret.startswith(("\n", "!!"))
    use = "      again: *a\n" if is_anchored else ""
    require_hidden(
        f"{HEAD}      {name}: ", (anchor if is_anchored else "") + secret, f"\n{use}      anon: true\n{TAIL}"
    )


@given(NAMES, FLOW)
def test_a_secret_is_hidden_in_every_flow_style(name: str, secret: str) -> None:
    """Between other keys of the same line."""
    require_hidden(f"{HEAD}      kwargs: {{anon: true, {name}: ", secret, f", use_ssl: true}}\n{TAIL}")


@given(st.sampled_from(["secret", "password", "api_token"]), BLOCK)
def test_a_property_that_is_a_secret_is_hidden(name: str, secret: str) -> None:
    """Operators and sections of one's own hold secrets as well."""
    require_hidden(f"{TAIL}own:\n  list:\n    x:\n      {name}: ", secret, "\n      path: out\n")


@given(FLOW)
def test_a_secret_is_hidden_where_its_anchor_is(secret: str) -> None:
    """An alias elsewhere says that it is one."""
    after = f"\n{HEAD}      secret: *a\n{TAIL}"
    require_hidden("common:\n  pw: &a " if secret.startswith("!!") else "common:\n  other: &a ", secret, after)


@given(SECRETS)
def test_what_is_typed_without_quotes_is_hidden(typed: str) -> None:
    """Also where YAML takes a part of it for a comment, an anchor, a list, or for a mistake."""
    for start in (typed, typed[len(MARK) :]):
        shown = shown_yaml(f"{HEAD}      secret: {start}\n{TAIL}")
        assert MARK not in shown.removeprefix(HEAD)
