"""The plugins that there are, by the name that a job calls them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from muster.api import volcano
from muster.jobs.volcano.plugins.contract import Arguments, Options, Plugin, UnknownPlugin, parse
from muster.jobs.volcano.plugins.env import Env
from muster.jobs.volcano.plugins.hcclrank import HcclRank
from muster.jobs.volcano.plugins.jax import Jax
from muster.jobs.volcano.plugins.mpi import Mpi
from muster.jobs.volcano.plugins.pytorch import PyTorch
from muster.jobs.volcano.plugins.ray import Ray
from muster.jobs.volcano.plugins.ssh import Ssh
from muster.jobs.volcano.plugins.svc import Svc
from muster.jobs.volcano.plugins.tensorflow import TensorFlow


@dataclass(frozen=True, slots=True)
class Family:
    arguments: Options
    make: Callable[[Arguments], Plugin]


IN_TREE: Mapping[str, Family] = {
    plugin.name: Family(plugin.ARGUMENTS, plugin)
    for plugin in (Env, Ssh, Svc, TensorFlow, PyTorch, Mpi, Ray, Jax, HcclRank)
}


@dataclass(frozen=True, slots=True)
class Loaded:
    plugins: Sequence[Plugin]
    problems: Sequence[str]
    """Arguments that were not understood, and what follows them: those count as not given, as with Volcano."""


def load(job: volcano.Job) -> Loaded:
    """The job's plugins, in the order of their names so that pods come out the same each time. Raises UnknownPlugin."""
    plugins, problems = [], []
    for name, listed in sorted((job.spec.plugins or {}).items()):
        family = IN_TREE.get(name)
        if family is None:
            raise UnknownPlugin(f"failed to get plugin {name}")
        arguments = parse(listed or (), family.arguments)
        if arguments.problem:
            problems.append(f"plugin {name}: {arguments.problem}")
        plugins.append(family.make(arguments))
    return Loaded(plugins, problems)
