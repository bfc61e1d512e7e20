"""The one place that knows which version this is."""

from importlib.metadata import version

VERSION = version("muster")
