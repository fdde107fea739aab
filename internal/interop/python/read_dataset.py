"""A run directory through the readers of others: read_dataset.py RUN_DIR [SINCE_UNIX_SECONDS]

Opens parts/*.parquet as one table with pyarrow, DuckDB, polars, pandas and Hugging Face datasets. They must agree with each
other and with the manifest on rows, schema, nulls and values; then come the laws of the format (lengths, masks, sums).
With SINCE, the rows created from then on are summed once more under recent_*. Prints the facts as JSON; expectations about a particular run are the caller's.
"""

import collections
import glob
import hashlib
import json
import os
import sys
import tempfile

import duckdb
import pandas
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from facts import Facts

# What every reader counts on its own: the places where a null and a zero or an empty text would be confused.
COUNTED = ("rows", "reward_null", "reward_zero", "messages", "content_null", "content_empty", "reasoning_null", "calls_null", "calls_empty", "logprobs", "logprobs_null", "logprobs_zero", "output_tokens")


def files_of(run, manifest, f):
    listed = {p["path"]: p for p in manifest["parts"] + manifest["failures"]}
    for folder in ("parts", "failures"):
        found = sorted(os.path.relpath(p, run) for p in glob.glob(os.path.join(run, folder, "*")))
        f.equal(f"files under {folder}/ are those the manifest lists", found, sorted(p["path"] for p in manifest[folder]))
    f.equal("manifest: rows", manifest["rows"], sum(p["rows"] for p in manifest["parts"]))
    f.equal("manifest: failure_rows", manifest["failure_rows"], sum(p["rows"] for p in manifest["failures"]))
    for path, entry in listed.items():
        with open(os.path.join(run, path), "rb") as file:
            data = file.read()
        f.equal(f"{path}: bytes", len(data), entry["bytes"])
        f.equal(f"{path}: sha256", hashlib.sha256(data).hexdigest(), entry["sha256"])
        f.equal(f"{path}: rows", pq.read_metadata(os.path.join(run, path)).num_rows, entry["rows"])
    return [os.path.join(run, p["path"]) for p in manifest["parts"]], [os.path.join(run, p) for p in sorted(listed)]


def types_in(t):
    yield t
    if pa.types.is_struct(t):
        for i in range(t.num_fields):
            yield from types_in(t.field(i).type)
    elif pa.types.is_list(t) or pa.types.is_large_list(t):
        yield from types_in(t.value_type)


def schema(files, f):
    first = pq.read_schema(files[0])
    for path in files[1:]:
        f.check(pq.read_schema(path).equals(first, check_metadata=False), f"{path}: its schema is not that of {files[0]}")
    for field in first:
        for t in types_in(field.type):
            f.check(not pa.types.is_map(t) and not pa.types.is_null(t), f"column {field.name}: type {field.type} holds a map or a null type")
    f.check(not {"input_ids", "prompt"} & set(first.names), "no column may be named input_ids or prompt (trainers take them for something else)")
    f.note("columns", len(first.names))


def by_pyarrow(files):
    t = ds.dataset(files, format="parquet").to_table()
    messages = pc.list_flatten(t["messages"]).combine_chunks()
    content, reasoning = messages.field("content"), messages.field("reasoning_content")
    calls, logprobs = messages.field("tool_calls"), pc.list_flatten(t["logprobs"])
    reward = t["reward"]
    return {
        "rows": t.num_rows,
        "reward_null": reward.null_count,
        "reward_zero": pc.sum(pc.equal(reward, 0)).as_py() or 0,
        "messages": len(messages),
        "content_null": content.null_count,
        "content_empty": pc.sum(pc.equal(content, "")).as_py() or 0,
        "reasoning_null": reasoning.null_count,
        "calls_null": calls.null_count,
        "calls_empty": pc.sum(pc.equal(pc.list_value_length(calls), 0)).as_py() or 0,
        "logprobs": len(logprobs),
        "logprobs_null": logprobs.null_count,
        "logprobs_zero": pc.sum(pc.equal(logprobs, 0)).as_py() or 0,
        "output_tokens": pc.sum(t["num_output_tokens"]).as_py() or 0,
    }


