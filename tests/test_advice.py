"""What errors advise where data or a checkpoint is at stake: each advice is followed in a test, which this table names.

A new `hint=`, or advice in the text of an error, needs a line here: the test that does what it says and finds nothing
missing afterwards, or why none can.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import dagflow
from dagflow import errors

TESTS = Path(__file__).parent
ROOT = Path(dagflow.__file__).parents[1]

PATTERNS = ("dagflow/**/*.py", "operators/**/*.py")

ADVICE = re.compile(
    r"(?:^|[;:.] |, and |, or |\n +)((?:add|choose|connect|declare|derive|drop|emit|fix|give|install|keep|leave|let"
    r"|make|move|name|put|raise|remove|rename|restore|run|say|set|start|take|try|use|wait|write)\b.*)",
    re.DOTALL,
)
"""The part of an error's text that says what to do."""

BEFORE = "the run has read nothing yet, and the advice is about the app, the machine or the command line"
CAUSE = "it says what has happened, and advises nothing"
AGAIN = "runs/test_mended_apps.py::test_a_mended_app_takes_what_was_planned"
"""For advice about an app whose operator refuses its records: what was planned is read by the app as it is then."""
KILLED = "crash/test_kills.py::test_killed_again_and_again_a_run_publishes_every_record_once"

REMEDIES = "runs/test_remedies.py::"
CHECKPOINTS = "runs/test_checkpoint_remedies.py::"
DAMAGED = f"{REMEDIES}test_a_damaged_journal_is_replaced_and_what_it_published_stays"
FRESH = f"{REMEDIES}test_starting_over_makes_all_output_anew_or_is_refused"
LEFT_OUT = f"{REMEDIES}test_a_file_that_is_left_out_stays_listed_until_it_is_read"
REJECTS = f"{REMEDIES}test_records_that_are_refused_are_taken_aside"
LONG = f"{REMEDIES}test_a_record_that_is_too_long_comes_with_a_larger_limit"
VERSIONS = f"{CHECKPOINTS}test_state_of_another_version_goes_on_with_that_version"
REMOVED = "runs/test_removed_sources.py::"
TABLES = "runs/test_table_remedies.py::"
UPSERTS = "operators/sink/tables/test_table_files_upserted_rows.py::"
ANOTHER_DIRECTORY = f"{TABLES}test_a_directory_of_other_files_is_left_for_an_empty_one"

