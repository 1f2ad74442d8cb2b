"""The fixtures of the package itself, which pytest finds where it is installed."""

pytest_plugins = ["lapse.plugin"]
