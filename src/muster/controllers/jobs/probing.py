"""Asks pods whether they are far enough along, over HTTP or by a connection. Whatever goes wrong means: not yet."""

import asyncio
from typing import Protocol

import aiohttp

from muster.jobs.flow import Question

TIMEOUT_SECONDS = 3.0


class Ask(Protocol):
    """Whether the pod at this address answers as it should. Never raises."""

    async def __call__(self, question: Question, host: str) -> bool: ...


async def ask(question: Question, host: str) -> bool:
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            if question.path is None:
                return await _connects(host, question.port)
            return await _answers(question, host)
    except (OSError, TimeoutError, ValueError, aiohttp.ClientError):
        return False


async def _connects(host: str, port: int) -> bool:
    _, writer = await asyncio.open_connection(host, port)
    writer.close()
    return True


async def _answers(question: Question, host: str) -> bool:
    named = f"[{host}]" if ":" in host else host
    url = f"http://{named}:{question.port}/{(question.path or '').lstrip('/')}"
    headers = dict([question.header]) if question.header else {}
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers, allow_redirects=False) as reply:
        return 200 <= reply.status < 400
