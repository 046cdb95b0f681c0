"""
Definitions of records: reading, problems, both forms.
"""

# ruff: noqa: E501  problems stand whole

import json

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from msgnode.records.definition import MAX_SLOTS, Definitions
from msgnode.records.json_scanner import scan
from msgnode.records.problems import DefinitionsRefused, SyntaxRefused
from msgnode.records.reader import MAX_FILE_BYTES, read, read_texts
from msgnode.records.writer import to_json, to_xml
from tests.support.examples import TOP
from tests.support.made_records import definitions

ID = "7a0c9a3e-5a0e-4f6f-9d52-0c3c8a2f0a11"
OTHER = "7a0c9a3e-5a0e-4f6f-9d52-0c3c8a2f0a12"
SEED = TOP / "tests/records/seed.records.json"
SEED_XML = """\
<records>
  <record id="be125fa3-b4a7-493c-ad9a-5fa1a23be84d" name="NOTIFY_REMOTE_NODE_ADDED" isService="true">
    <description>Notification that a remote node has been added.^It is now possible
      to send messages to the remote node.</description>
    <namespaces>SYSTEM</namespaces>
    <slot key="1" name="REMOTE_NODE" answer="false" mandatory="true" type="NODE_ADDRESS">
      <description>The remote node.</description>
    </slot>
    <slot key="2" name="TYPE" answer="false" mandatory="true" type="STRING">
      <description>The type of the remote node, see ETypeOfNode.</description>
    </slot>
  </record>
</records>
"""
ASSETS = TOP / "msgnode/records/assets"
XSD = etree.XMLSchema(etree.parse(ASSETS / "records.xsd"))


def slot(**given):
    return {"key": 1, "name": "ROOM", "type": "STRING"} | given


def record(*slots, **given):
    return {"id": ID, "name": "ASK", "slots": list(slots)} | given


def read_json(*records):
    return read_texts([("a.records.json", json.dumps({"records": records}).encode())])


def problems(*records):
    with pytest.raises(DefinitionsRefused) as raised:
        read_json(*records)
    return [problem.text for problem in raised.value.problems]


def problems_of(text, name="a.records.json"):
    with pytest.raises(DefinitionsRefused) as raised:
        read_texts([(name, text if isinstance(text, bytes) else text.encode())])
    return str(raised.value).splitlines()


# -- what is read ------------------------------------------------------------


def test_the_example_of_the_seed_is_the_same_from_json_and_from_xml():
    """
    Numbers and booleans as texts are read, `^` becomes a line break, and both forms give one record.
    """
    [found] = read(SEED)

    assert read_texts([("a.records.xml", SEED_XML.encode())]).records == (found,)
    assert found.name == "NOTIFY_REMOTE_NODE_ADDED" and found.is_service
    assert found.description == (
        "Notification that a remote node has been added.\n"
        "It is now possible to send messages to the remote node."
    )
    assert [(each.key, each.name, each.type, each.mandatory) for each in found.slots] == [
        (1, "REMOTE_NODE", "NODE_ADDRESS", True),
        (2, "TYPE", "STRING", True),
    ]


@given(definitions())
def test_definitions_convert_to_json_and_xml_and_back(made):
    """
    Whatever is written in either form is read as the same records.
    """
    assert read_texts([("a.json", to_json(made).encode())]).records == made.records
    assert read_texts([("a.xml", to_xml(made).encode())]).records == made.records


@given(definitions())
def test_schemas_of_both_forms_accept_definitions(made):
    """
    The JSON Schema and the XSD that are shipped accept what the reader accepts.
    """
    schema = json.loads((ASSETS / "records.schema.json").read_text())

    assert jsonschema_rs.is_valid(schema, json.loads(to_json(made)))
    XSD.assertValid(etree.fromstring(to_xml(made).encode()))


def test_schemas_of_both_forms_refuse_an_unknown_attribute():
    """
    An editor shows a misspelt attribute in JSON and in XML.
    """
    schema = json.loads((ASSETS / "records.schema.json").read_text())
    wrong = {"records": [record(slot(mandatry=True))]}

    assert not jsonschema_rs.is_valid(schema, wrong)
    assert not XSD.validate(etree.fromstring(SEED_XML.replace("mandatory", "mandatry")))
    assert XSD.validate(etree.fromstring(SEED_XML))


