"""
Where a policy lies on disk: a file, or a directory of them.
"""

from pathlib import Path

VECTORS = ".vectors.json"


def gather(path: Path) -> list[tuple[str, bytes]]:
    """
    The documents at a path, by name: the file, or every `*.json` in the directory but the vectors.

    OSError if it cannot be read.
    """
    if not path.is_dir():
        return [(str(path), path.read_bytes())]
    found = sorted(each for each in path.glob("*.json") if not each.name.endswith(VECTORS))
    return [(str(each), each.read_bytes()) for each in found if not each.name.startswith(".")]


def vectors_of(where: str) -> Path:
    """
    Where the vectors of a document are, if it has some.
    """
    path = Path(where)
    return path.with_name(path.stem + VECTORS)


def policy_of(path: Path) -> Path:
    """
    The document that these vectors are beside; the path itself, if they are none.
    """
    if not path.name.endswith(VECTORS):
        return path
    beside = path.with_name(path.name.removesuffix(VECTORS) + ".json")
    return beside if beside.exists() else path
