"""The training API: what a training program says to the platform, and asks of it.

    from muster.sdk import training

    with training.run() as run:
        model = Model(run.hparams["width"], run.seed)
        if (saved := run.latest_checkpoint()) is not None:
            model.load(saved / "model.npz")
        for step in range(run.steps_completed + 1, 1001):
            run.report(step, {"loss": model.train()})
            if step % 100 == 0:
                run.report(step, {"loss": model.validate()}, group="validation")
                with run.checkpoint(step) as directory:
                    model.save(directory / "model.npz")
                if run.should_stop():
                    break

The same program runs as a trial of an experiment; elsewhere, reporting to a platform where `$MUSTER_SERVER` names one;
and alone, where what it says is printed. It needs neither Determined's library nor any part of the server.
"""

import contextlib
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, NoReturn

from muster.api.raw import JSON, Document
from muster.sdk import config as connecting
from muster.sdk import determined, training_calls, training_elsewhere, training_facts, training_reports
from muster.sdk.names import readable
from muster.sdk.training_channels import INVALID_HPARAMS, USER_STOP, Channel, DryRun, ServerChannel
from muster.sdk.training_elsewhere import Elsewhere
from muster.sdk.training_facts import Facts, Ranks
from muster.tasks.glue.storages import StorageError

__all__ = ["TRAINING", "VALIDATION", "Run", "StorageError", "run"]

TRAINING: Final = "training"
VALIDATION: Final = "validation"


class Run:
    """One run of a trial, as `run` gives it.

    All processes of a distributed run may make the same calls. The first, the *chief*, speaks for all: what the others
    report and save is left out. What the server refuses is raised by one of the next calls, as `muster.api.errors`;
    while it cannot be reached, training goes on.
    """

    def __init__(
        self, channel: Channel, facts: Facts, ranks: Ranks, broadcast: Callable[[bool], bool] | None = None
    ) -> None:
        self._channel = channel
        self._facts = facts
        self._ranks = ranks
        self._broadcast = broadcast

    # Who and what this is

    @property
    def hparams(self) -> dict[str, JSON]:
        """The hyperparameters that the search has chosen, with all levels."""
        return dict(self._facts.hparams)

    @property
    def config(self) -> dict[str, JSON]:
        """The experiment's configuration, with all defaults; in a dry run, what `run` was given."""
        return dict(self._facts.config)

    @property
    def seed(self) -> int:
        """Of this trial: the same each time it is started."""
        return self._facts.seed

    @property
    def steps_completed(self) -> int:
        """Those that `latest_checkpoint` has behind it when the run begins."""
        return self._facts.steps

    @property
    def trial_id(self) -> int:
        """0 in a dry run."""
        return self._facts.trial

    @property
    def experiment_id(self) -> int:
        """0 in a dry run."""
        return self._facts.experiment

    @property
    def rank(self) -> int:
        return self._ranks.rank

    @property
    def local_rank(self) -> int:
        """Among those on the same node."""
        return self._ranks.local_rank

    @property
    def world_size(self) -> int:
        return self._ranks.world_size

    @property
    def is_chief(self) -> bool:
        return self._ranks.rank == 0

    # What it says

    def report(
        self, step: int, metrics: Mapping[str, object], group: str = TRAINING, *, from_any_rank: bool = False
    ) -> None:
        """Metrics after `step` steps; at once, they are sent in the background. The search looks at those of the group
        `validation`. Of a group, each step is reported once. Numbers of numpy and PyTorch are taken as they are.

        With `from_any_rank` processes other than the chief report as well, each to a group of its own.
        """
        report = training_reports.made(step, metrics, group, time.time())
        if self.is_chief or from_any_rank:
            self._channel.report(report)

    def progress(self, share: float) -> None:
        """How much of the training is done, from 0 to 1."""
        if not 0.0 <= share <= 1.0:
            raise ValueError(f"share: must be from 0 to 1, found {share!r}")
        if self.is_chief:
            self._channel.progress(float(share))

    def flush(self) -> None:
        """Returns when all that was reported is with the server, where it survives."""
        self._channel.flush()

    # What it is asked

    def should_stop(self) -> bool:
        """Whether to save a checkpoint and end: the experiment was paused or canceled, others need the resources, or
        the search has seen enough of this trial. Costs next to nothing: ask after each step.

        Processes that wait for each other in each step must end after the same one. `broadcast` of `run` sees to it;
        without it each has only its own answer.
        """
        found = self._channel.should_stop() if self._broadcast is None or self.is_chief else False
        return found if self._broadcast is None else self._broadcast(found)

    def stop_early(self) -> NoReturn:
        """Ends the program: this trial is done, though before its time."""
        self._give_up(USER_STOP)

    def invalid_hparams(self) -> NoReturn:
        """Ends the program: nothing can be trained with these hyperparameters. The search takes others."""
        self._give_up(INVALID_HPARAMS)

    def _give_up(self, reason: str) -> NoReturn:
        if self.is_chief:
            self._channel.flush()
            self._channel.give_up(reason)
        sys.exit(0)

    # Checkpoints

    @contextlib.contextmanager
    def checkpoint(self, step: int, metadata: Mapping[str, JSON] | None = None) -> Iterator[Path]:
        """A directory; what is in it at the end of the block is a checkpoint, with all that was reported before. Where
        the block raises there is none. For processes other than the chief it is thrown away: let the chief write.
        Raises StorageError."""
        if not self.is_chief:
            with tempfile.TemporaryDirectory(prefix="muster-not-kept-") as directory:
                yield Path(directory)
            return
        with self._channel.saving(step, metadata or {}) as place:
            yield place

    def save(self, path: str | Path, step: int, metadata: Mapping[str, JSON] | None = None) -> None:
        """A checkpoint of what is in a directory, or of one file. Raises StorageError."""
        if not self.is_chief:
            return
        with self.checkpoint(step, metadata) as directory:
            if Path(path).is_dir():
                shutil.copytree(path, directory, dirs_exist_ok=True)
            else:
                shutil.copy2(path, directory)

    def latest_checkpoint(self) -> Path | None:
        """Where the latest checkpoint of this trial is, or the one that it is to begin with: to be read, not to be
        changed. For all processes. Raises StorageError."""
        return self._channel.latest_checkpoint()


