"""Beside the API, where clients look for it: a checkpoint as an archive, and what a policy would remove."""

import re
from typing import Final

from muster.accounts.authorizing import Authorizer, Hidden
from muster.accounts.callers import Caller
from muster.accounts.permissions import Permission
from muster.api import errors
from muster.api.errors import ApiError
from muster.api.raw import Document
from muster.experiments import archiving
from muster.experiments import checkpoint_records as records
from muster.experiments.archiving import Format
from muster.experiments.checkpoint_gc import Policy
from muster.experiments.checkpoint_records import PRESENT, Checkpoint
from muster.experiments.checkpoints import Checkpoints
from muster.experiments.places import Places
from muster.experiments.states import ExperimentId
from muster.server.determined import acting, wire
from muster.server.determined.router import Authenticate
from muster.server.exchange import Answer, Query, Request, Response, Stream, json_response
from muster.tasks.glue.storages import StorageError, opened

_CHECKPOINT: Final = re.compile(r"/checkpoints/([0-9a-fA-F-]{36})/?")
_PREVIEW: Final = re.compile(r"/experiments/(\d{1,9})/preview_gc/?")


class CheckpointPages:
    def __init__(
        self, checkpoints: Checkpoints, places: Places, authenticate: Authenticate, authorizer: Authorizer
    ) -> None:
        self._checkpoints = checkpoints
        self._places = places
        self._authenticate = authenticate
        self._authorizer = authorizer

    def serves(self, path: str) -> bool:
        return bool(_CHECKPOINT.fullmatch(path) or _PREVIEW.fullmatch(path))

    async def answer(self, request: Request) -> Answer:
        try:
            return await self._answer(request)
        except ApiError as error:
            return _refusal(error)

    async def _answer(self, request: Request) -> Answer:
        if request.method != "GET":
            raise errors.MethodNotAllowed(f"{request.method} is not served at {request.path}, but GET")
        caller = await self._authenticate(request.headers)
        if caller is None:
            raise errors.Unauthorized("log in first: no known session or token came with the request")
        checkpoint = _CHECKPOINT.fullmatch(request.path)
        if checkpoint is not None:
            return await self._archive(caller, checkpoint[1].lower(), request.headers.get("accept", ""))
        preview = _PREVIEW.fullmatch(request.path)
        assert preview is not None
        return await self._preview(caller, ExperimentId(int(preview[1])), request.query)

    async def _archive(self, caller: Caller, uuid: str, accept: str) -> Answer:
        found = await self._checkpoints.get(uuid)
        if not await self._authorizer.allows(caller, Permission.VIEW_EXPERIMENTS, found.workspace):
            raise Hidden(records.not_found(uuid).message)
        if found.state not in PRESENT:
            raise errors.NotFound(f"checkpoint {uuid} is {found.state.value}: there is nothing to download")
        wanted = _format(accept)
        try:
            storage = opened(await self._checkpoints.where(found))
        except StorageError as error:
            raise errors.Unavailable(str(error)) from error
        name = ("content-disposition", f'attachment; filename="{uuid}.{wanted.suffix}"')
        chunks = archiving.archived(storage, uuid, wanted)
        return Stream(chunks, wanted.value, waits=True, headers=(name,), refuse=_refusal)

    async def _preview(self, caller: Caller, experiment: ExperimentId, query: Query) -> Response:
        await self._places.of_experiment(caller, experiment)
        usual = Policy()
        counts = {
            name: query.integer(name) for name in ("save_experiment_best", "save_trial_best", "save_trial_latest")
        }
        for name, count in counts.items():
            if count is not None and count < 0:
                raise errors.BadRequest(f"{name}: must be 0 or more, found {count}")
        policy = Policy(**{name: getattr(usual, name) if count is None else count for name, count in counts.items()})
        found = await self._checkpoints.superfluous(experiment, policy)
        metric = await self._checkpoints.metric(experiment)
        return json_response({"checkpoints": [_previewed(each) for each in found], "metric_name": metric})


def _refusal(error: ApiError) -> Response:
    return Response(*wire.error_body(error))


def _format(accept: str) -> Format:
    """The first that is asked for. Raises BadRequest."""
    for asked in accept.split(",") or ["*/*"]:
        kind = asked.partition(";")[0].strip()
        if kind in ("", "*/*", "application/*"):
            return Format.TGZ
        if kind in [known.value for known in Format]:
            return Format(kind)
    raise errors.BadRequest(f"Accept: {accept[:80]!r} is none of {', '.join(Format)}")


def _previewed(checkpoint: Checkpoint) -> Document:
    """By the names that the client looks for."""
    assert checkpoint.training is not None
    validation = checkpoint.training.validation
    return {
        "TrialID": checkpoint.training.trial,
        "StepsCompleted": checkpoint.steps,
        "State": checkpoint.state.value,
        "UUID": checkpoint.uuid,
        "Resources": dict(checkpoint.resources),
        "ReportTime": acting.time(checkpoint.reported),
        "ValidationMetrics": validation,
        "step": {"validation": validation or None},
    }
