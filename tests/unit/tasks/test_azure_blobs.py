"""How an account of Azure is told as a connection string; tests/det has a server and Azure's own library."""

import json
from pathlib import Path

import pytest

from muster.tasks.glue import azure_blobs, trials

KEY = "c2VjcmV0LXNpZw=="
URL = "https://lab.blob.core.windows.net"
SIGNATURE = "sv=2026-01-01&ss=b&sig=a%2Fb%3D"


@pytest.mark.parametrize(
    ("storage", "expected"),
    [
        ({"connection_string": "AccountName=lab;AccountKey=x"}, "AccountName=lab;AccountKey=x"),
        ({"account_url": URL}, f"BlobEndpoint={URL}"),
        ({"account_url": f"{URL}/?{SIGNATURE}"}, f"BlobEndpoint={URL}/?{SIGNATURE}"),
        ({"account_url": URL, "credential": KEY}, f"BlobEndpoint={URL};AccountName=lab;AccountKey={KEY}"),
        ({"account_url": f"{URL}/box", "credential": KEY}, f"BlobEndpoint={URL}/box;AccountName=lab;AccountKey={KEY}"),
        (
            {"account_url": "http://127.0.0.1:10000/own", "credential": KEY},
            f"BlobEndpoint=http://127.0.0.1:10000/own;AccountName=own;AccountKey={KEY}",
        ),
        ({"account_url": URL, "credential": f"?{SIGNATURE}"}, f"BlobEndpoint={URL};SharedAccessSignature={SIGNATURE}"),
    ],
)
def test_connection_strings(storage: dict[str, object], expected: str) -> None:
    assert azure_blobs.connection_string({"type": "azure", "container": "box", **storage}) == expected


def test_trials_are_told_one_though_the_experiment_names_an_account(tmp_path: Path) -> None:
    """Determined's library cannot keep event files by the other."""
    (tmp_path / "info").mkdir()
    storage = {"type": "azure", "container": "box", "account_url": URL, "credential": KEY, "save_trial_best": 1}
    environ = {
        "DET_EXPERIMENT_CONFIG": json.dumps({"checkpoint_storage": storage}),
        "DET_RUN_DIR": str(tmp_path),
        "DET_HPARAMS": "{}",
        **dict.fromkeys(
            ("DET_TRIAL_ID", "DET_EXPERIMENT_ID", "DET_TRIAL_SEED", "DET_STEPS_COMPLETED", "DET_TRIAL_RUN_ID"), "1"
        ),
    }
    trials.write_trial(environ)
    told = json.loads((tmp_path / "info" / "trial.json").read_text())["config"]["checkpoint_storage"]
    assert told == {
        "type": "azure",
        "container": "box",
        "connection_string": f"BlobEndpoint={URL};AccountName=lab;AccountKey={KEY}",
        "save_trial_best": 1,
    }
