"""The same task rows as every writer of others makes them: write_tasks.py FOLDER

Writes FOLDER/tasks.jsonl and, of the same rows, a Parquet file for each writer and each way it stores them: verl's shape, nested, with
members that only some rows have. Then FOLDER/types.parquet, one column for each type a Parquet file can hold beside those, and
FOLDER/bad-text.parquet, with a row whose text is no UTF-8. Prints which files there are.
"""

import datetime
import decimal
import json
import os
import sys
import uuid

import duckdb
import numpy
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq

from facts import Facts

os.environ["HF_DATASETS_OFFLINE"] = "1"
import datasets  # noqa: E402  (after the line above)

ROWS = 300  # more than one batch of our reader


def row(i):
    schema = {"city": {"type": "string"}} if i % 2 else {"minutes": {"type": "integer", "minimum": i}, "label": {"type": "string"}}
    name = "weather" if i % 2 else "timer"
    prompt = [{"role": "user", "content": f"What is {i} + {i + 1}? \" \\ é 😀"}]
    if i % 3 == 0:
        prompt.insert(0, {"role": "system", "content": "" if i % 2 else "Answer shortly."})
    if i % 5 == 0:
        call = {"id": f"c{i}", "type": "function", "function": {"name": name, "arguments": f'{{"b": {i}, "a": [1, null]}}'}}
        prompt += [{"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "content": "done", "tool_call_id": f"c{i}", "name": name}]
    return {
        "id": f"task-{i:03d}",
        "data_source": f"domain-{i % 3}",
        "prompt": prompt,
        "ability": "math",
        "tools": [{"type": "function", "function": {"name": name, "description": f"tool {i}", "parameters": {"type": "object", "properties": schema, "required": list(schema)}}}],
        "reward_model": {"style": "rule", "ground_truth": {"sum": 2 * i + 1} if i % 2 else {"sum": 2 * i + 1, "also": [f"{i}", "x"]}},
        "extra_info": {"split": "train", "index": i, "need_tools_kwargs": i % 2 == 0, "tools_kwargs": {name: {"create_kwargs": {"x": i + 0.5, "note": None if i % 7 else "n"}}}},
        "difficulty": 0.25 * i + 0.125,  # never whole: a text may say 1.0, a column says 1
        "tags": [] if i % 4 == 0 else [f"t{i}", None, ""],
    }


def without_nulls(v):
    """A row as a text file would have it: a member that is not there is not written."""
    if isinstance(v, dict):
        return {k: without_nulls(x) for k, x in v.items() if x is not None}
    return [without_nulls(x) for x in v] if isinstance(v, list) else v


def typed(table, **types):
    return table.cast(pa.schema([pa.field(f.name, types.get(f.name, f.type)) for f in table.schema]))


def large(t):
    if pa.types.is_string(t):
        return pa.large_string()
    if pa.types.is_list(t):
        return pa.large_list(large(t.value_type))
    if pa.types.is_struct(t):
        return pa.struct([pa.field(f.name, large(f.type)) for f in t])
    return t


def everywhere(table, change):
    return table.cast(pa.schema([pa.field(f.name, change(f.type)) for f in table.schema]))


def by_pyarrow(table, to):
    pq.write_table(table, to("pyarrow"))
    pq.write_table(table, to("pyarrow-v1-small"), row_group_size=37, data_page_version="1.0", version="1.0", compression="gzip", data_page_size=512)
    pq.write_table(table, to("pyarrow-v2-zstd"), data_page_version="2.0", compression="zstd", write_page_checksum=True)
    pq.write_table(table, to("pyarrow-lz4"), compression="lz4", use_dictionary=False, column_encoding={"difficulty": "BYTE_STREAM_SPLIT", "id": "DELTA_BYTE_ARRAY"})
    pq.write_table(table, to("pyarrow-brotli"), compression="brotli", use_compliant_nested_type=False)
    pq.write_table(table.replace_schema_metadata(None), to("pyarrow-no-schema"), store_schema=False)
    pq.write_table(everywhere(table, large), to("pyarrow-large"))
    dictionary = pa.dictionary(pa.int32(), pa.string())
    pq.write_table(typed(table, data_source=dictionary, ability=dictionary, id=dictionary), to("pyarrow-dictionary"))
    view = table.set_column(table.schema.get_field_index("ability"), "ability", table["ability"].cast(pa.string_view()))
    pq.write_table(view, to("pyarrow-string-view"))
    tags = table.schema.get_field_index("tags")
    pq.write_table(table.set_column(tags, "tags", pa.array(table["tags"].to_pylist(), pa.list_view(pa.string()))), to("pyarrow-list-view"))
    pq.write_table(table.append_column("nothing", pa.nulls(table.num_rows)), to("pyarrow-null-column"))


def by_pandas(rows, to):
    d = pandas.DataFrame(rows)
    d.to_parquet(to("pandas"), index=False)
    d["data_source"] = d["data_source"].astype("category")
    d["ability"] = d["ability"].astype("string")
    d.to_parquet(to("pandas-category"), index=False, compression="zstd")
    d.convert_dtypes(dtype_backend="pyarrow").to_parquet(to("pandas-on-arrow"), index=False)
    d["prompt"] = d["prompt"].map(lambda p: numpy.array(p, dtype=object))  # what reading it back gives
    d.to_parquet(to("pandas-arrays"), index=False)


def by_polars(table, to):
    d = polars.from_arrow(table)
    d.write_parquet(to("polars"))
    d.with_columns(polars.col("data_source").cast(polars.Categorical)).write_parquet(to("polars-categorical"), compression="snappy", row_group_size=64)
    d.with_columns(polars.col("data_source").cast(polars.Enum(["domain-0", "domain-1", "domain-2"]))).write_parquet(to("polars-enum"), statistics=False)
    d.lazy().sink_parquet(to("polars-sink"))
    d.with_columns(polars.lit(None).alias("nothing")).write_parquet(to("polars-null-column"))
    d.write_parquet(to("polars-by-pyarrow"), use_pyarrow=True)


def by_duckdb(table, to):
    with duckdb.connect() as db:
        db.register("t", table)
        for name, how in ("duckdb", ""), ("duckdb-v2", ", PARQUET_VERSION 'v2', COMPRESSION 'zstd', ROW_GROUP_SIZE 2048"):
            db.execute(f"COPY (SELECT * FROM t ORDER BY id) TO '{to(name)}' (FORMAT parquet{how})")
        db.execute("CREATE TYPE d AS ENUM ('domain-0', 'domain-1', 'domain-2')")
        db.execute(f"COPY (SELECT * REPLACE (data_source::d AS data_source) FROM t ORDER BY id) TO '{to('duckdb-enum')}' (FORMAT parquet)")


def by_datasets(rows, table, to):
    datasets.disable_progress_bars()
    datasets.Dataset(table).to_parquet(to("datasets"))
    datasets.Dataset.from_list(rows).to_parquet(to("datasets-from-list"))
    d = datasets.Dataset(table)
    d.cast_column("id", datasets.Value("large_string")).to_parquet(to("datasets-large"), batch_size=50)


def types(path):
    """Two rows of every other type; the second one null."""
    utc, t = datetime.timezone.utc, datetime.datetime(2026, 11, 30, 22, 5, 1, 234567)
    columns = {
        "decimal": pa.array([decimal.Decimal("-12.50"), None], pa.decimal128(10, 2)),
        "decimal_wide": pa.array([decimal.Decimal("1234567890123456789012345678901234567890.5"), None], pa.decimal256(60, 1)),
        "decimal_small": pa.array([decimal.Decimal("7"), None], pa.decimal128(4, 0)),
        "time_s_zone": pa.array([t.replace(microsecond=0, tzinfo=utc), None], pa.timestamp("s", "UTC")),
        "time_ms": pa.array([t.replace(microsecond=234000), None], pa.timestamp("ms")),
        "time_us_zone": pa.array([t.replace(tzinfo=utc), None], pa.timestamp("us", "Europe/Oslo")),
        "time_ns": pa.array([1_764_540_301_234_567_891, None], pa.timestamp("ns")),
        "date": pa.array([datetime.date(2026, 11, 30), None], pa.date32()),
        "clock": pa.array([datetime.time(22, 5, 1, 234567), None], pa.time64("us")),
        "duration": pa.array([90_000_000, None], pa.duration("us")),
        "bytes": pa.array([b"\x00\xff", None], pa.binary()),
        "fixed": pa.array([b"\x01\x02\x03", None], pa.binary(3)),
        "uint64": pa.array([2**64 - 1, None], pa.uint64()),
        "int64": pa.array([-(2**63), None], pa.int64()),
        "int8": pa.array([-128, None], pa.int8()),
        "half": pa.array([0.5, None], pa.float16()),
        "float": pa.array([0.1, None], pa.float32()),
        "nan": pa.array([float("nan"), None], pa.float64()),
        "infinite": pa.array([float("-inf"), None], pa.float32()),
        "bool": pa.array([False, None], pa.bool_()),
        "map": pa.array([[("a", 1), ("b", None)], None], pa.map_(pa.string(), pa.int32())),
        "fixed_list": pa.array([[1, 2], None], pa.list_(pa.int32(), 2)),
        "lists": pa.array([[[1], None, []], None], pa.list_(pa.list_(pa.int32()))),
        "nothing": pa.nulls(2),
        "json": pa.array(['{"b": 1, "a": [null]}', None], pa.json_()),
        "uuid": pa.array([uuid.UUID(int=5).bytes, None], pa.uuid()),
    }
    pq.write_table(pa.table({"id": ["full", "null"], "prompt": ["p", "q"], **columns}), path)


def bad_text(path):
    """Three rows, the second with text that is none."""
    prompt = pa.array([b"one", b"t\xffo", b"three"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"id": ["a", "b", "c"], "prompt": prompt}), path)


def main():
    folder, f = sys.argv[1], Facts()
    files = []

    def to(name):
        files.append(name)
        return os.path.join(folder, name + ".parquet")

    rows = [row(i) for i in range(ROWS)]
    with open(os.path.join(folder, "tasks.jsonl"), "w", encoding="utf-8") as file:
        file.writelines(json.dumps(without_nulls(r)) + "\n" for r in rows)
    table = pa.Table.from_pylist(rows)
    for name, write, args in (
        ("pyarrow", by_pyarrow, (table,)), ("pandas", by_pandas, (rows,)), ("polars", by_polars, (table,)), ("duckdb", by_duckdb, (table,)),
        ("datasets", by_datasets, (rows, table)),
    ):
        f.run(name, write, *args, to)
    f.run("types", types, os.path.join(folder, "types.parquet"))
    f.run("bad text", bad_text, os.path.join(folder, "bad-text.parquet"))
    f.note("rows", ROWS)
    f.note("files", files)
    f.end()


main()
