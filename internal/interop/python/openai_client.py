"""The official openai package against a server: openai_client.py BASE_URL MODEL [CONTEXT_TOKENS]

Checks what an application relies on: chat, streaming, tools, completions, models, several choices, logprobs, errors. The
server must call a tool of the name "calculator" when it is offered one and the question is an addition.
"""

import json
import sys

import openai

from facts import Facts

CALCULATOR = {
    "type": "function",
    "function": {
        "name": "calculator",
        "description": "Work out an arithmetic expression.",
        "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]},
    },
}
QUESTION = [{"role": "user", "content": "What is 17 + 25?"}]


def chat(client, model, f):
    r = client.chat.completions.create(model=model, messages=QUESTION, max_tokens=32, temperature=0)
    f.equal("chat: object", r.object, "chat.completion")
    f.equal("chat: choices", len(r.choices), 1)
    f.equal("chat: role", r.choices[0].message.role, "assistant")
    f.check(r.choices[0].message.content, "chat: the answer has no content")
    f.check(r.choices[0].finish_reason in ("stop", "length"), f"chat: finish_reason {r.choices[0].finish_reason!r}")
    f.check(r.id and r.created and r.model, f"chat: id, created and model must be set: {r.id!r} {r.created!r} {r.model!r}")
    usage(f, "chat", r.usage, 32)


def usage(f, what, u, most):
    if not f.check(u is not None, f"{what}: no usage"):
        return
    f.check(u.prompt_tokens > 0, f"{what}: prompt_tokens {u.prompt_tokens}")
    f.check(0 < u.completion_tokens <= most, f"{what}: completion_tokens {u.completion_tokens} not in 1..{most}")
    f.equal(f"{what}: total_tokens", u.total_tokens, u.prompt_tokens + u.completion_tokens)


def length(client, model, f):
    r = client.chat.completions.create(model=model, messages=QUESTION, max_tokens=1)
    f.equal("max_tokens=1: finish_reason", r.choices[0].finish_reason, "length")
    f.equal("max_tokens=1: completion_tokens", r.usage.completion_tokens, 1)


def stream(client, model, f):
    chunks = list(
        client.chat.completions.create(model=model, messages=QUESTION, max_tokens=32, temperature=0, stream=True, stream_options={"include_usage": True})
    )
    whole = client.chat.completions.create(model=model, messages=QUESTION, max_tokens=32, temperature=0)
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    ends = [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason]
    f.check(len(chunks) > 2, f"stream: {len(chunks)} chunks")
    f.equal("stream: object of every chunk", {c.object for c in chunks}, {"chat.completion.chunk"})
    f.equal("stream: ids in one stream", len({c.id for c in chunks}), 1)
    f.equal("stream: the text is that of the same request without stream", text, whole.choices[0].message.content)
    f.equal("stream: finish reasons", ends, [whole.choices[0].finish_reason])
    f.equal("stream: chunks with usage", [i for i, c in enumerate(chunks) if c.usage], [len(chunks) - 1])
    f.equal("stream: choices of the usage chunk", chunks[-1].choices, [])
    usage(f, "stream", chunks[-1].usage, 32)
    f.equal("stream: completion_tokens as without stream", chunks[-1].usage.completion_tokens, whole.usage.completion_tokens)


def tools(client, model, f):
    r = client.chat.completions.create(model=model, messages=QUESTION, tools=[CALCULATOR], max_tokens=128)
    f.equal("tools: finish_reason", r.choices[0].finish_reason, "tool_calls")
    calls = r.choices[0].message.tool_calls or []
    if not f.equal("tools: calls", len(calls), 1):
        return
    call = calls[0]
    f.equal("tools: type and name", (call.type, call.function.name), ("function", "calculator"))
    f.check(call.id, "tools: the call has no id")
    f.check(isinstance(json.loads(call.function.arguments).get("expression"), str), f"tools: arguments {call.function.arguments!r}")

    answer = {"role": "tool", "tool_call_id": call.id, "content": "42"}
    r2 = client.chat.completions.create(
        model=model, messages=[*QUESTION, r.choices[0].message.model_dump(exclude_none=True), answer], tools=[CALCULATOR], max_tokens=128
    )
    f.equal("tools: finish_reason after the tool's answer", r2.choices[0].finish_reason, "stop")
    f.check("42" in (r2.choices[0].message.content or ""), f"tools: the tool said 42, the model {r2.choices[0].message.content!r}")
    f.check(r2.usage.prompt_tokens > r.usage.prompt_tokens, "tools: the second prompt is no longer than the first")


