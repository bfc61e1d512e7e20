import base64

import pytest

from muster.api import errors
from muster.sdk import experiments_files


def packed(directory):
    return [
        (file["path"], file["type"], base64.b64decode(file["content"])) for file in experiments_files.pack(directory)
    ]


def test_files_and_directories_come_in_order_and_traces_of_tools_do_not(tmp_path):
    for name in ("b/inner", "__pycache__", ".git", "empty"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "b" / "inner" / "x.py").write_text("x")
    (tmp_path / "a.py").write_bytes(b"\x00\xff")
    (tmp_path / "__pycache__" / "a.pyc").write_text("c")
    (tmp_path / "a.py").chmod(0o755)
    (tmp_path / "linked.py").symlink_to(tmp_path / "b" / "inner" / "x.py")
    assert packed(tmp_path) == [
        ("a.py", 48, b"\x00\xff"),
        ("b", 53, b""),
        ("b/inner", 53, b""),
        ("b/inner/x.py", 48, b"x"),
        ("empty", 53, b""),
        ("linked.py", 48, b"x"),
    ]
    assert experiments_files.pack(tmp_path)[0]["mode"] == 0o755


@pytest.mark.parametrize(
    ("rules", "path", "expected"),
    [
        (["*.bin"], "a.bin", True),
        (["*.bin"], "deep/down/a.bin", True),
        (["*.bin"], "a.bin.py", False),
        (["data"], "deep/data/a.py", True),
        (["/data"], "deep/data", False),
        (["/data"], "data/a.py", True),
        (["data/*.csv"], "data/a.csv", True),
        (["data/*.csv"], "data/deep/a.csv", False),
        (["*.bin", "!keep.bin"], "keep.bin", False),
        (["!keep.bin", "*.bin"], "keep.bin", True),
        (["logs/"], "logs", True),
    ],
)
def test_rules_are_read_as_git_reads_them(rules, path, expected):
    assert experiments_files.is_ignored(path, rules) is expected


def test_what_cannot_be_sent_is_named(tmp_path, monkeypatch):
    with pytest.raises(errors.BadRequest, match="is not a directory"):
        experiments_files.pack(tmp_path / "nowhere")
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    with pytest.raises(errors.BadRequest, match=r"broken is a link that leads to no file.* or name it in \.detignore"):
        experiments_files.pack(tmp_path)
    (tmp_path / ".detignore").write_text("broken\n")
    monkeypatch.setattr(experiments_files, "MOST_BYTES", 2**20)
    (tmp_path / "large").write_bytes(bytes(2**20))
    with pytest.raises(errors.TooLarge, match="holds more than 1 MiB; name in "):
        experiments_files.pack(tmp_path)
