"""All-reduce over TCP in a page of Python: what NCCL and gloo do well, done plainly.

Rank 0 listens at MASTER_ADDR:MASTER_PORT and every other rank connects. To reduce, each sends its array, rank 0 adds
them in the order of ranks (so the result is the same every time) and sends the sum back.
"""

import os
import socket
import struct
import time

import numpy as np

_HEADER = struct.Struct("!IQ")  # who sends, how many bytes


class Group:
    """The ranks of one job, from the variables that `muster run` sets. Use it as a context manager."""

    def __init__(self, timeout: float = 30.0) -> None:
        self.rank = int(os.environ.get("RANK", "0"))
        self.world = int(os.environ.get("WORLD_SIZE", "1"))
        self._peers: dict[int, socket.socket] = {}
        if self.world == 1:
            return
        address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        if self.rank == 0:
            self._accept(address, timeout)
        else:
            self._connect(address, timeout)

    def __enter__(self) -> "Group":
        return self

    def __exit__(self, *_: object) -> None:
        for peer in self._peers.values():
            peer.close()

    def sum(self, array: np.ndarray) -> np.ndarray:
        """The sum over all ranks, on all ranks."""
        own = np.ascontiguousarray(array, dtype=np.float64)
        if self.rank != 0:
            self._send(0, own)
            return self._receive(0, own.shape)
        total = own.copy()
        for rank in range(1, self.world):
            total += self._receive(rank, own.shape)
        for rank in range(1, self.world):
            self._send(rank, total)
        return total

    def mean(self, array: np.ndarray) -> np.ndarray:
        return self.sum(array) / self.world

    def _accept(self, address: tuple[str, int], timeout: float) -> None:
        with socket.create_server(address) as listener:
            listener.settimeout(timeout)
            while len(self._peers) < self.world - 1:
                peer, _ = listener.accept()
                self._prepare(peer, timeout)
                rank, _ = _HEADER.unpack(_exactly(peer, _HEADER.size))
                self._peers[rank] = peer

    def _connect(self, address: tuple[str, int], timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while True:
            try:
                peer = socket.create_connection(address, timeout)
                break
            except ConnectionRefusedError:  # rank 0 may start after us
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        self._prepare(peer, timeout)
        peer.sendall(_HEADER.pack(self.rank, 0))
        self._peers[0] = peer

    @staticmethod
    def _prepare(peer: socket.socket, timeout: float) -> None:
        peer.settimeout(timeout)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _send(self, rank: int, array: np.ndarray) -> None:
        self._peers[rank].sendall(_HEADER.pack(self.rank, array.nbytes) + array.tobytes())

    def _receive(self, rank: int, shape: tuple[int, ...]) -> np.ndarray:
        _, size = _HEADER.unpack(_exactly(self._peers[rank], _HEADER.size))
        return np.frombuffer(_exactly(self._peers[rank], size)).reshape(shape)


def _exactly(peer: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = peer.recv(size - len(parts))
        if not part:
            raise ConnectionError("another rank has gone")
        parts += part
    return bytes(parts)
