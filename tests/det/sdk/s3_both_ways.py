"""What Determined's library saves to a bucket our storages read and remove, and the other way round; run by the
client's own interpreter: `ENDPOINT STORAGES`, the latter being our module, which runs wherever a task does."""

import importlib.util
import pathlib
import sys

import boto3
from determined.common import storage

endpoint, module = sys.argv[1:]
spec = importlib.util.spec_from_file_location("storages", module)
storages = importlib.util.module_from_spec(spec)
spec.loader.exec_module(storages)

keys = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
bucket = boto3.resource("s3", endpoint_url=endpoint, **keys).create_bucket(Bucket="both-ways")
saved = pathlib.Path("saved")
(saved / "weights" / "deep").mkdir(parents=True)
(saved / "nothing" / "inside").mkdir(parents=True)
(saved / "state.json").write_text("{}")
(saved / "weights" / "layer.bin").write_bytes(bytes(1000))
(saved / "weights" / "deep" / "layer.bin").write_bytes(bytes(10))
FILES = {"state.json": 2, "weights/deep/layer.bin": 10, "weights/layer.bin": 1000}
EMPTY = {"nothing/inside/": 0}


def objects(start: str) -> "set[str]":
    return {found.key for found in bucket.objects.filter(Prefix=start)}


def tree(root: pathlib.Path) -> "dict[str, int]":
    return {
        str(path.relative_to(root)) + ("/" if path.is_dir() else ""): 0 if path.is_dir() else path.stat().st_size
        for path in root.rglob("*")
        if path.is_file() or not any(path.iterdir())
    }


for number, prefix in enumerate((None, "some/where", "/slashed")):
    config = {
        "type": "s3",
        "bucket": "both-ways",
        "endpoint_url": endpoint,
        "access_key": "key",
        "secret_key": "secret",
        **({} if prefix is None else {"prefix": prefix}),
    }
    config_of_theirs = {name: value for name, value in config.items() if name != "type"}
    theirs, ours = storage.S3StorageManager(**config_of_theirs), storages.opened(config)
    below = theirs.get_storage_prefix("")

    # Theirs, then ours
    theirs.upload(saved, "theirs")
    theirs.upload(saved, "theirs-too")
    assert ours.list("theirs") == FILES | EMPTY, ours.list("theirs")
    got = pathlib.Path(f"got-{number}")
    assert storages.get(ours, "theirs", str(got)) == FILES | EMPTY
    assert tree(got) == FILES | EMPTY, tree(got)
    with ours.open("theirs", "weights/layer.bin") as file:
        assert file.read() == bytes(1000)
    left = ours.delete("theirs", ["**/*.bin"])
    assert left == {"state.json": 2} | EMPTY, left
    again = pathlib.Path(f"again-{number}")
    theirs.download("theirs", again)
    assert {path for path in tree(again) if not path.endswith("/")} == {"state.json"}
    assert ours.delete("theirs") == {}
    assert objects(f"{below}theirs/") == set(), objects(f"{below}theirs/")
    assert ours.list("theirs-too") == FILES | EMPTY  # whose name only begins in the same way
    assert ours.delete("theirs-too", ["nothing"]) == FILES
    assert ours.delete("theirs-too") == {}
    assert ours.list("theirs") == ours.delete("theirs") == {}

    # Ours, then theirs
    assert ours.put("ours", str(saved)) == FILES | EMPTY
    back = pathlib.Path(f"back-{number}")
    theirs.download("ours", back)
    assert tree(back) == FILES | EMPTY, tree(back)
    left = theirs.delete("ours", ["weights"])
    assert {path: size for path, size in left.items() if not path.endswith("/")} == {"state.json": 2}, left
    assert ours.list("ours") == {"state.json": 2} | EMPTY, ours.list("ours")
    assert theirs.delete("ours", ["**/*"]) == {}
    assert ours.list("ours") == {}
assert objects("") == set(), objects("")
print("both ways")
