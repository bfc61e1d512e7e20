"""Writes src/muster/api/protobuf/fields.json from the Go modules k8s.io/api and k8s.io/apimachinery.

Run by hand when the Kubernetes version moves:

    go mod download -json k8s.io/api@v0.34.1 k8s.io/apimachinery@v0.34.1   # prints each module's Dir
    python tools/protobuf_fields.py DIR_OF_API DIR_OF_APIMACHINERY

The `generated.proto` files say number and type of each field; the Go structs next to them say how the field is
called in JSON, whether it is inlined, and whether an empty value is left out. Only what the kinds
below can reach is kept.
"""

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

KINDS = {
    "v1": (
        "core.v1",
        [
            "Namespace",
            "Node",
            "Pod",
            "ConfigMap",
            "Secret",
            "Service",
            "PersistentVolumeClaim",
            "Event",
            "LimitRange",
            "Binding",
        ],
    ),
    "events.k8s.io/v1": ("events.v1", ["Event"]),
    "scheduling.k8s.io/v1": ("scheduling.v1", ["PriorityClass"]),
    "node.k8s.io/v1": ("node.v1", ["RuntimeClass"]),
    "storage.k8s.io/v1": ("storage.v1", ["StorageClass"]),
    "networking.k8s.io/v1": ("networking.v1", ["NetworkPolicy"]),
    "batch/v1": ("batch.v1", ["Job"]),
    "coordination.k8s.io/v1": ("coordination.v1", ["Lease"]),
    "policy/v1": ("policy.v1", ["PodDisruptionBudget", "Eviction"]),
    "autoscaling/v1": ("autoscaling.v1", ["Scale"]),
    "authorization.k8s.io/v1": ("authorization.v1", ["SelfSubjectAccessReview", "SelfSubjectRulesReview"]),
    "authentication.k8s.io/v1": ("authentication.v1", ["SelfSubjectReview"]),
    "*": ("meta.v1", ["DeleteOptions"]),  # every group has it
}
# Decoded by hand-written code, so their fields are of no interest.
SPECIAL = ("meta.v1.Time", "meta.v1.MicroTime", "meta.v1.FieldsV1", "api.resource.Quantity",
           "util.intstr.IntOrString", "runtime.RawExtension")  # fmt: skip
SCALARS = ("string", "bytes", "bool", "int32", "int64")

OUTPUT = Path(__file__).parent.parent / "src/muster/api/protobuf/fields.json"

_MESSAGE = re.compile(r"^message (\w+) \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r"^  (optional|repeated|map)\s*(?:<(\w+), ([\w.]+)>|([\w.]+)) (\w+) = (\d+);", re.MULTILINE)
_STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_TAGGED = re.compile(r"^\t(?:\w+\s+)?(\S+)\s+`(?=[^`]*json:\"([^\"]*)\")(?=[^`]*protobuf:\"\w+,(\d+))", re.MULTILINE)

Field: TypeAlias = tuple[int, str, str, str]
"""Number, name in JSON, type, and rule: "" leaves out an empty value, "keep" takes what was sent, "inline"."""


@dataclass(frozen=True)
class Tag:
    json_name: str
    rule: str


def packages(api: Path, apimachinery: Path) -> Iterator[tuple[str, Path]]:
    """Short names of proto packages, and their folders."""
    for folder in sorted(api.glob("*/v1")):
        yield f"{folder.parent.name}.v1", folder
    yield "meta.v1", apimachinery / "pkg/apis/meta/v1"


def shorten(name: str, package: str) -> str:
    if "." not in name:
        return f"{package}.{name}"
    for prefix in (".k8s.io.apimachinery.pkg.apis.", ".k8s.io.apimachinery.pkg.", ".k8s.io.api."):
        name = name.removeprefix(prefix)
    return name.removeprefix(".")


def read_tags(folder: Path) -> dict[str, dict[str, Tag]]:
    """For each Go struct: by number of the field, what JSON makes of it."""
    found: dict[str, dict[str, Tag]] = {}
    for source in sorted(folder.glob("*types*.go")):
        for struct, body in _STRUCT.findall(source.read_text()):
            tags = found.setdefault(struct, {})
            for go_type, json_tag, number in _TAGGED.findall(body):
                json_name, *options = json_tag.split(",")
                is_kept = go_type.startswith("*") or not {"omitempty", "omitzero"} & set(options)
                tags[number] = Tag(json_name, "inline" if "inline" in options else "keep" if is_kept else "")
    return found


def read_package(package: str, folder: Path) -> Iterator[tuple[str, list[Field] | str]]:
    tags = read_tags(folder)
    text = re.sub(r"^\s*//.*\n", "", (folder / "generated.proto").read_text(), flags=re.MULTILINE)
    for message, body in _MESSAGE.findall(text):
        fields = [
            parsed for match in _FIELD.findall(body) for parsed in read_field(match, package, tags.get(message, {}))
        ]
        name = f"{package}.{message}"
        if message not in tags and [field[1] for field in fields] == ["items"]:
            yield name, fields[0][2]  # a named Go slice: in JSON just the list
        else:
            yield name, fields


def read_field(match: tuple[str, ...], package: str, tags: dict[str, Tag]) -> Iterator[Field]:
    label, key, value, plain, proto_name, number = match
    mark = {"map": "{}", "repeated": "[]"}.get(label, "")
    kind = value or plain
    if label == "map" and key != "string":
        raise SystemExit(f"{package}: map {proto_name} has keys of type {key}")
    tag = tags.get(number) or Tag(proto_name, "")
    if tag.json_name != "-":
        yield int(number), tag.json_name, mark + (kind if kind in SCALARS else shorten(kind, package)), tag.rule


def reachable(messages: dict[str, list[Field] | str], start: list[str]) -> dict[str, list[Field] | str]:
    found: dict[str, list[Field] | str] = {}
    waiting = list(start)
    while waiting:
        name = waiting.pop()
        if name in found or name in SPECIAL or name in SCALARS:
            continue
        if name not in messages:
            raise SystemExit(f"unknown message {name}: give it a decoder in muster.api.protobuf and list it in SPECIAL")
        content = found[name] = messages[name]
        types = [content] if isinstance(content, str) else [field[2] for field in content]
        waiting += [kind.removeprefix("[]").removeprefix("{}") for kind in types]
    return dict(sorted(found.items()))


def main(api: str, apimachinery: str) -> None:
    messages: dict[str, list[Field] | str] = {}
    for package, folder in packages(Path(api), Path(apimachinery)):
        messages.update(read_package(package, folder))
    kinds = {f"{version} {name}": f"{package}.{name}" for version, (package, names) in KINDS.items() for name in names}
    # One message a line: small enough to ship, and a new Kubernetes version shows in a diff.
    lines = [f"{json.dumps(name)}: {json.dumps(content, separators=(',', ':'))}"
             for name, content in reachable(messages, list(kinds.values())).items()]  # fmt: skip
    body = ",\n".join(lines)
    OUTPUT.write_text(f'{{"kinds": {json.dumps(kinds, indent=0)},\n"messages": {{\n{body}\n}}}}\n')
    sys.stdout.write(f"{len(lines)} messages, {OUTPUT.stat().st_size} bytes\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
