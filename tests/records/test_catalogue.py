"""
The catalogue of records, a page of HTML.
"""

from html.parser import HTMLParser

from hypothesis import given

from msgnode.records.catalogue import page
from msgnode.records.definition import Definitions, EnumValue, Record, Slot
from tests.support.made_records import definitions

ID = "7a0c9a3e-5a0e-4f6f-9d52-0c3c8a2f0a11"
MARKUP = "<script>alert(1)</script><img src=x onerror=alert(1)> & \"'"


class Elements(HTMLParser):
    """
    The elements of a page, the ids and targets in it, and its text.
    """

    def __init__(self, text):
        super().__init__()
        self.tags, self.ids, self.targets, self.text = set(), [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        for name, value in attributes:
            assert not name.startswith("on")
            if name == "id":
                self.ids.append(value)
            elif name == "href":
                self.targets.append(value)

    def handle_data(self, data):
        self.text += data


def test_markup_in_definitions_is_text():
    """
    Markup in any text of a definition is shown as it is, and runs nothing.
    """
    slot = Slot(
        key=1,
        name="ROOM",
        type="ENUM",
        values=(EnumValue("A", MARKUP),),
        description=MARKUP,
    )
    other = Slot(key=2, name="HALL", type="STRING", pattern=MARKUP, default=MARKUP)
    found = Elements(
        page(Definitions([Record(id=ID, name="ASK", description=MARKUP, slots=(slot, other))]), MARKUP)
    )

    assert not found.tags & {"script", "img", "iframe", "object"}
    assert found.text.count(MARKUP) >= 6


@given(definitions())
def test_each_record_and_slot_is_in_the_page(made):
    """
    Each record has one place, which all links to it lead to, and its slots are named.
    """
    found = Elements(page(made))

    assert sorted(found.ids) == sorted(record.id for record in made)
    assert {target.removeprefix("#") for target in found.targets} == set(found.ids)
    for record in made:
        assert all(name in found.text for name in (record.name, *(slot.name for slot in record.slots)))


def test_lines_of_descriptions_are_lines():
    """
    A line break of a description is one in the page.
    """
    assert "one<br>two" in page(Definitions([Record(id=ID, name="ASK", description="one\ntwo")]))
