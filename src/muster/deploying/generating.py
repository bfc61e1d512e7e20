"""`python -m muster.deploying.generating DIRECTORY`: writes what of deploy/ comes from the code."""

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from muster.api import raw
from muster.deploying import chart, manifests, names
from muster.deploying.slots import Chosen
from muster.deploying.values import Values


def files() -> Mapping[str, str]:
    """By their path below deploy/. Definitions of kinds are in the chart only: they are large."""
    slots = Chosen(Values(), names.NAMESPACE)
    plain = [manifests.namespace(slots), *manifests.documents(slots)]
    return {
        **{f"helm/muster/{path}": text for path, text in chart.files().items()},
        "manifests/muster.yaml": chart.NOTICE + "---\n".join(map(raw.to_yaml, plain)),
    }


def write(folder: Path) -> None:
    """What an earlier version wrote and this one does not is removed."""
    for owned in ("helm/muster", "manifests"):
        shutil.rmtree(folder / owned, ignore_errors=True)
    for path, text in files().items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
