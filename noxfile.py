"""
The unit tests with each Python that msgnode runs on: `pip install nox`, then `nox`.
"""

import os

import nox


@nox.session(python=["3.11", "3.12", "3.13"])
def tests(session: nox.Session) -> None:
    """
    All but those that start nodes, browsers and Spark, which tools/test runs with one Python.
    """
    session.install("./msgnode_report", "-e", ".[test]")
    others = ("--ignore=tests/integration", "--ignore=tests/mining")
    session.run("python", "-m", "pytest", "-q", "-n", "auto", *others, "tests", *session.posargs)


@nox.session(python="3.11", default=False)
def lake(session: nox.Session) -> None:
    """
    The mining tool on an object store, moto's server. Packages of Java (700 MB) come from Maven.
    """
    session.install("./msgnode_report", "-e", ".[test]", "moto[s3,server]")
    paths = ("tests/mining/pipeline/test_object_lock.py", "tests/integration/test_mining_lake.py")
    session.env.setdefault("MSGNODE_LAKE", os.environ.get("MSGNODE_LAKE", "1"))
    session.run("python", "-m", "pytest", "-q", *paths, *session.posargs)


@nox.session(python="3.11", default=False)
def delta(session: nox.Session) -> None:
    """
    The tests of mining with Spark 4.2 and Delta Lake, whose jar comes from Maven.
    """
    session.install("./msgnode_report", "-e", ".[test,delta]")
    session.run("python", "-m", "pytest", "-q", *(session.posargs or ("tests/mining",)))
