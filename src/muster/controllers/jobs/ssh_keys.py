"""A fresh key for the members of a job, made by ssh-keygen: what the members log in with is what OpenSSH made."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

from muster.jobs.volcano.plugins import KeyPair, PluginError

MakeKey: TypeAlias = Callable[[], Awaitable[KeyPair]]

_COMMAND = ("ssh-keygen", "-q", "-t", "rsa", "-b", "2048", "-m", "PEM", "-N", "", "-C", "")


async def make_key() -> KeyPair:
    """Raises PluginError where there is no ssh-keygen, or it fails."""
    with tempfile.TemporaryDirectory(prefix="muster-ssh-") as directory:
        path = Path(directory) / "key"
        try:
            process = await asyncio.create_subprocess_exec(
                *_COMMAND, "-f", str(path), stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
            )
        except OSError as error:
            raise PluginError(f"plugin ssh needs ssh-keygen (OpenSSH) beside the controllers: {error}") from error
        _, told = await process.communicate()
        if process.returncode:
            raise PluginError(f"plugin ssh: ssh-keygen failed: {told.decode(errors='replace').strip()}")
        return KeyPair(path.read_text(), path.with_suffix(".pub").read_text())
