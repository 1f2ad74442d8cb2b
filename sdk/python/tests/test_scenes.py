"""Runs schema/vectors/scenes against `lapse test`."""

from typing import Any

import pytest
import vectors

from lapse.testing import Server, TestDatabase

scenes = [
    pytest.param(scene, id=f"{file.stem}: {scene['name']}"[:80])
    for file in sorted((vectors.VECTORS / "scenes").iterdir())
    for scene in vectors.read(f"scenes/{file.name}")
]


@pytest.mark.parametrize("scene", scenes)
async def test_scene(lapse_server: Server, scene: dict[str, Any]) -> None:
    async with await lapse_server.open(at=vectors.moment(scene.get("at"))) as db:
        await play(db, scene["steps"])


async def play(db: TestDatabase, steps: list[Any]) -> None:
    """Takes the steps of a scene."""
    named: dict[str, Any] = {}
    start = 1
    for i, raw in enumerate(steps):
        step = substitute(raw, named)
        if "advance" in step:
            result = await vectors.result_of(db, {"do": "advance", "args": [vectors.moment(step["advance"])]})
        elif "events" in step:
            result = await vectors.result_of(db, {"do": "changes", "args": [{"from": start, "until": "now"}]})
            start = result[-1]["seq"] + 1 if result else start
        else:
            result = await vectors.result_of(db, step)
        about = f"step {i}: {step} gave {result}"[:3000]
        if "events" in step or "want" in step:
            vectors.check(result, step.get("events", step.get("want")), about)
        else:
            assert not (isinstance(result, dict) and result.get("error")), about
        if "as" in step:
            named[step["as"]] = result


def substitute(value: Any, named: dict[str, Any]) -> Any:
    """Replaces names of results by their members, and repetitions by their text."""
    if isinstance(value, str) and value.startswith("$"):
        found: Any = named
        for member in value[1:].split("."):
            found = found[member]
        return found
    if isinstance(value, list):
        return [substitute(v, named) for v in value]
    if isinstance(value, dict):
        return value["$repeat"] * value["times"] if "$repeat" in value else {name: substitute(v, named) for name, v in value.items()}
    return value
