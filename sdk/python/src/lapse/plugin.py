"""The pytest plugin: the fixture lapse_db. It needs pytest-asyncio, or the like."""

import importlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from .testing import Server, TestDatabase

try:
    fixture: Callable[[Any], Any] = importlib.import_module("pytest_asyncio").fixture
except ImportError:
    fixture = pytest.fixture


@pytest.fixture(scope="session")
def lapse_server() -> Iterator[Server]:
    """A `lapse test` for all tests."""
    server = Server()
    yield server
    server.stop()


@fixture
async def lapse_db(lapse_server: Server) -> AsyncIterator[TestDatabase]:
    """A database for each test, whose clock the test moves."""
    async with await lapse_server.open() as db:
        yield db
