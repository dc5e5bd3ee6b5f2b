"""The lower bounds: the same rollouts in a bare asyncio script, with no framework around the client.

    python -m benchmarks.floors openai|aiohttp DATASET N IN_FLIGHT BASE_URL RESULTS

The script reads the dataset, keeps IN_FLIGHT requests in flight, retries as the client does (aiohttp: not at all),
compares the answers, and writes one JSON file.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

Ask = Callable[[list[dict[str, Any]]], Awaitable[str]]


async def roll_out(rows: list[dict[str, Any]], n: int, in_flight: int, ask: Ask) -> list[dict[str, Any]]:
    """Ask for every row n times, `in_flight` at once."""
    waiting = iter([(index, run) for index in range(len(rows)) for run in range(n)])
    done: list[dict[str, Any]] = []

    async def worker() -> None:
        for index, run in waiting:
            row = rows[index]
            try:
                answer: str | None = await ask([{"role": "user", "content": row["user_prompt"]}])
            except Exception:
                answer = None
            score = None if answer is None else float(answer.endswith(row["ground_truth"]))
            done.append({"row": index, "run": run, "answer": answer, "score": score})

    await asyncio.gather(*(worker() for _ in range(in_flight)))
    return done


async def with_openai(base_url: str, in_flight: int, work: Callable[[Ask], Awaitable[Any]]) -> Any:
    """Run `work` with AsyncOpenAI in its default configuration."""
    from openai import AsyncOpenAI

    async with AsyncOpenAI(base_url=base_url, api_key="none") as client:

        async def ask(messages: list[dict[str, Any]]) -> str:
            reply = await client.chat.completions.create(model="served", messages=messages)  # type: ignore[arg-type]
            return reply.choices[0].message.content or ""

        return await work(ask)


async def with_aiohttp(base_url: str, in_flight: int, work: Callable[[Ask], Awaitable[Any]]) -> Any:
    """Run `work` straight over aiohttp."""
    import aiohttp

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=in_flight)) as session:

        async def ask(messages: list[dict[str, Any]]) -> str:
            body = {"model": "served", "messages": messages}
            async with session.post(f"{base_url}/chat/completions", json=body) as response:
                response.raise_for_status()
                return str((await response.json())["choices"][0]["message"]["content"])

        return await work(ask)


def main(client: str, dataset: str, n: str, in_flight: str, base_url: str, results: str) -> None:
    rows = [json.loads(line) for line in Path(dataset).read_text().splitlines()]
    run = {"openai": with_openai, "aiohttp": with_aiohttp}[client]
    done = asyncio.run(run(base_url, int(in_flight), lambda ask: roll_out(rows, int(n), int(in_flight), ask)))
    Path(results).write_text(json.dumps(done))


if __name__ == "__main__":
    main(*sys.argv[1:])
