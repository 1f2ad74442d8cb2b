"""Prints what the package, its tests and its checks need, a requirement a line."""

import tomllib

with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)["project"]
optional = project["optional-dependencies"]
print(*project["dependencies"], *optional["all"], *(r for r in optional["dev"] if not r.startswith("lapsedb")), sep="\n")
