"""
The command: what it says, and its exit codes.
"""

import gzip
import importlib.util
import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from msgnode.cli.main import main
from msgnode.cli.mine import _follow, told
from msgnode.mining.pipeline.checkpoint import Checkpoint
from msgnode.mining.pipeline.checkpoint_entries import Batch
from msgnode.mining.pipeline.run import Result
from msgnode.mining.pipeline.spark import LARGE_BYTES, local_settings
from msgnode.mining.reading.log_files import Unreadable
from tests.mining.rows import MINED_LOG_OPTIONS
from tests.support.examples import TOP


def run(*arguments):
    found = CliRunner().invoke(main, ["mine", *map(str, arguments)], catch_exceptions=False)
    return found.exit_code, found.stdout, found.stderr


def test_mine_says_how_much_it_read_and_where(mined_log):
    """
    It says how much it read and where the report is.
    """
    directory, said = mined_log
    out, err = said.stdout, said.stderr

    assert 0 == said.exit_code
    assert "4 files read in" in out and "300 lines in all, 4 set aside in _bad" in out
    assert f"report: {directory}/out/report.html" in out
    assert "reading" in err and "combining the results" in err


def test_pseudonyms(mined_log, spark):
    """
    With a key, no identifier is anywhere in what is written, and the policy was asked before they went.
    """
    directory, _ = mined_log
    names = (b"attacker.example", b"example.org", b"203.0.113", b"runtime://example")

    parts = [path for path in (directory / "out").rglob("*") if path.is_file()]
    text = [spark.read.parquet(str(path)).toJSON().collect() for path in [directory / "out/tables/talkers"]]

    assert not [path for path in parts for name in names if name in path.read_bytes()]
    assert not any("example" in row for rows in text for row in rows)
    decided = spark.read.parquet(f"{directory}/out/tables/decisions").collect()
    assert {"notApplicable"} == {row.effect for row in decided}


def test_timelines_have_pseudonyms(mined_log, spark):
    """
    With a key, timelines that nobody requested are those of pseudonyms.
    """
    told = spark.read.parquet(f"{mined_log[0]}/out/tables/stories").select("about", "from").collect()

    assert any(row.about == row["from"] for row in told)
    assert not [row for row in told if "example" in row.about]


def test_second_run_with_the_same_options_finds_nothing_new(mined_log):
    """
    A second run with the same options finds nothing new, and says so in JSON if asked.
    """
    directory, _ = mined_log

    code, out, _ = run(directory / "logs", "--out", directory / "out", "--json", *MINED_LOG_OPTIONS)

    found = json.loads(out)
    assert (0, True, 0, 300, 4) == (code, found["ok"], found["files"], found["lines"], found["bad"])


def test_output_with_delta_tables_needs_delta(spark, tmp_path):
    """
    Without Delta a run for Parquet says that the format is another, and a question says what is missing.
    """
    checkpoint = Checkpoint({"logs": str(tmp_path), "format": "delta"})
    checkpoint.add(Batch(1, 0, 1, {}))
    (tmp_path / "out").mkdir()
    (tmp_path / "out/_checkpoint.json").write_text(checkpoint.text())
    (tmp_path / "traffic-mn1-20260731T00.jsonl").write_text("{}")

    code, _, err = run(tmp_path, "--out", tmp_path / "out")
    assert 1 == code and "in another format; use --overwrite" in err
    if importlib.util.find_spec("delta") is None:
        code, _, err = run("sql", tmp_path / "out", "SELECT 1")
        assert 2 == code and "out has Delta tables, for which Spark lacks a package: --conf" in err


@pytest.mark.parametrize(
    "options, said",
    [
        (("--pseudonymise", "another key of 16"), "with another key for pseudonyms"),
        (("--pseudonymise", "a key of sixteen"), "with another policy"),
    ],
)
def test_other_options(mined_log, options, said):
    """
    What was made with other options is refused, with the remedy.
    """
    directory, _ = mined_log

    code, _, err = run(directory / "logs", "--out", directory / "out", *options)

    assert 1 == code
    assert f"{said}; use --overwrite to start over, or another --out" in err


def test_directory_with_something_else_in_it_is_left_alone(spark, tmp_path):
    """
    A directory with something else in it is left alone.
    """
    (tmp_path / "logs").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out/thesis.txt").write_text("years of work")

    code, _, err = run(tmp_path / "logs", "--out", tmp_path / "out")

    assert 1 == code
    assert "is not empty and was not made by this tool; use --overwrite, or another --out" in err
    assert 0 == run(tmp_path / "logs", "--out", tmp_path / "out", "--overwrite")[0]
    assert "years of work" == (tmp_path / "out/thesis.txt").read_text()


