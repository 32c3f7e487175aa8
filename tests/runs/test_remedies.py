"""What errors about data and checkpoints advise: each is followed to the letter, and afterwards nothing is missing."""

from __future__ import annotations

import contextlib
import gzip
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from backports import zstd

from tests.runs.remedy_app import GOOD, RemedyApp, refusal

REJECTS = "\nrejects: rejects"


CHANGES = {
    "appended": ("old 1\n", "old 1\nnew 1\n", ["new 1", "old 1"]),
    "replaced": ("old 1\n", "new 1\n", ["new 1", "old 1"]),
    "truncated": ("old 1\nold 2\n", "new 1\n", ["new 1", "old 1", "old 2"]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_fails_a_run_is_read_as_the_error_says(app: RemedyApp, change: str) -> None:
    """What is there now is read, what was published stays, and no record comes twice."""
    old, new, expected = CHANGES[change]
    app.parts["splitter"] = f", on_change: {{{change}: fail}}"
    path = app.put("log", old)
    app.run()
    if change == "replaced":
        path.unlink()
    path.write_text(new)
    text = refusal(app.run, rf"it was {change} after it was read")
    app.parts["splitter"] = ""
    app.set_as_advised(text)
    assert app.records() == sorted([*GOOD, *expected])
    app.run()
    assert app.records() == sorted([*GOOD, *expected])


PACKED = gzip.compress(b"bad 1\nbad 2\n")
UNREADABLE = {
    "cut off": ("bad.gz", PACKED[:-9], PACKED),
    "damaged": ("bad.gz", PACKED[:10] + b"\xff" * 9 + PACKED[19:], PACKED),
    "of another kind": ("bad.gz", b"no archive", PACKED),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_a_file_that_is_left_out_stays_listed_until_it_is_read(app: RemedyApp, case: str) -> None:
    """The others are published; in every later status it is listed, and when it can be read it is not missing."""
    name, content, mended = UNREADABLE[case]
    path = app.put(name, content)
    text = refusal(app.run, r"on_error: skip on the reader leaves such files out, and lists them")
    app.set_as_advised(text)
    for _ in range(2):
        assert (app.records(), app.left_out()) == (GOOD, {name})
        app.run()
    path.unlink()
    app.put(name, mended)
    app.run()
    assert (app.records(), app.left_out()) == (sorted([*GOOD, "bad 1", "bad 2"]), set())


@pytest.mark.parametrize("splitter", ["", ", block_size: 4096"])
def test_a_cut_archive_that_grows_to_its_end_comes_once_and_whole(app: RemedyApp, splitter: str) -> None:
    """Until then each version that was cut is listed; then none of them."""
    lines = [f"{number} {random.Random(number).getrandbits(64)}" for number in range(2000)]
    packed = gzip.compress("\n".join(lines).encode())
    app.parts |= {"splitter": splitter, "reader": ", on_error: skip"}
    path = app.put("a.gz", packed[:9000])
    app.run()
    assert app.left_out_ends() == [9000]
    path.write_bytes(packed[:19_000])
    app.run()
    assert (app.left_out_ends(), app.records()) == ([9000, 19_000], GOOD)
    app.parts["reader"] = ""
    path.write_bytes(packed)
    app.run()
    assert (app.left_out_ends(), app.records()) == ([], sorted([*GOOD, *lines]))


@pytest.mark.parametrize("splitter", ["", ", block_size: 4096"])
def test_a_cut_archive_that_failed_a_run_is_read_when_it_has_grown(app: RemedyApp, splitter: str) -> None:
    """The window that failed runs again, with the file as it is by then."""
    lines = [f"{number} {random.Random(number).getrandbits(64)}" for number in range(2000)]
    packed = gzip.compress("\n".join(lines).encode())
    app.parts["splitter"] = splitter
    path = app.put("a.gz", packed[:9000])
    for size in (19_000, len(packed)):
        refusal(app.run, r"it ends in the middle of compressed data")
        path.write_bytes(packed[:size])
    for _ in range(2):
        app.run()
        assert (app.left_out(), app.records()) == (set(), sorted([*GOOD, *lines]))


def test_a_file_with_a_wrong_name_is_read_as_the_error_says(app: RemedyApp) -> None:
    """It is left out, and what it holds is not missing when it has a name that says so."""
    path = app.put("bad.gz", "bad 1\nbad 2\n")
    text = refusal(app.run, r"its name ends in \.gz, .* compression: none reads the bytes of all files as they are")
    app.set_as_advised(text)
    path.rename(path.with_suffix(".txt"))
    for _ in range(2):
        app.run()
        assert app.records() == sorted([*GOOD, "bad 1", "bad 2"])


def test_a_file_that_is_no_archive_is_read_as_it_is(app: RemedyApp) -> None:
    """The other remedy that the error names."""
    app.put("bad.gz", "bad 1\nbad 2\n")
    refusal(app.run, r"compression: none reads the bytes of all files as they are")
    app.parts["reader"] = ", compression: none"
    app.run()
    assert app.records() == sorted([*GOOD, "bad 1", "bad 2"])


def test_a_record_that_is_too_long_comes_with_a_larger_limit(app: RemedyApp) -> None:
    """The error names the limit; the window that failed runs again with it."""
    app.put("long", "a long record\n")
    app.parts["reader"] = ", format: {type: lines, max_record: 8}"
    refusal(app.run, r"raise max_record")
    app.parts["reader"] = ", format: {type: lines, max_record: 80}"
    app.run()
    assert app.records() == sorted([*GOOD, "a long record"])


def test_records_that_are_refused_are_taken_aside(app: RemedyApp) -> None:
    """First their directory, as the error says, then a limit of them that is too low: each line is in one place."""
    (app.folder / "in" / "good").unlink()
    app.put("table", "n\n1\nx\n2\ny\n")
    csv = ", format: {type: csv, columns: {n: int64}}"
    app.parts["reader"] = csv
    refusal(app.run, r"add `rejects: DIRECTORY` to the app, and run again")
    app.parts |= {"streams": REJECTS, "reader": f"{csv}, max_rejects: 1"}
    refusal(app.run, r"operator 'reader': 2 of 4 records were refused, and max_rejects is 1.* set it to null")
    assert app.records() == []
    app.parts["reader"] = f"{csv}, max_rejects: null"
    app.run()
    assert app.records() == ['{"n":1}', '{"n":2}']
    assert len(app.records("rejects")) == 2


def test_files_of_others_are_moved_away_and_not_removed(app: RemedyApp) -> None:
    """The error says where they are in the way."""
    (app.folder / "out").mkdir()
    (app.folder / "out" / "part-00000001-00000-0000.txt").write_text("mine")
    for path in (app.folder / "out").iterdir():
        text = refusal(app.run, r"files that this checkpoint did not publish.*or move them away")
        assert "remove" not in text
        path.rename(app.folder / "mine")
    app.run()
    assert (app.records(), Path("mine").read_text()) == (GOOD, "mine")


def test_a_project_that_was_moved_goes_on_where_it_was(
    app: RemedyApp, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A copy elsewhere would read its input again: the error says where everything must be."""
    app.run()
    elsewhere = RemedyApp(Path(shutil.copytree(app.folder, tmp_path_factory.mktemp("moved") / "project")))
    was = re.escape(str(app.folder / "out"))
    with contextlib.chdir(elsewhere.folder):
        refusal(elsewhere.run, rf"its own part-[-.\w]+ is in {was}\n.*move them away. If all was moved .*, put it back")
        shutil.rmtree(app.folder)
        elsewhere.folder.rename(app.folder)
    app.put("more", "more\n")
    app.run()
    assert app.records() == [*GOOD, "more"]


def damaged(app: RemedyApp) -> None:
    """Damage every object of the log and the snapshots."""
    for path in [*Path("journal/log").iterdir(), *Path("journal").glob("snap/*")]:
        data = bytearray(path.read_bytes())
        data[-1] ^= 0xFF
        path.write_bytes(data)


def test_a_damaged_journal_is_replaced_and_what_it_published_stays(app: RemedyApp) -> None:
    """With another checkpoint and another output everything is made anew."""
    app.run()
    damaged(app)
    refusal(app.run, r"start over with another checkpoint")
    text = refusal(app.run_fresh, r"start over with another checkpoint")
    assert "other outputs; the published output stays" in text
    app.parts["checkpoint"] = "other"
    refusal(app.run, r"publish into another directory")
    app.parts["out"] = "new"
    app.run()
    assert (app.records(), app.records("new")) == (GOOD, GOOD)


def lost_state(app: RemedyApp) -> Callable[[], object]:
    for path in Path("journal/segments").iterdir():
        path.unlink()
    app.put("more", "more\n")
    return app.run


def replayed(app: RemedyApp) -> Callable[[], object]:
    return lambda: app.replay(1)


@pytest.mark.parametrize("need", [lost_state, replayed])
def test_starting_over_makes_all_output_anew_or_is_refused(
    app: RemedyApp, need: Callable[[RemedyApp], Callable[[], object]]
) -> None:
    """Refused where a source is gone, or is shorter than what was read; then all stays."""
    app.add_deduplicator()
    app.run()
    refusal(need(app), r"start over with --fresh, which removes the published output")
    away, path = app.folder / "away", app.folder / "in" / "good"
    path.rename(away)
    for content in (None, "good 1\n"):
        if content is not None:
            path.write_text(content)
        text = refusal(app.run_fresh, rf"window 1 has published of {path}, .* it may be the only copy")
        assert app.records() == GOOD
    assert "use another checkpoint and another output" in text
    app.parts |= {"checkpoint": "other", "out": "new"}
    app.run()
    assert (app.records(), "good 1" in app.records("new")) == (GOOD, True)
    app.parts |= {"checkpoint": "journal", "out": "out"}
    away.rename(path)
    app.run(fresh=True)
    assert app.records() == sorted([*GOOD, *(["more"] if need is lost_state else [])])


def test_starting_over_needs_no_file_of_which_nothing_was_read(app: RemedyApp) -> None:
    """A file that was left out may be gone."""
    path = app.put("bad.gz", PACKED[:-9])
    app.parts["reader"] = ", on_error: skip"
    app.run()
    path.unlink()
    app.run(fresh=True)
    assert app.records() == GOOD


def test_a_replay_goes_on_when_its_input_is_put_back(app: RemedyApp) -> None:
    """Until then nothing is replaced."""
    app.run()
    path, away = app.folder / "in" / "good", app.folder / "away"
    path.rename(away)
    path.write_text("another\n")
    refusal(lambda: app.replay(1), r"put the version back that was read; nothing was replaced")
    assert app.records() == GOOD
    path.unlink()
    away.rename(path)
    app.replay(1)
    assert app.records() == GOOD


def test_a_checkpoint_goes_on_when_it_is_put_back(app: RemedyApp) -> None:
    """The state of an operator is as it was, so that a record that it has seen is not published again."""
    app.add_deduplicator()
    app.run()
    shutil.copytree("journal", "copy")
    text = refusal(lost_state(app), r"put the checkpoint back as it was, with its segments")
    assert "--fresh" in text
    shutil.rmtree("journal")
    shutil.copytree("copy", "journal")
    app.put("again", "good 2\nnew\n")
    app.run()
    assert app.records() == sorted([*GOOD, "more", "new"])


def test_a_damaged_journal_goes_on_when_it_is_put_back(app: RemedyApp) -> None:
    """The error names a copy before it names another checkpoint."""
    app.run()
    shutil.copytree("journal", "copy")
    damaged(app)
    refusal(app.run, r"restore the checkpoint from a copy")
    shutil.rmtree("journal")
    shutil.copytree("copy", "journal")
    app.put("more", "more\n")
    app.run()
    assert app.records() == sorted([*GOOD, "more"])


def test_a_stray_file_in_a_journal_is_moved_elsewhere(app: RemedyApp) -> None:
    """It stops a run before anything is read, and the run goes on without it."""
    app.run()
    stray = app.folder / "journal" / "log" / "notes.txt"
    stray.write_text("mine")
    app.put("more", "more\n")
    refusal(app.run, r"does not belong into a journal.*move the file elsewhere")
    stray.rename(app.folder / "notes.txt")
    app.run()
    assert app.records() == sorted([*GOOD, "more"])


LINES = [f"{number:05} {random.Random(number).getrandbits(64)}" for number in range(2000)]
FRAMES = [
    bytes(zstd.compress("".join(f"{line}\n" for line in LINES[start : start + 100]).encode()))
    for start in range(0, 2000, 100)
]
PLAIN = "".join(f"{line}\n" for line in LINES).encode()
IN_PARTS = {
    "archive": ("a.zst", b"".join([*FRAMES[:15], FRAMES[15][:-20] + b"\xff" * 20, *FRAMES[16:]]), b"".join(FRAMES)),
    "text": ("a", PLAIN[:30_000] + b"\xff" + PLAIN[30_001:], PLAIN),
}


@pytest.mark.parametrize("kind", IN_PARTS)
@pytest.mark.parametrize("is_first", [False, True])
def test_a_file_of_several_windows_that_is_mended_is_read_anew(app: RemedyApp, kind: str, is_first: bool) -> None:
    """The error says that a part would come twice, where windows have published one; with --fresh none does."""
    name, content, mended = IN_PARTS[kind]
    app.parts["splitter"] = ", block_size: 4096" + ("" if is_first else ", blocks_threshold: 2")
    app.parts["reader"] = ", format: {type: lines, encoding: utf-8}"
    path = app.put(name, content)
    text = refusal(app.run, "")
    assert ("what earlier windows have published of it is there twice" in text) == (not is_first)
    assert ("start over with --fresh" in text) == bool(set(app.records()) - set(GOOD)) == (not is_first)
    path.write_bytes(mended)
    app.run(fresh=not is_first)
    assert app.records() == sorted([*GOOD, *LINES])


@pytest.mark.parametrize(("remedy", "published"), [("replace", ["1", "2", "\ufffd"]), ("reject", ["1", "2"])])
def test_bytes_that_are_no_text_are_replaced_or_taken_aside(app: RemedyApp, remedy: str, published: list[str]) -> None:
    """Both values that the error names; the others of the file are published either way."""
    (app.folder / "in" / "good").unlink()
    app.put("table", b"1\n\xff\n2\n")
    app.parts["reader"] = ", format: {type: lines, encoding: utf-8}"
    refusal(app.run, r"on_bad_bytes: replace or reject")
    app.parts["reader"] = f", format: {{type: lines, encoding: utf-8, on_bad_bytes: {remedy}}}"
    if remedy == "reject":
        app.parts |= {"streams": REJECTS}
    app.run()
    assert app.records() == published
    assert ['"raw": "/w=="' in line for line in app.records("rejects")] == ([True] if remedy == "reject" else [])


def test_a_writer_of_raw_records_goes_on_in_another_format(app: RemedyApp) -> None:
    """What was planned is written in the format that the error names, each record once."""
    app.parts |= {"reader": ", format: {type: csv, header: false, columns: [a]}", "out": "out, format: raw"}
    text = refusal(app.run, r"format: raw writes raw records, not columns \(a\); say format: json_lines")
    app.parts["out"] = f"out, {text[text.index('format: json_lines') :].split()[0]} json_lines"
    for _ in range(2):
        app.run()
        assert app.records() == [f'{{"a":"{record}"}}' for record in GOOD]
