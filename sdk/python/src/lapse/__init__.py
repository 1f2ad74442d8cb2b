"""The client of lapse: JSON documents with a time to live, over NATS."""

from .batch import Op
from .collection import Collection
from .database import Database, connect
from .errors import LapseError
from .feed import Feed
from .query import Query
from .types import CollectionInfo, Event, Item, Page, Result, Touched
from .values import NEVER, Duration

__all__ = [
    "NEVER",
    "Collection",
    "CollectionInfo",
    "Database",
    "Duration",
    "Event",
    "Feed",
    "Item",
    "LapseError",
    "Op",
    "Page",
    "Query",
    "Result",
    "Touched",
    "connect",
]