def by_duckdb(pattern):
    q = f"""
      WITH t AS (SELECT * FROM read_parquet('{pattern}')),
           m AS (SELECT unnest(messages) AS m FROM t),
           l AS (SELECT unnest(logprobs) AS l FROM t)
      SELECT (SELECT count(*) FROM t), (SELECT count(*) FILTER (reward IS NULL) FROM t), (SELECT count(*) FILTER (reward = 0) FROM t),
             (SELECT count(*) FROM m), (SELECT count(*) FILTER (m.content IS NULL) FROM m), (SELECT count(*) FILTER (m.content = '') FROM m),
             (SELECT count(*) FILTER (m.reasoning_content IS NULL) FROM m),
             (SELECT count(*) FILTER (m.tool_calls IS NULL) FROM m), (SELECT count(*) FILTER (len(m.tool_calls) = 0) FROM m),
             (SELECT count(*) FROM l), (SELECT count(*) FILTER (l IS NULL) FROM l), (SELECT count(*) FILTER (l = 0) FROM l),
             (SELECT coalesce(sum(num_output_tokens), 0) FROM t)"""
    return dict(zip(COUNTED, map(int, duckdb.execute(q).fetchall()[0])))


def by_polars(pattern):
    t = polars.read_parquet(pattern)
    m = t.select(polars.col("messages").explode()).filter(polars.col("messages").is_not_null()).unnest("messages")
    has = t.filter(polars.col("logprobs").list.len() > 0).select(polars.col("logprobs").explode())["logprobs"]
    return {
        "rows": t.height,
        "reward_null": t["reward"].null_count(),
        "reward_zero": (t["reward"] == 0).sum(),
        "messages": m.height,
        "content_null": m["content"].null_count(),
        "content_empty": (m["content"] == "").sum(),
        "reasoning_null": m["reasoning_content"].null_count(),
        "calls_null": m["tool_calls"].null_count(),
        "calls_empty": (m["tool_calls"].list.len() == 0).sum(),
        "logprobs": len(has),
        "logprobs_null": has.null_count(),
        "logprobs_zero": (has == 0).sum(),
        "output_tokens": t["num_output_tokens"].sum(),
    }


def by_datasets(files):
    with tempfile.TemporaryDirectory() as cache:
        os.environ["HF_DATASETS_OFFLINE"] = "1"
        import datasets

        datasets.disable_progress_bars()
        t = datasets.load_dataset("parquet", data_files=files, split="train", cache_dir=cache)
        n = dict.fromkeys(COUNTED, 0)
        for row in t:
            n["rows"] += 1
            n["reward_null"] += row["reward"] is None
            n["reward_zero"] += row["reward"] == 0
            n["output_tokens"] += row["num_output_tokens"] or 0
            n["messages"] += len(row["messages"])
            for m in row["messages"]:
                n["content_null"] += m["content"] is None
                n["content_empty"] += m["content"] == ""
                n["reasoning_null"] += m["reasoning_content"] is None
                n["calls_null"] += m["tool_calls"] is None
                n["calls_empty"] += m["tool_calls"] == []
            lp = row["logprobs"] or []
            n["logprobs"] += len(lp)
            n["logprobs_null"] += sum(x is None for x in lp)
            n["logprobs_zero"] += sum(x == 0 for x in lp)
        return n


def agree(files, pattern, f):
    counts = f.run("pyarrow", by_pyarrow, files)
    f.note("pyarrow", pa.__version__)
    for name, reader, arg in (("duckdb", by_duckdb, pattern), ("polars", by_polars, pattern), ("datasets", by_datasets, files)):
        got = f.run(name, reader, arg)
        f.equal(f"{name} sees what pyarrow sees", got, counts)
    f.equal("pandas: rows", f.run("pandas", lambda: len(pandas.concat(pandas.read_parquet(p) for p in files))), counts["rows"])
    f.values.update(counts)


SUMS = ("rows_summed", "prompt_tokens", "cached_tokens", "completion_tokens")
TALLIED = (*SUMS, *("recent_" + s for s in SUMS), "sampled", "masked", "logprobs_given", "rows_with_ids", "rows_without_ids_flagged", "completion_of_ids", "tool_calls", "token_ids", "turns", "retries", "failed")


