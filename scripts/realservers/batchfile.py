"""Writes the batch file of scripts/run-batch.sh: N chat requests without chance, and one of each kind that is special."""
import json
import sys


def line(custom_id, url, **body):
    print(json.dumps({"custom_id": custom_id, "method": "POST", "url": url, "body": {"model": "tiny", **body}}))


def chat(custom_id, text, **more):
    line(custom_id, "/v1/chat/completions", messages=[{"role": "user", "content": text}], **{"max_tokens": 24, "temperature": 0, **more})


for i in range(int(sys.argv[1])):
    chat(f"chat-{i}", f"What is {i} + {7 * i % 31}? " + "Think about it. " * (i % 9))
chat("two-samples", "Count to three.", n=2)
chat("logprobs", "Count to three.", logprobs=True, top_logprobs=2)
chat("too-long", "Count to three.", max_tokens=20000)
chat("bad-temperature", "Count to three.", temperature=-1)
chat("seeded", "Count to three.", seed=7, temperature=1)
line("embedding", "/v1/embeddings", input="Once")
