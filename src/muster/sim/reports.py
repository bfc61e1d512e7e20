"""What is said of a run that went wrong: enough to see it, and the one command that does it again."""

from muster.sim import plans, stories
from muster.sim.plans import Event, Submit
from muster.sim.world import Outcome

_MOST_STORIES = 6


def failure(outcome: Outcome, *, original: int, command: str) -> str:
    """`original`: how many events there were before they were made fewer. `command`: what runs it again."""
    violation = outcome.violation
    assert violation is not None
    events = outcome.plan.events
    lines = [
        f"seed {outcome.plan.seed} breaks an invariant after {outcome.seconds:.0f} virtual seconds",
        f"  {violation}",
        "",
        f"{len(events)} of {original} events are enough:",
        *(f"  {event.at:8.3f} s  {_told(event)}" for event in events),
    ]
    for place in violation.about[:_MOST_STORIES]:
        lines += ["", f"story of {place}:", *stories.story(outcome.records, place)]
    return "\n".join([*lines, "", f"again: {command}"])


def _told(event: Event) -> str:
    if isinstance(event, Submit):
        document = plans.document_of(event)
        return f"submit {document['kind']} {document['metadata']['name']}"
    said = {name: getattr(event, name) for name in event.__struct_fields__ if name != "at"}
    return f"{type(event).__name__} " + " ".join(
        f"{name}={value}" for name, value in said.items() if value not in (0, 0.0)
    )
