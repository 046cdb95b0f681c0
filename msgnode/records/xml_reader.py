"""
The XML form of definitions, read by defusedxml's expat parser into the same nodes as the JSON form.
"""

import re
from xml.sax import SAXParseException
from xml.sax.handler import ContentHandler
from xml.sax.xmlreader import AttributesImpl, Locator

from defusedxml.common import DefusedXmlException
from defusedxml.expatreader import DefusedExpatParser

from msgnode.records.json_scanner import Node, Position
from msgnode.records.problems import SyntaxRefused

MAX_ELEMENTS = 200_000  # in a file
_LISTS = {"record": "records", "slot": "slots", "value": "values"}  # elements that repeat, and their list
_TEXTS = frozenset({"description", "namespaces", "reserved"})  # elements that have only text
_INSIDE = {
    "": {"records"},
    "records": {"record"},
    "record": {"description", "namespaces", "reserved", "slot"},
    "slot": {"description", "value"},
    "value": {"description"},
}
_TAG = re.compile(r"<[^\s/>]+")
_ATTRIBUTE = re.compile(r"""\s+([^\s=>"'/]+)\s*=\s*("[^"]*"|'[^']*')""")


def scan(text: str) -> Node:
    """
    The content of an XML text as nodes. SyntaxRefused if it is not XML, has a DTD, or other elements.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")  # as XML does, so that lines count the same
    parser = DefusedExpatParser(forbid_dtd=True, forbid_entities=True, forbid_external=True)
    handler = _Handler(text, parser)
    parser.setContentHandler(handler)
    try:
        # Text, not bytes: a declaration of another encoding has no effect.
        parser.feed(text)
        parser.close()
    except SAXParseException as why:
        raise SyntaxRefused(
            why.getMessage(), why.getLineNumber() or 1, (why.getColumnNumber() or 0) + 1
        ) from None
    except DefusedXmlException:
        found = re.search(r"<!(DOCTYPE|ENTITY)", text)
        before = text[: found.start()] if found else ""
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        raise SyntaxRefused("a document type or entities are not allowed", line, column) from None
    assert handler.root is not None
    return handler.root


class _Handler(ContentHandler):
    """
    Makes nodes of elements: attributes and elements of text become members, others elements of a list.
    """

    def __init__(self, text: str, locator: Locator) -> None:
        super().__init__()
        self.root: Node | None = None
        self._at_parser = locator
        self._text = text
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._open: list[tuple[str, Node]] = []
        self._count = 0

    def _at(self) -> Position:
        return Position(self._at_parser.getLineNumber() or 1, (self._at_parser.getColumnNumber() or 0) + 1)

    def startElement(self, name: str, attrs: AttributesImpl) -> None:
        at = self._at()
        self._count += 1
        if self._count > MAX_ELEMENTS:
            raise SyntaxRefused(f"more than {MAX_ELEMENTS} elements", *at)
        around = self._open[-1][0] if self._open else ""
        allowed = _INSIDE.get(around, set())
        if name not in allowed:
            inside = f" in <{around}>" if around else ""
            expected = " or ".join(f"<{each}>" for each in sorted(allowed)) or "no element"
            raise SyntaxRefused(f"expected {expected}{inside}, found <{name}>", *at)
        if name in _TEXTS:
            node = Node("", at)
            if attrs.getLength():
                raise SyntaxRefused(f"expected no attribute in <{name}>, found '{attrs.getNames()[0]}'", *at)
        else:
            node = self._element(attrs, at)
        if self._open:
            self._add(self._open[-1][1], name, node)
        else:
            self.root = node
        self._open.append((name, node))

    def _element(self, attrs: AttributesImpl, at: Position) -> Node:
        keys = {key: at for key in attrs.getNames()} | self._positions(at, len(attrs.getNames()))
        return Node({key: Node(value, keys[key]) for key, value in attrs.items()}, at, keys, [])

    def _positions(self, at: Position, count: int) -> dict[str, Position]:
        """
        The positions of the attributes of the tag that begins there, as far as they are found.
        """
        found: dict[str, Position] = {}
        if not count:
            return found
        opening = self._starts[at.line - 1] + at.column - 1
        match = _TAG.match(self._text, opening)
        offset = match.end() if match else len(self._text)
        while (match := _ATTRIBUTE.match(self._text, offset)) is not None:
            start = match.start(1)
            lines = self._text.count("\n", opening, start)
            before = self._text.rfind("\n", opening, start) if lines else opening - at.column
            found[match[1]] = Position(at.line + lines, start - before)
            offset = match.end()
        return found

    def _add(self, parent: Node, name: str, node: Node) -> None:
        if name not in _LISTS:
            if name in parent.value:
                parent.repeated.append((name, node.at))
            else:
                parent.value[name] = node
                parent.keys[name] = node.at
            return
        key = _LISTS[name]
        listed = parent.value.get(key)
        if listed is None or not isinstance(listed.value, list):
            if listed is not None:  # an attribute of that name
                parent.repeated.append((key, node.at))
            parent.value[key] = Node([], node.at)
            parent.keys[key] = node.at
        parent.value[key].value.append(node)

    def characters(self, content: str) -> None:
        name, node = self._open[-1]
        if name in _TEXTS:
            node.value += content
        elif content.strip():
            at = self._at()
            raise SyntaxRefused(f"expected no text in <{name}>, found {content.strip()[:40]!r}", *at)

    def endElement(self, name: str) -> None:
        _, node = self._open.pop()
        if name == "records":
            node.value.setdefault("records", Node([], node.at))
        elif name == "record":
            node.value.setdefault("slots", Node([], node.at))
