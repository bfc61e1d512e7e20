"""ssh: the members of a job log in to each other without a password, with a key that is the job's own."""

import base64
from collections.abc import Sequence
from typing import ClassVar

from muster.api import core, volcano
from muster.api.raw import Document
from muster.jobs.volcano.plugins import changing
from muster.jobs.volcano.plugins.contract import Arguments, KeyPair, Made, Options, PluginError
from muster.jobs.volcano.plugins.svc import metadata

ROOT_PATH = "/root/.ssh"
PORT = 22
_PRIVATE, _PUBLIC, _AUTHORIZED, _CONFIG = "id_rsa", "id_rsa.pub", "authorized_keys", "config"


class Ssh:
    name = "ssh"
    ARGUMENTS: ClassVar[Options] = {
        "no-root": bool,
        "ssh-key-file-path": str,
        "ssh-private-key": str,
        "ssh-public-key": str,
        "ssh-port": int,
    }

    def __init__(self, arguments: Arguments) -> None:
        self.is_not_root = arguments.flag("no-root")
        self.path = arguments.text("ssh-key-file-path", ROOT_PATH)
        self.private_key = arguments.text("ssh-private-key", "")
        self.public_key = arguments.text("ssh-public-key", "")
        self.port = arguments.number("ssh-port", PORT)

    @property
    def needs_key(self) -> bool:
        return not (self.private_key and self.public_key)

    def change_pod(self, pod: Document, job: volcano.Job) -> None:
        name = secret_name(job)
        # Not 0600 for other users: the files belong to root, and they could not read them.
        mode = 0o600 if self.path == ROOT_PATH and not self.is_not_root else 0o644
        items = [{"key": key, "path": key} for key in (_PRIVATE, _PUBLIC, _AUTHORIZED, _CONFIG)]
        source = {"secretName": name, "items": items, "defaultMode": mode}
        pod["spec"].setdefault("volumes", []).append({"name": name, "secret": source})
        for container in changing.containers(pod):
            container.setdefault("volumeMounts", []).append({"name": name, "mountPath": self.path})

    def objects(self, job: volcano.Job, key: KeyPair | None) -> Sequence[Made]:
        pair = KeyPair(self.private_key, self.public_key) if not self.needs_key else key
        if pair is None:
            raise PluginError("plugin ssh: there is no key for the job")
        data = {
            _PRIVATE: pair.private,
            _PUBLIC: pair.public,
            _AUTHORIZED: pair.public,
            _CONFIG: self.client_configuration(job),
        }
        encoded = {name: base64.b64encode(text.encode()).decode() for name, text in data.items()}
        return (Made(core.SECRET, {"metadata": metadata(job, secret_name(job)), "data": encoded}),)

    def client_configuration(self, job: volcano.Job) -> str:
        """Members come and go, and each time with other keys of their hosts: those are not checked."""
        lines = ["StrictHostKeyChecking no", "UserKnownHostsFile /dev/null"]
        for task in job.spec.tasks:
            for host in changing.hosts_of(job, task):
                lines += [f"Host {host.partition('.')[0]}", f"  HostName {host}", f"  Port {self.port}"]
        return "\n".join(lines) + "\n"


def secret_name(job: volcano.Job) -> str:
    return f"{job.metadata.name}-ssh"
