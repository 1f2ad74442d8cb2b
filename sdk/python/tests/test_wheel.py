"""The wheel, installed in an empty environment, with the programs of docs/python.md."""

import importlib.util
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from process import BINARY

import lapse.testing

SDK = Path(__file__).parents[1]
MANUAL = SDK.parents[1] / "docs" / "python.md"


def available(*modules: str) -> bool:
    return all(importlib.util.find_spec(module) for module in modules)


@pytest.mark.skipif(not available("hatchling", "pip", "fastapi", "httpx", "mypy"), reason="LEFT OUT: it needs the extra dev, and pip")
def test_the_wheel_is_installed_by_pip_and_the_manual_runs(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*command: str | Path) -> str:
        done = subprocess.run(command, cwd=tmp_path, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        assert done.returncode == 0, f"{command}: {done.stdout}"
        return done.stdout

    venv = tmp_path / "venv"
    python = venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    run(sys.executable, "-m", "venv", "--without-pip", venv)
    # What the package needs comes from here, without the network.
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    (Path(site) / "here.pth").write_text(sysconfig.get_path("purelib") + "\n")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path], cwd=SDK, check=True, stdout=subprocess.PIPE)
    [wheel] = tmp_path.glob("lapsedb-*.whl")
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--no-deps", wheel)
    assert (Path(site) / "lapse" / "py.typed").exists()
    [license] = Path(site).glob("lapsedb-*.dist-info/licenses/LICENSE")
    assert license.read_bytes() == (SDK.parents[1] / "LICENSE").read_bytes()

    names = ["session.py", "app.py", "feed.py", "test_example.py", "kit.py"]
    blocks = re.findall(r"^```python\n(.*?)^```$", MANUAL.read_text(), re.DOTALL | re.MULTILINE)
    for name, block in zip(names, blocks, strict=True):
        (tmp_path / name).write_text(block)
    run(sys.executable, "-m", "mypy", "--strict", "--cache-dir", SDK / ".mypy_cache", "--python-executable", python, *names)
    env["LAPSE_BINARY"] = BINARY
    server = lapse.testing.Server(at="now")
    env["NATS_URL"] = server.url
    try:
        for name, block in zip(names, blocks, strict=True):
            wanted = re.findall(r"# → (.*)$", block, re.MULTILINE)
            if wanted:
                assert run(python, name).splitlines() == wanted, name
            elif name == "app.py":
                run(python, "-c", REQUESTS)
            else:
                run(python, "-m", "pytest", "-q", name)
    finally:
        server.stop()


REQUESTS = """
from fastapi.testclient import TestClient
from app import app
with TestClient(app) as client:
    assert client.get("/me").status_code == 401
    client.cookies.set("sid", "a")
    assert client.get("/me").json() == {"user": "ann"}
"""
