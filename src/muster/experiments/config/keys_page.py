"""docs/reference/experiment-config.md, rendered from `keys`."""

import sys
from collections.abc import Iterator
from typing import Final

from muster.api import raw
from muster.api.raw import Document
from muster.experiments.config import keys
from muster.experiments.config.keys import Section
from muster.experiments.config.parsing import Layers, parse
from muster.tasks.config_sections import Allowed

_HEAD: Final = """\
# The configuration of an experiment

<!-- Rendered from the code by `python -m muster.experiments.config.keys_page`; a test fails when it is stale. -->

YAML (or JSON) as Determined's users write it:

```yaml
name: mnist
entrypoint: python3 -m determined.launch.torch_distributed -- python3 train.py
hyperparameters:
  learning_rate: {type: log, minval: -4, maxval: -1}
  batch_size: 64
searcher:
  name: adaptive_asha
  metric: validation_loss
  time_metric: batches
  max_time: 1000
  max_trials: 16
resources:
  slots_per_trial: 2
  budget_gpu_hours: 48
```

**Who has a say.** The user's word goes before the template's, that before the workspace's `checkpoint_storage`, that
before `task_container_defaults` of the cluster, and that before the defaults below. Objects are laid over each other
key by key, and some lists grow: labels, bind mounts (one for each path), log policies (one for each name),
capabilities, variables and proxy ports. Where two layers name different searchers or storages, only what all of these
share is taken from the weaker. What policies fix (`invariant_config`) goes before all, the cluster's before a
workspace's. What their `constraints` forbid is refused, and where the configuration says nothing they are the default.

**What is wrong is told at once**, each with its path. A key that is not in these tables is refused, with the nearest
one that is. A key that is there twice is refused, with line and column. `null` is as good as nothing. A text may have
1 MiB. Numbers are what Determined's server takes for numbers: `1e-3` is one.

**Forks and continuations.** A fork is a new experiment, in which everything may differ. An experiment that is continued
may get another configuration only where it is of a single trial (`searcher.name: single`), and then all but its
searcher's name, the place of its checkpoints, its workspace and its project.

**What trials get** (`DET_EXPERIMENT_CONFIG`), and what the API shows, is the whole with all defaults. Keys of storages,
values under `data.secrets` and tokens are shown as `********`.

Defaults below are shown as JSON; – stands for none, and *needed* for keys that must be given where their section is.
"""
_STORAGE: Final = {"type": "shared_fs", "host_path": "/checkpoints"}
_LEAST: Final[Document] = {"entrypoint": "x", "searcher": {"name": "single", "metric": "loss"}}
_DRAWN: Final = ("name", "experiment_seed", "checkpoint_storage", "log_policies")
"""What is not the same for all where nobody says it."""


def render() -> str:
    return "\n".join([_HEAD, *(line for section in keys.SECTIONS for line in _section(section))])


def example(section: Section) -> Document:
    """The least in which it can be."""
    return {**_LEAST, **section.example}


def _section(section: Section) -> Iterator[str]:
    config = parse(Layers("", 0, cluster_storage=_STORAGE, user=example(section)), Allowed(["/"]))
    defaults = raw.dig(config.document(), *section.path, default={})
    needed = raw.dig(example(section), *section.path, default={})
    yield f"## {section.title}\n"
    if section.text:
        yield f"{section.text}\n"
    yield "| key | default | what it is |"
    yield "| --- | --- | --- |"
    for name, meaning in section.keys.items():
        if name in needed:
            default = "*needed*"
        elif name in _DRAWN or meaning.startswith(keys.REFUSED):
            default = "–"
        else:
            default = _shown(defaults.get(name))
        yield f"| `{name}` | {default} | {meaning} |"
    yield ""


def _shown(value: object) -> str:
    return "–" if value in (None, "", []) or isinstance(value, dict) else f"`{raw.encode(value).decode()}`"


if __name__ == "__main__":
    sys.stdout.write(render())
