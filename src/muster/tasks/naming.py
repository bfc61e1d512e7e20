"""Names that are made up for tasks of which nobody says what they are for, and keys for shells."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from muster.tasks.task_config import TaskType

_HOW: Final = (
    "boldly", "calmly", "early", "fairly", "freely", "gladly", "gently", "keenly", "kindly", "lately", "mainly",
    "neatly", "openly", "partly", "quietly", "rarely", "safely", "simply", "slowly", "softly", "surely", "truly",
    "warmly", "widely",
)  # fmt: skip
_LIKE: Final = (
    "amber", "brave", "bright", "clever", "crisp", "eager", "fair", "fond", "fresh", "golden", "grand", "happy",
    "honest", "jolly", "light", "lively", "loyal", "lucky", "mellow", "merry", "noble", "patient", "polite", "quick",
    "ready", "rustic", "sharp", "shiny", "snowy", "solid", "steady", "sunny", "swift", "tidy", "vivid", "wise",
)  # fmt: skip
_WHO: Final = (
    "badger", "bear", "beaver", "bison", "camel", "condor", "crane", "deer", "dolphin", "eagle", "falcon", "ferret",
    "finch", "fox", "gecko", "goose", "hare", "hawk", "heron", "ibis", "koala", "lark", "lemur", "lynx", "mole",
    "newt", "otter", "owl", "panda", "puma", "quail", "raven", "robin", "salmon", "seal", "stork", "swan", "tern",
    "tiger", "toad", "trout", "whale", "wolf", "wren", "yak", "zebra",
)  # fmt: skip


def description(kind: TaskType, choose: Callable[[int], int]) -> str:
    return f"{kind.words} ({made_up(choose)})"


def made_up(choose: Callable[[int], int]) -> str:
    """`choose`: a number below the one given."""
    return "-".join(words[choose(len(words))] for words in (_HOW, _LIKE, _WHO))


@dataclass(frozen=True, slots=True)
class KeyPair:
    """As OpenSSH writes them."""

    private: str = field(repr=False)
    public: str


def key_pair() -> KeyPair:
    made = Ed25519PrivateKey.generate()
    private = made.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = made.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return KeyPair(private.decode(), public.decode())
