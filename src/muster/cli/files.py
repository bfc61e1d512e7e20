"""Documents from `-f`: files, directories, or standard input."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from muster.api import errors, raw
from muster.api.raw import Document

_SUFFIXES = (".yaml", ".yml", ".json")

unknown_fields_option = click.option(
    "--ignore-unknown-fields", is_flag=True, help="Let fields pass that the server does not know."
)


@dataclass(frozen=True, slots=True)
class Found:
    """One document and where it was, for messages."""

    source: str
    document: Document


def read(names: Sequence[str]) -> list[Found]:
    """In the order given; a directory's files by name. Raises BadRequest that names the file."""
    found = [item for name in names for item in _read(name)]
    if not found:
        raise errors.BadRequest(f"nothing to apply in {', '.join(names)}: no YAML or JSON document found")
    return found


def _read(name: str) -> list[Found]:
    if name == "-":
        return _decode("standard input", sys.stdin.buffer.read())
    path = Path(name)
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES)
        return [item for file in files for item in _read(str(file))]
    try:
        return _decode(name, path.read_bytes())
    except OSError as error:
        raise errors.BadRequest(f"cannot read {name}: {error.strerror}") from error


def _decode(source: str, text: bytes) -> list[Found]:
    try:
        documents = raw.decode_yaml(text)
    except errors.BadRequest as error:
        raise errors.BadRequest(f"{source}: {error.message}") from error
    return [Found(f"{source}, document {number}", document) for number, document in enumerate(documents, 1)]
