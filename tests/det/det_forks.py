"""Runs the unmodified `det` many times without importing it each time. Started by the client's own interpreter.

    python det_forks.py SOCKET

Importing the client takes a second of CPU, and the tests call it hundreds of times. This process imports it once and
then, for each connection, forks a child that becomes that call: arguments, environment and directory come as one line
of JSON, standard streams as file descriptors. The child answers with its process id, and at the end with its exit code.
"""

import array
import contextlib
import io
import json
import os
import signal
import socket
import sys
import threading

from determined.cli.cli import main

_DESCRIPTORS = 3


def serve(path: str) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children tell their exit code themselves
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen(64)
    # A fork copies only the thread that forks: another one's locks would stay locked in the child.
    assert threading.active_count() == 1
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            become(connection)
        connection.close()


def become(connection: socket.socket) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()  # no terminal: passwords are read from standard input
    call, streams = receive(connection)
    for target, stream in enumerate(streams):
        os.dup2(stream, target)
        os.close(stream)
    os.environ.clear()
    os.environ.update(call["environment"])
    os.chdir(call["directory"])
    assert isinstance(sys.stdout, io.TextIOWrapper)
    sys.stdout.reconfigure(line_buffering=True)
    connection.sendall(b"%d\n" % os.getpid())
    code = run(call["arguments"])
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
        sys.stderr.flush()
    connection.sendall(b"%d\n" % code)
    os._exit(code)


def receive(connection: socket.socket) -> "tuple[dict, list[int]]":
    streams = array.array("i")
    size = socket.CMSG_SPACE(_DESCRIPTORS * streams.itemsize)
    text, ancillary, _, _ = connection.recvmsg(1 << 20, size)
    for _, _, content in ancillary:
        streams.frombytes(content)
    while not text.endswith(b"\n"):
        text += connection.recv(1 << 20)
    return json.loads(text), list(streams)


def run(arguments: "list[str]") -> int:
    try:
        main(arguments)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    serve(sys.argv[1])
