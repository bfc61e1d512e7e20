"""`muster exp create` and `muster exp preview`."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from muster.api import errors, raw
from muster.api.raw import Document
from muster.cli import experiments_following, experiments_progress, experiments_words, rendering
from muster.cli.connecting import output_option
from muster.cli.rendering import Table
from muster.cli.session import Session
from muster.sdk import experiments, experiments_files, reading
from muster.sdk.experiments import NewExperiment

_USUAL = ("experiment.yaml", "config.yaml", "experiment.yml", "config.yml")
_directory_argument = click.argument(
    "directory", metavar="[DIR]", required=False, type=click.Path(path_type=Path, exists=True, file_okay=False)
)
_file_option = click.option(
    "-f", "--filename", metavar="FILE", help="The configuration, where it is not in DIR; - for standard input."
)
_config_option = click.option(
    "-c",
    "--config",
    "overrides",
    metavar="KEY=VALUE",
    multiple=True,
    help="Set this key instead: searcher.max_trials=4",
)


@click.command("create")
@_directory_argument
@_file_option
@_config_option
@click.option("--follow", is_flag=True, help="Wait for its end, and show the best trial.")
@click.option("--paused", is_flag=True, help="Make it, and start nothing before `muster exp activate`.")
@click.option("--template", metavar="NAME", default="", help="A template that stands below the configuration.")
@click.option("--project", metavar="ID", type=int, help="The project that it goes to.")
@click.option("--dry-run", is_flag=True, help="Let the server check everything and make nothing.")
@output_option("json")
@click.pass_obj
def create(session: Session, /, **options: raw.JSON) -> None:
    """Make an experiment from a configuration and the directory of its code.

    DIR is sent along, and trials work in a copy of it; what its .detignore names is left out. The
    configuration is DIR/experiment.yaml or DIR/config.yaml, or the file that -f names. With
    --follow the exit code is 0 where the experiment completes, 1 where it fails or is canceled.
    Ctrl-C leaves it running.

    \b
    Examples:
      muster exp create examples/search --follow
      muster exp create . -f big.yaml -c searcher.max_trials=64
      muster exp create examples/search --dry-run
    """
    directory: Path | None = options["directory"]
    config = read_config(directory, options["filename"], options["overrides"])
    files = [] if directory is None else experiments_files.pack(directory)
    new = NewExperiment(
        config=config,
        files=files,
        template=options["template"],
        project=options["project"],
        is_paused=options["paused"],
        is_checked_only=options["dry_run"],
    )
    server = experiments_words.connect(session)
    size = sum(len(file["content"]) for file in files)
    with experiments_progress.transfer("sending", size) as told:
        made = experiments.create(server, new, told)
    for warning in made.warnings:
        click.echo(f"warning: {warning}", err=True)
    if options["output"]:
        experiments_words.print_json(made.config if made.experiment is None else made.experiment.document)
    elif made.experiment is None:
        click.echo("the experiment can be made (dry run)")
    else:
        click.echo(f"experiment {made.experiment.id} ({made.experiment.name}) created")
    if options["follow"] and made.experiment is not None:
        sys.exit(experiments_following.follow(server, made.experiment.id))


@click.command("preview")
@_directory_argument
@_file_option
@_config_option
@output_option("json")
@click.pass_obj
def preview(session: Session, /, **options: raw.JSON) -> None:
    """Tell how many trials a search would train for how long.

    \b
    Examples:
      muster exp preview examples/search
      muster exp preview -f config.yaml -c searcher.max_trials=64
    """
    config = read_config(options["directory"], options["filename"], options["overrides"])
    server = experiments_words.connect(session)
    checked = experiments.create(server, NewExperiment(config, is_checked_only=True))
    summary = experiments.preview(server, checked.config)
    if options["output"]:
        experiments_words.print_json(summary)
        return
    parts = reading.objects(summary, "trials")
    rows = [[str(part.get("count", "")), length(reading.section(part, "unit"))] for part in parts]
    rendering.print_table(Table(["trials", "each trains for"], rows))


def length(unit: Document) -> str:
    if unit.get("maxLength"):
        return "its whole length"
    return f"{unit.get('value')} {unit.get('name') or 'batches'}"


def read_config(directory: Path | None, filename: str | None, overrides: Sequence[str]) -> str:
    """YAML; as it was written where nothing is set instead, so that what the server says of it has the right line.
    Raises BadRequest."""
    if directory is None and filename is None:
        raise click.UsageError("name the directory of the code, or the configuration with -f")
    source, text = _text(directory, filename)
    if not overrides:
        return text
    try:
        documents = raw.decode_yaml(text)
    except errors.BadRequest as error:
        raise errors.BadRequest(f"{source}: {error.message}") from error
    if len(documents) != 1:
        raise errors.BadRequest(f"{source}: expected the configuration of one experiment, found {len(documents)}")
    for override in overrides:
        _override(documents[0], override)
    return raw.to_yaml(documents[0])


def _text(directory: Path | None, filename: str | None) -> tuple[str, str]:
    if filename == "-":
        return "standard input", sys.stdin.read()
    path = Path(filename) if filename is not None else _found(directory or Path())
    try:
        return str(path), path.read_text()
    except OSError as error:
        raise errors.BadRequest(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise errors.BadRequest(f"{path}: is not text: {error.reason}") from error


def _found(directory: Path) -> Path:
    known = [directory / name for name in _USUAL if (directory / name).is_file()]
    if not known:
        raise errors.BadRequest(f"there is neither experiment.yaml nor config.yaml in {directory}; name one with -f")
    if len(known) > 1:
        raise errors.BadRequest(f"{directory} has {' and '.join(path.name for path in known)}; choose one with -f")
    return known[0]


def _override(config: Document, text: str) -> None:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise errors.BadRequest(f"--config: expected KEY=VALUE, found {text!r}")
    *above, last = key.split(".")
    try:
        inside = raw.section(config, *above) if above else config
        inside[last] = raw.decode_yaml(f"value: {value}")[0]["value"]
    except errors.BadRequest as error:
        raise errors.BadRequest(f"--config {key}: {error.message}") from error
