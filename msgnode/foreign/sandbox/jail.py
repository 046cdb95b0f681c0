"""
Locks its own process in and becomes Deno; a script between fork and exec, with the standard library only:

    python -I -S jail.py LIMITS DENO READABLE ARGUMENT...

LIMITS is a JSON object, READABLE the directory that Deno may read, and is in. What the system does not offer
is left out and written to stdout, as the first line of the process: {"k": "jail", "missing": [...]}.
"""

import ctypes
import json
import os
import resource
import struct
import sys

USER, NETWORK, IPC = 0x10000000, 0x40000000, 0x08000000  # CLONE_NEW...
NO_NEW_PRIVILEGES, PARENT_DEATH_SIGNAL, SECCOMP = 38, 1, 22  # prctl
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # Landlock's system calls
EXECUTE, READ_FILE, READ_DIRECTORY = 1 << 0, 1 << 2, 1 << 3
FILE_RIGHTS = (1 << 13) - 1  # all of the first version of Landlock
# The second version has one more right, the third another.
MORE_RIGHTS = {2: 1 << 13, 3: 1 << 14}
SYSTEM = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache", "/dev/urandom", "/dev/null")
# By machine: its name for audit, the numbers of clone and tgkill, and of the calls that are refused: fork,
# vfork; kill, tkill, rt_sigqueueinfo, rt_tgsigqueueinfo, ptrace; process_vm_readv, process_vm_writev;
# unshare, setns, bpf, keyctl, userfaultfd, perf_event_open.
CALLS = {
    "x86_64": (
        *(0xC000003E, 56, 234),
        (57, 58, 62, 200, 129, 297, 101, 310, 311, 272, 308, 321, 250, 323, 298),
    ),
    "aarch64": (0xC00000B7, 220, 131, (129, 130, 138, 240, 117, 270, 271, 97, 268, 280, 219, 282, 241)),
}
# On each machine: pidfd_send_signal, io_uring_setup, pidfd_open, pidfd_getfd.
NEW_CALLS = (424, 425, 434, 438)
CLONE3 = 435  # its flags cannot be seen, and the library makes threads by clone if it is missing
X32 = 0x40000000  # another set of numbers on x86_64
CLONE_THREAD = 0x00010000
ALLOW, REFUSE = 0x7FFF0000, 0x00050000

libc = ctypes.CDLL(None, use_errno=True)


class Missing(Exception):
    """
    A protection that this system does not offer.
    """


def call(what: str, *arguments: object) -> int:
    result: int = getattr(libc, what)(*arguments)
    if result < 0:
        raise Missing(os.strerror(ctypes.get_errno()))
    return result


def namespaces(readable: str, deno: str) -> None:
    user, group = os.getuid(), os.getgid()
    call("unshare", USER | NETWORK | IPC)
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def files(readable: str, deno: str) -> None:
    """
    Landlock: nothing but Deno, its script and the system's libraries can be read, nothing written.
    """
    version = call("syscall", CREATE_RULESET, None, 0, 1)
    rights = FILE_RIGHTS | sum(right for since, right in MORE_RIGHTS.items() if version >= since)
    ruleset = call("syscall", CREATE_RULESET, struct.pack("Q", rights), 8, 0)
    for path in (*SYSTEM, deno, readable):
        try:
            opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        more = READ_DIRECTORY if path == readable else EXECUTE if path == deno or "/lib" in path else 0
        rule = struct.pack("=Qi", READ_FILE | more, opened)
        call("syscall", ADD_RULE, ruleset, 1, rule, 0)
        os.close(opened)
    call("syscall", RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def processes(readable: str, deno: str) -> None:
    """
    Seccomp: threads can be made, processes not; signals reach the process itself only.
    """
    machine = os.uname().machine
    if machine not in CALLS:
        raise Missing(f"not known for {machine}")
    audit, clone, tgkill, refused = CALLS[machine]
    load, equal, at_least, has_bits, done = 0x20, 0x15, 0x35, 0x45, 0x06
    refuse = (done, 0, 0, REFUSE | 1)
    steps = [(load, 0, 0, 4), (equal, 1, 0, audit), refuse, (load, 0, 0, 0), (at_least, 0, 1, X32), refuse]
    steps += [(equal, 0, 1, CLONE3), (done, 0, 0, REFUSE | 38)]
    for number in (*refused, *NEW_CALLS):
        steps += [(equal, 0, 1, number), refuse]
    # 16 is the offset of a call's first argument.
    steps += [(equal, 0, 3, clone), (load, 0, 0, 16), (has_bits, 4, 0, CLONE_THREAD), refuse]
    steps += [
        (equal, 0, 2, tgkill),
        (load, 0, 0, 16),
        (equal, 0, 1, os.getpid()),
        (done, 0, 0, ALLOW),
        refuse,
    ]
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    filter_ = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(program))
    call("prctl", SECCOMP, 2, filter_, 0, 0)


def limit(limits: dict[str, int]) -> None:
    for name, value in limits.items():
        kind = getattr(resource, f"RLIMIT_{name}")
        _, hard = resource.getrlimit(kind)
        least = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (least, least))


def main() -> None:
    limits, deno, readable, *arguments = sys.argv[1:]
    parent = os.getppid()
    os.chdir(readable)
    os.setsid()
    os.setpriority(os.PRIO_PROCESS, 0, 19)
    call("prctl", NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    missing = {}
    for step in (namespaces, files, processes):
        try:
            step(readable, deno)
        except (Missing, OSError) as why:
            missing[step.__name__] = f"{step.__name__} ({why})"
    # Other credentials, such as those in a namespace, would undo it.
    call("prctl", PARENT_DEATH_SIGNAL, 9, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)  # the node died before it was asked for
    wanted = json.loads(limits)
    if "namespaces" in missing:
        wanted.pop("NPROC", None)  # it would count all processes of the user, the node's threads, too
    limit(wanted)
    os.write(1, json.dumps({"k": "jail", "missing": list(missing.values())}).encode() + b"\n")
    os.execve(
        deno, [deno, *arguments], {"DENO_DIR": "/nonexistent", "DENO_NO_UPDATE_CHECK": "1", "NO_COLOR": "1"}
    )


if __name__ == "__main__":
    main()
