"""Feeds and writes while processes, connections and the server end."""

import asyncio
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from process import ENVIRONMENT, Proxy, Serve, free_port, kill
from vectors import listed

import lapse

TESTS = Path(__file__).parent
READER = TESTS.parents[1] / "typescript/test/testdata/reader"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Serve]:
    async with Serve(free_port(), "--store-dir", str(tmp_path / "store")) as server:
        yield server


async def write(db: lapse.Database, stop: asyncio.Event) -> list[int]:
    """Writes until stop is set, with pauses for the readers; returns the sequences of the writes."""
    seqs = []
    while not stop.is_set():
        n = len(seqs)
        seqs.append((await db.collection("c").upsert(str(n % 10), {"n": n})).seq)
        await asyncio.sleep(0.005)
    return seqs


async def test_writes_and_feeds_go_on_when_the_server_is_killed(server: Serve) -> None:
    async with lapse.connect(f"nats://127.0.0.1:{server.port}", timeout=60) as db:
        await db.create_collection("c")
        stop = asyncio.Event()
        read: dict[str, dict[int, None]] = {"": {}, "d": {}}  # each sequence in the order of its first time
        repeats = 0
        more = asyncio.Event()

        async def follow(durable: str) -> None:
            nonlocal repeats
            types = ["DocumentCreated", "DocumentReplaced"]
            async with db.changes(durable=durable or None, from_="start", types=types) as events:
                async for event in events:
                    repeats += durable == "" and event.seq in read[durable]
                    read[durable][event.seq] = None
                    more.set()

        async def reach(n: int) -> None:
            while min(map(len, read.values())) < n:
                more.clear()
                await more.wait()

        async with asyncio.TaskGroup() as group:
            writing = group.create_task(write(db, stop))
            readers = [group.create_task(follow(durable)) for durable in read]
            for _ in range(2):
                await reach(max(map(len, read.values())) + 50)
                await server.kill()
                await server.start()
            await reach(max(map(len, read.values())) + 50)
            stop.set()
            written = await writing  # each is applied once
            await reach(len(written))
            for reader in readers:
                reader.cancel()
        assert (list(read[""]), repeats) == (written, 0)
        assert list(read["d"]) == written


async def test_a_handler_continues_after_a_kill_without_skipping(server: Serve) -> None:
    async with lapse.connect(f"nats://127.0.0.1:{server.port}", timeout=60) as db:
        await db.create_collection("c")
        await db.collection("c").batch(lapse.Op.create(str(n), {"n": n}) for n in range(300))
        seen: list[str] = []
        killed = False

        async def handler(event: lapse.Event) -> None:
            nonlocal killed
            if len(seen) == 100 and not killed:
                killed = True
                await server.kill()
                await server.start()
            seen.append(event.id or "")

        await db.handle(handler, durable="d", from_="start", until="now", types=["DocumentCreated"], workers=4)
        assert len(set(seen)) == 300


@pytest.mark.skipif(not shutil.which("go") or not READER.exists(), reason="LEFT OUT: it needs go")
async def test_one_durable_is_read_by_go_and_python_in_turns(server: Serve, tmp_path: Path) -> None:
    go = tmp_path / "reader"
    await asyncio.to_thread(subprocess.run, ["go", "build", "-o", go, "."], cwd=READER, check=True)
    file = tmp_path / "events"
    file.touch()
    readers: list[asyncio.subprocess.Process] = []

    def lines() -> list[str]:
        return file.read_text().split("\n")[:-1]

    async def more(n: int) -> None:
        want = len(lines()) + n
        async with asyncio.timeout(120):
            while len(lines()) < want:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    async with (
        Proxy(server.port) as proxy,
        lapse.connect(f"nats://127.0.0.1:{server.port}", timeout=60) as db,
    ):

        async def start(language: str, *end: str) -> asyncio.subprocess.Process:
            command = [str(go)] if language == "go" else [sys.executable, str(TESTS / "turns.py")]
            args = (f"nats://127.0.0.1:{proxy.port}", "main", "turns", str(file), *end)
            readers.append(await asyncio.create_subprocess_exec(*command, *args, env=ENVIRONMENT))
            return readers[-1]

        await db.create_collection("c")
        stop = asyncio.Event()
        writing = asyncio.create_task(write(db, stop))
        try:
            for language in ("go", "python", "go", "python"):
                reader = await start(language)
                await more(30)
                await kill(reader)
            both = [await start("python"), await start("go")]  # one reads, the other waits
            await more(30)
            proxy.cut()
            await more(30)
            await server.kill()
            await server.start()
            await more(30)
            for language in ("python", "go"):
                proxy.cut()
                await kill(both.pop(0))
                both.append(await start(language))
                await more(30)
            stop.set()
            await writing
            all = [e.seq for e in await listed(db.changes(from_="start", types=["DocumentReplaced"], until="now"))]
            for reader in both:
                await kill(reader)
            last = await start("python", "end")
            assert await last.wait() == 0
        finally:
            for reader in readers:
                await kill(reader)
        *handled, end = lines()
        assert end == "end"
        # Each event is handled, and for the first time after all before it.
        assert list(dict.fromkeys(map(int, handled))) == all
        print(f"{len(all)} events, {len(handled) - len(all)} repeats")
