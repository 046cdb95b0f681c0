"""
The manifest of a backup: which files it has, their sizes and digests, and which node it is of.

A backup is a directory `backup-<time>Z` with the files of a state directory and `manifest.json`, which is
written last.
"""

import hashlib
from pathlib import Path

import msgspec
from msgspec import Struct

FILE = "manifest.json"
PREFIX = "backup-"
PARTIAL = ".partial"  # the end of the name of one that is not complete
FORMAT = 1
CHUNK_BYTES = 1024 * 1024
# The files of a state directory that a backup leaves out: tokens, locks and sockets, and what is made again.
_LEFT_OUT = (
    "admin-token*",
    "lock",
    "*.lock",
    "*.sock",
    "*-wal",
    "*-shm",
    "*.new",
    "*.partial",
    "*.damaged-*",
)
_DIRECTORIES = ("policy",)  # that are copied; the spool and the databases are copied as of one moment


class BackupRefused(Exception):
    """
    A backup that cannot be made or restored, and why, in words.
    """


class StoredFile(Struct):
    """
    A file of a backup: its size in bytes and its SHA-256, in hexadecimal digits.
    """

    bytes: int
    sha256: str


class Manifest(Struct):
    """
    The content of `manifest.json`. `created` is in seconds since 1970; `files` by path.
    """

    format: int
    msgnode: str
    domain: str
    node: str
    created: float
    files: dict[str, StoredFile]

    @property
    def size(self) -> int:
        return sum(file.bytes for file in self.files.values())


def plain_files(state: Path) -> list[Path]:
    """
    The files of a state directory that are replaced as a whole when they change, as relative paths.
    """
    places = [state, *(state / name for name in _DIRECTORIES)]
    return sorted(
        path.relative_to(state)
        for place in places
        if place.is_dir()
        for path in place.iterdir()
        if path.is_file() and not path.is_symlink() and not _is_left_out(path)
    )


def _is_left_out(path: Path) -> bool:
    return path.suffix == ".sqlite" or ".sqlite." in path.name or any(map(path.match, _LEFT_OUT))


def write_manifest(directory: Path, manifest: Manifest) -> None:
    (directory / FILE).write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")


def read_manifest(directory: Path) -> Manifest:
    """
    The manifest of a backup. Raises BackupRefused.
    """
    path = directory / FILE
    try:
        data = path.read_bytes()
        number = msgspec.json.decode(data, type=_Numbered).format
        if number > FORMAT:
            raise BackupRefused(
                f"{path}: this backup has format {number} and was made by a newer msgnode; "
                f"this one knows format {FORMAT}"
            )
        manifest = msgspec.json.decode(data, type=Manifest)
    except (FileNotFoundError, NotADirectoryError):
        raise BackupRefused(f"{directory} is not a backup: it has no {FILE}") from None
    except OSError as why:
        raise BackupRefused(f"{path}: cannot be read: {why.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as why:
        raise BackupRefused(f"{path}: is damaged: {why}") from None
    for name in manifest.files:
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise BackupRefused(f"{path}: {name!r} is not a name below the state directory")
    return manifest


class _Numbered(Struct):
    format: int


def digest(path: Path) -> StoredFile:
    """
    The size and the digest of a file. Raises OSError.
    """
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256")
        return StoredFile(file.tell(), found.hexdigest())


def backups_in(directory: Path) -> list[Path]:
    """
    The complete backups in a directory, oldest first.
    """
    if not directory.is_dir():
        return []
    return sorted(
        path for path in directory.glob(f"{PREFIX}*Z*") if path.suffix != PARTIAL and (path / FILE).is_file()
    )
