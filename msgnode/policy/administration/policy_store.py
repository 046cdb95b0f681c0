"""
The policies that are live, and how others take their place.

A document is read and compiled in a thread, written to disk, and then takes
effect between two messages, by one assignment.  Whatever is wrong with it, the
one before stays.
"""

import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

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
    older,
    run_beside_reactor,
    written,
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


class PolicyRejected(Rejected):
    """
    A document that is not taken; `problems` say where and what.
    """

    def __init__(self, text: str, code: int, problems: list[Any] | None = None) -> None:
        super().__init__(text, code, "policy" if code >= 500 else "")
        self.problems = problems or []

    def body(self) -> dict[str, Any]:
        return {**super().body(), "problems": self.problems} if self.problems else super().body()


class PolicyStore(Service):
    """
    The live policies and the versions before them.

    `source` is None where policies are pushed, or there are none.

    `failed` counts what was not taken, `wrong` is the last reason.
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
        self.failed = 0
        self.wrong = ""
        self._misread = ""  # what is wrong with the document that was read last
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
        None before there is one, and while everything is refused.
        """
        return self.versions.newest if self.enforcement.is_open else None

    # -- the service -------------------------------------------------------

    def startService(self) -> None:
        """
        Take what the source has, or the last good version, before anybody is heard.
        """
        super().startService()
        if not self._options.source:
            return
        self.versions.open()
        for damaged in self.versions.damaged:
            log.error("a kept version of the policies is left out: {damaged}", damaged=damaged)
        if self._options.source.lower().startswith("http://"):
            log.warn(
                "{source} is not encrypted: whoever is on the way can change the policies; use https",
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
                "no policies yet: everything is refused until {source} gives some", source=self.source.name
            )
            self.enforcement.close()
        if self.source is not None:
            self._looking.start(self._options.refresh_seconds, now=not isinstance(self.source, FileSource))

    def stopService(self) -> Deferred[None]:
        """
        Fires when what is being written is on disk.
        """
        super().stopService()
        if self._looking.running:
            self._looking.stop()
        return self._one_at_a_time.run(lambda: None)

    def _stay_closed(self, broken: str) -> None:
        """
        What was live cannot be read, and nobody but an operator can say what is to be instead.
        """
        self.enforcement.close()
        self.failed += 1
        self.wrong = f"{broken} was live and cannot be read"
        log.error(
            "everything is refused: {broken} was live and cannot be read; put a document, roll back to one of"
            " the versions {kept}, or mend the file and start again",
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
        Nothing newer can be had now.
        """
        try:
            program = load(version.files)
        except PolicyRefused as why:
            raise ConfigError(f"policy: {_in_words(why)}; remove it, or mend the source") from None
        log.warn(
            "using version {number} of the policies, from {origin}",
            number=version.number,
            origin=version.origin,
        )
        self._activate(program)

    # -- the source --------------------------------------------------------

    def look(self) -> Deferred[None]:
        """
        Is there something new at the source?  Never fails.
        """
        if self.source is None:
            return maybeDeferred(lambda: None)
        return self._one_at_a_time.run(self._look, self.source).addErrback(
            lambda why: log.failure("looking for policies", why)
        )

    @inlineCallbacks
    def _look(self, source: Source) -> Generator[Deferred[Any], Any, None]:
        try:
            documents: Documents | None = yield source.look()
            if documents is not None:
                yield self._take(_as_text(documents), source.name)
            else:  # it is as it was, and the source no longer out of reach
                self.wrong = self._misread
        except SourceFailed as why:
            self._note_failure(str(why))
        except PolicyRefused as why:
            self._misread = _in_words(why)
            self._note_failure(self._misread)
        except Exception as why:
            source.forget()
            self._failures.note("looking for policies at {source}", Failure(), source=source.name)
            self._note_failure(f"{source.name} could not be looked at: {type(why).__name__}: {why}"[:300])

    def _note_failure(self, text: str) -> None:
        self.failed += 1
        if text != self.wrong:  # once, however often it is looked at
            log.error("the policies stay as they are: {why}", why=text)
        self.wrong = text

    # -- what is pushed ----------------------------------------------------

    def push(
        self, files: Files, who: str, if_match: str | None = None, force: bool = False
    ) -> Deferred[Version]:
        """
        Let this take the place of what is live.  Fails with PolicyRejected.
        """
        return self._one_at_a_time.run(self._push, files, who, if_match, force)

    def edit(
        self,
        change: Callable[[DocumentEditor], object],
        who: str,
        if_match: str | None = None,
        force: bool = False,
    ) -> Deferred[Version]:
        """
        Let `change` alter what is live when its turn comes, so that no other's change is lost.
        """

        def turn() -> Deferred[Version]:
            content = self.content()
            change(content)
            return self._push((("document", written(content.document())),), who, if_match, force)

        return self._one_at_a_time.run(turn)

    def content(self) -> DocumentEditor:
        """
        What the one document says that is live; PolicyRejected where there are several.
        """
        if not self.enforcement.is_open:
            raise PolicyRejected(
                "no policies are live now; put a whole document, or roll back to a version", 503
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
            old = older(files, live.files)
            if old:
                raise PolicyRejected(f"{old}; raise its version, or force it", 409)
        try:
            yield self._take(files, who)
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
        Let an older version be live once more, under a new number.
        """
        version = self.versions.get(number)
        if version is None:
            known = ", ".join(str(version.number) for version in self.versions) or "none"
            raise PolicyRejected(f"there is no version {number} any more; kept are {known}", 404)
        return self.push(version.files, f"{who}, back to {number}", if_match, force=True)

    def check(self, files: Files) -> Deferred[Program]:
        """
        Read and compile, no more.  Fails with PolicyRejected.
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
    def _take(self, files: Files, origin: str) -> Generator[Deferred[Any], Any, None]:
        program: Program = yield self._compile(files)
        self.wrong = self._misread = ""
        live = self.live
        if live is not None and live.revision == program.revision and self.enforcement.is_open:
            return  # it says the same
        version = self._version(files, program, origin)
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
                "version {number} of the policies is not on disk: {why}", number=version.number, why=why
            )

    def _keep(self, version: Version) -> None:
        gone = self.versions.add(version)
        try:
            self.versions.remove(gone)
        except OSError as why:
            log.warn("old versions of the policies stay on disk: {why}", why=why)

    def _activate(self, program: Program) -> None:
        live = self.versions.newest
        assert live is not None
        self.enforcement.use(program, live.number)
        for lint in program.lints:
            log.warn("policies: {lint}", lint=str(lint))
        log.info(
            "policies: version {number} is live, {revision} from {origin}{kept}",
            number=live.number,
            revision=live.revision,
            origin=live.origin,
            kept=f"; {program.reused} of its policies are as before" if program.reused else "",
        )


def _as_text(documents: Documents) -> Files:
    return tuple((where, data.decode("utf-8", "surrogateescape")) for where, data in documents)


def problems(why: PolicyRefused) -> list[Any]:
    return [str(problem) for problem in why.problems]


def _in_words(why: Exception) -> str:
    """
    The first of what is wrong, and how much more there is.
    """
    if not isinstance(why, PolicyRefused):
        return str(why)
    first, *rest = problems(why) or [str(why)]
    return f"{first} (and {len(rest)} more)" if rest else first
