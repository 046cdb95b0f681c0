"""
The policy store: the live policies, pushed and polled versions, rollback.

A new document is compiled in a thread and written to disk. Then it becomes live between two messages, by one
assignment. After any error, the previous version stays live.
"""

import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Protocol

from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredLock, inlineCallbacks, maybeDeferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from msgnode.config.schema import ConfigError, PolicyOptions
from msgnode.policy.administration.document_edit import (
    DocumentEditor,
    Files,
    load,
    run_beside_reactor,
    to_text,
    version_conflict,
)
from msgnode.policy.administration.source import Documents, FileSource, Source, SourceFailed
from msgnode.policy.administration.versions import Version, Versions
from msgnode.policy.decision.problems import PolicyRefused
from msgnode.policy.enforcement.enforcement import PolicyEnforcement
from msgnode.policy.language.program import Program
from msgnode.protocol.errors import Rejected
from msgnode.structures.log_limits import FailureLog

log = Logger()

PUSH = "push"
EDIT_ATTEMPTS = 3  # of an edit of the domain's policies, if others come first


class PolicyRejected(Rejected):
    """
    A document that was rejected. `problems` lists its errors.
    """

    def __init__(self, text: str, code: int, problems: list[Any] | None = None) -> None:
        super().__init__(text, code, "policy" if code >= 500 else "")
        self.problems = problems or []

    def body(self) -> dict[str, Any]:
        return {**super().body(), "problems": self.problems} if self.problems else super().body()


class PolicyDomain(Protocol):
    """
    The policies of a domain of several nodes (cluster/ownership).
    """

    def push(self, files: Files, who: str, if_match: str | None, force: bool) -> Deferred[Version]:
        """
        Replaces the live policies of all nodes. Fails with PolicyRejected.
        """


