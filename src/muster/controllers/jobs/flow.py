"""Runs flows of jobs: makes the job of each step once those before it are done, and tells templates what was made.

A job's name follows from the flow and the step, so nothing is made twice, whatever the controller's copies show.
"""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence

from muster.api import core, errors, selectors, volcano
from muster.api.meta import LabelSelector
from muster.api.objects import Key, Object
from muster.api.raw import Document
from muster.controllers.jobs.probing import Ask, ask
from muster.jobs import flow as flows
from muster.jobs.flow import Problem, Question
from muster.jobs.volcano.names import JOB as JOB_LABEL
from muster.jobs.volcano.names import TASK as TASK_LABEL
from muster.runtime.clock import Clock
from muster.runtime.informers import Informer
from muster.runtime.keeping import keep
from muster.runtime.reconciling import Reconciler
from muster.runtime.recording import EventRecorder
from muster.store.protocol import (
    Create,
    Delete,
    Event,
    Options,
    Patch,
    PatchType,
    Refused,
    Result,
    Revision,
    Selection,
    Store,
    write_one,
)

PROBE_SECONDS = 5.0
"""How long to wait before a probe that did not hold is tried again."""

_OPTIONS = Options(manager="jobflow-controller")
_WORKERS = 4


class JobFlowController:
    """`ask` puts a probe's question to a pod."""

    def __init__(self, store: Store, clock: Clock, ask: Ask = ask) -> None:
        self._store = store
        self._clock = clock
        self._ask = ask

    async def run(self) -> None:
        await _Keeper(self._store, self._clock, self._ask).run()


