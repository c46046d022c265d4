"""Runs a command as a child process that the kernel kills when its parent dies. Run as a script with few imports.

It is a separate program between server and child because none of its steps is safe in a forked copy of a process with
threads. Its one argument is a JSON object with the fields of ``child.ChildCommand``.
"""

import ctypes
import json
import os
import sys
from typing import Any

_PR_SET_PDEATHSIG = 1
_PR_SET_SECUREBITS = 28
_SECBIT_NO_SETUID_FIXUP = 1 << 2
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_RAISE = 2
_CAPABILITY_VERSION_3 = 0x20080522
_CAP_DAC_OVERRIDE = 1


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _CapabilityData(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def _check(result: int, call: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")


def _change_user(libc: Any, uid: int, gid: int, *, pass_folders: bool) -> None:
    """Switch to ``uid``; with ``pass_folders``, keep the one capability that opens folders closed to that user."""
    if pass_folders:
        # Without this bit, access(2), with which initdb looks for its programs, ignores capabilities of a non-root
        # user.
        _check(libc.prctl(_PR_SET_SECUREBITS, _SECBIT_NO_SETUID_FIXUP, 0, 0, 0), "prctl(PR_SET_SECUREBITS)")
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)
    if pass_folders:
        mask = 1 << _CAP_DAC_OVERRIDE
        header = _CapabilityHeader(_CAPABILITY_VERSION_3, 0)
        data = (_CapabilityData * 2)(_CapabilityData(mask, mask, mask), _CapabilityData(0, 0, 0))
        _check(libc.capset(ctypes.byref(header), data), "capset")
        ambient = libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _CAP_DAC_OVERRIDE, 0, 0)
        _check(ambient, "prctl(PR_CAP_AMBIENT)")


def main() -> None:
    """Set the user and the death signal, then replace this process by the command."""
    order = json.loads(sys.argv[1])
    libc = ctypes.CDLL(None, use_errno=True)
    if order["uid"] is not None:
        _change_user(libc, order["uid"], order["gid"], pass_folders=order["pass_folders"])
    if sys.platform == "linux":
        # After the change of user, which would clear it.
        _check(libc.prctl(_PR_SET_PDEATHSIG, order["death_signal"], 0, 0, 0), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != order["parent"]:
        sys.exit("The parent process died before its child started.")  # it died before the signal was set
    os.umask(0o077)
    os.execv(order["command"][0], order["command"])  # noqa: S606 - the command is our own list, without a shell


if __name__ == "__main__":
    main()
