"""A Helm chart from the same manifests: expressions stand where `muster install` would put values.

Expressions are written into the documents as marked texts, which YAML leaves alone, and are turned into Helm's
templates line by line afterwards.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from muster.api import raw
from muster.api.raw import Document
from muster.deploying import definitions, manifests
from muster.deploying import values as choices
from muster.deploying.values import Values
from muster.version import VERSION

NOTICE: Final = "# Written by `make docs` from src/muster/deploying: change it there.\n"
_TEXT: Final = re.compile(r"<<(.*?)>>")
_BLOCK: Final = re.compile(r"^( *)(.*): '?<<block (.*?)>>'?$")
_ITEM: Final = re.compile(r"^( *)- <<when (.*?)>>(.*)$")


@dataclass(frozen=True, slots=True)
class Expressions:
    """`Slots` of a chart."""

    namespace: str = "<<.Release.Namespace>>"
    image: str = "<<.Values.image.repository>>:<<.Values.image.tag | default .Chart.AppVersion>>"

    def value(self, path: str) -> str:
        is_block = isinstance(raw.dig(choices.shown(Values()), *path.split(".")), dict | list)
        return f"<<block .Values.{path}>>" if is_block else f"<<.Values.{path}>>"

    def text(self, path: str) -> str:
        return f"<<.Values.{path}>>"

    def encoded(self, path: str) -> str:
        return f"<<toJson .Values.{path} | quote>>"

    def digest(self, path: str) -> str:
        return f"<<toJson .Values.{path} | sha256sum>>"

    def when(self, path: str, item: str) -> list[str]:
        return [f"<<when .Values.{path}>>{item}"]


def files() -> Mapping[str, str]:
    """All files of the chart, by their path in it."""
    found = {"Chart.yaml": NOTICE + raw.to_yaml(_head()), "values.yaml": _values()}
    for kind in definitions.kinds():
        # `helm show crds` puts them one behind the other, as they are.
        found[f"crds/{kind.resource}.yaml"] = f"---\n{NOTICE}{raw.to_yaml(definitions.definition(kind))}"
    for part in manifests.parts(Expressions()):
        document, condition = part.document, part.condition
        body = NOTICE + _templated(raw.to_yaml(document))
        if condition:
            body = f"{{{{- if .Values.{condition} }}}}\n{body}{{{{- end }}}}\n"
        found[f"templates/{_file_name(document)}.yaml"] = body
    return found


def _head() -> Document:
    return {
        "apiVersion": "v2",
        "name": "muster",
        "description": "Quota, gangs, placement and jobs for AI training clusters",
        "type": "application",
        "version": VERSION,
        "appVersion": VERSION,
        "kubeVersion": ">=1.30.0-0",
    }


def _values() -> str:
    about = "# The same keys as `muster install --set` takes; docs/guide/install-kubernetes.md tells about them.\n"
    return NOTICE + about + raw.to_yaml(choices.shown(Values()))


def _file_name(document: Document) -> str:
    return f"{document['kind'].lower()}-{document['metadata']['name']}"


def _templated(text: str) -> str:
    return "\n".join(_line(line) for line in text.split("\n"))


def _line(line: str) -> str:
    item = _ITEM.match(line)
    if item:
        indent, condition, rest = item.groups()
        return f"{indent}{{{{- if {condition} }}}}\n{_line(f'{indent}- {rest}')}\n{indent}{{{{- end }}}}"
    block = _BLOCK.match(line)
    if block:
        indent, key, value = block.groups()
        return f"{indent}{key}:\n{indent}  {{{{- toYaml {value} | nindent {len(indent) + 2} }}}}"
    return _TEXT.sub(r"{{ \1 }}", line)