def test_output_that_is_a_file_or_cannot_be_made_is_told(spark, tmp_path):
    """
    DIR is a directory, or is made; a file is left as it is.
    """
    (tmp_path / "traffic-mn1-20260731T00.jsonl").write_text("{}")
    (tmp_path / "file").write_text("thesis")

    code, _, err = run(tmp_path, "--out", tmp_path / "file", "--overwrite")
    assert (1, f"msgnode: {tmp_path}/file is a file; --out takes a directory") == (code, err.strip())
    code, _, err = run(tmp_path, "--out", tmp_path / "file/out")
    assert (2, f"msgnode: {tmp_path}/file/out: cannot be made: Not a directory") == (code, err.strip())
    assert "thesis" == (tmp_path / "file").read_text()


def test_directory_without_a_log_is_told(spark, tmp_path):
    """
    A directory without a log is told so; that is no error.
    """
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/notes.txt").write_text("nothing")
    (tmp_path / "logs/traffic-mn1-yesterday.jsonl").write_text("nothing")

    code, out, _ = run(tmp_path / "logs", "--out", tmp_path / "out")

    assert 0 == code
    assert "no traffic log here; its files are named traffic-NODE-YYYYMMDDTHH.jsonl" in out
    assert not (tmp_path / "out").exists()


def test_compressed_file_that_is_cut_short_is_named(spark, tmp_path):
    """
    A compressed file that is cut short is named, with exit code 2, not a traceback.
    """
    (tmp_path / "logs").mkdir()
    name = "traffic-mn1-20260731T00.jsonl.gz"
    (tmp_path / "logs" / name).write_bytes(gzip.compress(os.urandom(20_000))[:200])

    code, _, err = run(tmp_path / "logs", "--out", tmp_path / "out")

    assert 2 == code
    assert err.splitlines()[-1].startswith(
        f"msgnode: {tmp_path}/logs/{name}: cannot be read: it may be trunc"
    )


def test_second_mining_run_in_a_directory_is_refused(spark, tmp_path):
    """
    While one run is at work in a directory another is refused; when that has ended, however it did, no more.
    """
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/traffic-mn1-20260731T00.jsonl.gz").write_bytes(b"short")
    hold = (
        f"import os, fcntl; fcntl.flock(os.open({str(tmp_path / 'out')!r}, 0), 2); print(flush=True); input()"
    )
    (tmp_path / "out").mkdir()
    with subprocess.Popen([sys.executable, "-c", hold], stdin=-1, stdout=-1) as other:
        other.stdout.readline()
        code, _, err = run(tmp_path / "logs", "--out", tmp_path / "out")
        other.kill()

    assert 2 == code
    assert f"another run uses {tmp_path}/out; wait until it ends, or use another --out" in err
    assert not list((tmp_path / "out").iterdir())
    assert "another run" not in run(tmp_path / "logs", "--out", tmp_path / "out")[2]


def test_two_files_of_the_same_name_are_refused(spark, tmp_path):
    """
    Two files of one name are refused, for one of them would be passed over.
    """
    for node in ("east", "west"):
        (tmp_path / "logs" / node).mkdir(parents=True)
        (tmp_path / "logs" / node / "traffic-mn1-20260731T00.jsonl").write_text("")

    code, _, err = run(tmp_path / "logs", "--out", tmp_path / "out")

    assert 2 == code
    assert "east/traffic-mn1-20260731T00.jsonl" in err and "west/traffic-mn1-20260731T00.jsonl" in err
    assert "have the same name" in err


def test_follow_goes_on(spark, capsys):
    """
    A look that fails is told and does not end the following; a mistake of ours does.  Nothing new is no news.
    """
    results = iter(
        (Unreadable("/logs: permission denied"), Result(files=0), Result(files=1), ZeroDivisionError())
    )
    shown = []

    def look():
        found = next(results)
        if isinstance(found, Exception):
            raise found
        return found

    with pytest.raises(ZeroDivisionError):
        _follow(look, shown.append, list)

    assert [Result(files=1)] == shown
    assert "msgnode: /logs: permission denied; will try again\n" == capsys.readouterr().err


