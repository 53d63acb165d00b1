"""Users like items: one relation in five column-family designs, side by side in one keyspace."""

from .clearing import clear
from .indexed import Indexed, Labelled
from .memory import Like, Memory, seeded
from .merged import Merged
from .relational import Relational
from .timed import Timed

KEYSPACE = "Likes"
DESIGNS = {
    "relational": Relational,
    "ids": Indexed,
    "labels": Labelled,
    "merged": Merged,
    "timed": Timed,
}

__all__ = ["DESIGNS", "KEYSPACE", "Like", "Memory", "clear", "seeded"]
