"""AsyncOpenAI against a server that answers at once: client.py httpx|aiohttp BASE_URL CONCURRENCY true|false(stream) [SECONDS]

Prints one JSON object. One process, one event loop: one core at most.
"""

import asyncio
import json
import resource
import sys
import time

import openai


async def main():
    backend, url, workers, stream = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "true"
    seconds = float(sys.argv[5]) if len(sys.argv) > 5 else 4.0
    limits = dict(max_retries=0, api_key="none", base_url=url)
    if backend == "aiohttp":
        limits["http_client"] = openai.DefaultAioHttpClient()
    done = 0

    async with openai.AsyncOpenAI(**limits) as client:

        async def one():
            reply = await client.chat.completions.create(
                model="null", messages=[{"role": "user", "content": "x"}], max_tokens=64, stream=stream
            )
            if not stream:
                return len(reply.choices[0].message.content)
            n = 0
            async for chunk in reply:
                n += len(chunk.choices[0].delta.content or "")
            return n

        async def work(until):
            nonlocal done
            while time.monotonic() < until:
                assert await one() > 0
                done += 1

        await asyncio.gather(*(one() for _ in range(workers)))  # the connections are there
        began, used = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF)
        await asyncio.gather(*(work(began + seconds) for _ in range(workers)))
        took, now = time.monotonic() - began, resource.getrusage(resource.RUSAGE_SELF)
    cpu = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    json.dump({"openai": openai.__version__, "backend": backend, "requests_per_s": done / took, "cpu_us_per_request": 1e6 * cpu / done}, sys.stdout)


asyncio.run(main())
