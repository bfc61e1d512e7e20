"""`muster submit`."""

import json
import sys
import time
from collections.abc import Sequence

import click

from muster.api import errors, raw
from muster.cli import files, reporting, submit_view
from muster.cli.connecting import connect, namespace_option, output_option
from muster.cli.files import Found
from muster.cli.session import Session
from muster.sdk import job_following, operating, reading
from muster.sdk.client import Client
from muster.sdk.dialects import GANG, POD, Job
from muster.sdk.job_following import Ended, JobFollower, Moved
from muster.sdk.log_reading import Line, LogLost

INTERRUPTED = 130


@click.command()
@click.option(
    "-f",
    "--filename",
    multiple=True,
    required=True,
    metavar="FILE",
    help="A file, a directory, or - for standard input.",
)
@namespace_option
@click.option("-w", "--wait", is_flag=True, help="Follow the jobs to their end, and exit with their code.")
@click.option("-l", "--logs", is_flag=True, help="Follow them with what their pods write (includes --wait).")
@click.option("--dry-run", is_flag=True, help="Let the server check everything and make nothing.")
@files.unknown_fields_option
@output_option("json", "yaml", "name")
@click.pass_obj
def command(session: Session, /, **options: raw.JSON) -> None:
    """Submit jobs of any kind from files, and follow them.

    The files may have jobs (batch, Volcano, PyTorchJob, CronJob, JobFlow, pods) and whatever else
    they need: queues, templates, priority classes. All is made in the order in which it stands
    there; `metadata.generateName` gives each submission a name of its own. To change what exists
    use `muster apply`.

    With --wait the exit code is that of the first job that fails, 0 where all succeed. Ctrl-C
    leaves the jobs running.

    \b
    Examples:
      muster submit -f train.yaml
      muster submit -f train.yaml --logs
      cat job.yaml | muster submit -f - --wait
    """
    namespace, output = options["namespace"], options["output"]
    client = connect(session, namespace)
    found = files.read(options["filename"])
    is_followed = options["wait"] or options["logs"]
    if is_followed:
        _jobs([item.document for item in found])  # before anything is made
    made = _make(client, found, options)
    if output:
        _print(client, made, output)
    if is_followed and not options["dry_run"]:
        sys.exit(_follow_all(client, _jobs(made), with_logs=options["logs"]))


def _make(client: Client, found: Sequence[Found], options: raw.JSON) -> list[raw.Document]:
    """Stops at the first that is refused: what comes after it may need it. Says what was made before."""
    dry_run, strict = options["dry_run"], not options["ignore_unknown_fields"]
    made: list[raw.Document] = []
    for item in found:
        try:
            document = client.create(item.document, dry_run=dry_run, strict=strict)
        except errors.ApiError as error:
            left = len(found) - len(made) - 1
            beyond = f" ({left} more not looked at)" if left else ""
            error.message = f"{item.source}{beyond}: {error.message}{_advice(error)}"
            raise
        made.append(document)
        if not options["output"]:
            click.echo(f"{_label(client, document)} created{' (dry run)' if dry_run else ''}")
    return made


def _advice(error: errors.ApiError) -> str:
    if isinstance(error, errors.AlreadyExists):
        return "; `muster apply` changes it, `muster restart` runs it again, or choose another name"
    return ""


def _label(client: Client, document: raw.Document) -> str:
    return f"{client.catalog().of_document(document).label}/{reading.text(document, 'metadata', 'name')}"


def _print(client: Client, made: Sequence[raw.Document], output: str) -> None:
    if output == "name":
        for document in made:
            click.echo(_label(client, document))
        return
    shown = made[0] if len(made) == 1 else {"apiVersion": "v1", "kind": "List", "items": list(made)}
    click.echo(raw.to_yaml(shown) if output == "yaml" else json.dumps(shown, indent=2), nl=output == "json")


# Following


def _jobs(documents: Sequence[raw.Document]) -> list[Job]:
    """Those that can be followed. Raises BadRequest where there is nothing to wait for."""
    found = [job for job in map(operating.as_job, documents) if job is not None]
    if not found:
        raise errors.BadRequest("--wait: there is no job in the files, so nothing to wait for")
    for job in found:
        job_following.refuse_endless(job)
    return found


def _follow_all(client: Client, jobs: Sequence[Job], *, with_logs: bool) -> int:
    """One after the other: they run at the same time, and whichever is longest is waited for anyway."""
    began = time.monotonic()
    codes = [_follow(client, job, began, with_logs=with_logs) for job in jobs]
    return next((code for code in codes if code), 0)


def _follow(client: Client, job: Job, began: float, *, with_logs: bool) -> int:
    follower = JobFollower(client, job, with_logs=with_logs)
    view = submit_view.open_view(job.name, follower.label, began, with_pod=job.dialect is not POD)
    try:
        while True:
            match follower.next():
                case Line(number, text):
                    view.line(number, text)
                case LogLost(number, error):
                    view.say(f"the rest of the log of {follower.label(number)} could not be read: {error}")
                case Moved(summary):
                    view.moved(summary)
                case Ended(summary, code):
                    view.ended(summary)
                    return code
    except KeyboardInterrupt:
        view.close()
        shown = job.name if job.dialect in (GANG, POD) else job.shown
        click.echo(f"{job.name} goes on. See it: muster describe {shown}   Stop it: muster stop {shown}", err=True)
        sys.exit(INTERRUPTED)
    except errors.ApiError as error:
        view.close()
        sys.exit(reporting.report(error))
    finally:
        view.close()
        follower.close()