def test_mistake_of_ours_is_one_sentence(spark, capsys):
    """
    A mistake of ours is one sentence too, without a traceback; --verbose shows it.
    """
    with pytest.raises(SystemExit) as ended, told(as_json=False, verbose=False):
        raise KeyError("no such key")

    assert 2 == ended.value.code
    assert (
        "msgnode: internal error, KeyError: 'no such key' (--verbose shows where)\n"
        == capsys.readouterr().err
    )
    with pytest.raises(KeyError), told(as_json=False, verbose=True):
        raise KeyError("no such key")


def test_setting_that_is_not_of_spark_is_refused():
    """
    A setting that is not one of Spark is refused, in words.
    """
    with pytest.raises(Unreadable, match=r"spark.NAME=VALUE, not 'memory=2g'"):
        local_settings([], ["memory=2g"])


def test_little_input_gets_little_memory_and_one_task_at_a_time(tmp_path):
    """
    A small log gets little memory and one core; a large one more of both, and the compiler.
    """
    small = local_settings([str(tmp_path)])
    with (tmp_path / "large").open("wb") as file:
        file.truncate(LARGE_BYTES)
    large = local_settings([str(tmp_path)])

    assert ("512m", "local[1]") == (small["spark.driver.memory"], small["spark.master"])
    assert ("2g", "1") == (large["spark.driver.memory"], small["spark.sql.shuffle.partitions"])
    assert "TieredStopAtLevel" not in large["spark.driver.extraJavaOptions"]
    remote = local_settings(["s3a://bucket/logs"])  # its client needs Hadoop's own local files
    assert {"spark.hadoop.fs.file.impl"} == large.keys() - remote.keys()
    assert remote.items() <= large.items()
    assert "8g" == local_settings([str(tmp_path)], ["spark.driver.memory=8g"])["spark.driver.memory"]


def test_an_interrupt_ends_following(spark):
    """
    Ctrl-C ends what follows, for what there was has been shown.
    """

    def interrupted():
        raise KeyboardInterrupt

    _follow(lambda: Result(files=1), [].append, interrupted)


def test_path_that_is_not_there_or_a_file_system(spark, tmp_path):
    """
    A path that is not there, or a file system that is not known, is exit code 2.
    """
    assert (2, f"msgnode: {tmp_path}/none: no such file or directory\n") == run(
        tmp_path / "none", "--out", tmp_path / "out"
    )[::2]
    code, _, err = run("gopher://host/logs", "--out", tmp_path / "out")
    assert 2 == code and err.startswith("msgnode: gopher://host/logs: ")


def test_short_key(tmp_path):
    """
    A key that can be guessed is refused; one in a file is read from there.
    """
    code, _, err = run(tmp_path, "--out", tmp_path / "out", "--pseudonymise", "short")
    assert 2 == code and "16 characters or more" in err

    code, _, err = run(tmp_path, "--out", tmp_path / "out", "--pseudonymise", f"@{tmp_path}/none")
    assert 2 == code and "No such file" in err


def test_definitions_that_are_wrong_or_missing_are_told_in_one_sentence(tmp_path):
    """
    With the place of the first error, before Spark starts.
    """
    wrong = tmp_path / "wrong.records.json"
    wrong.write_text('{"records": [}')

    code, _, err = run(tmp_path, "--out", tmp_path / "out", "--records", wrong)
    assert 2 == code and err.startswith(f"msgnode: --records: {wrong}:1:14: ")

    code, _, err = run(tmp_path, "--out", tmp_path / "out", "--records", tmp_path / "none")
    assert 2 == code and str(tmp_path / "none") in err


def test_no_java(tmp_path):
    """
    Without Java it says what to install; tools/mine.py is the same command.
    """
    environment = {key: value for key, value in os.environ.items() if key not in ("JAVA_HOME", "PATH")}
    done = subprocess.run(
        [sys.executable, TOP / "tools/mine.py", tmp_path, "--out", tmp_path / "out"],
        env=environment | {"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert 2 == done.returncode
    assert "Spark needs Java 17 or later, and there is none here; install it" in done.stderr
    assert "apt-get install openjdk-17-jre-headless" in done.stderr


def test_old_java(tmp_path):
    """
    A Java that is too old is named.
    """
    java = tmp_path / "bin/java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)

    done = subprocess.run(
        [sys.executable, TOP / "tools/mine.py", tmp_path, "--out", tmp_path / "out"],
        env=os.environ | {"JAVA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert 2 == done.returncode
    assert f"{java} is 11.0.2" in done.stderr
