"""
The archive of Java's classes, with a process that ends at once in place of Java.
"""

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from msgnode.mining.execution.class_archive import ClassArchive
from msgnode.mining.reading.log_files import Unreadable

MAKES = "-XX:ArchiveClassesAtExit="


def made(archive: ClassArchive) -> Path:
    """
    The file that Java would write.
    """
    return Path(archive.java_options.split(MAKES)[1].partition('"')[0])


def ended(archive: ClassArchive, *command: str, is_complete: bool = True) -> None:
    """
    Java ends, and its archive is kept if it is good.
    """
    with subprocess.Popen(command or ["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        archive.keep(process, is_complete)


@pytest.fixture
def jar(tmp_path: Path) -> Path:
    path = tmp_path / "spark.jar"
    path.write_bytes(b"jar")
    return path


def test_first_run_makes_an_archive_and_the_next_uses_it(tmp_path: Path, jar: Path) -> None:
    """
    The first run makes the archive, which is there once Java has ended; the next uses it.
    """
    first = ClassArchive(str(tmp_path / "kept"), "17.0.1", [jar])
    made(first).write_bytes(b"classes")
    ended(first)

    second = ClassArchive(str(tmp_path / "kept"), "17.0.1", [jar])

    [path] = (tmp_path / "kept").iterdir()
    assert f'"-XX:SharedArchiveFile={path}" -Xlog:cds*=off' == second.java_options
    assert b"classes" == path.read_bytes()


def test_archive_is_of_one_java_and_its_jars(tmp_path: Path, jar: Path) -> None:
    """
    Another Java or another jar needs another archive, which replaces the first.
    """
    first = ClassArchive(str(tmp_path / "kept"), "17.0.1", [jar])
    made(first).write_bytes(b"of 17.0.1")
    ended(first)

    other = ClassArchive(str(tmp_path / "kept"), "17.0.2", [jar])
    assert MAKES in other.java_options
    made(other).write_bytes(b"of 17.0.2")
    ended(other)
    jar.write_bytes(b"another jar")

    assert [b"of 17.0.2"] == [path.read_bytes() for path in (tmp_path / "kept").iterdir()]
    assert MAKES in ClassArchive(str(tmp_path / "kept"), "17.0.2", [jar]).java_options


def test_run_without_an_archive_of_java_leaves_nothing(tmp_path: Path, jar: Path) -> None:
    """
    If Java made none, for lack of space, nothing is kept, and the next run makes it.
    """
    ended(ClassArchive(str(tmp_path / "kept"), "17.0.1", [jar]))

    assert [] == list((tmp_path / "kept").iterdir())


def test_archive_of_a_run_or_a_java_that_failed_is_not_kept(tmp_path: Path, jar: Path) -> None:
    """
    A run that failed has not loaded all classes, and a Java that failed has not written all.
    """
    archive = ClassArchive(str(tmp_path / "kept"), "17.0.1", [jar])
    for command, is_complete in ((["cat"], False), (["sh", "-c", "cat; kill -9 $$"], True)):
        made(archive).write_bytes(b"not all")
        ended(archive, *command, is_complete=is_complete)

        assert [] == list((tmp_path / "kept").iterdir())


def test_archive_or_directory_that_others_may_write_to_is_refused(tmp_path: Path, jar: Path) -> None:
    """
    Java trusts an archive, so it is refused if others may replace it, also by a directory above.
    """
    archive = ClassArchive(str(tmp_path / "above" / "kept"), "17.0.1", [jar])
    made(archive).write_bytes(b"classes")
    ended(archive)
    [path] = (tmp_path / "above" / "kept").iterdir()
    for open_to_others in (path, path.parent, path.parent.parent):
        before = open_to_others.stat().st_mode
        open_to_others.chmod(0o777)
        with pytest.raises(Unreadable, match="others may write to it"):
            ClassArchive(str(path.parent), "17.0.1", [jar])
        open_to_others.chmod(before)


def test_directory_that_cannot_be_is_refused(tmp_path: Path, jar: Path) -> None:
    """
    A file, or a path with a colon, cannot be the directory.
    """
    with pytest.raises(Unreadable, match="File exists"):
        ClassArchive(str(jar), "17.0.1", [jar])
    with pytest.raises(Unreadable, match="path with ':'"):
        ClassArchive(str(tmp_path / "a:b"), "17.0.1", [jar])


def test_path_is_quoted_for_java(tmp_path: Path, jar: Path) -> None:
    """
    A path may have spaces, quotes and backslashes.
    """
    archive = ClassArchive(str(tmp_path / 'my "own" \\ classes'), "17.0.1", [jar])

    assert 'my \\"own\\" \\\\ classes/mine-' in archive.java_options


@pytest.mark.skipif(shutil.which("java") is None, reason="needs Java")
def test_java_makes_and_uses_the_archive(tmp_path: Path, jar: Path) -> None:
    """
    Java itself makes the archive, and reads classes from it in the next run.
    """
    first = ClassArchive(str(tmp_path / "my classes"), "17.0.1", [jar])
    ended(first, "java", *shlex.split(first.java_options), "-version")
    second = ClassArchive(str(tmp_path / "my classes"), "17.0.1", [jar])

    command = ["java", *shlex.split(second.java_options), "-Xlog:class+load", "-version"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "source: shared objects file (top)" in said