@pytest.mark.parametrize(
    "written, kind, form",
    [
        ("STRING_ARRAY", "STRING", "[]"),
        ("MAP", "OBJECT", "{}"),
        ("DATE_TIME", "DATE", ""),
        ("LONG{}", "LONG", "{}"),
    ],
)
def test_other_names_of_types_are_read(written, kind, form):
    """
    The names of the nyssr.net system and of earlier texts mean the types that there are.
    """
    [[found]] = [each.slots for each in read_json(record(slot(type=written)))]

    assert (found.type, found.form) == (kind, form)


@pytest.mark.parametrize("limit", [3, 3.5, 2**53 + 1, 10**40 + 1, -(10**300), 1e300, 0.0])
def test_limits_are_the_same_in_both_forms(limit):
    """
    A limit with more digits than a float has is the same number from JSON, from a text and from XML.
    """
    found = read_json(record(slot(type="DOUBLE", maximum=limit)))

    assert read_json(record(slot(type="DOUBLE", maximum=str(limit)))).records == found.records
    assert read_texts([("a.xml", to_xml(found).encode())]).records == found.records


@pytest.mark.parametrize("default", [2**63 - 1, -(2**63)])
def test_a_default_of_64_bits_is_exact(default):
    """
    The default of a LONG has all its digits, as a number and as a text.
    """
    found = [read_json(record(slot(type="LONG", default=each))) for each in (default, str(default))]

    assert [int(each.records[0].slots[0].default) for each in found] == [default, default]


def test_a_directory_is_read_as_one_set(tmp_path):
    """
    Records of files below a directory nest each other; files of other names are not read.
    """
    (tmp_path / "deep").mkdir()
    (tmp_path / "a.records.json").write_text(
        json.dumps({"records": [record(slot(type="RECORD", record=OTHER))]})
    )
    (tmp_path / "deep/b.records.xml").write_text(f'<records><record id="{OTHER}" name="INNER"/></records>')
    (tmp_path / "c.json").write_text("no definition")

    assert [each.name for each in read(tmp_path)] == ["ASK", "INNER"]


def test_the_digest_is_that_of_the_content(tmp_path):
    """
    The digest is the same for JSON and XML, and another for a changed description.
    """
    found = read(SEED)

    assert read_texts([("a.xml", SEED_XML.encode())]).digest == found.digest
    changed = SEED_XML.replace("The remote node.", "A remote node.")
    assert read_texts([("a.xml", changed.encode())]).digest != found.digest


# -- what is refused ---------------------------------------------------------


def test_all_problems_are_listed_with_their_positions():
    """
    Each problem has its file, line and column, and a similar name where there is one.
    """
    text = """{"records": [
  {"id": "x", "nmae": "ASK", "slots": [
    {"key": "one", "name": "room", "type": "STIRNG"},
    {"key": 2, "name": "B", "type": "INTEGER", "minimum": 9, "maximum": 3}]}]}"""

    assert problems_of(text) == [
        "a.records.json:2:3: this record has no 'name'",
        "a.records.json:2:10: expected a UUID such as 'be125fa3-b4a7-493c-ad9a-5fa1a23be84d' as 'id', found 'x'",
        "a.records.json:2:15: a record has no attribute 'nmae', did you mean 'name'?",
        "a.records.json:3:13: expected a whole number from 1 to 536870911 as 'key', found 'one'",
        "a.records.json:3:28: expected a name in UPPER_SNAKE of at most 64 characters, for instance 'ROOM'"
        " as 'name', found 'room'",
        "a.records.json:3:44: unknown type 'STIRNG', did you mean 'STRING'?",
        "a.records.json:4:59: 'minimum' is greater than 'maximum'",
    ]


def test_a_problem_hides_no_other():
    """
    A slot of an unknown type has its key and its name compared, too, and a record without a name is found by
    its id.
    """
    wrong = record(slot(), slot(type="STRNG"), slot(key=2, name="B", type="RECORD", record=OTHER))
    nameless = record(slot(), slot(name="B"), id=OTHER)
    del nameless["name"]

    found = problems(wrong, nameless, record(slot(), slot(name="B"), id="x", name="C"))

    assert sorted(found) == [
        f"{OTHER}.B: the key 1 is that of ROOM, too",
        "ASK.ROOM: the key 1 is that of ROOM, too",
        "C.B: the key 1 is that of ROOM, too",
        "expected a UUID such as 'be125fa3-b4a7-493c-ad9a-5fa1a23be84d' as 'id', found 'x'",
        "the slot ASK.ROOM occurs again",
        "this record has no 'name'",
        "unknown type 'STRNG', did you mean 'STRING'?",
    ]


