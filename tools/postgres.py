"""Runs a command with a PostgreSQL of its own: `python tools/postgres.py -- pytest …`.

The server is Debian's package (installed with apt-get by root where it is missing), lives in a temporary directory,
listens on a socket in it alone, and is gone afterwards. The command finds its URL in MUSTER_TEST_POSTGRES.
"""

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_MISSING = (
    "no PostgreSQL: install Debian's package postgresql (initdb and postgres), or run this as root to have it installed"
)
_UNPRIVILEGED = ("postgres", "nobody")


def main(command: list[str]) -> int:
    binaries = _binaries() or _installed()
    if binaries is None:
        sys.stderr.write(f"{_MISSING}\n")
        return 1 if os.environ.get("CI") == "true" else 0
    user = _user()
    with tempfile.TemporaryDirectory(prefix="muster-postgres-") as folder:
        base = Path(folder)
        if user is not None:
            os.chown(base, user.pw_uid, user.pw_gid)
        return _with_server(binaries, base, user, command)


def _with_server(binaries: Path, base: Path, user: pwd.struct_passwd | None, command: list[str]) -> int:
    data = base / "data"
    rights = {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    quiet = {"stdout": subprocess.DEVNULL, "cwd": base, **rights}
    subprocess.run(
        [binaries / "initdb", "-D", data, "-U", "muster", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"],
        check=True, **quiet,
    )  # fmt: skip
    log = base / "log"
    with log.open("wb") as told:
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(base),
            "fsync": "off",
            "max_connections": "200",
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        server = subprocess.Popen([binaries / "postgres", "-D", data, *options], stderr=told, **quiet)
    try:
        if not _is_ready(binaries, base, server):
            sys.stderr.write(log.read_text(errors="replace"))
            return 1
        environment = {**os.environ, "MUSTER_TEST_POSTGRES": f"postgresql://muster@/postgres?host={base}"}
        return subprocess.run(command, env=environment, check=False).returncode
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _is_ready(binaries: Path, base: Path, server: "subprocess.Popen[bytes]") -> bool:
    for _ in range(300):
        if server.poll() is not None:
            return False
        if not subprocess.run([binaries / "pg_isready", "-q", "-h", base], check=False).returncode:
            return True
        time.sleep(0.1)
    return False


def _binaries() -> Path | None:
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[4]))
    if debian:
        return debian[-1].parent
    found = shutil.which("initdb")
    return Path(found).resolve().parent if found else None


def _installed() -> Path | None:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return None
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-q"], check=False, env=environment)
    subprocess.run(["apt-get", "install", "-qy", "--no-install-recommends", "postgresql"], check=False, env=environment)
    return _binaries()


def _user() -> pwd.struct_passwd | None:
    """Whom to run as: PostgreSQL refuses to be root. None to stay who we are."""
    if os.geteuid() != 0:
        return None
    for name in _UNPRIVILEGED:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise SystemExit(f"none of the users {', '.join(_UNPRIVILEGED)} is there to run PostgreSQL as")


if __name__ == "__main__":
    arguments = sys.argv[1:]
    sys.exit(main(arguments[1:] if arguments[:1] == ["--"] else arguments))