@contextlib.contextmanager
def run(
    hparams: Mapping[str, JSON] | None = None,
    *,
    config: Mapping[str, JSON] | None = None,
    broadcast: Callable[[bool], bool] | None = None,
) -> Iterator[Run]:
    """The run that this program is. At the end of the block all that was reported is with the server.

    `hparams` and `config` are for programs that are started by hand: what to train with, and what the experiment is,
    with the keys of its YAML file (`name`, `labels`, `checkpoint_storage`, `searcher: {metric: ...}`). Trials have all
    that from their experiment.

    `broadcast`: gives all processes what the chief calls it with; see `should_stop`. With PyTorch:

        def broadcast(value: bool) -> bool:
            told = [value]
            torch.distributed.broadcast_object_list(told, src=0)
            return told[0]
    """
    ranks = training_facts.ranks(os.environ)
    with contextlib.ExitStack() as stack:
        channel, facts = _channel(stack, ranks, hparams or {}, dict(config or {}))
        try:
            yield Run(channel, facts, ranks, broadcast)
        except BaseException as error:
            is_end = isinstance(error, SystemExit) and not error.code
            try:
                channel.close(has_failed=not is_end)
            except Exception as other:
                if is_end:
                    raise
                training_calls.LOG.warning("what was reported last may be lost: %s", other)
            raise
        channel.close(has_failed=False)


def _channel(
    stack: contextlib.ExitStack, ranks: Ranks, hparams: Mapping[str, JSON], config: Document
) -> tuple[Channel, Facts]:
    is_chief = ranks.rank == 0
    found = training_facts.of_trial(os.environ)
    if found is not None:
        server = training_calls.of_task(os.environ)
        stack.callback(server.close)
        scratch = training_facts.directory(os.environ) / "checkpoints"
        return ServerChannel(server, found, scratch, speaks=is_chief), found
    if os.environ.get("MUSTER_SERVER") and is_chief:
        server = determined.connect(connecting.connection())
        stack.callback(server.close)
        name = readable(random.Random())  # noqa: S311
        made = training_elsewhere.begin(server, {"name": name, **config}, hparams)
        _say(f"reports to experiment {made.experiment} at {os.environ['MUSTER_SERVER']}")
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="muster-run-")))
        return Elsewhere(server, made, scratch), made
    if is_chief:
        _say("runs alone: what it says is printed; name a platform in MUSTER_SERVER to keep it")
    return DryRun(_say if is_chief else _say_nothing), Facts(
        trial=0, experiment=0, task="", hparams=hparams, config=config
    )


def _say(text: str) -> None:
    sys.stdout.write(f"[training] {text}\n")


def _say_nothing(_text: str) -> None:
    return
