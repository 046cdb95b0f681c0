"""
The files of a log, wherever Hadoop's file systems reach: a directory here, `hdfs://`, `s3a://`.

Only names and sizes come to the driver; a log of a year has some ten thousand.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import SparkSession

_NAME = re.compile(r"(traffic-.+-(\d{8}T\d{2}))\.jsonl(\.gz)?")


class Unreadable(Exception):
    """
    A file cannot be read or written; the text says what to do.
    """


@dataclass(frozen=True)
class LogFile:
    """
    One file of one node and one hour; `hour` counts since 1970.
    """

    name: str
    path: str
    size: int

    @property
    def stem(self) -> str:
        """
        The name without the suffix: a file keeps it when it is compressed.
        """
        return self.name.removesuffix(".gz").removesuffix(".jsonl")

    @property
    def is_compressed(self) -> bool:
        return self.name.endswith(".gz")

    @property
    def hour(self) -> int:
        moment = datetime.strptime(self.stem[-11:], "%Y%m%dT%H").replace(tzinfo=UTC)
        return int(moment.timestamp()) // 3600


class LogFiles:
    """
    A place in a file system.
    """

    def __init__(self, spark: SparkSession, where: str) -> None:
        self.where = where.rstrip("/") or "/"
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._path = jvm.org.apache.hadoop.fs.Path
        try:
            self._system = self._path(self.where).getFileSystem(spark._jsc.hadoopConfiguration())
        except Exception as why:
            raise Unreadable(f"{where}: {_first_line(why)}") from why

    def logs(self) -> list[LogFile]:
        """
        The files of the log here and below, one for each node and hour, in the order of time.
        """
        found: dict[str, LogFile] = {}
        for status in self._below():
            name = status.getPath().getName()
            if not _NAME.fullmatch(name) or not _is_date(name):
                continue
            file = LogFile(name, status.getPath().toString(), status.getLen())
            other = found.get(file.stem)
            if other is not None and other.name == name:
                raise Unreadable(
                    f"{other.path} and {file.path} have one name; if they are of two nodes give each a name "
                    "of its own, else put one elsewhere"
                )
            # While a file is being compressed both are there, and the plain one is whole.
            if file.stem not in found or not file.is_compressed:
                found[file.stem] = file
        return sorted(found.values(), key=lambda file: (file.hour, file.stem))

    def unpacked(self, file: LogFile) -> int:
        """
        How long a compressed file was before, up to 4 GiB, as gzip wrote it at its end; -1 if it did not.
        """
        try:
            stream = self._system.open(self._path(file.path))
            try:
                stream.seek(file.size - 4)
                written: int = stream.readInt() & 0xFFFFFFFF
            finally:
                stream.close()
        except Exception:  # whoever reads the file will say what is wrong with it
            return -1
        return int.from_bytes(written.to_bytes(4, "big"), "little")

    def _below(self) -> list[Any]:
        try:
            status = self._system.getFileStatus(self._path(self.where))
            found = self._system.listFiles(status.getPath(), True)
            files = []
            while found.hasNext():
                files.append(found.next())
            return files
        except Exception as why:
            raise Unreadable(f"{self.where}: {_first_line(why)}") from why

    def exists(self, name: str = "") -> bool:
        return bool(self._system.exists(self._at(name)))

    def names(self) -> list[str]:
        """
        What lies directly here.
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
        Put a directory in the place of another, which nobody sees half deleted: it is put aside first.
        """
        self.delete(aside)
        if self.exists(to):
            self._rename(to, aside)
        self._rename(name, to)
        self.delete(aside)

    def put_back(self, name: str, aside: str) -> None:
        """
        Mend an exchange that was interrupted.
        """
        if self.exists(aside) and not self.exists(name):
            self._rename(aside, name)

    def _rename(self, name: str, to: str) -> None:
        if not self._system.rename(self._at(name), self._at(to)):
            raise Unreadable(f"{self.where}: cannot rename {name} to {to}")

    def read(self, name: str) -> str:
        # Interrupted between the two steps of a write; the part is whole.
        stream = self._system.open(self._at(name if self.exists(name) else f"{name}.part"))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """
        All of it or nothing: a reader never sees half a file.
        """
        part = self._at(f"{name}.part")
        try:
            stream = self._system.create(part, True)
            try:
                stream.write(bytearray(text.encode()))
            finally:
                stream.close()
        except Exception as why:
            raise Unreadable(f"cannot write {self.where}/{name}: {_first_line(why)}") from why
        if not self._replaced(part, self._at(name)):
            self._remove(name)
            self._rename(f"{name}.part", name)

    def _remove(self, name: str) -> None:
        self._system.delete(self._at(name), False)

    def _replaced(self, part: Any, name: Any) -> bool:
        """
        In one step, where the file system can; not all put a file in the place of another.
        """
        try:
            return bool(self._system.rename(part, name))
        except Exception:
            return False

    def inside(self, name: str) -> str:
        """
        The whole path, for Spark.
        """
        return f"{self.where}/{name}"

    def local(self) -> str:
        """
        The whole path, if it is one of this machine; else empty.
        """
        uri = self._system.makeQualified(self._path(self.where)).toUri()
        return str(uri.getPath()) if uri.getScheme() == "file" else ""

    def _at(self, name: str) -> Any:
        return self._path(self.inside(name) if name else self.where)


def _is_date(name: str) -> bool:
    try:
        return LogFile(name, "", 0).hour > 0
    except ValueError:
        return False


def _first_line(why: Exception) -> str:
    """
    What Java said, without its stack.
    """
    java = getattr(why, "java_exception", None)
    if java is None:
        return str(why).splitlines()[0] if str(why) else type(why).__name__
    kind, text = java.getClass().getSimpleName(), java.getMessage() or ""
    known = {
        "FileNotFoundException": "no such file or directory",
        "AccessDeniedException": "permission denied",
        "AccessControlException": "permission denied",
    }
    return known.get(kind, f"{kind}: {text}".splitlines()[0])