class _Keeper:
    """The state of one run."""

    def __init__(self, store: Store, clock: Clock, ask: Ask) -> None:
        self._store = store
        self._clock = clock
        self._ask = ask
        self._events = EventRecorder(store, clock, "jobflow-controller")
        self._reconciler = Reconciler("job flows", self._reconcile, clock=clock, workers=_WORKERS)
        self._template_reconciler = Reconciler("job templates", self._reconcile_template, clock=clock)
        self._flows = Informer(store, Selection(volcano.JOB_FLOW), clock=clock)
        self._templates = Informer(store, Selection(volcano.JOB_TEMPLATE), clock=clock)
        self._jobs = Informer(store, Selection(volcano.JOB), clock=clock)
        self._flows.index_by("template", _templates_of)
        self._jobs.index_by("flow", lambda job: [str(key)] if (key := _flow_of(job)) else [])
        self._jobs.index_by("template", lambda job: [name] if (name := flows.template_of(job.meta)) else [])
        self._flows.on_event(self._flow_changed)
        self._templates.on_event(self._template_changed)
        self._jobs.on_event(self._job_changed)

    async def run(self) -> None:
        informers = (self._flows, self._templates, self._jobs)
        await keep("flow", informers, self._events.run, self._reconciler.run, self._template_reconciler.run)

    # What happens

    def _flow_changed(self, event: Event) -> None:
        assert event.object is not None
        self._reconciler.queue.add(event.object.key)

    def _template_changed(self, event: Event) -> None:
        assert event.object is not None
        self._template_reconciler.queue.add(event.object.key)
        for flow in self._flows.by_index("template", str(event.object.key)):
            self._reconciler.queue.add(flow.key)

    def _job_changed(self, event: Event) -> None:
        job = event.object
        assert job is not None
        key = _flow_of(job)
        if key is not None:
            self._reconciler.queue.add(key)
        namespace, _, template = (flows.template_of(job.meta) or "").partition(".")
        if template:
            self._template_reconciler.queue.add(Key(namespace, template))

    # What is done about it

    async def _reconcile(self, key: Key) -> float | None:
        found = self._flows.get(key)
        if found is None or found.is_terminating:
            return None
        view = found.read(volcano.JobFlow)
        jobs = self._jobs_of(found)
        templates = {step.name: Key(key.namespace, step.name) for step in view.spec.flows}
        known = {name for name, template in templates.items() if self._templates.get(template) is not None}
        due = flows.due(view, jobs, known, {})
        if due.questions:
            answers = await self._answer(key.namespace, due.questions)
            due = flows.due(view, jobs, known, answers)
        if due.removed:
            _check(await self._store.write([_delete(Key(key.namespace, name)) for name in due.removed]))
        made, refused = await self._make(found, due.steps)
        problems = {**(due.problems or {}), **refused}
        self._tell(found, problems)
        await self._write_status(found, flows.status_of(view, {**jobs, **made}, problems, self._clock.now()))
        if refused:
            raise errors.Unavailable(f"{len(refused)} jobs of the flow were refused")
        return PROBE_SECONDS if due.questions else None

    def _jobs_of(self, found: Object) -> Mapping[str, volcano.Job]:
        jobs = [job.read(volcano.Job) for job in self._jobs.by_index("flow", str(found.key))]
        return {job.metadata.name: job for job in jobs if flows.belongs(job.metadata, found.meta)}

    async def _make(
        self, found: Object, steps: Sequence[str]
    ) -> tuple[Mapping[str, volcano.Job], Mapping[str, Problem]]:
        made: dict[str, volcano.Job] = {}
        refused: dict[str, Problem] = {}
        document = found.document()
        entries: Mapping[str, Document] = {entry["name"]: entry for entry in document["spec"]["flows"]}
        for step in steps:
            template = self._templates.get(Key(found.key.namespace, step))
            assert template is not None, "only steps with a template are due"
            wanted = flows.make_job(document, entries[step], template.document())
            name = wanted["metadata"]["name"]
            (result,) = await self._store.write([Create(volcano.JOB, wanted, _OPTIONS)])
            if not isinstance(result, Refused):
                made[name] = result.object.read(volcano.Job)
                self._events.record(found, "Normal", "SuccessfulCreate", f"Created job {name}")
            elif isinstance(result.error, errors.AlreadyExists):
                holder = await self._store.get(volcano.JOB, Key(found.key.namespace, name))
                if flows.belongs(holder.meta, found.meta):
                    made[name] = holder.read(volcano.Job)
                else:
                    message = f'a job "{name}" exists that does not belong to this flow; delete it or rename the flow'
                    refused[name] = Problem("JobNameTaken", message)
            elif result.error.retryable:
                raise result.error
            else:
                refused[name] = Problem("JobRefused", result.error.message)
        return made, refused

    def _tell(self, found: Object, problems: Mapping[str, Problem]) -> None:
        for problem in problems.values():
            self._events.record(found, "Warning", problem.reason, problem.message)

    async def _write_status(self, found: Object, wanted: Document) -> None:
        present = found.document().get("status") or {}
        if {name: value for name, value in present.items() if value} == wanted:
            return
        # As a whole: what is merged would keep entries of jobs and fields of entries that are gone.
        body = [{"op": "add", "path": "/status", "value": wanted}]
        based_on = Revision(found.revision)
        patch = Patch(volcano.JOB_FLOW, found.key, body, PatchType.JSON, "status", based_on, _OPTIONS)
        with contextlib.suppress(errors.NotFound):  # deleted meanwhile
            await write_one(self._store, patch)

    async def _answer(self, namespace: str, questions: Sequence[Question]) -> Mapping[Question, bool]:
        """Each is put to every running pod of its task; all must answer."""
        asked: dict[Question, list[asyncio.Task[bool]]] = {}
        async with asyncio.TaskGroup() as group:
            for question in questions:
                hosts = await self._hosts(namespace, question)
                asked[question] = [
                    group.create_task(self._put(question, host), name=f"flow-probe-{host}") for host in hosts
                ]
        return {question: bool(tasks) and all(task.result() for task in tasks) for question, tasks in asked.items()}

    async def _put(self, question: Question, host: str) -> bool:
        return await self._ask(question, host)

    async def _hosts(self, namespace: str, question: Question) -> list[str]:
        wanted = LabelSelector(match_labels={JOB_LABEL: question.job, TASK_LABEL: question.task})
        listed = await self._store.list(Selection(core.POD, namespace, selectors.from_view(wanted)))
        pods = [pod.read(core.Pod).status for pod in listed.items]
        return [status.pod_ip for status in pods if status.phase == "Running" and status.pod_ip]

    async def _reconcile_template(self, key: Key) -> float | None:
        found = self._templates.get(key)
        if found is None or found.is_terminating:
            return None
        made = self._jobs.by_index("template", flows.connection(key.namespace, key.name))
        names = sorted(job.key.name for job in made if job.key.namespace == key.namespace)
        if list(found.read(volcano.JobTemplate).status.job_depends_on_list) == names:
            return None
        body = {"status": {"jobDependsOnList": names}}
        patch = Patch(volcano.JOB_TEMPLATE, key, body, subresource="status", options=_OPTIONS)
        with contextlib.suppress(errors.NotFound):
            await write_one(self._store, patch)
        return None


def _check(results: Sequence[Result]) -> None:
    for result in results:
        if isinstance(result, Refused) and not isinstance(result.error, errors.NotFound):
            raise result.error


def _delete(key: Key) -> Delete:
    return Delete(volcano.JOB, key, "Background", options=_OPTIONS)


def _flow_of(job: Object) -> Key | None:
    name = flows.flow_of(job.meta)
    return Key(job.key.namespace, name) if name else None


def _templates_of(flow: Object) -> list[str]:
    return [str(Key(flow.key.namespace, step.name)) for step in flow.read(volcano.JobFlow).spec.flows]
