"""Does our reader say of a Parquet file what pyarrow says? compare_foreign.py OURS FILE [OURS FILE]...

OURS holds what storage.ReadObjects gave of FILE, an object a line. Each value is compared by the type of its column, in large files those of
every so manieth row. Prints, for each FILE by its name: rows, or why pyarrow does not read it; a difference is a fault.
"""

import base64
import datetime
import decimal
import json
import math
import os
import re
import struct
import sys
import uuid

import pyarrow as pa
import pyarrow.parquet as pq

from facts import Facts

MOST_ROWS = 200
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def whole(text):
    """-0 is a number of a float column; Python would take it for 0."""
    return -0.0 if text == "-0" else int(text)


def instant(text, unit):
    """A time as our reader writes it, as a whole number of units since 1970 (or of the day): a number where the year has more than four digits."""
    if re.fullmatch(r"-?\d{5,}", text):
        return int(text)
    m = re.fullmatch(r"(?:(-?\d{4,})-(\d\d)-(\d\d))?[ T]?(?:(\d\d):(\d\d):(\d\d)(?:\.(\d+))?)?(Z|[+-]\d\d:?\d\d)?", text)
    if not m:
        raise ValueError(f"{text!r} is no time")
    year, month, day, hour, minute, second, fraction, zone = m.groups()
    days = (datetime.date(int(year), int(month), int(day)) - datetime.date(1970, 1, 1)).days if year else 0
    seconds = days * 86400 + int(hour or 0) * 3600 + int(minute or 0) * 60 + int(second or 0)
    if zone and zone != "Z":
        sign, digits = (-1 if zone[0] == "-" else 1), zone[1:].replace(":", "")
        seconds -= sign * (int(digits[:2]) * 3600 + int(digits[2:]) * 60)
    nanos = int((fraction or "0").ljust(9, "0"))
    return (seconds * 10**9 + nanos) // (10**9 // PER_SECOND[unit])


def same_float(ours, v, width):
    if not isinstance(ours, (int, float)):
        ours = float(ours)  # NaN and the infinities are text
    if math.isnan(v) or math.isnan(ours):
        return math.isnan(v) and math.isnan(ours)
    return struct.pack(width, ours) == struct.pack(width, v)  # -0.0 is not 0.0


def same(ours, s):
    """ours against an arrow scalar."""
    t = s.type
    if pa.types.is_dictionary(t):
        return same(ours, s.value)
    if not s.is_valid:
        return ours is None
    if ours is None:
        return False
    if isinstance(s, pa.ExtensionScalar):
        if t.extension_name == "arrow.uuid":
            return uuid.UUID(ours) == s.as_py()
        if t.extension_name == "arrow.json":
            return ours == json.loads(s.as_py())
        return same(ours, s.value)
    if pa.types.is_map(t):
        pairs = s.values
        return isinstance(ours, list) and len(ours) == len(pairs) and all(same(o["key"], p["key"]) and same(o["value"], p["value"]) for o, p in zip(ours, pairs))
    if pa.types.is_struct(t):
        return isinstance(ours, dict) and ours.keys() == {f.name for f in t} and all(same(ours[f.name], s[f.name]) for f in t)
    if isinstance(s, pa.ListScalar) or pa.types.is_fixed_size_list(t):
        return isinstance(ours, list) and len(ours) == len(s.values) and all(map(same, ours, s.values))
    if pa.types.is_timestamp(t) or pa.types.is_time(t):
        return instant(ours, t.unit) == s.value
    if pa.types.is_duration(t):
        return ours == s.value
    if pa.types.is_date(t):
        return datetime.date.fromisoformat(ours) == s.as_py()
    if pa.types.is_decimal(t):
        return decimal.Decimal(ours) == s.as_py()
    if pa.types.is_floating(t):
        return same_float(ours, s.as_py(), {16: "e", 32: "f", 64: "d"}[t.bit_width])
    if pa.types.is_string(t) or pa.types.is_large_string(t) or pa.types.is_string_view(t):
        return ours == s.as_py()
    if pa.types.is_binary(t) or pa.types.is_large_binary(t) or pa.types.is_fixed_size_binary(t) or pa.types.is_binary_view(t):
        return base64.b64decode(ours) == s.as_py()
    return type(ours) is type(s.as_py()) and ours == s.as_py()


def compare(name, ours, path, f):
    try:
        table = pq.ParquetFile(path, page_checksum_verification=True).read()
    except Exception as e:
        return f"{type(e).__name__}: {e}".splitlines()[0]
    with open(ours, encoding="utf-8") as file:
        rows = [json.loads(line, parse_int=whole) for line in file]
    if not f.equal(f"{name}: rows", len(rows), table.num_rows):
        return len(rows)
    for c, column in zip(table.column_names, table.columns):
        for i in range(0, len(column), max(1, len(column) // MOST_ROWS)):
            s, got = column[i], rows[i][c] if c in rows[i] else "(no such column)"
            f.checks += 1
            if not f.run(f"{name}: column {c} ({s.type}), row {i}", same, got, s):
                f.check(False, f"{name}: column {c} ({s.type}), row {i}: {str(s)[:200]}, ours {str(got)[:200]}")
                break
    return len(rows)


def main():
    f, args = Facts(), sys.argv[1:]
    for ours, path in zip(args[::2], args[1::2]):
        name = os.path.basename(path)
        f.note(name, f.run(name, compare, name, ours, path, f))
    f.end()


main()
