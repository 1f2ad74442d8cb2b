"""Reads a durable, as sdk/typescript/test/testdata/reader does with the Go client: turns.py URL DATABASE DURABLE FILE [end]."""

import asyncio
import sys

import lapse


async def main(url: str, database: str, durable: str, file: str, end: str | None = None) -> None:
    async with lapse.connect(url, database=database) as db:
        with open(file, "a", buffering=1) as out:  # noqa: ASYNC230
            until = "now" if end else None
            async with db.changes(durable=durable, ack_wait="1s", types=["DocumentReplaced"], from_="start", until=until) as events:
                async for event in events:
                    print(event.seq, file=out)
            print("end", file=out)


asyncio.run(main(*sys.argv[1:]))
