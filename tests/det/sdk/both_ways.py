"""What Determined's library saves to a bucket our storages read and remove, and the other way round; run by the
client's own interpreter: `GLUE CONFIG…`, the directory of our modules, which run wherever a task does, and storages as
an experiment's `checkpoint_storage` has them. In the end nothing is left in any of them."""

import json
import pathlib
import sys

from determined.common import storage

glue, *configs = sys.argv[1:]
sys.path.insert(0, str(pathlib.Path(glue).parent))
from glue import storages  # noqa: E402

saved = pathlib.Path("saved")
(saved / "weights" / "deep").mkdir(parents=True)
(saved / "nothing" / "inside").mkdir(parents=True)
(saved / "state.json").write_text("{}")
(saved / "none.bin").touch()
(saved / "weights" / "layer.bin").write_bytes(bytes(1000))
(saved / "weights" / "deep" / "layer.bin").write_bytes(bytes(10))
FILES = {"none.bin": 0, "state.json": 2, "weights/deep/layer.bin": 10, "weights/layer.bin": 1000}
EMPTY = {"nothing/inside/": 0}


def tree(root: pathlib.Path) -> "dict[str, int]":
    return {
        str(path.relative_to(root)) + ("/" if path.is_dir() else ""): 0 if path.is_dir() else path.stat().st_size
        for path in root.rglob("*")
        if path.is_file() or not any(path.iterdir())
    }


def only_files(sizes: "dict[str, int]") -> "dict[str, int]":
    return {path: size for path, size in sizes.items() if not path.endswith("/")}


for number, config in enumerate(map(json.loads, configs)):
    theirs, ours = storage.build(config, None), storages.opened(config)

    # Theirs, then ours
    theirs.upload(saved, "theirs")
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
    assert only_files(tree(again)) == {"state.json": 2}, tree(again)
    theirs.upload(saved, "theirs-too")
    assert ours.delete("theirs") == {}
    assert ours.list("theirs-too") == FILES | EMPTY  # whose name only begins in the same way
    assert ours.delete("theirs-too", ["nothing"]) == FILES
    assert ours.delete("theirs-too") == {}
    assert ours.list("theirs") == ours.delete("theirs") == {}

    # Ours, then theirs
    assert ours.put("ours", str(saved)) == FILES | EMPTY
    assert ours.list("ours") == FILES | EMPTY, ours.list("ours")
    back = pathlib.Path(f"back-{number}")
    theirs.download("ours", back)
    assert tree(back) == FILES | EMPTY, tree(back)
    left = theirs.delete("ours", ["weights"])
    assert only_files(left) == {"none.bin": 0, "state.json": 2}, left
    assert ours.list("ours") == {"none.bin": 0, "state.json": 2} | EMPTY, ours.list("ours")
    assert theirs.delete("ours", ["**/*"]) == {}
    assert ours.list("ours") == {}
print("both ways")
