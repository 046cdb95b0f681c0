"""
The unit tests with each Python that msgnode runs on: `pip install nox`, then `nox`.
"""

import nox


@nox.session(python=["3.11", "3.12", "3.13"])
def tests(session: nox.Session) -> None:
    """
    All but those that start nodes, browsers and Spark, which tools/test runs with one Python.
    """
    session.install("-e", ".[test]")
    others = ("--ignore=tests/integration", "--ignore=tests/mining")
    session.run("python", "-m", "pytest", "-q", "-n", "auto", *others, "tests", *session.posargs)
