"""Follows the feed of a run until it has so many rows, through every end of the feed and of the run, and prints what came.

Usage: trainer.py URL ROWS SEEN    (the number of rows so far is written to the file SEEN, 0 at the start)
"""
import http.client
import json
import sys
import time
import urllib.error
import urllib.request

import pyarrow

url, rows, seen = sys.argv[1], int(sys.argv[2]), sys.argv[3]
ids, cursor, streams, broken = [], "", 0, 0
deadline = time.time() + 150
with open(seen, "w") as f:
    f.write("0")
while len(ids) < rows and time.time() < deadline:
    try:
        response = urllib.request.urlopen(url + "/v1/rows?follow=1&wait=2s&consumer=trainer" + (cursor and "&cursor=" + cursor), timeout=60)
        streams += 1
        for batch, meta in pyarrow.ipc.open_stream(response).iter_batches_with_custom_metadata():
            ids += batch["episode_id"].to_pylist()
            cursor = meta[b"cursor"].decode()
            with open(seen, "w") as f:
                f.write(str(len(ids)))
            urllib.request.urlopen(url + "/v1/ack?consumer=trainer&cursor=" + cursor, data=b"", timeout=60).read()
    except (OSError, http.client.HTTPException, pyarrow.ArrowException) as e:
        if isinstance(e, urllib.error.HTTPError):
            raise SystemExit(f"{e}: {e.read()}")
        broken += 1
        time.sleep(0.1)
print(json.dumps({"rows": len(ids), "ids": ids, "streams": streams, "broken": broken, "cursor": cursor}))
