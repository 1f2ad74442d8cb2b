"""Processes of tests: lapse itself, and a proxy whose connections can be cut."""

import asyncio
import os
import socket
import subprocess
from pathlib import Path
from typing import Self

# The environment of a process of a test.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("LAPSE_")}
ENVIRONMENT["PYTHONPATH"] = str(Path(__file__).parents[1] / "src")
BINARY = os.environ.get("LAPSE_BINARY") or "lapse"


def free_port() -> int:
    """Returns a port of 127.0.0.1 that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as s:
        port: int = s.getsockname()[1]
        return port


class Serve:
    """Runs `lapse serve` at a port. As a context manager it kills the process at the end."""

    def __init__(self, port: int, *args: str) -> None:
        self.port = port
        self._command = [BINARY, "serve", "--listen", f"127.0.0.1:{port}", "--console", "off", *args]

    async def start(self) -> None:
        """Starts the process and waits until it serves."""
        pipe = asyncio.subprocess.PIPE
        self._child = await asyncio.create_subprocess_exec(*self._command, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=pipe)
        assert self._child.stderr
        last = b""
        while b"ready" not in last:
            line = await self._child.stderr.readline()
            assert line, f"{self._command} did not start: {last.decode()}"
            last = line
        self._drain = asyncio.create_task(self._child.stderr.read())

    async def kill(self) -> None:
        await kill(self._child)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()


async def kill(child: asyncio.subprocess.Process) -> None:
    """Kills a process with SIGKILL."""
    if child.returncode is None:
        child.kill()
        await child.wait()


class Proxy:
    """A proxy to a port. drop_reply cuts the connection of a client instead of passing a reply on."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.drop_reply = False

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()

    def cut(self) -> None:
        """Ends all connections."""
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        for task in (self._pass(reader, up_writer, False), self._pass(up_reader, writer, True)):
            self._tasks.add(asyncio.create_task(task))
        self._writers |= {writer, up_writer}

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, replies: bool) -> None:
        try:
            while data := await reader.read(1 << 16):
                if replies and self.drop_reply and b"Lapse-Status" in data:
                    self.drop_reply = False
                    break
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.transport.abort()
            self._writers.discard(writer)