class PolicyStore(Service):
    """
    The live policies and their previous versions.

    `source` is None if policies are pushed, or there are none. `failed` counts rejected documents and failed
    polls; `wrong` is the last error.
    """

    def __init__(
        self,
        options: PolicyOptions,
        enforcement: PolicyEnforcement,
        source: Source | None,
        state: Path | None,
        clock: IReactorTime,
        run: Callable[..., Deferred[Any]] = maybeDeferred,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.domain: PolicyDomain | None = None  # None: this node alone decides
        self.failed = 0
        self.wrong = ""
        self._misread = ""  # errors of the document read last
        self.source = source
        self.enforcement = enforcement
        self.versions = Versions(state and state / "policy", options.keep_versions)
        self._options = options
        self._clock = clock
        self._run = run
        self._wall = wall
        self._failures = FailureLog(log)
        self._one_at_a_time = DeferredLock()
        self._looking = LoopingCall(self.look)
        self._looking.clock = clock

    @property
    def live(self) -> Version | None:
        """
        The live version. None if there is none, or everything is refused.
        """
        return self.versions.newest if self.enforcement.is_open else None

    # -- the service -------------------------------------------------------

    def startService(self) -> None:
        """
        Activate what the source has, or the last good version, before any client is read.
        """
        super().startService()
        if not self._options.source:
            return
        self.versions.open()
        for damaged in self.versions.damaged:
            log.error(
                "a stored version of the policies cannot be read and is skipped: {damaged}", damaged=damaged
            )
        if self._options.source.lower().startswith("http://"):
            log.warn(
                "{source} is not encrypted, so an attacker in the network can change the policies; use https",
                source=self.source.name if self.source is not None else "policy.source",
            )
        if isinstance(self.source, FileSource):
            self._start_with(self.source)
        elif self.source is None and self.versions.broken:
            self._stay_closed(self.versions.broken)
        elif self.live is not None:
            self._go_on_with(self.live)
        elif self.source is not None:
            log.warn(
                "there are no policies yet: everything is refused until {source} has some",
                source=self.source.name,
            )
            self.enforcement.close()
        if self.source is not None:
            self._looking.start(self._options.refresh_seconds, now=not isinstance(self.source, FileSource))

    def stopService(self) -> Deferred[None]:
        """
        Fires once pending writes are on disk.
        """
        super().stopService()
        if self._looking.running:
            self._looking.stop()
        return self._one_at_a_time.run(lambda: None)

    def _stay_closed(self, broken: str) -> None:
        """
        Refuse everything: the live version cannot be read, and only an operator can decide what replaces it.
        """
        self.enforcement.close()
        self.failed += 1
        self.wrong = f"{broken} was live and cannot be read"
        log.error(
            "everything is refused: {broken} was live and cannot be read; push a document, roll back to"
            " one of the versions {kept}, or repair the file and restart",
            broken=broken,
            kept=", ".join(str(version.number) for version in self.versions) or "(none is left)",
        )

    def _start_with(self, source: FileSource) -> None:
        try:
            documents = source.read()
            assert documents is not None
            files = _as_text(documents)
            program = load(files, self._options.strict_obligations)
        except (SourceFailed, PolicyRefused) as why:
            text = f"policy.source: {_in_words(why)}"
            if self.live is None:
                raise ConfigError(text) from None
            self._misread = text if isinstance(why, PolicyRefused) else ""
            self._note_failure(text)
            self._go_on_with(self.live)
            return
        version = self._version(files, program, source.name)
        if self.live is None or self.live.revision != version.revision:
            self._write(version)
            self._keep(version)
        self._activate(program)

    def _go_on_with(self, version: Version) -> None:
        """
        Activate a stored version, since the source has nothing usable.
        """
        try:
            program = load(version.files)
        except PolicyRefused as why:
            raise ConfigError(f"policy: {_in_words(why)}; remove it, or correct the source") from None
        log.warn(
            "the stored version {number} of the policies is used, from {origin}",
            number=version.number,
            origin=version.origin,
        )
        self._activate(program)

    # -- the source --------------------------------------------------------

    def look(self) -> Deferred[None]:
        """
        Poll the source. Never fails.
        """
        if self.source is None:
            return maybeDeferred(lambda: None)
        return self._one_at_a_time.run(self._look, self.source).addErrback(
            lambda why: log.failure("the poll for policies failed unexpectedly", why)
        )

    @inlineCallbacks
    def _look(self, source: Source) -> Generator[Deferred[Any], Any, None]:
        try:
            documents: Documents | None = yield source.look()
            if documents is not None:
                yield self._take(_as_text(documents), source.name)
            else:  # nothing has changed, and the source is reachable again
                self.wrong = self._misread
        except SourceFailed as why:
            self._note_failure(str(why))
        except PolicyRefused as why:
            self._misread = _in_words(why)
            self._note_failure(self._misread)
        except Exception as why:
            source.forget()
            self._failures.note(
                "the poll of {source} for policies failed unexpectedly", Failure(), source=source.name
            )
            self._note_failure(f"{source.name} could not be polled: {type(why).__name__}: {why}"[:300])

    def _note_failure(self, text: str) -> None:
        self.failed += 1
        if text != self.wrong:  # logged once for the same error
            log.error("the policies are unchanged: {why}", why=text)
        self.wrong = text

    # -- push and edit ---------------------------------------------------------

    def push(
        self, files: Files, who: str, if_match: str | None = None, force: bool = False
    ) -> Deferred[Version]:
        """
        Replace the live policies. Fails with PolicyRejected.
        """
        if self.domain is not None and self._options.source == PUSH:
            return self.domain.push(files, who, if_match, force)
        return self.push_here(files, who, if_match, force)

    def push_here(self, files: Files, who: str, if_match: str | None, force: bool) -> Deferred[Version]:
        """
        Replace the live policies of this node. Fails with PolicyRejected.
        """
        return self._one_at_a_time.run(self._push, files, who, if_match, force)

    def follow(self, version: Version) -> Deferred[None]:
        """
        Make a version of the domain live here, under a number of this node. Fails with PolicyRejected.
        """
        return self._one_at_a_time.run(self._follow, version)

    @inlineCallbacks
    def _follow(self, version: Version) -> Generator[Deferred[Any], Any, None]:
        self._may_push()
        try:
            yield self._take(version.files, version.origin, must_last=True)
        except PolicyRefused as why:
            self.failed += 1
            raise PolicyRejected(_in_words(why), 400, problems(why)) from None

    def edit(
        self,
        change: Callable[[DocumentEditor], object],
        who: str,
        if_match: str | None = None,
        force: bool = False,
    ) -> Deferred[Version]:
        """
        Edit the live document by `change`. Edits are serialized, so that none is lost.
        """

        def edited() -> Files:
            content = self.content()
            change(content)
            return (("document", to_text(content.document())),)

        if self.domain is None or self._options.source != PUSH:
            return self._one_at_a_time.run(lambda: self._push(edited(), who, if_match, force))

        def edit_domain(attempts: int) -> Deferred[Version]:
            live = self.live
            base = if_match or (live.revision if live is not None else None)
            pushed = maybeDeferred(lambda: self.push(edited(), who, base, force))
            return pushed.addErrback(again, attempts - 1)

        def again(why: Failure, attempts: int) -> Any:
            # An edit at another node was first, and is live here by now.
            is_late = isinstance(why.value, PolicyRejected) and why.value.code == 412
            return edit_domain(attempts) if is_late and attempts and if_match is None else why

        return edit_domain(EDIT_ATTEMPTS)

    def content(self) -> DocumentEditor:
        """
        An editor of the live document. PolicyRejected if there are several documents.
        """
        if not self.enforcement.is_open:
            raise PolicyRejected(
                "no policies are live now; push a whole document, or roll back to a version", 503
            )
        live = self.live
        files = live.files if live is not None else (("", "[]"),)
        if len(files) != 1:
            raise PolicyRejected(f"the policies of this node are in {len(files)} files; read them all", 409)
        return DocumentEditor(files[0][1])

    @inlineCallbacks
    def _push(
        self, files: Files, who: str, if_match: str | None, force: bool
    ) -> Generator[Deferred[Any], Any, Version]:
        self._may_push()
        live = self.live
        if if_match is not None and if_match not in ("*", live.revision if live is not None else ""):
            is_live = live.revision if live is not None else "none"
            raise PolicyRejected(
                f"the revision that is live is {is_live}, not {if_match}; read it again", 412
            )
        if live is not None and not force:
            old = version_conflict(files, live.files)
            if old:
                raise PolicyRejected(f"{old}; raise its version, or force it", 409)
        try:
            yield self._take(files, who, must_last=True)
        except PolicyRefused as why:
            self.failed += 1
            raise PolicyRejected(_in_words(why), 400, problems(why)) from None
        assert self.live is not None
        return self.live

    def _may_push(self) -> None:
        if self._options.source != PUSH:
            where = self._options.source or "nowhere"
            raise PolicyRejected(
                f"the policies of this node come from {where} (policy.source); change them there", 409
            )

    def roll_back(self, number: int, who: str, if_match: str | None = None) -> Deferred[Version]:
        """
        Make an older version live again, under a new number.
        """
        version = self.versions.get(number)
        if version is None:
            known = ", ".join(str(version.number) for version in self.versions) or "none"
            raise PolicyRejected(f"there is no version {number}; the stored versions are {known}", 404)
        return self.push(version.files, f"{who}, back to {number}", if_match, force=True)

    def check(self, files: Files) -> Deferred[Program]:
        """
        Compile a document without activating it. Fails with PolicyRejected.
        """

        def refuse(why: Any) -> Any:
            why.trap(PolicyRefused)
            raise PolicyRejected(_in_words(why.value), 400, problems(why.value)) from None

        return self._compile(files).addErrback(refuse)

    def _compile(self, files: Files) -> Deferred[Program]:
        strict = self._options.strict_obligations
        return self._run(run_beside_reactor, load, files, strict, self.enforcement.program)

    # -- the change --------------------------------------------------------

    @inlineCallbacks
    def _take(
        self, files: Files, origin: str, must_last: bool = False
    ) -> Generator[Deferred[Any], Any, None]:
        """
        Let it be live.  `must_last`: only if it is on disk, because after a restart nothing else has it.
        """
        program: Program = yield self._compile(files)
        self.wrong = self._misread = ""
        live = self.live
        if live is not None and live.revision == program.revision and self.enforcement.is_open:
            return  # the content is the same
        version = self._version(files, program, origin)
        if must_last:
            try:
                yield self._run(self.versions.write, version)
            except OSError as why:
                text = f"version {version.number} cannot be written: {why}; the policies stay as they are"
                log.error("policies from {who}: {text}", who=origin, text=text)
                raise PolicyRejected(text, 503) from None
        else:
            yield self._run(self._write, version)
        self._keep(version)
        self._activate(program)

    def _version(self, files: Files, program: Program, origin: str) -> Version:
        return Version(self.versions.next(), program.revision, origin, self._wall(), files)

    def _write(self, version: Version) -> None:
        try:
            self.versions.write(version)
        except OSError as why:
            log.error(
                "version {number} of the policies could not be written to disk: {why}",
                number=version.number,
                why=why,
            )

    def _keep(self, version: Version) -> None:
        gone = self.versions.add(version)
        try:
            self.versions.remove(gone)
        except OSError as why:
            log.warn("old versions of the policies could not be deleted: {why}", why=why)

    def _activate(self, program: Program) -> None:
        live = self.versions.newest
        assert live is not None
        self.enforcement.use(program, live.number)
        for lint in program.lints:
            log.warn("policy warning: {lint}", lint=str(lint))
        log.info(
            "version {number} of the policies is live: {revision} from {origin}{kept}",
            number=live.number,
            revision=live.revision,
            origin=live.origin,
            kept=f"; {program.reused} of its policies are unchanged" if program.reused else "",
        )


def _as_text(documents: Documents) -> Files:
    return tuple((where, data.decode("utf-8", "surrogateescape")) for where, data in documents)


def problems(why: PolicyRefused) -> list[Any]:
    return [str(problem) for problem in why.problems]


def _in_words(why: Exception) -> str:
    """
    The first error, and the number of the others.
    """
    if not isinstance(why, PolicyRefused):
        return str(why)
    first, *rest = problems(why) or [str(why)]
    return f"{first} (and {len(rest)} more)" if rest else first
