"""An operator of one's own, for apps/drop_comments.yaml."""

from dagflow import InputPort, Operator, OutputPort


class DropComments(Operator):
    """Drops the records that begin with a prefix."""

    prefix: str = "."

    input = InputPort()
    output = OutputPort()

    @input.each
    def drop(self, record: bytes) -> None:
        """Pass on what is no comment."""
        if not record.startswith(self.prefix.encode()):
            self.output.emit(record)