FOLLOWED = {
    # journals and state
    "attributes: {retain_windows: all} keeps": "engine/test_window_replay.py::"
    "test_an_app_that_keeps_few_windows_goes_on_in_its_own_directory",
    "give each app a checkpoint of its own": f"{CHECKPOINTS}test_an_app_replaces_another_one_whose_file_was_moved_away",
    "give … a `checkpoint` of its own": f"{CHECKPOINTS}test_two_apps_on_one_checkpoint_run_when_one_has_its_own",
    "let on_change say supersede, with which totals are kept by file": "strangers/test_totals_over_runs.py::"
    "test_a_corrected_file_that_is_counted_twice_is_said",
    "run the app once as it was when it read them": "strangers/test_corrections_behind_retries.py::"
    "test_totals_follow_what_is_refused_otherwise_now_or_say_so",
    "let operators of yours keep batch.origin, or": "runs/test_corrected_totals.py::"
    "test_records_whose_file_is_not_known_are_refused",
    "let the owner of the table run this, and continue the run: …": "operators/sink/tables/test_sql_table_postgres.py::"
    "test_a_column_that_the_user_may_not_add_is_named_with_the_statement",
    "name one of them: …": "strangers/test_trace.py::test_what_cannot_be_traced_is_said_with_a_remedy",
    "the columns are …": "strangers/test_trace.py::test_what_cannot_be_traced_is_said_with_a_remedy",
    "rows of other programs are not known": CAUSE,
    "`dagflow status APP --files '*'` shows the files": "strangers/test_trace.py::"
    "test_what_cannot_be_traced_is_said_with_a_remedy",
    "if '…' is the renamed '…'": "engine/test_operator_state.py::"
    "test_an_operator_does_not_begin_without_its_state_under_a_new_name",
    "let attributes: {roots: …} be as before": "runs/test_moved_checkpoints.py::"
    "test_roots_do_not_change_over_what_was_read",
    "restore its class": "runs/test_replaced_operators.py::"
    "test_state_of_another_kind_is_refused_until_the_class_is_what_it_was",
    "let its class be a KeyedOperator again": "runs/test_replaced_operators.py::"
    "test_state_by_key_is_taken_by_a_keyed_operator_or_one_that_reads_it",
    "let only one run use this checkpoint": "engine/test_live_run_gate.py::"
    "test_to_take_over_ends_the_first_run_and_names_the_new_one",
    "move the file elsewhere": f"{REMEDIES}test_a_stray_file_in_a_journal_is_moved_elsewhere",
    "move the existing one away, and run again": f"{CHECKPOINTS}test_a_name_that_a_start_over_needs_is_made_free",
    "name it again, with the place where it is now": "runs/test_moved_checkpoints.py::"
    "test_what_is_decided_in_a_root_waits_until_the_root_has_its_name",
    "put the checkpoint back as it was, with its index": f"{CHECKPOINTS}"
    "test_an_index_of_files_goes_on_when_it_is_put_back",
    "put the checkpoint back as it was, with its segments": f"{REMEDIES}test_a_checkpoint_goes_on_when_it_is_put_back",
    "restore the checkpoint from a copy": f"{REMEDIES}test_a_damaged_journal_goes_on_when_it_is_put_back",
    "run again with --fresh; it continues": f"{CHECKPOINTS}test_what_was_left_of_a_start_over_is_finished_by_another",
    "run the version of dagflow that wrote it": VERSIONS,
    "run the version that wrote it": VERSIONS,
    "set its partitions back to": "engine/test_operator_state.py::test_state_that_cannot_move_is_not_misplaced",
    "start over with --fresh": FRESH,
    "put the source files back as they were": f"{REMOVED}"
    "test_a_window_without_source_files_is_replayed_when_they_are_back",
    "put the source files back, and start over": f"{REMOVED}"
    "test_an_app_that_cannot_replay_starts_anew_when_they_are_back",
    # windows, output and replays
    "a writer with file_name: block needs whole blocks": f"{CHECKPOINTS}"
    "test_writers_of_whole_blocks_are_joined_to_their_reader",
    "another program removed them; make them again": "crash/test_replays.py::"
    "test_a_replay_without_its_new_files_replaces_nothing",
    "give valid credentials to all hosts that run tasks": "runs/test_refused_credentials.py::"
    "test_files_that_were_refused_come_with_good_credentials",
    "finish it first, with dagflow run": f"{CHECKPOINTS}test_a_window_is_replayed_when_a_run_has_finished_it",
    "give a directory below that has only sound indices": f"{CHECKPOINTS}"
    "test_a_merged_file_is_found_when_its_index_was_made_again",
    "give each of them a path of its own": f"{CHECKPOINTS}test_two_writers_of_one_directory_get_one_each",
    "give operator '…' partition: {by: …}": "engine/test_operator_state.py::test_one_partition_holds_all_keys",
    "give the app an operator '…' again": "runs/test_mended_apps.py::"
    "test_planned_blocks_that_no_operator_takes_are_kept",
    "give the app operator '…' again, as it was, until the window": "engine/test_publication.py::"
    "test_a_decided_window_needs_its_operator",
    "continue with the copy that has written": "engine/test_publication.py::"
    "test_two_copies_of_a_checkpoint_cannot_both_go_on",
    "continue with the newest checkpoint": "engine/test_publication.py::"
    "test_an_older_copy_of_the_checkpoint_is_refused_with_both_numbers",
    "let the app name another table, or rename or remove this one": "engine/test_publication.py::"
    "test_fresh_is_refused_while_the_target_has_the_windows",
    "move the file that is in the way": "engine/test_window_repair.py::test_files_of_others_are_not_replaced",
    "publish into another directory, or move them away": f"{REMEDIES}"
    "test_files_of_others_are_moved_away_and_not_removed",
    "publish into another directory, or under other names": f"{CHECKPOINTS}"
    "test_a_replay_publishes_elsewhere_where_a_name_is_taken",
    "put the archive on the file system of": f"{CHECKPOINTS}"
    "test_an_archive_on_another_file_system_is_put_on_that_of_the_files",
    "put the archive where the splitter does not look": f"{CHECKPOINTS}"
    "test_an_archive_that_was_read_as_input_is_put_elsewhere",
    "choose windows that are kept": "strangers/test_what_if.py::"
    "test_windows_that_are_no_longer_kept_are_not_taken_for_removed_rows",
    "compare all windows, without": "strangers/test_what_if.py::"
    "test_windows_that_a_table_does_not_name_are_compared_together",
    "let it end": "strangers/test_what_if.py::test_an_app_that_follows_is_compared_when_it_is_to_end",
    "let it be finished": "strangers/test_what_if.py::test_a_run_that_is_not_finished_is_not_compared",
    "put the version back that was read": f"{REMEDIES}test_a_replay_goes_on_when_its_input_is_put_back",
    "run it in …, or let the app name its output": "engine/test_window_replay.py::"
    "test_a_replay_from_another_working_directory_moves_no_output",
    "this is a defect of a format or an operator; once it is fixed": "engine/test_driver_byte_sums.py::"
    "test_a_run_completes_when_what_did_not_add_up_is_replayed",
    "window … is decided, and each run first publishes": "strangers/test_stuck_windows.py::"
    "test_a_decided_window_that_its_table_cannot_take_gets_out",
    "let the column allow nulls": "strangers/test_stuck_windows.py::"
    "test_a_decided_window_continues_when_its_column_allows_nulls",
    "let the app write into another one": "strangers/test_repair.py::"
    "test_rows_whose_key_does_not_fit_go_into_another_table",
    "put the file back, and repair the window then": "strangers/test_repair.py::"
    "test_a_window_whose_input_is_gone_is_not_taken_back",
    "to publish the rest": "engine/test_window_repair.py::test_what_needs_no_repair_is_refused",
    "to run it again: ": "engine/test_window_replay.py::test_a_replay_replaces_exactly_what_its_window_published",
    "use another checkpoint and another output": FRESH,
    "give the app operator '…' again, as it was, until a run": "runs/test_groups.py::"
    "test_an_app_without_the_operator_is_refused",
    "give the app operator '…' again, as it was, for the replay": "crash/test_table_replays.py::"
    "test_a_replay_goes_on_when_the_app_has_its_table_again",
    "restore the table as it was before": "crash/test_table_replays.py::"
    "test_a_replay_of_two_tables_goes_on_when_the_second_is_restored",
    "let the app name the table that it named before, until the replay": "crash/test_table_replays.py::"
    "test_a_decided_replay_waits_for_its_table",
    "the replay is decided and its files are kept": "crash/test_table_replays.py::"
    "test_a_replay_that_dies_anywhere_is_done_once_or_not_at_all",
    "run it again: the correction is made anew for the table as it is now": "strangers/test_merged_by_others.py::"
    "test_a_table_may_be_compacted_while_it_is_corrected",
    "let the app name another table, and start over": "engine/test_publication.py::"
    "test_a_replay_into_a_target_is_refused",
    # files and records
    "copy it to a disk, or to a store that does": "storage/backends/test_http.py::"
    "test_a_file_of_unknown_length_is_copied_and_not_empty",
    "leave it out with on_error: skip on the reader, and read a copy of it": "runs/test_web_files.py::"
    "test_a_file_that_cannot_be_read_in_parts_is_read_as_a_copy",
    "name it without the cache": "storage/backends/fsspec/test_client.py::"
    "test_a_cache_of_files_is_left_out_of_a_location",
    "run again when the store gives all hosts the same version": "runs/test_web_files.py::"
    "test_a_file_is_read_when_its_server_gives_one_version_of_it",
    "serve it by a server that answers byte ranges": "runs/test_web_files.py::"
    "test_a_file_that_cannot_be_read_in_parts_is_read_as_a_copy",
    "take the slash off its end": "operators/splitter/scan/test_scan_roots.py::"
    "test_a_file_that_is_named_as_a_directory_is_named_again",
    "a web server cannot be asked for the files of a directory": "operators/splitter/scan/test_scan_roots.py::"
    "test_from_a_web_server_single_files_are_read",
    "run the app to its end with dagflow run": "engine/test_run_reject_retry.py::"
    "test_a_replay_does_not_end_the_result_of_an_unfinished_run",
    "call the reader '…' again": "engine/test_run_reject_retry.py::test_a_reader_of_another_name_is_refused",
    "if this file is changed or replaced, it is read again": f"{REMEDIES}"
    "test_a_file_of_several_windows_that_is_mended_is_read_anew",
    "name under partition_values the columns": "operators/reader/test_path_values.py::"
    "test_a_column_that_the_records_have_too_ends_the_run",
    "every host must see the input": "cluster/test_checks.py::test_input_with_other_inode_numbers_is_refused",
    "if it is still being written": f"{REMEDIES}test_a_cut_archive_that_failed_a_run_is_read_when_it_has_grown",
    "leave such files out with on_error: skip": "runs/test_csv_heads.py::"
    "test_a_bad_head_fails_a_run_and_each_remedy_works",
    "on_error: skip on the reader leaves such files out, and lists them": LEFT_OUT,
    "raise max_record": LONG,
    "to accept or refuse such records, set on_bad_bytes: replace or reject": f"{REMEDIES}"
    "test_bytes_that_are_no_text_are_replaced_or_taken_aside",
    "to take such records aside, …": REJECTS,
    "the writer at port errors publishes": REJECTS,
    # operators that refuse what arrives, or how they are called
    "add a column of … to the records": AGAIN,
    "connect the splitter's files_metadata_output": AGAIN,
    "emit b'' for an empty record": AGAIN,
    "emit them in several batches": AGAIN,
    "declare the type of": BEFORE,
    "its fields may be text, numbers, bytes": AGAIN,
    "use text, bytes, a number, a bool": AGAIN,
    "keep '…' in module '…' as another name": "engine/test_window_codec.py::"
    "test_planned_tuples_of_a_class_that_is_gone_are_kept",
    "declare for each field the type of its values": "execution/test_state_codec.py::"
    "test_a_run_goes_on_when_the_type_says_what_a_field_holds",
    "let value_type say what all values are": "api/test_keyed_state.py::"
    "test_a_run_goes_on_when_values_are_what_their_type_says",
    "take the records with @input.batch": "execution/test_chain.py::"
    "test_nanoseconds_are_refused_by_the_operator_with_the_method",
    "use a Select for other columns": AGAIN,
    "use the very keys that": "api/test_keyed_state.py::test_a_run_goes_on_with_the_very_keys_or_one_partition",
    "give each new field of the class a default": "journal/test_windows_planned_tuples.py::"
    "test_tuples_whose_class_has_other_fields_by_now_are_refused",
    "a class of tuples is a frozen dataclass": "journal/test_windows_planned_tuples.py::"
    "test_a_run_goes_on_when_the_operator_is_mended",
    "define complete_end(source) in the class": "operators/reader/test_content_growing.py::"
    "test_a_complete_end_lets_a_run_go_on_behind_what_was_read",
    "let all of them come back together": "cli/commands/test_rejects.py::test_two_kinds_in_a_window_come_back_together",
    "give it more, such as --conf spark.driver.memory": KILLED,
    "let the method return": "engine/test_driver_watch.py::"
    "test_a_window_that_never_ends_is_refused_before_it_fills_the_memory",
    "put a Parse before this operator": AGAIN,
    "rename it, as with Select": AGAIN,
    "say file_name: part": AGAIN,
    "say format: json_lines": f"{REMEDIES}test_a_writer_of_raw_records_goes_on_in_another_format",
    "say format: whole_file": "operators/sink/test_merger.py::test_a_merger_of_lines_goes_on_with_whole_files",
    "say over: window": "engine/test_held_results.py::test_a_new_result_over_windows_is_not_made_of_single_ones",
    "give the column the type that it had": "runs/test_key_types.py::test_keys_of_another_kind_are_refused",
    "set it back; or …": "engine/test_operator_state.py::"
    "test_state_of_another_key_is_refused_until_the_key_is_set_back",
    "set them back, and change them when": "engine/test_held_results.py::"
    "test_other_properties_do_not_go_on_with_a_held_result",
    "give them the types of the table": "strangers/test_other_types.py::"
    "test_columns_of_other_types_arrive_as_the_error_advises",
    # tables that records are joined with
    "check namespace and name": BEFORE,
    "check the path: something must have written to it": BEFORE,
    "give it another name, as columns:": AGAIN,
    "give one of them the type of the other": AGAIN,
    "give the column one type, as by a cast": "engine/test_held_results.py::"
    "test_a_key_of_two_types_has_one_after_a_cast",
    "fix the table, name more columns in on": AGAIN,
    "put the checkpoint where all hosts of the cluster": f"{REMEDIES}test_a_checkpoint_goes_on_when_it_is_put_back",
    "put the table there, or name where it is": BEFORE,
    "rename all but one of them, or name other columns": "operators/transform/test_enrich.py::"
    "test_a_name_of_several_columns_is_an_error_where_it_is_taken",
    "take fewer columns with the property columns": AGAIN,
    "write it elsewhere, and put it in its place": BEFORE,
    "write the files again, with one type in all of them": "operators/lookup/test_kinds_united_columns.py::"
    "test_types_of_which_none_takes_all_values_are_named_with_their_files",
    # tables and checks
    "add the column to the table, or drop it": f"{TABLES}"
    "test_a_new_column_that_a_table_does_not_get_is_added_or_dropped",
    "give the column a type upstream, or make the table": f"{UPSERTS}"
    "test_a_key_without_any_value_is_refused_before_the_intent",
    "give the column a type upstream, or let partition_by": "operators/sink/tables/test_partition_fields_rows.py::"
    "test_a_table_is_not_made_without_the_type_of_a_column",
    "leave partition_by out": f"{TABLES}test_a_table_that_is_partitioned_otherwise_says_by_what",
    "let table name a": ANOTHER_DIRECTORY,
    "let the app name the table that it named before": f"{TABLES}"
    "test_a_decided_window_goes_into_the_table_that_it_was_decided_for",
    "leave one of them out, or give it another name": "runs/test_names_that_differ_in_case.py::"
    "test_columns_of_json_that_differ_in_case_are_named_in_the_app",
    "leave one of them out: let the columns of a JSON reader": "runs/test_names_that_differ_in_case.py::"
    "test_members_that_differ_in_case_are_refused_before_they_are_decided",
    "put those that no newer record has replaced": "runs/test_late_records.py::"
    "test_a_corrected_record_comes_with_a_new_file",
    "change the column in the table to …": f"{TABLES}test_a_table_that_came_meanwhile_is_given_the_type_of_the_window",
    "give it a value in a Select": "strangers/test_required_columns.py::"
    "test_an_app_whose_records_lack_such_a_column_is_refused",
    "put it back; or read the input of all rows": "runs/test_groups.py::test_a_fragment_that_is_gone_ends_the_run",
    "put it back, or start over": "runs/test_groups.py::test_a_fragment_with_keys_that_is_gone_is_not_replayed",
    "the counters of the operator show which expectation failed": "operators/transform/test_check.py::"
    "test_a_run_ends_at_the_first_record_that_fails",
    "write into another table, and copy from there": f"{TABLES}"
    "test_records_for_a_table_with_rules_are_copied_from_another_one",
    # nothing to follow
    "use a catalog of type": BEFORE,
    "FileMerger writes one beside each merged file": CAUSE,
    "the checkpoint was removed while it was in use": CAUSE,
    "the file was changed after it was published": CAUSE,
    "no run has planned a window on this checkpoint yet": CAUSE,
    "add the column to the table, or leave it out": BEFORE,
    "give it a location there with --set": "engine/test_limited_run.py::"
    "test_an_operator_that_claims_nothing_is_refused_too",
    "give the operator a relative path with set": "testing/test_apps.py::"
    "test_nothing_is_published_outside_by_what_claims_nothing",
    "an operator closes the files that it has opened": BEFORE,
    "attributes: {storage: ": BEFORE,
    "end it first: kill": "engine/test_live_run_gate.py::test_a_repair_is_refused_while_a_run_works",
    "free some space there": BEFORE,
    "give `checkpoint`, or the operator's path": BEFORE,
    "give read permission, or leave it out": BEFORE,
    "install dagflow again": BEFORE,
    "install it with: pip install": BEFORE,
    "let the root be the input's location": BEFORE,
    "leave it out, or write the table as Iceberg": BEFORE,
    "let upsert_by name columns": BEFORE,
    "list the paths with --list": BEFORE,
    "make locks, connections, lambdas": BEFORE,
    "name one of them only": BEFORE,
    "name the app with --app": BEFORE,
    "let one operator read each file": "runs/test_separate_locations.py::"
    "test_files_are_removed_of_which_each_has_one_splitter",
    "put it elsewhere, or leave it out with ignore_pattern": "runs/test_separate_locations.py::"
    "test_what_the_splitter_passes_over_may_be_written",
    "put the checkpoint on a local disk or on an object store": BEFORE,
    "records pass": BEFORE,
    "say in attributes: {storage": BEFORE,
    "set them, as with NTP": BEFORE,
    "write B2:F100, or B:F for whole columns": "operators/reader/formats/test_excel.py::"
    "test_sheet_range_and_header_choose_the_cells",
    "write it anew with a smaller window": "strangers/test_other_files.py::"
    "test_a_window_that_is_too_large_is_named_and_a_smaller_one_is_read",
    "start it, or give another one as `master`": BEFORE,
    "take it out, and give it as an option": BEFORE,
    "… cannot be made there; name another place": BEFORE,
    # apps, machines and command lines that are looked at before a run
    "another program has the port": BEFORE,
    "convert it to CSV or lines of JSON": BEFORE,
    "derive it from": BEFORE,
    "formats for binary records are": BEFORE,
    "give 100% at most": BEFORE,
    "give …": BEFORE,
    "give a relative path": BEFORE,
    "give another directory": BEFORE,
    "give archive, a directory": BEFORE,
    "give columns, where, keep": BEFORE,
    "give either": BEFORE,
    "give exactly one of": BEFORE,
    "give it a relative path": BEFORE,
    "give keep or drop": BEFORE,
    "give the master with": BEFORE,
    "give the secret of the cluster": BEFORE,
    "install one with: pip install": BEFORE,
    "install the same on all hosts": BEFORE,
    "keep self.….emit in setup()": BEFORE,
    "local paths need a file system": BEFORE,
    "name …": BEFORE,
    "name a file in a writable directory": BEFORE,
    "name an interpreter that is on all hosts": BEFORE,
    "name the checkpoint of an app that was run": BEFORE,
    "raise the limit, such as with: ulimit": BEFORE,
    "install another: pip install": "runtime/test_start_checks_versions.py::"
    "test_another_version_is_refused_by_its_number_before_java_starts",
    "unset SPARK_HOME": "runtime/test_start_checks_versions.py::test_a_spark_home_of_another_version_is_refused",
    "leave out master and conf": "runtime/test_spark_session.py::test_a_run_takes_the_session_of_its_process",
    "make a new one, or leave out spark": "runtime/test_spark_session.py::test_a_run_takes_the_session_of_its_process",
    "install what is missing: pip install dagflow; beside": "runtime/test_start_checks_versions.py::"
    "test_setup_cfg_and_the_page_have_the_same_packages",
    "pip install 'dagflow[connect]'": BEFORE,
    "give a session, or leave out spark": "runtime/test_spark_session.py::test_what_is_no_session_is_refused",
    "dagflow.spark.read(session": BEFORE,
    "declare them: .option": BEFORE,
    "give its type in `columns`": BEFORE,
    "where only some files have it, say so": BEFORE,
    "the state belongs to a query with another checkpointLocation": "spark/test_stream_windows.py::"
    "test_another_state_reads_all_files_again",
    "it is not the state of this checkpoint": "spark/test_stream_windows.py::test_another_state_reads_all_files_again",
    "…unpack it to read it": BEFORE,
    "let spark.local.dir name a directory on another disk": "runtime/test_local.py::"
    "test_a_full_place_for_temporary_files_gives_way_to_another",
    "its log may say more; start it again": "runtime/test_connect.py::test_the_runtime_of_spark_connect_keeps_its_laws",
    "finish it, with dagflow run": "crash/test_corrections.py::"
    "test_a_correction_that_dies_anywhere_is_done_once_or_not_at_all",
    "stop it first with spark.stop()": "runtime/test_start_checks.py::"
    "test_a_process_that_has_a_spark_context_is_advised_to_stop_it",
    "rename or drop one of them": BEFORE,
    "rename: '…' is dropped as well": BEFORE,
    "run this in the directory of the app's modules": BEFORE,
    "say which files, such as --from": BEFORE,
    "set XDG_CACHE_HOME": BEFORE,
    "start dagflow in a directory": BEFORE,
    "start dagflow with the Python": BEFORE,
    "they need some space in": BEFORE,
    "let TMPDIR name a directory on another disk": "runtime/test_local.py::"
    "test_a_full_place_for_temporary_files_gives_way_to_another",
    "name each path below it instead": BEFORE,
    "try 'UTC'": BEFORE,
    "try UTC": BEFORE,
    "write a number of bytes": BEFORE,
    "write […": "operators/reader/formats/test_fixed.py::test_the_place_that_a_coded_field_is_advised_to_have_is_taken",
    "write for example": BEFORE,
    # queries, schemas, pages
    "columns are inferred for …": BEFORE,
    "move it away, and run this again; then copy": "cli/commands/test_infer.py::"
    "test_a_file_that_was_edited_is_not_written_over",
    "give the files instead: dagflow infer": BEFORE,
    "put a question mark in the place of each such byte": "cli/commands/test_init.py::"
    "test_files_that_an_app_cannot_name_are_refused",
    "take --format lines": BEFORE,
    "write columns: … in their place": BEFORE,
    "give another name": BEFORE,
    "name a file": BEFORE,
    "name one as operator.port": BEFORE,
    "use table: delta:PATH": BEFORE,
    "add '…' to upsert_by": BEFORE,
    "take another column for partition_by": "operators/sink/tables/test_delta_target_upserts.py::"
    "test_partitions_by_numbers_with_a_fraction_are_refused",
    "give each query an operator": BEFORE,
    "take it out": BEFORE,
    "give it another name with as": BEFORE,
    "give the entry another name with as": "operators/sql/test_sql_query_planner.py::"
    "test_a_name_in_group_by_is_that_of_a_column_first",
    "say which rows belong together": BEFORE,
    "name the columns": BEFORE,
    "name a column, or count(*) counts records": BEFORE,
    "say of which table each column is": BEFORE,
    "give a whole number from 1 on behind limit": BEFORE,
    "give the expression a name": BEFORE,
    "give one another name with as": BEFORE,
    "name another one with --host and --port": "web/test_server.py::test_a_port_that_is_taken_is_an_error_with_advice",
    # what has happened to a process or a command
    "dagflow runs without one": CAUSE,
    "it was killed, or it lacked memory": KILLED,
    "see whether a run with --follow is at work": CAUSE,
    "the system kills a process that takes more memory": CAUSE,
    "Spark's log, in .dagflow or of the session, may say more": CAUSE,
    "the command succeeded; only its output": CAUSE,
    "… may say why": CAUSE,
}
"""By how an advice begins: the test that follows it, or why there is none."""


