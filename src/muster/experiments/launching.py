"""One run of a trial, as what is asked of allocations.

A trial is a task whose program is the experiment's entrypoint, begun by `tasks.glue.trials` once all of its parts are
there. What it is told goes by its environment; what may hold keys of a storage goes there as a secret.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlalchemy import Connection, select

from muster.accounts.services import AccountServices
from muster.api import errors, raw
from muster.api.documents import made_child, objects
from muster.api.raw import Document
from muster.engines.protocol import DEFAULT_PRIORITY, AllocationId, Pool, Request
from muster.engines.sizing import GPU
from muster.experiments.experiment_records import Experiment
from muster.experiments.trial_records import Trial
from muster.records import Database
from muster.records.tables_experiments import CHECKPOINTS
from muster.store.protocol import Store
from muster.tasks import agent_users, config_sections, task_pods, workspace_room
from muster.tasks.config_fields import Fields
from muster.tasks.contract import DTRAIN_PORTS, Launch, ProxyPort
from muster.tasks.glue.storages import SHARED_PATH
from muster.tasks.submitting import PoolList, TaskSettings
from muster.tasks.task_config import Resources, TaskConfig, TaskType
from muster.tasks.task_pods import Cluster, TaskFacts

LONGEST_VARIABLE: Final = 120 * 1024
"""Systems refuse to start a program with a longer one."""
_LOAD_ALL: Final = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1"
_LOAD_WEIGHTS: Final = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
_USUAL: Final = (_LOAD_ALL, f"TMPDIR={task_pods.TEMPORARY_DIRECTORY}")
"""Where users do not say otherwise. Newer PyTorch loads only weights unless it is told to load all; what trainers
save is more than that, and theirs to trust. Ranks meet at sockets in files, whose paths must not be long."""

_MEETING: Final[Sequence[tuple[Document, Document]]] = (
    ({"name": "meeting", "emptyDir": {}}, {"name": "meeting", "mountPath": "/tmp/muster-trial"}),  # noqa: S108
)
"""For trials of several parts. Launchers put sockets into /tmp that are named after the allocation, and parts of one
may be on the same machine: something new below it gives each a /tmp of its own, with all that was there before."""


@dataclass(frozen=True, slots=True)
class LaunchServices:
    """What launching needs of others."""

    database: Database
    store: Store
    accounts: AccountServices
    pools: PoolList


class TrialLauncher:
    def __init__(self, services: LaunchServices, settings: TaskSettings, cluster: Cluster) -> None:
        self._services = services
        self._settings = settings
        self._cluster = cluster

    async def launch(
        self,
        experiment: Experiment,
        trial: Trial,
        run: int,
        allocation: AllocationId,
        excluded: Collection[str] = (),
    ) -> Launch:
        """`excluded`: nodes that it must not come to any more. Opens a session for its task, as often as it is called;
        they end with the task."""
        services, config = self._services, task_config(experiment)
        namespace = await workspace_room.namespace(services.accounts.bindings, services.store, experiment.workspace)
        await self._cluster.glue.place(services.store, namespace)
        pool = await self._pool(config)
        facts = TaskFacts(
            kind=TaskType.TRIAL,
            username=experiment.username,
            device="cuda" if config.resources.slots and pool is not None and pool.slot_resource == GPU else "cpu",
            variables=await self._variables(experiment, trial, run),
            has_context=True,
            agent=await agent_users.find(services.accounts, experiment.user, experiment.workspace),
        )
        defaults = self._settings.defaults
        pod_spec = defaults.gpu_pod_spec if facts.device == "cuda" else defaults.cpu_pod_spec
        template = task_pods.template(config, facts, self._cluster, pod_spec)
        task_pods.add_volumes(template, storage_volumes(experiment.config.get("checkpoint_storage") or {}))
        if pool is not None and config.resources.slots > pool.slots_per_node:
            task_pods.add_volumes(template, _MEETING)
        without_nodes(template, excluded)
        request = Request(
            allocation=allocation,
            task=trial.task,
            task_type=TaskType.TRIAL.value,
            template=template,
            job=experiment.job,
            name=f"Trial {trial.id} (Experiment {experiment.id})",
            owner=experiment.username,
            namespace=namespace,
            pool=experiment.pool,
            priority=config.resources.priority,
            slots=config.resources.slots,
            is_single_node=config.resources.is_single_node,
            is_preemptible=True,
            preemption_timeout_seconds=config.preemption_seconds or defaults.preemption_seconds,
        )
        secrets = {
            **variables_of_experiment(experiment.config, trial.hparams),
            "DET_USER_TOKEN": await services.accounts.accounts.open_task(experiment.user, trial.task),
        }
        proxies = [
            ProxyPort(port.port, is_tcp=port.is_tcp, is_unauthenticated=port.is_unauthenticated)
            for port in config.environment.proxy_ports
        ]
        return Launch(request, experiment.user, proxies, DTRAIN_PORTS, secrets)

    async def _variables(self, experiment: Experiment, trial: Trial, run: int) -> dict[str, str]:
        checkpoint = trial.latest_checkpoint or trial.warm_start
        steps = 0  # one that begins with another's checkpoint has made none itself
        if trial.latest_checkpoint is not None:
            uuid = trial.latest_checkpoint
            steps = await self._services.database.read(lambda connection: _steps(connection, uuid))
        return {
            "DET_TRIAL_ID": str(trial.id),
            "DET_EXPERIMENT_ID": str(experiment.id),
            "DET_TRIAL_SEED": str(trial.seed),
            "DET_TRIAL_RUN_ID": str(run),
            "DET_STEPS_COMPLETED": str(steps),
            **({} if checkpoint is None else {"DET_LATEST_CHECKPOINT": checkpoint}),
        }

    async def _pool(self, config: TaskConfig) -> Pool | None:
        pools = await self._services.pools.pools()
        return next((pool for pool in pools if pool.name == config.resources.pool), None)


def variables_of_experiment(config: Document, hparams: Document) -> dict[str, str]:
    """Raises BadRequest where they are longer than a variable can be."""
    found = {
        "DET_EXPERIMENT_CONFIG": raw.encode(config).decode(),
        "DET_HPARAMS": raw.encode(hparams).decode(),
    }
    longest = max(found, key=lambda name: len(found[name]))
    if len(found[longest]) > LONGEST_VARIABLE:
        raise errors.BadRequest(
            f"config: is {len(found[longest]) // 1024} KiB long as JSON; at most {LONGEST_VARIABLE // 1024} KiB are "
            "taken: put what is large into a file of the model definition"
        )
    return found


def task_config(experiment: Experiment) -> TaskConfig:
    """Of each of its trials, from a configuration that was checked before."""
    document = experiment.config
    fields = Fields(config_sections.plain(document))
    resources = fields.inside("resources")
    environment = config_sections.read_environment(fields.inside("environment"))
    variables = {device: _with_usual(given) for device, given in environment.variables.items()}
    return TaskConfig(
        environment=replace(environment, variables=variables),
        resources=Resources(
            slots=experiment.slots_per_trial,
            pool=experiment.pool,
            priority=experiment.priority or DEFAULT_PRIORITY,
            shm_bytes=resources.size("shm_size"),
            is_single_node=resources.flag("is_single_node"),
        ),
        bind_mounts=config_sections.read_bind_mounts(fields),
        is_debug=fields.flag("debug"),
        preemption_seconds=fields.integer("preemption_timeout", None),
    )


def _with_usual(given: Sequence[str]) -> Sequence[str]:
    is_for_weights = any(each.partition("=")[0] == _LOAD_WEIGHTS for each in given)
    # PyTorch refuses to load anything where it is told both.
    return (*given, *(each for each in _USUAL if not (each == _LOAD_ALL and is_for_weights)))


def _steps(connection: Connection, checkpoint: str) -> int:
    return connection.scalar(select(CHECKPOINTS.c.steps).where(CHECKPOINTS.c.uuid == checkpoint)) or 0


def storage_volumes(storage: Document) -> Iterator[tuple[Document, Document]]:
    """What a task must see to reach a checkpoint storage, and where."""
    if storage.get("type") == "shared_fs":
        source = {"path": storage["host_path"], "type": "DirectoryOrCreate"}
        yield {"name": "shared-fs", "hostPath": source}, {"name": "shared-fs", "mountPath": SHARED_PATH}


def without_nodes(template: Document, excluded: Collection[str]) -> None:
    if not excluded:
        return
    away: Document = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": sorted(excluded)}
    template["spec"]["affinity"] = raw.copy(template["spec"].get("affinity") or {})  # it may be the experiment's own
    affinity = made_child(template["spec"]["affinity"], "nodeAffinity")
    required = made_child(affinity, "requiredDuringSchedulingIgnoredDuringExecution")
    terms = list(objects(required, "nodeSelectorTerms")) or [{}]
    # Any one of the terms is enough for a node: so it stands in each of them.
    for term in terms:
        term["matchExpressions"] = [*objects(term, "matchExpressions"), away]
    required["nodeSelectorTerms"] = terms