def laws(path, since, f, tally):
    """What docs/format.md promises about every row; failures/ keeps the same laws."""
    rows = pq.ParquetFile(path, page_checksum_verification=True).read().to_pylist()
    for r in rows:
        at = f"{path}: {r['task_id']} sample {r['sample_index']}"
        ids, mask, lps, versions = (r[c] or [] for c in ("token_ids", "loss_mask", "logprobs", "versions"))
        f.check(len(ids) == len(mask) == len(lps) == len(versions), f"{at}: lengths {len(ids)}, {len(mask)}, {len(lps)}, {len(versions)}")
        f.check(set(mask) <= {0, 1}, f"{at}: loss_mask holds {set(mask)}")
        f.check(all(lp is None for m, lp in zip(mask, lps) if m == 0), f"{at}: a logprob where nothing was sampled")
        f.equal(f"{at}: prompt_len", r["prompt_len"], mask.index(1) if 1 in mask else len(mask))
        turns = r["turns"] or []
        f.equal(f"{at}: num_turns", r["num_turns"], len(turns))
        known = [t["completion_tokens"] for t in turns]
        if None not in known:
            f.equal(f"{at}: num_output_tokens", r["num_output_tokens"], sum(known))
            f.check(sum(mask) <= sum(known), f"{at}: {sum(mask)} sampled ids, but the server counted {sum(known)}")
        f.check(0 < r["num_prompt_messages"] <= len(r["messages"]), f"{at}: {r['num_prompt_messages']} of {len(r['messages'])} messages are the prompt")
        for m in r["messages"]:
            f.check(m["role"] in ("system", "user", "assistant", "tool"), f"{at}: role {m['role']!r}")
        f.check((r["status"] == "failed") == (r["fault_class"] is not None), f"{at}: status {r['status']}, fault_class {r['fault_class']}")
        f.equal(f"{at}: is in", path.split(os.sep)[-2], "failures" if r["status"] == "failed" else "parts")
        scores = [s for s in r["rewards"] or [] if s["weight"]]
        if any(s["score"] is None for s in scores):
            f.equal(f"{at}: reward with a component that has no score", r["reward"], None)
        key = (r["task_id"], r["round"], r["sample_index"], r["branch_index"])
        f.check(key not in tally["keys"], f"{at}: this key is there twice")
        tally["keys"].add(key)
        tally["sampled"] += sum(mask)
        tally["masked"] += len(mask) - sum(mask)
        tally["logprobs_given"] += sum(lp is not None for lp in lps)
        tally["rows_with_ids"] += bool(ids)
        tally["rows_without_ids_flagged"] += not ids and "token_ids_missing" in (r["flags"] or [])
        tally["completion_of_ids"] += sum(n or 0 for n in known) if ids else 0
        tally["retries"] += sum(t["retries"] for t in turns)
        for call in (c for m in r["messages"] for c in m["tool_calls"] or []):
            tally["tool_calls"] += 1
            tally["arguments"][call["function"]["arguments"]] += 1
        for prefix in ("", "recent_") if r["created_at"].timestamp() >= since else ("",):
            tally[prefix + "rows_summed"] += 1
            for c in ("prompt_tokens", "cached_tokens", "completion_tokens"):
                tally[prefix + c] += sum(t[c] or 0 for t in turns)
        tally["token_ids"] += len(ids)
        tally["turns"] += len(turns)
        tally["failed"] += r["status"] == "failed"
        if r["reward"] is not None:
            tally["rewards"].append(r["reward"])


def groups(files, f):
    """All rows of a group that are in parts/ lie in one row group of one file."""
    place = {}
    for path in files:
        file = pq.ParquetFile(path)
        for i in range(file.num_row_groups):
            for g in set(file.read_row_group(i, columns=["group_id"])["group_id"].to_pylist()):
                f.check(g not in place, f"group {g} is in {place.get(g)} and in row group {i} of {path}")
                place[g] = f"row group {i} of {path}"
    f.note("groups", len(place))


def main():
    run, since = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
    f = Facts()
    with open(os.path.join(run, "manifest.json")) as file:
        manifest = json.load(file)
    parts, everything = files_of(run, manifest, f)
    if not f.check(parts, f"{run}: no parts"):
        f.end()
    f.run("schema", schema, everything, f)
    agree(parts, os.path.join(run, "parts", "*.parquet"), f)
    tally = {"keys": set(), "rewards": [], "arguments": collections.Counter(), **dict.fromkeys(TALLIED, 0)}
    for path in everything:
        f.run("laws", laws, path, since, f, tally)
    f.run("groups", groups, parts, f)
    keys, rewards = tally.pop("keys"), tally.pop("rewards")
    tally["arguments"] = dict(tally["arguments"].most_common(20))
    f.values.update(tally, parts=len(parts), keys=len(keys), reward_n=len(rewards), reward_mean=sum(rewards) / len(rewards) if rewards else None)
    f.end()


main()