def tools_streamed(client, model, f):
    name, arguments, ends = "", "", []
    for c in client.chat.completions.create(model=model, messages=QUESTION, tools=[CALCULATOR], max_tokens=128, stream=True):
        for choice in c.choices:
            ends += [choice.finish_reason] if choice.finish_reason else []
            for t in choice.delta.tool_calls or []:
                name += t.function.name or ""
                arguments += t.function.arguments or ""
    f.equal("tools, streamed: name", name, "calculator")
    f.check("expression" in json.loads(arguments), f"tools, streamed: arguments {arguments!r}")
    f.equal("tools, streamed: finish reasons", ends, ["tool_calls"])


def completions(client, model, f):
    r = client.completions.create(model=model, prompt="One, two, three,", max_tokens=8, temperature=0)
    f.equal("completions: object", r.object, "text_completion")
    f.check(r.choices[0].text, "completions: no text")
    usage(f, "completions", r.usage, 8)
    parts = list(client.completions.create(model=model, prompt="One, two, three,", max_tokens=8, temperature=0, stream=True))
    f.equal("completions, streamed: text", "".join(c.choices[0].text for c in parts if c.choices), r.choices[0].text)
    two = client.completions.create(model=model, prompt=["One,", "Two,"], max_tokens=4, n=2)
    f.equal("completions: two prompts, n=2: indexes", sorted(c.index for c in two.choices), [0, 1, 2, 3])


def models(client, model, f):
    ids = [m.id for m in client.models.list()]
    f.check(model in ids, f"models: {model!r} is not in {ids}")


def several(client, model, f):
    r = client.chat.completions.create(model=model, messages=QUESTION, n=2, max_tokens=16)
    f.equal("n=2: indexes", sorted(c.index for c in r.choices), [0, 1])
    f.check(all(c.message.content for c in r.choices), "n=2: a choice has no content")
    f.check(r.usage.completion_tokens >= 2, f"n=2: completion_tokens {r.usage.completion_tokens}")


def logprobs(client, model, f):
    r = client.chat.completions.create(model=model, messages=QUESTION, logprobs=True, top_logprobs=2, max_tokens=8)
    items = r.choices[0].logprobs.content
    f.equal("logprobs: one for each sampled token", len(items), r.usage.completion_tokens)
    f.check(all(i.logprob <= 0 for i in items), f"logprobs: one is over 0: {[i.logprob for i in items]}")
    f.check(all(len(i.top_logprobs) == 2 for i in items), f"logprobs: top_logprobs {[len(i.top_logprobs) for i in items]}")
    f.equal("logprobs: the tokens are the text", "".join(i.token for i in items), r.choices[0].message.content)


def errors(client, model, context, f):
    try:
        client.chat.completions.create(model="no-such-model", messages=QUESTION)
        f.check(False, "unknown model: no error")
    except openai.NotFoundError as e:
        f.check("no-such-model" in e.message, f"unknown model: the message does not name it: {e.message}")
    try:
        client.chat.completions.create(model=model, messages=[{"role": "user", "content": "word " * (2 * context)}], max_tokens=16)
        f.check(False, "overflow: no error")
    except openai.BadRequestError as e:
        f.check(str(context) in e.message, f"overflow: the message does not name the limit of {context} tokens: {e.message}")
    try:
        client.chat.completions.create(model=model, messages="not a list")
        f.check(False, "messages of the wrong type: no error")
    except openai.BadRequestError:
        f.check(True, "")
    except openai.UnprocessableEntityError:
        f.check(True, "")


def main():
    url, model = sys.argv[1], sys.argv[2]
    client = openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=30)
    f = Facts()
    f.note("openai", openai.__version__)
    card = next(m for m in client.models.list() if m.id == model)
    context = f.note("context", int(sys.argv[3]) if len(sys.argv) > 3 else card.max_model_len)
    for part in (models, chat, length, stream, tools, tools_streamed, completions, several, logprobs):
        f.run(part.__name__, part, client, model, f)
    f.run("errors", errors, client, model, context, f)
    f.end()


main()
