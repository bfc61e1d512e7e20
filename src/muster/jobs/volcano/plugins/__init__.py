"""What a job asks for by name in `spec.plugins`: each changes the job's pods, or makes objects beside them. Pure."""

from muster.jobs.volcano.plugins.contract import KeyPair, Made, Plugin, PluginError, UnknownPlugin
from muster.jobs.volcano.plugins.in_tree import IN_TREE, Loaded, load

__all__ = ["IN_TREE", "KeyPair", "Loaded", "Made", "Plugin", "PluginError", "UnknownPlugin", "load"]
