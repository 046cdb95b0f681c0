"""
Policy files on disk: one file, or a directory of files.
"""

from pathlib import Path

VECTORS = ".vectors.json"


def gather(path: Path) -> list[tuple[str, bytes]]:
    """
    The documents at a path, with their names.

    OSError if a file cannot be read.
    """
    return [(str(each), each.read_bytes()) for each in policy_paths(path)]


def policy_paths(path: Path) -> list[Path]:
    """
    The policy files at a path: the file itself, or all of a directory, sorted.

    Editors create files whose names begin with a dot, and test vectors are not policies.
    """
    if not path.is_dir():
        return [path]
    found = sorted(each for each in path.glob("*.json") if not each.name.startswith("."))
    return [each for each in found if not each.name.endswith(VECTORS)]


def vectors_of(where: str) -> Path:
    """
    The path of a document's test vectors, which may not exist.
    """
    path = Path(where)
    return path.with_name(path.stem + VECTORS)


def policy_of(path: Path) -> Path:
    """
    The document that test vectors belong to; the path itself if it is not one of test vectors.
    """
    if not path.name.endswith(VECTORS):
        return path
    beside = path.with_name(path.name.removesuffix(VECTORS) + ".json")
    return beside if beside.exists() else path
