"""
The files of a log, on any file system that Hadoop supports: a local directory, `hdfs://`, `s3a://`.

Only names and sizes are loaded on the driver; a year of logs has about ten thousand files.
"""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import SparkSession

GROWING_SECONDS = 3600  # after the last write to a file, nothing is appended any more
UNSPLIT_BYTES = 128 * 1024 * 1024  # of a file that one task reads
_OBJECT_STORES = ("s3a",)  # one write is one step there, and a rename copies
_REFUSED = ("RemoteFileChangedException", "FileAlreadyExistsException", "FileNotFoundException")
NO_SPACE = "No space left on device"  # as Java says it
_NAME = re.compile(r"(traffic-.+-(\d{8}T\d{2}))\.jsonl(\.gz)?")


class Unreadable(Exception):
    """
    A file cannot be read or written. The text says what to do.
    """


@dataclass(frozen=True)
class LogFile:
    """
    A log file of one node and one hour; `hour` counts since 1970. `modified` is in seconds since 1970.
    """

    name: str
    path: str
    size: int
    modified: float = 0.0

    @property
    def stem(self) -> str:
        """
        The name without suffixes, which does not change when the file is compressed.
        """
        return self.name.removesuffix(".gz").removesuffix(".jsonl")

    @property
    def is_compressed(self) -> bool:
        return self.name.endswith(".gz")

    @property
    def may_grow(self) -> bool:
        """
        Was the file written to a short time ago?
        """
        return not self.is_compressed and time.time() - self.modified < GROWING_SECONDS

    @property
    def hour(self) -> int:
        moment = datetime.strptime(self.stem[-11:], "%Y%m%dT%H").replace(tzinfo=UTC)
        return int(moment.timestamp()) // 3600


