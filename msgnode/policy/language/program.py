"""
A program: compiled policy documents. It decides about messages, and explains decisions.

A program is immutable, so that a new one can replace it between two messages.
"""

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from msgnode.policy.decision.algorithms import first_applicable
from msgnode.policy.decision.attribute import HEADER
from msgnode.policy.decision.context import Context
from msgnode.policy.decision.decision import INDETERMINATE, NOT_APPLICABLE, Decision, Outcome
from msgnode.policy.decision.explanation import Explanation, explain
from msgnode.policy.decision.problems import PolicyRefused
from msgnode.policy.decision.redirects import find_cycle, redirect_targets
from msgnode.policy.decision.tree import Children, decide
from msgnode.policy.language.compile_cache import CompileCache, CompiledPolicy
from msgnode.policy.language.compiler import MAX_UNFILED, UNFILED, Compiler
from msgnode.policy.language.document import Document, all_groups
from msgnode.protocol.errors import Malformed


class Program:
    """
    Compiled policy documents.

    `revision` is a hash of their content, `version` and `name` are their keys, `lints` are warnings, `rules`
    are the paths of all rules, `attributes` the names of all attributes used, and `obliges` tells whether
    there are any obligations, `redirects` to which addresses they redirect.

    Policies that have not changed since `before` are reused; `reused` is their number.
    """

    def __init__(
        self,
        files: Sequence[tuple[str, bytes]],
        groups: Mapping[str, Collection[str]] | None = None,
        *,
        index: bool = True,
        strict: bool = False,
        before: "Program | None" = None,
    ) -> None:
        self.files = tuple((where, bytes(data)) for where, data in files)
        self.groups = {name: tuple(sorted(members)) for name, members in (groups or {}).items()}
        self._options = {"index": index, "strict": strict}
        documents = _documents(self.files)
        known = all_groups(documents, groups)
        old = before.pieces if before is not None and before._options == self._options else {}
        pieces = CompileCache(old, known)
        compilers = [Compiler(document, known, index, strict, pieces) for document in documents]
        taken: set[str] = set()
        sets = [pair for compiler in compilers for pair in compiler.sets(taken)]
        _raise_problems(documents)
        self.sets = Children([node for _, node in sorted(sets, key=lambda pair: pair[0])], index)
        if index and self.sets.unfiled > MAX_UNFILED:
            documents[0].advise((), UNFILED.format(self.sets.unfiled, "sets"))
        self.all_groups = known
        self.pieces: dict[str, CompiledPolicy] = pieces.made
        self.reused = pieces.taken
        notes = [compiler.notes for compiler in compilers]
        self.rules = [path for each in notes for path in each.rules]
        self._paths = {"", *_paths(self.sets)}
        self.attributes = frozenset[str]().union(*(each.attributes for each in notes))
        self.obliges = any(each.obliges for each in notes)
        self.lints = [lint for document in documents for lint in document.lints]
        self.name: str = next((document.of_top("name", "") for document in documents), "")
        self.version: int = max((document.of_top("version", 0) for document in documents), default=0)
        self.tests: list[Any] = [test for document in documents for test in document.of_top("tests", [])]
        self.revision = _revision(self.files, self.groups)
        self.redirects = redirect_targets(self.sets)
        found = find_cycle(self.sets)
        if found is not None:
            for compiler in compilers:
                compiler.refuse_circle(*found)
        for document in documents:
            document.check_tests(self.decide)
        _raise_problems(documents)

    @property
    def empty(self) -> bool:
        """
        Has the program no rules?
        """
        return not self.sets.nodes

    @property
    def counts(self) -> bool:
        """
        Does a condition use a sender's rates, so that RateCounters must count?
        """
        return any(name.startswith("rate.") for name in self.attributes)

    def has(self, path: str) -> bool:
        """
        Is that the path of a rule, policy or set? "" means that no rule applied.
        """
        return path in self._paths

    def decide(self, context: Context) -> Decision:
        """
        The decision about a message. It never raises: if a condition needs a body that cannot be decoded, it
        is indeterminate.
        """
        if context.unenforced:  # of an earlier decision with this context
            context.unenforced.clear()
        try:
            outcome = first_applicable(self.sets.find(context), decide, context)
        except Malformed:
            return Decision(INDETERMINATE)
        return _decision(outcome, context)

    def explain(self, context: Context) -> Explanation:
        """
        The same decision with its explanation.
        """
        remember = self.decide(context).remember  # the explanation reads more attributes
        context.unenforced.clear()
        try:
            outcome, tree, skipped = explain(self.sets, context)
        except Malformed:
            return Explanation(Decision(INDETERMINATE), self.revision, [], [], {})
        values = {name: _plain(value) for name, value in context.values.items() if name}
        decision = msgspec.structs.replace(_decision(outcome, context), remember=remember)
        return Explanation(decision, self.revision, tree, skipped, values)

    def __reduce__(self) -> Any:
        return _again, (self.files, self.groups, self._options)


def _paths(below: Children) -> Iterator[str]:
    for node in below.nodes:
        yield node.path
        yield from _paths(node.below)


def _decision(outcome: Outcome | None, context: Context) -> Decision:
    unenforced = tuple(context.unenforced) if context.unenforced else ()
    if outcome is None:
        return Decision(NOT_APPLICABLE, "", (), context.consulted == HEADER and not unenforced, unenforced)
    duties = outcome.obligations
    remember = context.consulted == HEADER and not duties and not unenforced
    return Decision(outcome.effect, outcome.path, duties, remember, unenforced)


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, frozenset) else value


def _again(
    files: Sequence[tuple[str, bytes]], groups: Mapping[str, Collection[str]], options: Any
) -> Program:
    return Program(files, groups, **options)


def _documents(files: Sequence[tuple[str, bytes]]) -> list[Document]:
    """
    The documents of all files. PolicyRefused lists the errors of those that are not JSON.
    """
    documents, problems = [], []
    for where, data in files:
        try:
            documents.append(Document(data, where))
        except PolicyRefused as why:
            problems += why.problems
    if problems:
        raise PolicyRefused(problems)
    return documents


def _raise_problems(documents: Sequence[Document]) -> None:
    problems = [problem for document in documents for problem in document.problems]
    if problems:
        raise PolicyRefused(problems)


def _revision(files: Sequence[tuple[str, bytes]], groups: Mapping[str, Collection[str]]) -> str:
    made = hashlib.sha256()
    for _, data in files:
        made.update(b"%d:" % len(data) + data)
    for name, members in sorted(groups.items()):
        made.update(repr((name, members)).encode())
    return made.hexdigest()[:12]


def read(data: bytes, where: str = "", groups: Mapping[str, Collection[str]] | None = None) -> Program:
    """
    The program of a single document. PolicyRefused lists all its errors.
    """
    return Program([(where, data)], groups)
