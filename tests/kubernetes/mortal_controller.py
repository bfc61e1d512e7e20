"""A controller to be killed: as `muster controller`, but its lease ends soon after it.

`python -m tests.kubernetes.mortal_controller KUBECONFIG WEBHOOK_PORT`
"""

import asyncio
import logging
import sys
from pathlib import Path

import uvloop

from muster.access import kubeconfig
from muster.assembly import clustered
from muster.assembly.admission import WebhookSettings
from muster.assembly.clustered import ControllerSettings
from muster.runtime import collector

_LEASE_SECONDS = 4


def main(configuration: Path, port: int) -> None:
    logging.basicConfig(level=logging.WARNING)
    collector.calm()
    webhooks = WebhookSettings("127.0.0.1", port, f"https://127.0.0.1:{port}")
    settings = ControllerSettings(webhooks=webhooks, lease_seconds=_LEASE_SECONDS)
    work = clustered.controller(kubeconfig.read(configuration), settings, lambda running: print(running.identity))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
