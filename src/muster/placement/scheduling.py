"""Deciding where pods go: one pod, or a gang as a whole, against the cluster as it is now. The placement engine.

`Scheduler.decide` is a function of the cluster state, the groups, the budgets, the pods it is asked about and a number
that counts decisions; its outcome is already assumed in the state when it returns, so the next decision sees it.
No clock, no I/O, no chance: what is left to chance (ties) follows from the seed and the number, so that a log of
inputs gives the same decisions again. A gang is placed whole or not at all; pods are evicted only for one that the same
decision places.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from muster.api import volcano
from muster.api.selectors import LabelSelector
from muster.cluster.columns import NodeMask
from muster.cluster.groups import Group, GroupKey, PodGroups
from muster.cluster.pods import PodInfo, PodShape
from muster.cluster.queues import NodeGroupRules
from muster.cluster.state import ClusterState
from muster.cluster.trial import Trial
from muster.placement import preempting
from muster.placement.framework import Code, Plugin, Status
from muster.placement.gangs import GangPlacer, Seats, Shortage
from muster.placement.group_plugins import GroupPlugins, Objection
from muster.placement.judging import Advice, Judgement
from muster.placement.plugins.default_preemption import DefaultPreemption, worded, worded_for_gang
from muster.placement.preempting import Budgets, GangPreemption, GangPreemptor, Preemption, Protected, QuickSearch
from muster.placement.preempting.finding import resolvable_nodes
from muster.placement.profiles import DEFAULT_SCHEDULER, Profile, name_of
from muster.placement.queueing.entities import Queued

_JUDGEMENTS = 512
Advices: TypeAlias = Mapping[PodShape, Advice]
NO_ADVICE: Advices = {}
GANG = "GangScheduling"
TOPOLOGY = "TopologyPlacementGenerator"


class Assigned(NamedTuple):
    """The pod goes to the node. `devices` is the annotation that tells its agent which GPUs it has; empty for none."""

    pod: PodInfo
    node: str
    devices: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why these pods have no node, in one sentence and as numbers."""

    pods: tuple[PodInfo, ...]
    message: str
    plugins: frozenset[str]
    """Whose verdict it was: a change that helps none of them cannot help."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Nodes by reason."""
    clears_nomination: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of one attempt. Everything assigned is assumed in the state already. `victims` must be gone before
    what is assigned may be bound."""

    number: int
    attempt: Queued
    assigned: tuple[Assigned, ...] = ()
    victims: tuple[PodInfo, ...] = ()
    refusal: Refusal | None = None
    unasked: frozenset[str] = frozenset()
    """The uids of pods that get a node which those who advise on them were not asked about, since it had no room then:
    to be asked before they are bound."""


class _Class(NamedTuple):
    """Pods that a profile cannot tell apart."""

    profile: str
    shape: PodShape
    namespace: str
    labels: frozenset[tuple[str, str]] | None
    spread: LabelSelector
    """What the pods that it is spread with by default have in common."""
    alone: str
    node_groups: NodeGroupRules | None
    """What the queue that it is in says of nodes."""


class Scheduler:
    """`profiles` by scheduler name; pods that name another are judged by the default one."""

    def __init__(
        self, profiles: Mapping[str, Profile], cluster: ClusterState, groups: PodGroups, *, seed: int = 0
    ) -> None:
        self.profiles = profiles
        self.cluster = cluster
        self.groups = groups
        self.budgets = Budgets()
        self.protected = Protected()
        self.number = 0
        self._seed = seed
        self._judgements: OrderedDict[_Class, tuple[Judgement, QuickSearch]] = OrderedDict()
        self._judging: Judgement | None = None
        self._advice = NO_ADVICE
        self._group_plugins = {profile: GroupPlugins.of(profile) for profile in profiles.values()}
        self.gangs = GangPlacer(cluster, groups, self.judge, self._choice, self._plugins_of)

    def decide(self, attempt: Queued, within: NodeMask | None = None, advice: Advices = NO_ADVICE) -> Decision:
        """`within`: only these nodes (what is held back for others is left out). Raises what a plugin raises: then
        nothing has been decided, and the number is the next decision's."""
        self.number += 1
        self._advice = advice
        try:
            is_gang = isinstance(attempt.key, GroupKey)
            decision = self._decide_gang(attempt, within) if is_gang else self._decide_pod(attempt, within)
        except BaseException:
            self.number -= 1
            raise
        finally:
            self._advice = NO_ADVICE
        return replace(decision, unasked=self._unasked(decision, advice)) if advice else decision

    def _unasked(self, decision: Decision, advice: Advices) -> frozenset[str]:
        slots = self.cluster.slots
        return frozenset(
            one.pod.uid
            for one in decision.assigned
            if one.pod.shape in advice and not advice[one.pod.shape].asked[slots[one.node]]
        )

    def judge(self, pod: PodInfo) -> Judgement:
        """What the pod's profile says of its class, up to date."""
        return self._known(pod)[0]

    @property
    def calling(self) -> object:
        """The plugin that was called last: the one to name where a decision raised."""
        return self._judging.calling if self._judging is not None else None

    def forget(self, pods: Sequence[PodInfo]) -> None:
        """After an error: what is known of their classes is not to be relied on, and nothing of them is assumed."""
        for pod in pods:
            self._judgements.pop(self._class(pod), None)
            self.cluster.release(pod.uid)
            self.cluster.devices.forget(pod.uid)

    def profile_of(self, pod: PodInfo) -> Profile:
        name = pod.spec.scheduler_name or DEFAULT_SCHEDULER
        return self.profiles.get(name) or self.profiles[DEFAULT_SCHEDULER]

    def _plugins_of(self, pod: PodInfo) -> GroupPlugins | None:
        return self._group_plugins[self.profile_of(pod)]

    # One pod

    def _decide_pod(self, attempt: Queued, within: NodeMask | None) -> Decision:
        (pod,) = attempt.pods
        judgement, quick = self._known(pod)
        slot = judgement.best(self._choice(0), within)
        if slot is not None:
            return Decision(self.number, attempt, (self._assign(pod, slot),))
        preemption = self._preempt(pod, judgement, quick, within)
        if isinstance(preemption, Preemption):
            slot = self.cluster.slots[preemption.node]
            return Decision(self.number, attempt, (self._assign(pod, slot),), preemption.victims)
        return Decision(self.number, attempt, refusal=self._refuse(pod, judgement, within, preemption))

    def _preempt(
        self, pod: PodInfo, judgement: Judgement, quick: QuickSearch, within: NodeMask | None
    ) -> Preemption | preempting.NoPreemption | None:
        plugin = _preemption_of(self.profile_of(pod).post_filter)
        if plugin is None or not self.cluster.has_pods_below(pod.priority):
            return None
        options = replace(plugin.options(self._choice(1)), protected=self.protected)
        only = None
        if within is not None or judgement.advice is not None:
            only = resolvable_nodes(judgement, self.cluster)
            only = only if within is None else only & within
        return preempting.find(pod, judgement, self.cluster, self.budgets, options, only, quick)

    # Gangs

    def _decide_gang(self, attempt: Queued, within: NodeMask | None) -> Decision:
        group = self._group(attempt)
        members = self.gangs.in_order(group, attempt.pods)
        with Trial(self.cluster) as trial:
            seats = self.gangs.place(trial, group, members, within)
            if seats.nodes:
                trial.commit()
                assigned = tuple(self._told(pod, node) for pod, node in seats.nodes.items())
                left = self._leftover(group, attempt.pods, seats.nodes, within)
                return Decision(self.number, attempt, assigned, refusal=left)
        refusal = self._refuse_gang(attempt, group, seats)
        if isinstance(seats.problem, Objection) and seats.problem.code is Code.UNRESOLVABLE:
            return Decision(self.number, attempt, refusal=refusal)
        return self._preempt_for_gang(attempt, group, members, refusal, within)

    def _preempt_for_gang(
        self, attempt: Queued, group: Group, members: Sequence[PodInfo], refusal: Refusal, within: NodeMask | None
    ) -> Decision:
        preemptor = GangPreemptor.of(members, group)
        plugin = _preemption_of(self.profile_of(members[0]).group_post_filter)
        if plugin is None or not self.cluster.has_pods_below(preemptor.priority):
            return Decision(self.number, attempt, refusal=refusal)

        def place(trial: Trial) -> Status:
            seats = self.gangs.place(trial, group, members, within, explain=False)
            return Status() if seats.nodes else Status(Code.UNSCHEDULABLE)

        options = replace(plugin.options(), groups=self.groups, protected=self.protected)
        found = preempting.find_for_gang(preemptor, place, self.judge, self.cluster, self.budgets, options, within)
        if not isinstance(found, GangPreemption):
            said = worded_for_gang(found)
            message = f"{refusal.message} {' '.join(said.reasons)}" if said.reasons else refusal.message
            return Decision(self.number, attempt, refusal=replace(refusal, message=message))
        assigned = tuple(
            self._assign(pod, self.cluster.slots[found.nodes[pod.uid]]) for pod in members if pod.uid in found.nodes
        )
        left = self._leftover(group, attempt.pods, {one.pod: one.node for one in assigned}, within)
        return Decision(self.number, attempt, assigned, found.victims, left)

    def _group(self, attempt: Queued) -> Group:
        assert isinstance(attempt.key, GroupKey)
        return self.groups.get(attempt.key) or Group(attempt.key)

    def hypernodes_changed(self, views: Sequence[volcano.HyperNode]) -> None:
        self.gangs.hypernodes_changed(views)

    # What both need

    def _known(self, pod: PodInfo) -> tuple[Judgement, QuickSearch]:
        key = self._class(pod)
        found = self._judgements.get(key)
        if found is None:
            judgement = self._judging = Judgement(self.profile_of(pod), pod, self.cluster, at_once=False)
            judgement.refresh()
            found = self._judgements[key] = (judgement, QuickSearch(judgement, self.cluster))
            if len(self._judgements) > _JUDGEMENTS:
                self._judgements.popitem(last=False)
        else:
            self._judgements.move_to_end(key)
            self._judging = found[0]
            found[0].pod = pod  # a service that has come up since may tell the one that stood for the class from it
            found[0].refresh()
        found[0].advice = self._advice.get(pod.shape)
        return found

    def _class(self, pod: PodInfo) -> _Class:
        """Labels tell pods apart only where somebody selects by them. Services say by which: the members of a job
        differ in their index, and are of one class all the same."""
        by_labels = self.cluster.selects_by_terms(pod)
        spread = self.cluster.pod_selectors.selector_of(pod)
        return _Class(
            self.profile_of(pod).scheduler_name,
            pod.shape,
            pod.key.namespace if by_labels or spread.requirements else "",
            frozenset(pod.labels.items()) if by_labels else None,
            spread,
            pod.uid if pod.has_deferred_resize else "",
            self.cluster.queues.rules_for(pod.group),
        )

    def _choice(self, salt: int) -> int:
        """Any number, the same for the same seed, decision and salt (splitmix64)."""
        mixed = (self._seed + (self.number * 1_000_003 + salt + 1) * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        return (mixed ^ (mixed >> 27)) >> 2

    def _assign(self, pod: PodInfo, slot: int) -> Assigned:
        self.cluster.assign(pod, self.cluster.names[slot])
        return self._told(pod, self.cluster.names[slot])

    def _told(self, pod: PodInfo, node: str) -> Assigned:
        if pod.group is not None:
            self.groups.assumed(pod, node)
        return Assigned(pod, node, self.cluster.devices.annotation(pod, self.cluster.slots[node]))

    def _refuse(
        self, pod: PodInfo, judgement: Judgement, within: NodeMask | None, preemption: preempting.NoPreemption | None
    ) -> Refusal:
        diagnosis = judgement.diagnosis(within)
        message = diagnosis.message
        if preemption is not None:
            message = f"{message} {' '.join(worded(preemption.status).reasons)}"
        clears = preemption is not None and preemption.clears_nomination
        return Refusal((pod,), message, judgement.rejected_by(), diagnosis.counts, clears)

    def _refuse_gang(self, attempt: Queued, group: Group, seats: Seats) -> Refusal:
        problem = seats.problem
        missing = max(1, group.min_count - self.groups.members(group.key).scheduled_count)
        if isinstance(problem, Objection):
            message = f"{missing} pods that must start together cannot be placed: {problem}"
            others = frozenset({GANG}) if problem.is_before else self._any_filter(attempt.pods)
            return Refusal(attempt.pods, message, others | {problem.plugin})
        if not isinstance(problem, Shortage):
            return Refusal(attempt.pods, str(problem), self._any_filter(attempt.pods))
        said = f"{problem.placed} of the {missing} pods that must start together can be placed"
        if problem.diagnosis is None:
            return Refusal(attempt.pods, f"{said}: there are no more", frozenset({GANG}))
        # In another domain other filters may be in the way.
        is_anywhere = group.topology is None and self._plugins_of(attempt.pods[0]) is None
        plugins = problem.plugins | {GANG} if is_anywhere else self._any_filter(attempt.pods)
        return Refusal(attempt.pods, f"{said}: {problem.diagnosis.message}", plugins, problem.diagnosis.counts)

    def _leftover(
        self, group: Group, pods: Sequence[PodInfo], placed: Mapping[PodInfo, str], within: NodeMask | None
    ) -> Refusal | None:
        """Members beyond what the gang needs that found no place: they wait on their own."""
        left = tuple(pod for pod in pods if pod not in placed)
        if not left:
            return None
        if group.topology is None and not group.parts and self._plugins_of(left[0]) is None:
            judgements = {self.judge(pod): None for pod in left}
            plugins = frozenset({GANG}).union(*(judgement.rejected_by() for judgement in judgements))
        else:
            plugins = self._any_filter(left)
        diagnosis = self.judge(left[0]).diagnosis(within)
        return Refusal(left, diagnosis.message, plugins, diagnosis.counts)

    def _any_filter(self, pods: Sequence[PodInfo]) -> frozenset[str]:
        """Whatever may keep the pods out of a domain: counting tells how many it holds, not what is in the way."""
        judgements = {self.judge(pod): None for pod in pods}
        filters = (name_of(plugin) for judgement in judgements for plugin, _ in judgement.active())
        asked = self._plugins_of(pods[0])
        for_groups = frozenset[str]() if asked is None else asked.names
        return frozenset({GANG, TOPOLOGY, *filters}).union(
            for_groups, *(judgement.rejected_by() for judgement in judgements)
        )


def _preemption_of(plugins: Sequence[Plugin]) -> DefaultPreemption | None:
    return next((plugin for plugin in plugins if isinstance(plugin, DefaultPreemption)), None)
