"""The directory of a platform's data, made or refused in words."""

from pathlib import Path

import pytest

from muster.api import errors
from muster.assembly.private_files import make_private


def test_it_is_the_owners_alone(tmp_path: Path) -> None:
    make_private(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("below", ["", "deeper"])
def test_a_file_in_its_place_is_named_with_what_to_do(tmp_path: Path, below: str) -> None:
    taken = tmp_path / "taken"
    taken.touch()
    with pytest.raises(errors.Unavailable) as caught:
        make_private(taken / below)
    wanted = f"cannot keep data in {taken / below}: it is not a directory; choose another place with --data"
    assert caught.value.message == wanted
