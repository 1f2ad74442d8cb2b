"""Starts `lapse test`: databases whose clocks a test moves."""

import asyncio
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, Self
from weakref import WeakSet

import nats

from .database import Database, quiet
from .errors import LapseError
from .request import Call
from .values import Duration, check_moment, given, moment_of_ms, whole_seconds

_TIMEOUT = 60  # seconds, since a move of the clock waits for all that it brings
_numbers = itertools.count(1)

# Starts lapse, and ends it when its standard input closes: that happens when the test process
# ends, in whatever way. Nothing else kills exactly this child on each operating system.
_GUARDIAN = """
import subprocess, sys, threading
child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
threading.Thread(target=lambda: (sys.stdin.read(), child.terminate()), daemon=True).start()
sys.exit(child.wait())
"""


@dataclass(frozen=True)
class Moved:
    """Where a move of the clock ended, and how many expiries and warnings it brought."""

    now: datetime
    seq: int
    events: int


class TestDatabase(Database):
    """A database of `lapse test`, with a clock that the test moves. As a context manager it drops the database at the end."""

    __test__ = False  # no test case of pytest

    async def now(self) -> datetime:
        """Returns the time that the clock shows."""
        return moment_of_ms((await self._clock("now"))["now"])

    async def advance(self, by: Duration | datetime | Literal["due"]) -> Moved:
        """Moves the clock on: by whole seconds, to a time, or to the next second at which something is due.

        When it returns, all that came due is in the log.
        """
        to = by if by == "due" else check_moment(by).isoformat() if isinstance(by, datetime) else None
        moved = await self._clock("advance", given(to=to, by=None if to or isinstance(by, datetime) else whole_seconds(by)))
        return Moved(moment_of_ms(moved["now"]), moved["seq"], moved["events"])

    async def drop(self) -> None:
        """Removes the database with its log."""
        await self._clock("drop")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, e: BaseException | None, trace: TracebackType | None) -> None:
        try:
            await self.drop()
        except LapseError as refused:
            if refused.error != "database_not_found":
                raise
        finally:
            await self._requests.nc.close()

    async def _clock(self, request: str, body: Any = None) -> Any:
        return await self._requests.ask(Call(f"test.{request}", "once", body, timeout=_TIMEOUT))


class Server:
    """A running `lapse test`. It ends by `stop`, and with this process. `url` is that of NATS, `cosmos` that of Cosmos DB's protocol."""

    def __init__(
        self,
        binary: str | None = None,
        at: datetime | Literal["now"] | None = None,
        load: str | os.PathLike[str] | None = None,
        cosmos: str | None = None,
        args: Sequence[str] = (),
    ) -> None:
        binary = binary or os.environ.get("LAPSE_BINARY") or "lapse"
        flags = given(at=check_moment(at).isoformat() if isinstance(at, datetime) else at, load=load, cosmos=cosmos)
        command = [binary, "test", "--listen=127.0.0.1:0", *(f"--{name}={value}" for name, value in flags.items()), *args]
        env = {name: value for name, value in os.environ.items() if not name.upper().startswith("LAPSE_")}
        guardian = [sys.executable, "-I", "-c", _GUARDIAN, *command]
        with tempfile.TemporaryFile() as log:
            pipe = subprocess.PIPE
            self._child = subprocess.Popen(guardian, stdin=pipe, stdout=pipe, stderr=log, env=env, start_new_session=True)
            assert self._child.stdout
            line = self._child.stdout.readline()
            try:
                ready = json.loads(line)
            except ValueError:
                self.stop()
                log.seek(0)
                said = (log.read() + line).decode(errors="replace").strip().rpartition("\n")[2]
                raise RuntimeError(f"cannot start {binary} (the argument binary, or LAPSE_BINARY, names another): {said}") from None
        self.url: str = ready["nats"]
        self.cosmos: str | None = ready.get("cosmos")
        self._connections: WeakSet[Any] = WeakSet()

    async def open(self, *, at: datetime | None = None, **options: Any) -> TestDatabase:
        """Opens an empty database, whose clock begins at a time, by default where the server's do. options are those of Database."""
        nc = await nats.connect(self.url, error_cb=quiet)
        self._connections.add(nc)
        try:
            db = TestDatabase(nc, database=f"t{os.getpid()}-{next(_numbers)}", **options)
            await db._clock("open", None if at is None else {"at": check_moment(at).isoformat()})
        except BaseException:
            await nc.close()
            raise
        return db

    async def close(self) -> None:
        """Closes the connections of its databases."""
        for nc in list(self._connections):
            await nc.close()

    def stop(self) -> None:
        """Ends the server."""
        with suppress(BrokenPipeError):
            assert self._child.stdin and self._child.stdout
            self._child.stdin.close()
            self._child.stdout.close()
        self._child.wait()


@asynccontextmanager
async def start(
    binary: str | None = None,
    at: datetime | Literal["now"] | None = None,
    load: str | os.PathLike[str] | None = None,
    cosmos: str | None = None,
    args: Sequence[str] = (),
) -> AsyncIterator[Server]:
    """Starts `lapse test` and stops it at the end.

    The binary is the argument, else LAPSE_BINARY, else `lapse` of the path. The clocks begin
    `at` a time, by default in 2000, or run with the machine's ("now"). `load` is a file with an
    exported log, with which the database `main` begins, `cosmos` the URL at which Cosmos DB's
    protocol is served, and `args` are further arguments.
    """
    server = await asyncio.to_thread(Server, binary, at, load, cosmos, args)
    try:
        yield server
    finally:
        await server.close()
        await asyncio.to_thread(server.stop)