class LogFiles:
    """
    A directory on a file system.
    """

    def __init__(self, spark: SparkSession, where: str) -> None:
        self.where = where.rstrip("/") or "/"
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._path = jvm.org.apache.hadoop.fs.Path
        try:
            self._configuration = spark._jsc.hadoopConfiguration()
            self._system = self._system_of(self.where)
        except Exception as why:
            raise Unreadable(f"{where}: {first_line(why)}") from why

    def logs(self) -> list[LogFile]:
        """
        All log files in the directory and below, one for each node and hour, in the order of time.
        """
        found: dict[str, LogFile] = {}
        if self.is_file:
            raise Unreadable(f"{self.where}: is a file; give the directory with the log")
        for status in self._below():
            name = status.getPath().getName()
            if not _NAME.fullmatch(name) or not _is_date(name):
                continue
            modified = status.getModificationTime() / 1000
            file = LogFile(name, status.getPath().toString(), status.getLen(), modified)
            other = found.get(file.stem)
            if other is not None and other.name == name:
                raise Unreadable(
                    f"{other.path} and {file.path} have the same name; if they are of two nodes, "
                    "give each node a name of its own, else move one of them"
                )
            # During compression both files exist, and the uncompressed one is complete.
            if file.stem not in found or not file.is_compressed:
                found[file.stem] = file
        return sorted(found.values(), key=lambda file: (file.hour, file.stem))

    def unpacked(self, file: LogFile) -> int:
        """
        The uncompressed length of a gzip file, modulo 4 GiB, as recorded at its end; -1 if that cannot be
        read.
        """
        try:
            stream = self._system.open(self._path(file.path))
            try:
                stream.seek(file.size - 4)
                written: int = stream.readInt() & 0xFFFFFFFF
            finally:
                stream.close()
        except Exception:  # reading the file will report the error
            return -1
        return int.from_bytes(written.to_bytes(4, "big"), "little")

    def byte(self, path: str, at: int) -> bytes:
        """
        One byte of a file; nothing if it cannot be read.
        """
        try:
            stream = self._system_of(path).open(self._path(path))
            try:
                stream.seek(at)
                return bytes([stream.read()])
            finally:
                stream.close()
        except Exception:  # reading the file will report the error
            return b""

    def copy(self, file: LogFile, begin: int, to: str) -> str:
        """
        Copy the bytes of a file from `begin` to its size. Returns the path of the copy.
        """
        try:
            stream = self._system_of(file.path).open(self._path(file.path))
            try:
                out = self._system.create(self._at(to), True)
                stream.seek(begin)
                # Not Hadoop's copyBytes: Python's int would be taken for the size of its buffer.
                self._jvm.org.apache.commons.io.IOUtils.copyLarge(stream, out, 0, file.size - begin)
                out.close()
            finally:
                stream.close()
        except Exception as why:
            raise Unreadable(f"cannot copy {file.path} to {self.where}: {first_line(why)}") from why
        return self.inside(to)

    def _system_of(self, path: str) -> Any:
        return self._path(path).getFileSystem(self._configuration)

    def _below(self) -> list[Any]:
        """
        The status of each file in the directory and below.
        """
        try:
            top = self._system.getFileStatus(self._path(self.where)).getPath()
            return self._listed(top) if self.is_object_store else self._walked(top)
        except Exception as why:
            raise Unreadable(f"{self.where}: {first_line(why)}") from why

    def _listed(self, top: Any) -> list[Any]:
        found, files = self._system.listFiles(top, True), []
        while found.hasNext():
            files.append(found.next())
        return files

    def _walked(self, top: Any) -> list[Any]:
        # Of a local file, Hadoop's listFiles asks for the permissions too, with a process for each.
        files, directories = [], [top]
        for directory in directories:
            for status in self._system.listStatus(directory):
                if status.isDirectory():
                    directories.append(status.getPath())
                else:
                    files.append(status)
        return files

    def bytes_in(self, name: str) -> int:
        """
        The size of all files in a subdirectory and below; 0 if there is none.
        """
        at = self._at(name)
        return int(self._system.getContentSummary(at).getLength()) if self._system.exists(at) else 0

    def exists(self, name: str = "") -> bool:
        return bool(self._system.exists(self._at(name)))

    @property
    def is_file(self) -> bool:
        try:
            return bool(self._system.getFileStatus(self._path(self.where)).isFile())
        except Exception:  # what uses it will report the error
            return False

    def names(self) -> list[str]:
        """
        The names of the entries in the directory.
        """
        if not self.exists():
            return []
        return sorted(
            status.getPath().getName() for status in self._system.listStatus(self._path(self.where))
        )

    def delete(self, name: str) -> None:
        self._system.delete(self._at(name), True)

    def exchange(self, name: str, to: str, aside: str) -> None:
        """
        Replace a directory by another. The old one is first moved aside, so that it is never seen half
        deleted.
        """
        self.delete(aside)
        if self.exists(to):
            self._rename(to, aside)
        self._rename(name, to)
        self.delete(aside)

    def put_back(self, name: str, aside: str) -> None:
        """
        Complete an exchange that was interrupted.
        """
        if self.exists(aside) and not self.exists(name):
            self._rename(aside, name)

    @property
    def is_object_store(self) -> bool:
        return self._system.getUri().getScheme() in _OBJECT_STORES

    def status(self, name: str) -> Any:
        """
        Hadoop's status of a file; None if there is none.
        """
        try:
            return self._system.getFileStatus(self._at(name))
        except Exception as why:
            if _kind(why) == "FileNotFoundException":
                return None
            raise

    def write_if(self, name: str, text: str, condition: Callable[[Any], Any]) -> str:
        """
        Write an object under a condition, which is set on Hadoop's builder. Returns its tag; "" if the
        condition did not hold.
        """
        stream = condition(self._system.createFile(self._at(name)).overwrite(True)).build()
        stream.write(bytearray(text.encode()))
        try:
            stream.close()  # this is the write
        except Exception as why:
            if _kind(why) in _REFUSED:
                return ""
            raise
        return str(self._system.getFileStatus(self._at(name)).getEtag())

    def _rename(self, name: str, to: str) -> None:
        if not self._system.rename(self._at(name), self._at(to)):
            raise Unreadable(f"{self.where}: cannot rename {name} to {to}")

    def read(self, name: str) -> str:
        # If a write was interrupted between its two steps, the `.part` file is complete.
        stream = self._system.open(self._at(name if self.exists(name) else f"{name}.part"))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """
        Write a file atomically: a reader never sees half of it.
        """
        part = self._at(name if self.is_object_store else f"{name}.part")
        try:
            stream = self._system.create(part, True)
            try:
                stream.write(bytearray(text.encode()))
            finally:
                stream.close()
        except Exception as why:
            raise Unreadable(f"cannot write {self.where}/{name}: {first_line(why)}") from why
        if not self.is_object_store and not self._replaced(part, self._at(name)):
            self._remove(name)
            self._rename(f"{name}.part", name)

    def write_bytes(self, name: str, content: bytes) -> None:
        """
        Write a file that is not read yet.
        """
        try:
            stream = self._system.create(self._at(name), True)
            try:
                stream.write(bytearray(content))
            finally:
                stream.close()
        except Exception as why:
            raise Unreadable(f"cannot write {self.where}/{name}: {first_line(why)}") from why

    def _remove(self, name: str) -> None:
        self._system.delete(self._at(name), False)

    def _replaced(self, part: Any, name: Any) -> bool:
        """
        Rename over an existing file, which not all file systems support.
        """
        try:
            return bool(self._system.rename(part, name))
        except Exception:
            return False

    def inside(self, name: str) -> str:
        """
        The full path, for Spark.
        """
        return f"{self.where}/{name}"

    def local(self) -> str:
        """
        The full path on the local file system; "" if it is another file system.
        """
        uri = self._system.makeQualified(self._path(self.where)).toUri()
        return str(uri.getPath()) if uri.getScheme() == "file" else ""

    def _at(self, name: str) -> Any:
        return self._path(self.inside(name) if name else self.where)


