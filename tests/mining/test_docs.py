"""
docs/mining.md names all there is.
"""

import re

from msgnode.cli.mine import mine
from msgnode.mining.analyses.catalogue import QUESTIONS
from msgnode.mining.analyses.exchanges import SCHEMA as EXCHANGES
from msgnode.mining.analyses.policy_replay import QUESTION
from msgnode.mining.analyses.session_lifetimes import SCHEMA as LIVES
from tests.support.examples import TOP

TEXT = (TOP / "docs/mining.md").read_text("utf-8")
DERIVED = {"edges", "orphans", "stories", "conversation", "totals"}


def test_mining_document_explains_every_option():
    """
    It explains every option.
    """
    table = TEXT.partition("| option |")[2].partition("\n\n")[0]

    known = {name for option in mine.params for name in option.opts if name.startswith("--")}
    assert known == set(re.findall(r"--[a-z-]+[a-z]", table.replace("`--every S`", "--every")))


def test_it_has_the_columns_of_every_table():
    """
    It has the columns of every table.
    """
    table = TEXT.partition("| table |")[2].partition("\n\n")[0]

    known = {question.name for question in (*QUESTIONS, QUESTION)} | DERIVED
    assert known == set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE))


def test_mining_document_has_every_column():
    """
    It has every column of what is kept beside the tables.
    """
    text = TEXT.partition("**exchanges**")[2].partition("| table |")[0]

    for schema in (EXCHANGES, LIVES):
        for column in schema.split(", "):
            assert f"`{column.partition(' ')[0]}`" in text or column.startswith(("batch", "date", "hour")), (
                column
            )
