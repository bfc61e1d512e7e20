"""Every call of the SDK about checkpoints and models, run by the client's own interpreter: `EXPERIMENT`, which has
three checkpoints."""

import json
import os
import pathlib
import sys
import time

from determined import errors
from determined.common.api import errors as api_errors
from determined.experimental import client

client.login(user=os.environ["DET_USER"], password=os.environ["DET_PASS"])
experiment = client.get_experiment(int(sys.argv[1]))
best, middle, worst = experiment.list_checkpoints()

# Checkpoints

found = client.get_checkpoint(best.uuid)
assert (found.state, found.metadata["steps_completed"]) == (client.CheckpointState.COMPLETED, 3)
assert found.training.experiment_id == experiment.id
assert found.training.hparams["steps"] == 3
assert found.training.validation_metrics["avgMetrics"]["loss"] < 0.67, found.training.validation_metrics
for mode in client.DownloadMode:
    path = pathlib.Path(found.download(f"downloaded-{mode.value}", mode=mode))
    assert json.loads((path / "state.json").read_text()) == {"step": 3}
    assert (path / "weights" / "layer.bin").read_bytes() == bytes(3)
    assert json.loads((path / "metadata.json").read_text())["steps_completed"] == 3
found.add_metadata({"colour": "red", "weight": 3})
found.remove_metadata(["weight"])
again = client.get_checkpoint(best.uuid)
assert (again.metadata["colour"], "weight" in again.metadata) == ("red", False)
assert list(found.get_metrics()) == []  # of trials that use it, of which there are none


def until(checkpoint: client.Checkpoint, state: client.CheckpointState) -> None:
    deadline = time.monotonic() + 40
    while checkpoint.state != state:
        assert time.monotonic() < deadline, checkpoint.state
        time.sleep(0.2)
        checkpoint.reload()


middle.remove_files(["**/*.bin"])
until(middle, client.CheckpointState.PARTIALLY_DELETED)
assert sorted(middle.resources) == ["metadata.json", "state.json"], middle.resources
worst.delete()
until(worst, client.CheckpointState.DELETED)
try:
    worst.download()
except errors.CheckpointStateException:
    pass
else:
    raise AssertionError("what is gone was downloaded")

# Models

model = client.create_model("sdk model", "described", {"a": 1})
model.set_labels(["one", "two"])
assert client.get_model("sdk model").model_id == client.get_model_by_id(model.model_id).model_id == model.model_id
assert [each.name for each in client.list_models(name="sdk", workspace_names=["Uncategorized"])] == ["sdk model"]
assert [each.name for each in client.get_models(order_by=client.ModelOrderBy.DESC)] == ["sdk model"]
assert sorted(client.get_model_labels()) == ["one", "two"]
version = model.register_version(best.uuid)
second = model.register_version(best.uuid)
try:
    model.register_version(middle.uuid)
except api_errors.APIException:
    pass
else:
    raise AssertionError("what is there in part only became a version")
assert (version.model_version, second.model_version) == (1, 2)
assert model.get_version(1).checkpoint.uuid == best.uuid
assert model.get_version().model_version == 2
assert [each.model_version for each in model.list_versions(client.OrderBy.ASC)] == [1, 2]
assert [each.model_version for each in model.get_versions()] == [2, 1]
model.add_metadata({"b": 2})
model.remove_metadata(["a"])
model.set_labels(["three"])
model.set_description("other words")
model.reload()
assert (model.metadata, model.labels, model.description) == ({"b": 2}, ["three"], "other words")
version.set_name("first")
version.set_notes("a note")
version.reload()
assert (version.name, version.notes) == ("first", "a note")
assert list(version.iter_metrics()) == []
model.archive()
try:
    model.set_description("too late")
except api_errors.APIException:
    pass
else:
    raise AssertionError("an archived model was changed")
model.unarchive()
client.create_workspace("models-room")
model.move_to_workspace("models-room")
second.delete()
assert [each.model_version for each in model.list_versions()] == [1]
model.delete()
assert client.list_models() == []
print("all done")
