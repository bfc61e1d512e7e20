"""What a command writes, cut into lines of CRI form and kept in files of limited size.

Keepers load this beside themselves (see `agent.keeper`), so it has only the standard library and must never import
muster.
"""

from __future__ import annotations

import os
import time

PARTIAL_BYTES = 16 * 1024
_READ_BYTES = 64 * 1024


class Log:
    """The attempt's log: CRI lines, rotated by size. A full disk loses lines, never the process."""

    def __init__(self, name: str, max_bytes: int, files: int) -> None:
        self._name = name
        self._max_bytes = max_bytes
        self._files = files
        self._fd = -1
        self._size = 0
        self._second = -1
        self._second_text = b""

    def open(self) -> None:
        try:
            self._fd = os.open(self._name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
            self._size = os.fstat(self._fd).st_size
        except OSError:
            self._fd = -1

    def stamp(self) -> bytes:
        second, nanos = divmod(time.time_ns(), 1_000_000_000)
        if second != self._second:
            self._second = second
            self._second_text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)).encode()
        return b"%s.%09dZ" % (self._second_text, nanos)

    def write(self, lines: list[bytes]) -> None:
        """Append whole CRI lines; rotates between lines only."""
        batch: list[bytes] = []
        batch_size = 0
        for line in lines:
            if batch and self._size + batch_size + len(line) > self._max_bytes:
                self._append(b"".join(batch))
                self._rotate()
                batch, batch_size = [], 0
            batch.append(line)
            batch_size += len(line)
        self._append(b"".join(batch))
        if self._size >= self._max_bytes:
            self._rotate()

    def _append(self, data: bytes) -> None:
        if self._fd < 0:
            self.open()
        try:
            while data:
                written = os.write(self._fd, data)
                self._size += written
                data = data[written:]
        except OSError:
            return  # a full disk: the job goes on without its log rather than stand still before a pipe nobody reads

    def _rotate(self) -> None:
        self.close()
        try:
            for number in range(self._files - 1, 1, -1):
                if os.path.exists(f"{self._name}.{number - 1}"):
                    os.replace(f"{self._name}.{number - 1}", f"{self._name}.{number}")
            if self._files > 1:
                os.replace(self._name, f"{self._name}.1")
            else:
                os.truncate(self._name, 0)
        except OSError:
            pass  # keep writing to the same file: too long is better than lost
        self.open()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Stream:
    """One pipe of the command, cut into CRI lines."""

    def __init__(self, name: bytes, fd: int) -> None:
        self.fd = fd
        self.is_open = True
        self._name = name
        self._rest = b""

    def read(self, log: Log) -> bool:
        """Move what is there into the log. False when there is nothing more for now, or for good."""
        try:
            data = os.read(self.fd, _READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        stamp = log.stamp()
        if not data:
            self.is_open = False
            os.close(self.fd)
            if self._rest:
                # P, not F: the text did not end with a newline, and a reader should not see one.
                log.write([b"%s %s P %s\n" % (stamp, self._name, self._rest)])
            return False
        whole = b"%s %s F " % (stamp, self._name)
        partial = b"%s %s P " % (stamp, self._name)
        pieces = (self._rest + data).split(b"\n")
        self._rest = pieces.pop()
        lines: list[bytes] = []
        for piece in pieces:
            while len(piece) > PARTIAL_BYTES:
                lines.append(partial + piece[:PARTIAL_BYTES] + b"\n")
                piece = piece[PARTIAL_BYTES:]  # noqa: PLW2901 - consumed from the front
            lines.append(whole + piece + b"\n")
        while len(self._rest) > PARTIAL_BYTES:
            lines.append(partial + self._rest[:PARTIAL_BYTES] + b"\n")
            self._rest = self._rest[PARTIAL_BYTES:]
        log.write(lines)
        return True