def test_problems_in_xml_are_at_the_attribute():
    """
    A problem of an attribute is at its line and column, also after characters that are not ASCII.
    """
    text = SEED_XML.replace("isService", 'namespaces="é"\n   isService').replace(
        '"true">\n    <des', '"yes">\n    <des'
    )

    assert problems_of(text, "a.xml")[-2:] == [
        "a.xml:3:4: expected true or false, or \"true\" or \"false\" as 'isService', found 'yes'",
        "a.xml:6:5: 'namespaces' occurs again in this record",
    ]


@pytest.mark.parametrize(
    "slots, expected",
    [
        ([slot(key=1), slot(key=1, name="B")], "ASK.B: the key 1 is that of ROOM, too"),
        ([slot(), slot(key=2)], "the slot ASK.ROOM occurs again"),
        ([slot(name="A_1"), slot(key=2, name="A1")], "the slot ASK.A1 is the same in generated code as A_1"),
        ([slot(pattern="(a")], "'pattern' is not a regular expression of RE2: missing ): (a"),
        (
            [slot(pattern=r"(a)\1")],
            r"'pattern' is not a regular expression of RE2: invalid escape sequence: \1",
        ),
        ([slot(type="INTEGER", minLength=1)], "a slot of type INTEGER has no 'minLength'"),
        (
            [slot(type="INTEGER", default=2**31)],
            "expected INTEGER from -2147483648 to 2147483647 as 'default'",
        ),
        ([slot(default="x", mandatory=True)], "a mandatory slot has no 'default': it is never absent"),
        ([slot(default="a\ud800")], "'default' has the character U+D800, which XML cannot contain"),
        ([slot(type="STRING[]", default="x")], "a slot of type STRING[] has no 'default'"),
        ([slot(type="STRING[][]")], "an array or a map has no arrays or maps in it; use a nested RECORD"),
        ([slot(type="ENUM")], "this slot has no 'values'"),
        ([slot(type="ENUM", values=["A", "A"])], "the value 'A' occurs again"),
        ([slot(type="ENUM", values=["a-b"])], "expected letters, digits and single underscores as 'name'"),
        (
            [slot(type="RECORD", record=OTHER)],
            f"ASK.ROOM: no record has the id {OTHER}, did you mean '{ID}'?",
        ),
        ([slot(direction="ASNWER")], "unknown direction 'ASNWER', did you mean 'ANSWER'?"),
        ([slot(direction="REQUEST", answer=True)], "'answer' and 'direction' contradict each other: REQUEST"),
        ([slot(key=0)], "expected a whole number from 1 to 536870911 as 'key', found 0"),
        ([slot(key=True)], "expected a whole number from 1 to 536870911 as 'key', found true"),
        (["x"], "expected a slot as an object, found 'x'"),
    ],
)
def test_wrong_slots_are_refused_in_words(slots, expected):
    """
    A definition that nothing can fit, or that cannot be generated, is refused with what was found.
    """
    assert any(text.startswith(expected) for text in problems(record(*slots)))


def test_a_key_that_was_removed_is_not_used_again():
    """
    A reserved key cannot be that of a slot.
    """
    [text] = problems(record(slot(), reserved=["1", 7]))

    assert text == "ASK.ROOM: the key 1 is reserved: it belonged to a slot that was removed"


def test_ids_and_names_are_of_one_record():
    """
    Two records have neither one id, nor names that are the same in generated code.
    """
    assert problems(record(), record(name="B")) == [f"the id {ID} is that of ASK at a.records.json:1, too"]
    assert problems(record(name="A_1"), record(name="A1", id=OTHER)) == [
        f"the name A1 is the same in generated code as A_1 of {ID}"
    ]


def test_a_record_that_must_contain_itself_is_refused():
    """
    A cycle of mandatory slots is refused, one of optional slots or of arrays is a tree.
    """
    inner = slot(type="RECORD", record=OTHER, mandatory=True)
    outer = slot(type="RECORD", record=ID, mandatory=True)

    assert problems(record(inner), record(outer, id=OTHER, name="B")) == [
        "ASK contains itself by mandatory slots: nothing can fit it",
        "B contains itself by mandatory slots: nothing can fit it",
    ]
    assert len(read_json(record(inner), record(outer | {"type": "RECORD[]"}, id=OTHER, name="B"))) == 2


def test_a_nested_record_has_no_answer_slots():
    """
    A nested record is data: it is the same in requests and answers.
    """
    inner = record(slot(direction="ANSWER"), id=OTHER, name="B")

    assert problems(record(slot(type="RECORD", record=OTHER)), inner) == [
        "ASK.ROOM: the nested record B has slots of direction ANSWER"
    ]


