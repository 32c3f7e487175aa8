"""Daft, DataFusion and chdb, which read columns on one machine as dagflow does: each where it is installed.

They are no extra of dagflow's, because their packages do not all go with those of the others: install them with
`pip install --no-deps daft datafusion chdb chdb-core`. Sail is left out: pysail 0.7.2 refuses PySpark 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

PEERS = {"Daft": "daft", "DataFusion": "datafusion", "chdb": "chdb"}
"""Those that read columns, with their packages."""

CHDB_TYPES = {
    "bigint": "Int64",
    "int": "Int32",
    "string": "String",
    "double": "Float64",
    "boolean": "Bool",
    "date": "Date32",
    "timestamp_ntz": "DateTime64(6)",
}


def installed() -> list[str]:
    """Which of them are installed."""
    return [name for name, package in PEERS.items() if find_spec(package)]


@dataclass(frozen=True, slots=True)
class PeerSource:
    """Files of columns.

    Attributes:
        files: A pattern.
        columns: The type of each column, by the name that Spark has for it.
        is_csv: Whether they are CSV with a header, and otherwise JSON lines.
        nullable: Columns with nulls.
        block_bytes: About how many bytes of a file are read at a time, or in one task; 0 for as many as the peer takes.
        has_header: Whether files of CSV have one.
    """

    files: str
    columns: dict[str, str]
    is_csv: bool
    nullable: tuple[str, ...] = ()
    block_bytes: int = 0
    has_header: bool = True

    def rows_by(self, name: str, query: str, threads: int = 0) -> Any:
        """The rows of a query over the table `source`, as a pyarrow.Table; 0 threads are as many as the peer takes."""
        if name == "DataFusion":
            return self.datafusion(threads).sql(query).to_arrow_table()
        if name == "Daft":
            return self.daft(query).to_arrow()
        return self.chdb(query, threads)

    def write_by(self, name: str, query: str, output: str) -> None:
        """Write the rows of a query as Parquet with zstd below a directory."""
        if name == "DataFusion":
            copy = f"COPY ({query}) TO '{output}/' STORED AS PARQUET OPTIONS ('compression' 'zstd(1)')"
            self.datafusion().sql(copy).collect()
        elif name == "Daft":
            self.daft(query).write_parquet(output, compression="zstd")
        else:
            self.chdb(f"INSERT INTO FUNCTION file('{output}/rows.parquet', Parquet) {query}")

    def datafusion(self, threads: int = 0) -> Any:
        """A session in which the files are a table."""
        datafusion: Any = import_module("datafusion")
        config = datafusion.SessionConfig()
        if self.block_bytes:
            config = config.set("datafusion.optimizer.repartition_file_min_size", "0").with_target_partitions(8)
        context = datafusion.SessionContext(config.with_target_partitions(threads) if threads else config)
        kinds = {"string": "varchar", "timestamp_ntz": "timestamp"}
        columns = ", ".join(f'"{name}" {kinds.get(kind, kind)}' for name, kind in self.columns.items())
        header = str(self.has_header).lower()
        options = f"OPTIONS ('format.has_header' '{header}', 'format.newlines_in_values' 'true')" if self.is_csv else ""
        place = self.files.rpartition("/")[0] + "/" if "*" in self.files else self.files
        kind = "CSV" if self.is_csv else "JSON"
        context.sql(f"CREATE EXTERNAL TABLE source ({columns}) STORED AS {kind} LOCATION '{place}' {options}").collect()
        return context

    def daft(self, query: str) -> Any:
        """A frame of the rows of a query."""
        daft: Any = import_module("daft")
        Type = daft.DataType  # a class
        kinds = {
            "bigint": Type.int64(),
            "int": Type.int32(),
            "string": Type.string(),
            "double": Type.float64(),
            "boolean": Type.bool(),
            "date": Type.date(),
            "timestamp_ntz": Type.timestamp("us"),
        }
        # Its reader of CSV gives decimals another type than it is told.
        schema = {name: kinds.get(kind, Type.string()) for name, kind in self.columns.items()}
        read = daft.read_csv if self.is_csv else daft.read_json
        options: dict[str, Any] = {"has_headers": self.has_header} if self.is_csv else {}
        if self.block_bytes:
            options |= {"_buffer_size": self.block_bytes, "_chunk_size": self.block_bytes}
        source = read(self.files, infer_schema=False, schema=schema, **options)
        decimals = [name for name, kind in self.columns.items() if kind.startswith("decimal")]
        source = source.with_columns({name: daft.col(name).cast(Type.decimal128(9, 2)) for name in decimals})
        return daft.sql(query, source=source)

    def chdb(self, query: str, threads: int = 0) -> Any:
        """The rows of a query, as a pyarrow.Table; None where it writes them."""
        kinds = {name: CHDB_TYPES.get(kind, kind.capitalize()) for name, kind in self.columns.items()}
        kinds |= {name: f"Nullable({kind})" for name, kind in kinds.items() if name in self.nullable}
        columns = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
        form = ("CSVWithNames" if self.has_header else "CSV") if self.is_csv else "JSONEachRow"
        source = f"file('{self.files}', {form}, '{columns}')"
        settings = "output_format_parquet_compression_method = 'zstd', date_time_input_format = 'best_effort'"
        settings += f", max_threads = {threads}" if threads else ""
        settings += f", min_chunk_bytes_for_parallel_parsing = {self.block_bytes}" if self.block_bytes else ""
        text = f"{query.replace('FROM source', f'FROM {source} AS source')} SETTINGS {settings}"
        return import_module("chdb").query(text, "ArrowTable")
