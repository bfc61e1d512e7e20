"""A crowd of watchers in a process of its own, for `bench.store`: counts events by their line ends, decodes nothing."""

import asyncio
import sys
from urllib.parse import urlsplit


async def follow(host: str, port: int, token: str, expected: int, connected: asyncio.Semaphore) -> None:
    reader, writer = await asyncio.open_connection(host, port, limit=1 << 20)
    path = "/k8s/api/v1/configmaps?watch=true&resourceVersion=0"
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    connected.release()
    seen = -1  # the object as it is now comes first
    while seen < expected:
        chunk = await reader.read(1 << 16)
        if not chunk:
            raise EOFError(f"the server hung up after {seen} events")
        # Single bytes cannot be torn apart between two reads: a line of the watch ends in LF, one of HTTP in CR LF.
        seen += chunk.count(b"\n") - chunk.count(b"\r")
    writer.close()


async def main(url: str, token: str, watchers: int, expected: int) -> None:
    parts = urlsplit(url)
    connected = asyncio.Semaphore(0)
    async with asyncio.TaskGroup() as tasks:
        for _ in range(watchers):
            tasks.create_task(follow(parts.hostname or "", parts.port or 0, token, expected, connected))
        for _ in range(watchers):
            await connected.acquire()
        print("connected", flush=True)
    print("seen", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