def text_of(node: ast.AST, names: Mapping[str, ast.AST]) -> str:
    """The text of an expression, with `…` for what is known at run time only; "" where nothing of it is known."""
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.JoinedStr():
            return "".join(text_of(value, names) for value in node.values)
        case ast.FormattedValue():
            return "…"
        case ast.BinOp():
            return text_of(node.left, names) + text_of(node.right, names)
        case ast.IfExp():
            return text_of(node.body, names) or text_of(node.orelse, names)
        case ast.Name() if node.id in names:
            return text_of(names[node.id], {})
        case ast.Name() if isinstance(constant := vars(errors).get(node.id), str):
            return constant
    return ""


@functools.cache
def advice() -> dict[str, str]:
    """Each text that is given as a hint, and where."""
    return {text: place for path in PATTERNS for file in sorted(ROOT.glob(path)) for text, place in hints_in(file)}


def hints_in(file: Path) -> Iterator[tuple[str, str]]:
    """The hints of a module, and what its errors' texts advise; what is passed on was a hint elsewhere."""
    tree = ast.parse(file.read_text("utf-8"))
    assigned = (node for node in ast.walk(tree) if isinstance(node, ast.Assign))
    names = {node.targets[0].id: node.value for node in assigned if isinstance(node.targets[0], ast.Name)}
    for node in ast.walk(tree):
        text = ""
        if isinstance(node, ast.keyword) and node.arg == "hint":
            text = text_of(node.value, names)
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            found = ADVICE.search(text_of(node.exc.args[0], names))
            text = "" if found is None else found[1]
        if text:
            yield text, f"{file.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"


def test_each_advice_about_data_is_followed_in_a_test() -> None:
    """A new one has no line in the table yet, and is not tried."""
    starts = tuple(FOLLOWED)
    assert [f"{place}: {text}" for text, place in advice().items() if not text.startswith(starts)] == []


def test_each_line_of_the_table_is_of_an_advice_and_a_test() -> None:
    """Neither advice that was taken out stays in it, nor a test that was renamed."""
    assert [start for start in FOLLOWED if not any(text.startswith(start) for text in advice())] == []
    for named in set(FOLLOWED.values()) - {BEFORE, CAUSE}:
        file, _, name = named.partition("::")
        assert re.search(rf"^def {name}\(", (TESTS / file).read_text(), re.MULTILINE), named