def test_a_record_has_a_bounded_number_of_slots():
    """
    Ten thousand slots are refused at once.
    """
    many = [slot(key=n + 1, name=f"S{n}") for n in range(10_000)]

    assert problems(record(*many)) == [f"a record has at most {MAX_SLOTS} slots, found 10000"]


@pytest.mark.parametrize(
    "text, expected",
    [
        ("", "1:1: expected a value, found the end of the file"),
        ('{"records": [}', "1:14: expected a value, found '}'"),
        ('{"records": [],\n }', "2:2: expected a key in quotes, found '}'"),
        ('{"records": NaN}', "1:13: expected a value, found 'N'"),
        ('{"records": []} x', "1:17: expected the end of the file, found 'x'"),
        ('{"a": "\\x"}', "1:8: '\\x' is not an escape of JSON"),
        ("[" * 100_000, "1:65: more than 64 objects and lists within each other"),
        ('{"records": ' + "1" * 5000 + "}", "1:13: a number of more than 400 characters"),
        ('{"records": [], "records": []}', "1:17: 'records' occurs again in this file"),
        ("[]", "1:1: expected an object with 'records', found []"),
        (b'{"a\xff": 1}', "1:4: the file is not UTF-8"),
        (b" " * (MAX_FILE_BYTES + 1), f"1:1: the file has more than {MAX_FILE_BYTES} bytes"),
    ],
)
def test_text_that_is_no_definition_is_refused_where_it_ends(text, expected):
    """
    A text that cannot be read further is refused at that place, however long or deep it is.
    """
    assert problems_of(text)[0] == f"a.records.json:{expected}"


BOMB = '<!DOCTYPE r [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><records>&b;</records>'
EXTERNAL = '<!DOCTYPE r [<!ENTITY a SYSTEM "file:///etc/passwd">]><records>&a;</records>'


@pytest.mark.parametrize(
    "text, expected",
    [
        (BOMB, "1:1: a document type or entities are not allowed"),
        ("\n" + EXTERNAL, "2:1: a document type or entities are not allowed"),
        ("<records>", "1:10: no element found"),
        ("<records><slot/></records>", "1:10: expected <record> in <records>, found <slot>"),
        ("<records>text</records>", "1:10: expected no text in <records>, found 'text'"),
        ("<records><record id='1' id='2'/></records>", "1:25: duplicate attribute"),
        ("<a>" * 100_000, "1:1: expected <records>, found <a>"),
    ],
)
def test_xml_that_is_no_definition_is_refused(text, expected):
    """
    Entities, other elements and broken XML are refused where they begin.
    """
    assert problems_of(text, "a.xml")[0].startswith(f"a.xml:{expected}")


# -- whatever comes ----------------------------------------------------------


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def plain(node):
    """
    The value of a node without positions.
    """
    if isinstance(node.value, dict):
        return {key: plain(each) for key, each in node.value.items()}
    return [plain(each) for each in node.value] if isinstance(node.value, list) else node.value


@given(json_values, st.sampled_from([None, 1]))
def test_the_scanner_reads_json_as_python_does(value, indent):
    """
    The scanner's values are those of the standard library.
    """
    assert plain(scan(json.dumps(value, indent=indent))) == value


@given(st.text(st.sampled_from('{}[]":,\\ueE+-.0123456789truefalsn \n'), max_size=30))
def test_the_scanner_refuses_what_python_refuses(text):
    """
    A text is JSON for the scanner if it is for the standard library.
    """
    try:
        expected = json.loads(text, parse_constant=lambda name: 1 / 0)
    except (ValueError, ZeroDivisionError):
        with pytest.raises(SyntaxRefused):
            scan(text)
    else:
        assert plain(scan(text)) == expected


MUTATIONS = st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 3), st.binary(max_size=4)), max_size=4)


@given(definitions(), st.sampled_from([to_json, to_xml]), MUTATIONS)
def test_damaged_definitions_are_read_or_refused(made, write, mutations):
    """
    Whatever happens to a file, the reader returns definitions or lists problems.
    """
    text = bytearray(write(made).encode())
    for at, removed, added in mutations:
        text[at : at + removed] = added
    try:
        found = read_texts([("a.xml" if write is to_xml else "a.json", bytes(text))])
    except DefinitionsRefused as why:
        assert why.problems
    else:
        assert isinstance(found, Definitions)
