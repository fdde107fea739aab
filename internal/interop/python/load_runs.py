"""Run directories, column by column, through every reader of others: load_runs.py RUN_DIR...

Beside each run lies RUN_DIR.rows.json, what `tranche view RUN_DIR -n N --json` printed, and RUN_DIR.summary.json, what it prints without
-n. Every reader must give the rows of parts/, and of failures/ where there are any, with the values of every column as they stand there;
sums must be those of the summary. Then all runs are one data set, with a part without rows between them. Prints the facts.
"""

import base64
import datetime
import glob
import json
import os
import sys
import tempfile

import duckdb
import numpy
import pandas
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from facts import Facts

os.environ["HF_DATASETS_OFFLINE"] = "1"
import datasets  # noqa: E402  (after the line above)

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


def plain(v):
    """A value as every reader can say it: lists, dicts, and None also for NaN, which pandas has in the place of null; times in µs."""
    if type(v) is list:  # most are of token ids
        return [x if type(x) is int else plain(x) for x in v]
    if type(v) in (int, str, bool, bytes):
        return v
    if v is None or v is pandas.NaT or v is pandas.NA:
        return None
    if isinstance(v, numpy.datetime64):
        return int(v.astype("datetime64[us]").astype("int64"))
    if isinstance(v, datetime.datetime):
        return (v - (EPOCH if v.tzinfo else EPOCH.replace(tzinfo=None))) // datetime.timedelta(microseconds=1)
    if isinstance(v, numpy.generic):
        v = v.item()
    if isinstance(v, float):
        return None if v != v else v
    if isinstance(v, dict):
        return {k: plain(x) for k, x in v.items()}
    if isinstance(v, numpy.ndarray):
        return plain(v.tolist())
    return v


def typed(v, t):
    """A value of the JSON text in the type of its column."""
    if v is None:
        return None
    if pa.types.is_timestamp(t):
        return datetime.datetime.fromisoformat(v.replace("Z", "+00:00"))
    if pa.types.is_binary(t):
        return base64.b64decode(v)
    if pa.types.is_list(t):
        return [typed(x, t.value_type) for x in v]
    if pa.types.is_struct(t):
        return {f.name: typed(v[f.name], f.type) for f in t}
    return v


def ordered(rows):
    return sorted((plain(r) for r in rows), key=lambda r: r["episode_id"])


def expected(rows, schema):
    """What view says, rounded as the columns round (float32)."""
    for r in rows:
        if set(r) != set(schema.names):
            raise ValueError(f"view and the files have other columns: {sorted(set(r) ^ set(schema.names))}")
    return ordered(pa.Table.from_pylist([{f.name: typed(r[f.name], f.type) for f in schema} for r in rows], schema=schema).to_pylist())


def by_duckdb(source):
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        if isinstance(source, ds.Dataset):
            db.register("rows", source)
            return db.sql("SELECT * FROM rows").to_arrow_table().to_pylist()
        return db.sql(f"SELECT * FROM read_parquet('{source}')").to_arrow_table().to_pylist()


def hugging(folder, **how):
    return datasets.load_dataset("parquet", data_dir=folder, split="train", **how)


def readers(folder, cache):
    """name → rows of the folder. The first ones are what docs/loaders.md tells a user to type."""
    pattern = os.path.join(folder, "*.parquet")
    return {
        "pyarrow dataset": lambda: ds.dataset(folder, format="parquet").to_table().to_pylist(),
        "pyarrow table": lambda: pq.read_table(folder).to_pylist(),
        "pandas": lambda: pandas.read_parquet(folder).to_dict("records"),
        "pandas on arrow": lambda: pandas.read_parquet(folder, dtype_backend="pyarrow").to_dict("records"),
        "polars": lambda: polars.read_parquet(pattern).to_dicts(),
        "polars lazy": lambda: polars.scan_parquet(pattern).collect().to_dicts(),
        "duckdb": lambda: by_duckdb(pattern),
        "duckdb over pyarrow": lambda: by_duckdb(ds.dataset(folder, format="parquet")),
        "datasets": lambda: list(hugging(folder, cache_dir=cache)),
        "datasets streaming": lambda: list(hugging(folder, cache_dir=cache, streaming=True)),
    }


