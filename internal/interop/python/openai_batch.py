"""A batch's output through the types of the official openai package: openai_batch.py INPUT OUTPUT ERRORS

Every line is read as an application reads a downloaded output file: by line, as JSON, its body as the type of its route.
"""

import json
import sys

import openai
from openai.types import Completion, CreateEmbeddingResponse
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from facts import Facts

TYPES = {
    "/v1/chat/completions": ChatCompletion,
    "/v1/completions": Completion,
    "/v1/embeddings": CreateEmbeddingResponse,
    "/v1/responses": Response,
}


def lines(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    return [json.loads(line) for line in text.splitlines()]  # splitlines knows more ends of a line than \n


def main():
    asked, answered, failed = (lines(path) for path in sys.argv[1:4])
    urls = {line["custom_id"]: line["url"] for line in asked}
    f = Facts()
    f.note("openai", openai.__version__)
    f.note("answered", len(answered))
    f.note("failed", len(failed))
    for name, some in (("output", answered), ("errors", failed)):
        ids = [line["custom_id"] for line in some]
        f.equal(f"{name}: order", ids, [i for i in urls if i in set(ids)])
    f.equal("ids", sorted(line["custom_id"] for line in answered + failed), sorted(urls))
    f.equal("ids of the results", len({line["id"] for line in answered + failed}), len(urls))
    for line in answered:
        kind = TYPES[urls[line["custom_id"]]]
        f.equal("status", line["response"]["status_code"], 200)
        f.equal("error", line["error"], None)
        body = kind.model_validate(line["response"]["body"])
        f.check(body.model and body.usage.total_tokens > 0, f"{line['custom_id']}: model and usage must be set")
        if kind is Response:
            f.check(body.output_text, f"{line['custom_id']}: no output_text")
        if kind is CreateEmbeddingResponse:
            f.check(len(body.data[0].embedding) > 0, f"{line['custom_id']}: no vector")
    for line in failed:
        f.check(line["response"]["status_code"] >= 400, f"{line['custom_id']}: status {line['response']['status_code']}")
        f.check(line["response"]["body"]["error"]["message"], f"{line['custom_id']}: no message")
    f.end()


main()