def local_path(path: str) -> str:
    """
    The path of a file on this machine, of a path or URI of Hadoop; "" if it is elsewhere.
    """
    if path.startswith("/"):
        return path
    scheme, _, rest = path.partition(":")
    return "/" + rest.lstrip("/") if scheme == "file" else ""


def date(hour: int) -> str:
    """
    The date of an hour since 1970, in UTC.
    """
    return time.strftime("%Y-%m-%d", time.gmtime(hour * 3600))


def _is_date(name: str) -> bool:
    try:
        return LogFile(name, "", 0).hour > 0
    except ValueError:
        return False


def unsplit(files: Sequence[LogFile]) -> str:
    """
    A sentence about the files that are large and compressed, so that one task reads each; "" without any.
    """
    large = [file for file in files if file.is_compressed and file.size >= UNSPLIT_BYTES]
    if not large:
        return ""
    most = max(large, key=lambda file: file.size)
    others = f", and so are {len(large) - 1} more" if len(large) > 1 else ""
    return f"{most.name} ({most.size / 2**20:,.0f} MiB) is read by one task, for gzip cannot be split{others}"


def _kind(why: Exception) -> str:
    """
    The class of a Java error, without its package.
    """
    java = getattr(why, "java_exception", None)
    return "" if java is None else str(java.getClass().getSimpleName())


def first_line(why: Exception) -> str:
    """
    The first line of a Java error, without the stack trace.
    """
    kind, java = _kind(why), getattr(why, "java_exception", None)
    if java is None:
        return str(why).splitlines()[0] if str(why) else type(why).__name__
    text = java.getMessage() or ""
    if NO_SPACE in text:
        return "no space left on the device"
    if "S3AFileSystem not found" in text:
        return (
            "s3a:// needs a package of Hadoop in the version of Spark's own: "
            "--conf spark.jars.packages=org.apache.hadoop:hadoop-aws:VERSION"
        )
    return _KNOWN.get(kind, f"{kind}: {text}".splitlines()[0])


_KNOWN = {
    "FileNotFoundException": "no such file or directory",
    "AccessDeniedException": "permission denied",
    "AccessControlException": "permission denied",
    "UnknownStoreException": "no such bucket",
    "ConnectException": "nobody answers there: connection refused",
    "NoAuthWithAWSException": "no credentials; --conf spark.hadoop.fs.s3a.access.key=... has them",
}
