"""When a file is complete: by its age, or by a marker beside it."""

from __future__ import annotations

from dataclasses import dataclass

from operators.splitter.scan.listed_files import ListedFiles


@dataclass(frozen=True, slots=True)
class CompletenessRules:
    """How the app says that a file is complete.

    Attributes:
        min_age_millis: Time for which a file must not have been modified.
        done_marker: Name of the file that marks another one as complete, with `{name}` for that one's name; "" for
            none.
    """

    min_age_millis: int = 0
    done_marker: str = ""

    @property
    def is_checked(self) -> bool:
        """Whether any rule is set."""
        return bool(self.min_age_millis or self.done_marker)

    def is_complete(self, files: ListedFiles, index: int, now_millis: int) -> bool:
        """Whether one of the files is complete."""
        if files.is_directory(index):
            return True
        age_millis = now_millis - int(files.stats.mtime_ns[index]) // 1_000_000
        if self.min_age_millis and age_millis < self.min_age_millis:
            return False
        if not self.done_marker:
            return True
        lister = files.root.lister
        directory, _, name = files.keys[index].rpartition(b"/")
        marker = self.done_marker.replace("{name}", lister.url(name))
        return lister.kind(directory + b"/" + marker.encode("utf-8", "surrogateescape")) is not None

    def is_marker(self, files: ListedFiles, index: int) -> bool:
        """Whether one of the files is a marker itself, which is not read."""
        if not self.done_marker or files.is_directory(index):
            return False
        name = files.root.lister.url(files.keys[index].rpartition(b"/")[2])
        before, has_name, after = self.done_marker.partition("{name}")
        if not has_name:
            return name == self.done_marker
        return len(name) > len(before) + len(after) and name.startswith(before) and name.endswith(after)
