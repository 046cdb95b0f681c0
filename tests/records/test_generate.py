"""
Generated code: names, modules and headings.
"""

import ast
import json

import pytest
from hypothesis import given

from msgnode.records.definition import Definitions, EnumValue, Record, Slot
from msgnode.records.generate import c, java, python, typescript
from msgnode.records.generate.plan import GenerationRefused, paragraphs
from msgnode.records.reader import read, read_texts
from msgnode.records.writer import to_xml
from tests.support.examples import TOP
from tests.support.made_records import definitions

ALL = [python.generate, typescript.generate, java.generate, c.generate]
IDS = [f"7a0c9a3e-5a0e-4f6f-9d52-0c3c8a2f0a1{n}" for n in range(10)]
SEED = TOP / "tests/records/seed.records.json"


def some(*names, **given):
    return Definitions(
        [Record(id=id_, name=name, **given) for id_, name in zip(IDS, names, strict=False)], "a.records.json"
    )


@pytest.mark.parametrize("generate", ALL)
def test_the_same_definitions_give_the_same_files(generate):
    """
    JSON and XML give the same code but for the name of the source, each time.
    """
    found = read(SEED)
    [again] = [read_texts([("seed.records.json", SEED.read_bytes())])]
    from_xml = read_texts([("seed.records.xml", to_xml(found).encode())])

    assert generate(found) == generate(again)
    assert {
        name: text.replace("seed.records.xml", "seed.records.json")
        for name, text in generate(from_xml).items()
    } == generate(found)


@pytest.mark.parametrize("generate", ALL)
def test_each_file_names_its_source(generate):
    """
    The heading of each file has the source and the digest of the definitions.
    """
    found = read(SEED)

    for name, text in generate(found).items():
        assert "seed.records.json" in text.partition("\n\n")[0], name
        assert found.digest in text


@given(definitions())
def test_python_is_python(made):
    """
    Generated modules are Python, whatever names and descriptions there are.
    """
    for text in python.generate(made).values():
        ast.parse(text)


@pytest.mark.parametrize(
    "generate, expected",
    [
        (python.generate, {"home.py", "common.py"}),
        (typescript.generate, {"home.ts", "common.ts"}),
        (java.generate, {"records/home/CRecordA.java", "records/common/CRecordB.java"}),
        (c.generate, {"home.h", "common.h"}),
    ],
)
def test_a_namespace_is_a_module(generate, expected):
    """
    A record is in the module of its first namespace, or in `common`.
    """
    found = Definitions(
        [Record(id=IDS[0], name="A", namespaces=("HOME", "DEMO")), Record(id=IDS[1], name="B")]
    )

    assert expected <= generate(found).keys()


@pytest.mark.parametrize("generate", ALL)
def test_names_that_collide_are_refused(generate):
    """
    The answer of one record and another record cannot both be XAnswer.
    """
    asks = (
        Slot(key=1, name="A", type="STRING"),
        Slot(key=2, name="B", type="ENUM", direction="ANSWER", values=(EnumValue("X"),)),
    )

    with pytest.raises(GenerationRefused) as raised:
        generate(some("ASK", "ASK_ANSWER", "ASK_B", slots=asks))

    assert "AskAnswer would be the class of" in str(raised.value)


def test_namespaces_that_differ_by_case_are_refused():
    """
    Two namespaces would be one file on some systems.
    """
    found = Definitions(
        [Record(id=IDS[0], name="A", namespaces=("HOME",)), Record(id=IDS[1], name="B", namespaces=("Home",))]
    )

    with pytest.raises(GenerationRefused, match="the namespaces HOME and Home are the same"):
        python.generate(found)


def test_structures_of_c_are_unique_in_all_headers():
    """
    C has no namespaces: two headers cannot have one structure.
    """
    found = Definitions(
        [
            Record(id=IDS[0], name="B_C", namespaces=("A",)),
            Record(id=IDS[1], name="C", namespaces=("A_B",)),
        ]
    )

    with pytest.raises(GenerationRefused, match="a_b_c would be the structure of B_C and of C"):
        c.generate(found)


def test_a_structure_of_c_may_be_that_of_an_answer():
    """
    The structure of an answer is unique in all headers, too.
    """
    answer = Slot(key=1, name="Q", type="STRING", direction="ANSWER")
    found = Definitions(
        [
            Record(id=IDS[0], name="B", namespaces=("A",), slots=(answer,)),
            Record(id=IDS[1], name="ANSWER", namespaces=("A_B",)),
        ]
    )

    with pytest.raises(GenerationRefused, match="a_b_answer would be the structure of the answer of B"):
        c.generate(found)


def test_macros_of_c_are_unique():
    """
    Two values of enums cannot have one macro, which would be one text for both.
    """
    slots = (
        Slot(key=1, name="A_B", type="ENUM", values=(EnumValue("C"),)),
        Slot(key=2, name="A", type="ENUM", values=(EnumValue("B_C"),)),
    )

    with pytest.raises(GenerationRefused, match="COMMON_X_A_B_C would be the macro of C of"):
        c.generate(some("X", slots=slots))


def test_slots_of_c_named_after_members_of_the_runtime_have_an_underscore():
    """
    A structure has members of its own: the body that was read, and the slot that was refused.
    """
    slots = (Slot(key=1, name="EXTRA", type="STRING"), Slot(key=2, name="BAD_SLOT", type="STRING"))

    text = c.generate(some("X", slots=slots))["common.h"]

    assert "struct records_string extra_;" in text and "struct records_string bad_slot_;" in text


def test_a_value_named_default_has_its_macro():
    """
    The value DEFAULT of an enum is another thing than the slot's default.
    """
    values = (EnumValue("DEFAULT"), EnumValue("FAST"))
    slots = (Slot(key=1, name="MODE", type="ENUM", values=values, default="FAST"),)

    text = c.generate(some("X", slots=slots))["common.h"]

    assert '#define COMMON_X_MODE_DEFAULT "DEFAULT"\n' in text
    assert '#define COMMON_X_MODE_DEFAULT_ "FAST"\n' in text


@pytest.mark.parametrize("namespace", ["MATH", "RECORDS", "STDINT"])
def test_a_header_of_c_does_not_hide_another(namespace):
    """
    A namespace named after a standard header, or after the runtime, gets another name.
    """
    made = c.generate(some("X", namespaces=(namespace,)))

    assert f"{namespace.lower()}_.h" in made and f"{namespace.lower()}.h" not in made


def test_characters_that_turn_the_direction_of_writing_are_replaced():
    """
    A description cannot make code look different from what it is.
    """
    assert paragraphs("a\u202eb", 80) == ["a\ufffdb"]


def test_java_is_ascii():
    """
    javac reads the classes in any encoding, and no description has an escape for it.
    """
    found = some("A", description="é \\u000a */ \u2028")

    text = java.generate(found)["records/common/CRecordA.java"]

    assert text.isascii() and "\\u" not in text and text.count("*/") == text.count("/**")
    assert json.dumps(text)
