"""How events are worded: as Determined's default format has it, and as messages for Slack. Pure.

The JSON is compact and of ASCII characters: receivers that take it apart and put it together again before they check
the signature, as Determined's documentation shows it, then get the same bytes.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from muster.api.meta import Instant
from muster.api.raw import JSON
from muster.tasks.webhook_rules import EndState, Format, TriggerType

LONGEST_LINE: Final = 4096
_LONGEST_SLACK: Final = 2900
"""Slack takes 3000 characters in one text."""
_GREEN: Final = "#13B670"
_RED: Final = "#DD5040"


@dataclass(frozen=True, slots=True)
class ExperimentFacts:
    """What is told of an experiment. `id` 0: the event is of a task that belongs to none."""

    id: int
    name: str
    state: str
    slots: int = 0
    seconds: int = 0
    pool: str = ""
    workspace: str = ""
    project: str = ""
    trial: int = 0


@dataclass(frozen=True, slots=True)
class Alert:
    """What user code wants told."""

    title: str
    description: str
    level: str


@dataclass(frozen=True, slots=True)
class StateChanged:
    experiment: ExperimentFacts
    type: TriggerType = TriggerType.STATE_CHANGE


@dataclass(frozen=True, slots=True)
class LogMatched:
    """`pattern` was found in the line."""

    task: str
    task_type: str
    node: str
    pattern: str
    line: str
    type: TriggerType = TriggerType.TASK_LOG


@dataclass(frozen=True, slots=True)
class Alerted:
    alert: Alert
    experiment: ExperimentFacts
    type: TriggerType = TriggerType.CUSTOM


@dataclass(frozen=True, slots=True)
class Tested:
    """Somebody wants to see whether it arrives."""

    type: TriggerType = TriggerType.STATE_CHANGE


Happening = StateChanged | LogMatched | Alerted | Tested


@dataclass(frozen=True, slots=True)
class Event:
    id: UUID
    at: Instant
    what: Happening


def body(event: Event, format: Format, base_url: str = "") -> bytes:
    """`base_url`: of the web page, for links; without it there are none."""
    told: Mapping[str, JSON] = _default(event) if format is Format.DEFAULT else _slack(event.what, base_url)
    return json.dumps(told, separators=(",", ":")).encode()


# Determined's own


def _default(event: Event) -> Mapping[str, JSON]:
    condition, data = _told(event.what)
    return {
        "event_id": str(event.id),
        "event_type": event.what.type.value,
        "timestamp": int(event.at),
        "condition": condition,
        "event_data": data,
    }


def _told(what: Happening) -> tuple[Mapping[str, JSON], Mapping[str, JSON]]:
    match what:
        case StateChanged(experiment):
            return {"state": experiment.state}, {"experiment": _experiment(experiment)}
        case LogMatched():
            found = {"task_id": what.task, "node_name": what.node, "triggering_log": what.line[:LONGEST_LINE]}
            return {"regex": what.pattern}, {"task_log": found}
        case Alerted(alert, experiment):
            custom = {"title": alert.title, "description": alert.description, "level": alert.level}
            return {"state": experiment.state}, {"experiment": _experiment(experiment), "custom_data": custom}
        case Tested():
            return {"state": EndState.COMPLETED.value}, {"data": "test"}


def _experiment(facts: ExperimentFacts) -> dict[str, JSON]:
    told: dict[str, JSON] = {
        "id": facts.id,
        "state": facts.state,
        "name": facts.name,
        "slots_per_trial": facts.slots,
        "duration": facts.seconds,
        "resource_pool": facts.pool,
        "workspace": facts.workspace,
        "project": facts.project,
    }
    return told | ({"trial_id": facts.trial} if facts.trial else {})


# Slack's


def _slack(what: Happening, base_url: str) -> Mapping[str, JSON]:
    match what:
        case StateChanged(experiment):
            return _message(_plain(_sentence(experiment)), experiment, base_url)
        case LogMatched():
            return {"blocks": [_section(_mark(_log_text(what)))]}
        case Alerted(alert, experiment):
            fields = (("Level", alert.level), ("Title", alert.title), ("Description", alert.description))
            return _message(_plain("Event Data"), experiment, base_url, fields)
        case Tested():
            return {"blocks": [_section(_plain("This is a test of a webhook: it works."))]}


def _message(
    headline: Mapping[str, JSON], experiment: ExperimentFacts, base_url: str, fields: Sequence[tuple[str, str]] = ()
) -> Mapping[str, JSON]:
    hours, seconds = divmod(experiment.seconds, 3600)
    about = [
        ("Status", experiment.state.capitalize()),
        ("Duration", f"{hours}h {seconds // 60}min"),
        ("Workspace", experiment.workspace),
        ("Project", experiment.project),
        ("Trial ID", str(experiment.trial or "")),
    ]
    color = _RED if experiment.state == EndState.ERROR else _GREEN
    block = _section(_mark(_linked(experiment, base_url)), [entry for entry in about if entry[1]])
    return {"blocks": [_section(headline, fields)], "attachments": [{"color": color, "blocks": [block]}]}


def _sentence(experiment: ExperimentFacts) -> str:
    match experiment.state:
        case EndState.COMPLETED:
            return "Your experiment has completed."
        case EndState.ERROR:
            return "Your experiment has stopped with errors."
        case _:
            return f"Your experiment is {experiment.state}."


def _linked(experiment: ExperimentFacts, base_url: str) -> str:
    if not experiment.id:
        return _escaped(experiment.name)
    name = f"{_escaped(experiment.name)} (#{experiment.id})"
    return f"<{base_url}/det/experiments/{experiment.id}/overview|{name}>" if base_url else name


def _log_text(what: LogMatched) -> str:
    return (
        f"Task `{_escaped(what.task)}` of type `{_escaped(what.task_type)}` on node `{_escaped(what.node)}` wrote\n"
        f"```{_escaped(what.line[: _LONGEST_SLACK // 4])}```\n"
        f"which matches\n```{_escaped(what.pattern[: _LONGEST_SLACK // 4])}```"
    )


def _section(text: Mapping[str, JSON], fields: Sequence[tuple[str, str]] = ()) -> dict[str, JSON]:
    made: dict[str, JSON] = {"type": "section", "text": dict(text)}
    if fields:
        made["fields"] = [_mark(f"*{name}*: {_escaped(value)}"[:_LONGEST_SLACK]) for name, value in fields]
    return made


def _mark(text: str) -> dict[str, JSON]:
    return {"type": "mrkdwn", "text": text[:_LONGEST_SLACK]}


def _plain(text: str) -> dict[str, JSON]:
    return {"type": "plain_text", "text": text[:_LONGEST_SLACK]}


def _escaped(text: str) -> str:
    """Others' words: they must not become links, mentions of everybody, or the end of a quotation."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("`", "'")
