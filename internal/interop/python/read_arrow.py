"""Reads the parts of a run and the same rows as an Arrow IPC file and stream, and says whether they are the same.

Usage: read_arrow.py RUN FILE STREAM
"""
import json
import sys

import duckdb
import polars
import pyarrow
import pyarrow.ipc
import pyarrow.parquet

run, file, stream = sys.argv[1:]
with open(run + "/manifest.json") as f:
    paths = [run + "/" + p["path"] for p in json.load(f)["parts"]]
parts = pyarrow.concat_tables([pyarrow.parquet.read_table(p) for p in paths])
schema = pyarrow.parquet.read_schema(paths[0])

facts = {"rows": parts.num_rows, "schemas": 0, "tables": 0, "values": 0, "polars": 0, "duckdb": 0, "compressed": 0}
for name, opened in (("file", pyarrow.ipc.open_file(file)), ("stream", pyarrow.ipc.open_stream(stream))):
    rows = opened.read_all()
    rows.validate(full=True)
    facts["schemas"] += opened.schema.remove_metadata().equals(schema.remove_metadata())
    facts["tables"] += rows.equals(parts)
    facts["values"] += rows.to_pylist() == parts.to_pylist()
    facts["duckdb"] += duckdb.sql("select count(*), sum(len(token_ids)) from rows").fetchall() == duckdb.sql("select count(*), sum(len(token_ids)) from parts").fetchall()
want = polars.read_parquet(paths)
facts["polars"] += polars.read_ipc(file).equals(want)
facts["polars"] += polars.read_ipc_stream(stream).equals(want)
for column in ("token_ids", "breaks", "turn_credit", "raw", "reward", "submitted"):
    facts["null_" + column] = parts[column].null_count
print(json.dumps(facts))
