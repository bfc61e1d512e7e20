"""The settings of a platform that is started here, from everywhere they can come from."""

import os
from collections.abc import Callable, Mapping
from functools import reduce
from pathlib import Path

import click
from click.decorators import FC

from muster.api import raw
from muster.cli import starting
from muster.sdk import config
from muster.settings import reading
from muster.settings.reading import Given
from muster.settings.sections import PlatformSettings

_FLAGS: Mapping[str, str] = {
    "host": "host",
    "port": "port",
    "scheduler_config": "scheduler",
    "quota_config": "quota",
    "admission_config": "admission",
    "tls_cert": "security.tls.cert",
    "tls_key": "security.tls.key",
}
file_option = click.option(
    "--config",
    metavar="FILE",
    help="Settings of the platform, instead of `platform` in the configuration file. [env: MUSTER_CONFIG]",
)
_OPTIONS = (
    click.option("--host", metavar="ADDRESS", help="The address to listen on. [default: 127.0.0.1]"),
    click.option(
        "--port",
        type=click.IntRange(0, 65535),
        metavar="PORT",
        help=f"0 takes any free port. [default: {config.DEFAULT_PORT}]",
    ),
    click.option("--tls-cert", metavar="FILE", help="Serve over TLS with this certificate, in PEM."),
    click.option("--tls-key", metavar="FILE", help="Its key."),
    starting.scheduler_option,
    starting.quota_option,
    starting.admission_option,
    file_option,
    click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="One setting: log.level=debug."),
    click.option("--print-config", is_flag=True, help="Print the settings, secrets hidden, and do nothing else."),
)


def options(command: FC) -> FC:
    """All flags that are settings, for `up` and `serve`."""
    decorators: tuple[Callable[[FC], FC], ...] = _OPTIONS
    return reduce(lambda decorated, decorator: decorator(decorated), reversed(decorators), command)


def settings(flags: Mapping[str, raw.JSON], environment: Mapping[str, str] = os.environ) -> PlatformSettings:
    """Raises BadRequest that names the key which is wrong, and where it was found."""
    own = config.read_settings(environment)
    path = str(config.settings_path(environment))
    chosen = str(flags.get("config") or environment.get("MUSTER_CONFIG") or "")
    files = {"scheduler": own.scheduler, "quota": own.quota, "admission": own.admission}
    return reading.merge(
        PlatformSettings,
        [
            Given(path, {name: file for name, file in files.items() if file}),
            reading.from_file(Path(chosen).expanduser())
            if chosen
            else Given(path, reading.without_blanks(dict(own.platform)), "platform"),
            reading.from_environment(PlatformSettings, environment),
            reading.from_assignments(str(each) for each in flags.get("assignments") or ()),
            _from_flags(flags),
        ],
    )


def show(found: PlatformSettings) -> None:
    starting.echo(raw.to_yaml(reading.shown(found)).rstrip())


def _from_flags(flags: Mapping[str, raw.JSON]) -> Given:
    given = {key: flags[name] for name, key in _FLAGS.items() if flags.get(name) is not None}
    return Given("command line", reading.nested(given))
