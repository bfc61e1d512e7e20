"""What each kind of task executes, and what it needs for that."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys

from .setting_up import Problem, has, write_private

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import MutableMapping

READY = {
    "NOTEBOOK": r"Jupyter Server .* is running",
    "SHELL": r"Server listening on",
    "TENSORBOARD": r"TensorBoard (contains metrics|\S+ at http)",
}
"""What a service writes when it can be used."""

STEPS = {"TRIAL": "launch", "CHECKPOINT_GC": "remove"}
"""What is ours to do, in a process of its own after the hooks."""
_SSHD_CONFIG = """\
Port {port}
ListenAddress {address}
HostKey {ssh}/host_key
AuthorizedKeysFile {ssh}/authorized_keys
PidFile none
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
PubkeyAuthentication yes
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitEmptyPasswords no
AllowTcpForwarding yes
X11Forwarding no
PrintMotd no
PrintLastLog no
ClientAliveInterval 30
LogLevel INFO
ForceCommand /bin/sh {ssh}/login
{subsystem}
"""
_LOGIN = """\
. {ssh}/environment
cd "$DET_WORKDIR" || exit 1
if [ -n "$SSH_ORIGINAL_COMMAND" ]; then SHLVL=1 exec "$SHELL" -c "$SSH_ORIGINAL_COMMAND"; fi
exec "$SHELL"
"""
# A login shell would begin by forgetting the task's PATH; and so would bash, which takes itself for one where it is the
# first shell of a connection.
_OF_THE_SESSION = ("SSH_", "TERM", "SHLVL", "PWD", "OLDPWD", "_", "LOGNAME", "USER", "HOME", "SHELL", "MAIL")


def argv(kind: str, words: list[str], environ: MutableMapping[str, str]) -> list[str]:
    """Raises Problem."""
    if kind == "NOTEBOOK":
        return _notebook(environ)
    if kind == "SHELL":
        return _shell(environ)
    if kind == "TENSORBOARD":
        return _tensorboard(words, environ)
    if kind in STEPS:
        return [sys.executable, sys.argv[0], STEPS[kind]]
    # As in Determined: what comes as one word is a line for the shell.
    return ["/bin/sh", "-c", words[0]] if len(words) == 1 else words


def _needs(module: str, package: str, kind: str) -> None:
    if not has(module):
        python = sys.executable
        raise Problem(
            f'a {kind} needs {package}, which is not installed in {python}: run "{python} -m pip install {package}" '
            "on the node, or name a Python that has it in the setting tasks.python"
        )


def _notebook(environ: MutableMapping[str, str]) -> list[str]:
    _needs("jupyterlab", "jupyterlab", "notebook")
    # Not among the arguments, which everybody on the node can read.
    environ["JUPYTER_TOKEN"] = environ["DET_NOTEBOOK_TOKEN"]
    return [
        *(sys.executable, "-m", "jupyterlab"),
        f"--ServerApp.port={environ['NOTEBOOK_PORT']}",
        "--ServerApp.port_retries=0",
        f"--ServerApp.ip={environ.get('DET_POD_IP') or '0.0.0.0'}",  # noqa: S104
        f"--ServerApp.base_url=/proxy/{environ['DET_TASK_ID']}/",
        "--ServerApp.allow_root=True",
        "--ServerApp.allow_remote_access=True",
        "--ServerApp.open_browser=False",
        f"--ServerApp.root_dir={environ['DET_WORKDIR']}",
        "--ServerApp.trust_xheaders=True",
    ]


def _shell(environ: MutableMapping[str, str]) -> list[str]:
    sshd = _tool("sshd")
    keygen = _tool("ssh-keygen")
    ssh = os.path.join(environ["DET_RUN_DIR"], "ssh")
    os.chmod(ssh, 0o700)
    write_private(os.path.join(ssh, "authorized_keys"), environ["DET_SHELL_AUTHORIZED_KEY"] + "\n")
    key = os.path.join(ssh, "host_key")
    if not os.path.exists(key):
        subprocess.run([keygen, "-q", "-t", "ed25519", "-N", "", "-f", key], check=True, stdin=subprocess.DEVNULL)
    found = {name: value for name, value in environ.items() if not name.startswith(_OF_THE_SESSION)}
    exported = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in found.items() if name.isidentifier())
    write_private(os.path.join(ssh, "environment"), exported)
    write_private(os.path.join(ssh, "login"), _LOGIN.format(ssh=shlex.quote(ssh)))
    sftp = next((path for path in _SFTP if os.path.exists(path)), "")
    config = _SSHD_CONFIG.format(
        port=environ["SHELL_PORT"],
        address=environ.get("DET_POD_IP") or "0.0.0.0",  # noqa: S104
        ssh=ssh,
        subsystem=f"Subsystem sftp {sftp}" if sftp else "",
    )
    write_private(os.path.join(ssh, "sshd_config"), config)
    if os.geteuid() == 0:
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)  # it insists on having it
    return [sshd, "-D", "-e", "-f", os.path.join(ssh, "sshd_config")]


_SFTP = ("/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server", "/usr/lib/ssh/sftp-server")


def _tool(name: str) -> str:
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"])
    found = shutil.which(name, path=path)
    if found is None:
        raise Problem(
            f'a shell needs {name} of OpenSSH, which is not installed: run "apt-get install openssh-server" on the '
            "node (other systems have it as openssh or openssh-server)"
        )
    return found


def _tensorboard(words: list[str], environ: MutableMapping[str, str]) -> list[str]:
    """`words`: further arguments. Over what experiments have stored, or over a directory."""
    _needs("tensorboard", "tensorboard", "TensorBoard")
    storage = environ.pop("DET_TENSORBOARD_STORAGE", "")
    if storage:
        _needs("determined", "determined", "TensorBoard of experiments")
        path = os.path.join(environ["DET_RUN_DIR"], "tensorboard-storage.json")
        write_private(path, storage)
        version = subprocess.run(
            [sys.executable, "-c", "import tensorboard.version as v; print(v.VERSION)"],
            check=True, capture_output=True, text=True,
        ).stdout.strip()  # fmt: skip
        paths = environ["DET_TENSORBOARD_PATHS"]
        return [sys.executable, "-m", "determined.exec.tensorboard", version, path, paths, *words]
    return [
        *(sys.executable, "-m", "tensorboard.main"),
        f"--port={environ['TENSORBOARD_PORT']}",
        f"--host={environ.get('DET_POD_IP') or '0.0.0.0'}",  # noqa: S104
        f"--path_prefix=/proxy/{environ['DET_TASK_ID']}",
        f"--logdir={environ['DET_WORKDIR']}",
        *words,
    ]