def differing(got, want):
    """The first value that differs, in words; None where all are equal."""
    if len(got) != len(want):
        return f"{len(got)} rows, expected {len(want)}"
    for g, w in zip(got, want):
        for column in w:
            if g.get(column) != w[column]:
                return f"episode {w['episode_id']}, column {column}: {str(g.get(column))[:200]}, expected {str(w[column])[:200]}"
        if g.keys() != w.keys():
            return f"columns {sorted(g.keys() ^ w.keys())} in one of the two only"
    return None


def load(folder, rows, cache, f):
    schema = pq.read_schema(sorted(glob.glob(os.path.join(folder, "*.parquet")))[0])
    want = f.run(f"{folder}: view", expected, rows, schema)
    if want is None:
        return
    for name, read in readers(folder, cache).items():
        got = f.run(f"{folder}: {name}", lambda: ordered(read()))
        if got is not None:
            fault = differing(got, want)
            f.check(fault is None, f"{folder}: {name}: {fault}")


def sums(run, f):
    """The sums of the summary, worked out by others from the files."""
    with open(run + ".summary.json") as file:
        said = json.load(file)["dataset"]
    t = pq.read_table(os.path.join(run, "parts"), columns=["reward", "num_input_tokens", "num_output_tokens"])
    mean, n, tokens_in, tokens_out = duckdb.sql(
        f"SELECT avg(reward), count(reward), sum(num_input_tokens), sum(num_output_tokens) FROM read_parquet('{run}/parts/*.parquet')"
    ).fetchall()[0]
    f.equal(f"{run}: rewards in DuckDB", n, said["reward"]["n"])
    f.equal(f"{run}: tokens in DuckDB", (int(tokens_in), int(tokens_out)), (said["tokens"]["in"], said["tokens"]["out"]))
    if n:
        for who, m in ("DuckDB", mean), ("pyarrow", pc.mean(t["reward"]).as_py()):
            f.check(abs(m - said["reward"]["mean"]) < 1e-12, f"{run}: mean reward in {who}: {m}, view says {said['reward']['mean']}")
    return t.num_rows


def together(runs, rows, cache, f):
    """All runs as one data set: mixed parts, and one without a row."""
    files = [p for run in runs for p in sorted(glob.glob(os.path.join(run, "parts", "*.parquet")))]
    empty = os.path.join(cache, "empty.parquet")
    pq.write_table(pq.read_schema(files[0]).empty_table(), empty)
    whole, files = files, [files[0], empty, *files[1:]]
    many = {
        "pyarrow": lambda: ds.dataset(files, format="parquet").to_table().num_rows,
        "pandas": lambda: len(pandas.read_parquet(files)),
        "polars": lambda: polars.read_parquet(files).height,
        "duckdb": lambda: duckdb.execute("SELECT count(*) FROM read_parquet(?)", [files]).fetchall()[0][0],
        "datasets": lambda: datasets.load_dataset("parquet", data_files=whole, split="train", cache_dir=cache).num_rows,  # it takes no file without rows
        "datasets joined": lambda: datasets.concatenate_datasets([hugging(os.path.join(r, "parts"), cache_dir=cache) for r in runs]).num_rows,
        "datasets chained": lambda: sum(1 for _ in datasets.concatenate_datasets(
            [hugging(os.path.join(r, "parts"), cache_dir=cache, streaming=True) for r in runs])),
    }
    for name, count in many.items():
        f.equal(f"all runs as one: {name}", f.run(name, count), rows)
    f.note("files", len(files))


def main():
    runs, f, rows = sys.argv[1:], Facts(), 0
    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory() as cache:
        for run in runs:
            with open(run + ".rows.json") as file:
                said = json.load(file)["episodes"]
            bad = [r for r in said if r["status"] in ("failed", "cancelled")]
            good = [r for r in said if r not in bad]
            load(os.path.join(run, "parts"), good, cache, f)
            if bad:
                load(os.path.join(run, "failures"), bad, cache, f)
            f.equal(f"{run}: rows", f.run(f"{run}: sums", sums, run, f), len(good))
            rows += len(good)
            f.note(os.path.basename(run), {
                "good": len(good), "failed": len(bad), "parts": len(glob.glob(os.path.join(run, "parts", "*.parquet"))),
                "tool_calls": sum(len(m["tool_calls"] or []) for r in said for m in r["messages"]), "raw": sum(len(r["raw"] or []) for r in said),
                "unscored": sum(r["reward"] is None for r in good), "actions": sum(len(r["actions"] or []) for r in said),
            })
        together(runs, rows, cache, f)
    f.note("rows", rows)
    f.note("readers", len(readers("", "")))
    f.end()


main()
