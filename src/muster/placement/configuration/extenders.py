"""`extenders` of a configuration, read and checked as kube-scheduler does."""

from collections.abc import Sequence

from muster.api import fields
from muster.api.errors import FieldError
from muster.api.sections import Section
from muster.placement.extending import ExtenderConfig, ManagedResource, TlsConfig, Verb

_TIMEOUT_SECONDS = 5.0
_VERBS = {
    Verb.FILTER: "filterVerb",
    Verb.PRIORITIZE: "prioritizeVerb",
    Verb.PREEMPT: "preemptVerb",
    Verb.BIND: "bindVerb",
}
_NATIVE = "kubernetes.io/"


def read(root: Section, warnings: list[str]) -> Sequence[ExtenderConfig]:
    """In the order in which they are asked: those that may be ignored come last, so that they see what is left."""
    found = [_read_one(section, warnings) for section in root.sections("extenders")]
    binders = [extender for extender in found if Verb.BIND in extender.verbs]
    if len(binders) > 1:
        message = f"{len(binders)} extenders bind pods, only one can"
        root.errors.append(FieldError(root.at("extenders"), "FieldValueInvalid", message))
    managed: set[str] = set()
    for extender in found:
        for index, resource in enumerate(extender.managed_resources):
            path = f"{extender.path}.managedResources[{index}].name"
            root.errors += _resource_errors(path, resource.name)
            if resource.name in managed:
                root.errors.append(fields.duplicate(path, resource.name))
            managed.add(resource.name)
    return sorted(found, key=lambda extender: extender.is_ignorable)


def ignored_resources(extenders: Sequence[ExtenderConfig]) -> list[str]:
    """Resources that an extender accounts for: NodeResourcesFit is to leave them alone."""
    return [
        resource.name
        for extender in extenders
        for resource in extender.managed_resources
        if resource.is_ignored_by_scheduler
    ]


def _read_one(section: Section, warnings: list[str]) -> ExtenderConfig:
    url = section.required_text("urlPrefix")
    tls = section.section("tlsConfig")
    verbs = {verb: section.text(name) for verb, name in _VERBS.items()}
    extender = ExtenderConfig(
        url_prefix=url,
        verbs={verb: name for verb, name in verbs.items() if name},
        weight=section.number("weight"),
        enable_https=section.flag("enableHTTPS"),
        tls=_read_tls(tls) if section.has("tlsConfig") else None,
        timeout_seconds=section.duration("httpTimeout", _TIMEOUT_SECONDS),
        is_node_cache_capable=section.flag("nodeCacheCapable"),
        managed_resources=tuple(_read_resource(item) for item in section.sections("managedResources")),
        is_ignorable=section.flag("ignorable"),
        path=section.path,
    )
    section.finish()
    if url and not url.startswith(("http://", "https://")):
        section.errors.append(fields.invalid(section.at("urlPrefix"), url, "must begin with http:// or https://"))
    if extender.enable_https and url.startswith("http://"):
        warnings.append(f"{section.path}: enableHTTPS has no effect on the URL {url}; write https:// to have TLS")
    if Verb.PRIORITIZE in extender.verbs and extender.weight <= 0:
        message = "must be positive where the extender has a prioritizeVerb"
        section.errors.append(fields.invalid(section.at("weight"), extender.weight, message))
    if not extender.verbs:
        warnings.append(f"{section.path}: the extender has no verb, so it is never asked")
    return extender


def _read_resource(section: Section) -> ManagedResource:
    resource = ManagedResource(section.required_text("name"), section.flag("ignoredByScheduler"))
    section.finish()
    return resource


def _resource_errors(path: str, name: str) -> list[FieldError]:
    errors = list(fields.qualified_name(path, name)) if name else []
    if not errors and name and ("/" not in name or _NATIVE in name or name.startswith("requests.")):
        errors.append(fields.invalid(path, name, "must be an extended resource, such as nvidia.com/gpu"))
    return errors


def _read_tls(section: Section) -> TlsConfig:
    tls = TlsConfig(
        insecure=section.flag("insecure"),
        server_name=section.text("serverName"),
        cert_file=section.text("certFile"),
        key_file=section.text("keyFile"),
        ca_file=section.text("caFile"),
        cert_data=section.data("certData"),
        key_data=section.data("keyData"),
        ca_data=section.data("caData"),
    )
    section.finish()
    if bool(tls.cert_file or tls.cert_data) != bool(tls.key_file or tls.key_data):
        message = "a certificate (certFile, certData) and its key (keyFile, keyData) go together"
        section.errors.append(FieldError(section.path, "FieldValueInvalid", message))
    if tls.insecure and (tls.ca_file or tls.ca_data):
        message = "must not be set together with caFile or caData: certificates are either checked or not"
        section.errors.append(fields.invalid(section.at("insecure"), True, message))
    return tls
