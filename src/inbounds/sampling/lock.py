"""One run at a time writes into a folder: of two that did, one would return the other's draws.

The lock is the operating system's, on a file in the folder that says who holds it. So it goes with its process, however that ends, and
nobody has to judge whether one that was left behind is still meant. Object stores (URLs) know no locks.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

from inbounds.sampling.devices import agreed, is_first_process

__all__ = ["NAME", "hold", "local_folder", "only_writer"]

try:
    import fcntl
except ImportError:  # not on this system
    fcntl = None  # type: ignore[assignment]

NAME = ".writer"


def local_folder(place: str | os.PathLike[str]) -> Path | None:
    """The folder that a path or a URL names; None where it is not of a local file system."""
    path = os.fspath(place).removeprefix("file://").removeprefix("local://")
    return None if "://" in path or "::" in path else Path(path).expanduser().absolute()


def hold(held: contextlib.ExitStack, place: str | os.PathLike[str], what: str) -> None:
    """Make the run the only writer of a place until `held` is left: all its processes call this, and the first holds the lock.

    Raises:
        ValueError: another run holds it, in every process.
    """
    problem = None
    if is_first_process():
        try:
            held.enter_context(only_writer(local_folder(place), what))
        except ValueError as error:
            problem = error
    if agreed(problem is not None):
        raise problem or ValueError(f"Another run is writing to the {what} {os.fspath(place)}: process 0 says which.")


@contextlib.contextmanager
def only_writer(folder: Path | None, what: str) -> Iterator[None]:
    """Hold the lock of a local folder, which is made if need be; None holds nothing.

    Args:
        folder: what `local_folder` says.
        what: the argument of `sample` that gave the folder, for the error.

    Raises:
        ValueError: another run holds it.
    """
    if folder is None:
        yield
        return
    number = _acquire(folder, what)
    try:
        yield
    finally:
        # The name goes before the lock: who has opened the file meanwhile sees that it is gone, and opens another.
        if _is_still(number, folder / NAME):
            (folder / NAME).unlink(missing_ok=True)
        os.close(number)


def _acquire(folder: Path, what: str) -> int:
    """The descriptor of the locked file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / NAME
    while True:
        number = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _lock(number, folder, what)
            if _is_still(number, path):
                with contextlib.suppress(OSError):  # a full disk
                    os.truncate(number, 0)
                    os.write(number, f"process {os.getpid()} on {socket.gethostname()}, since {time.ctime()}".encode())
                return number
        except BaseException:
            os.close(number)
            raise
        os.close(number)


def _lock(number: int, folder: Path, what: str) -> None:
    try:
        if fcntl is None:
            raise OSError("this system has no fcntl")
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(number, 1_000, 0).decode(errors="replace") or "a process that has just begun"
        raise ValueError(
            f"Another run is writing to the {what} {folder}: {holder}. Wait until it has ended, or give another `{what}`."
        ) from None
    except OSError as error:
        warnings.warn(
            f"The {what} {folder} cannot be locked ({error}). Make sure that no other run writes to it at the same time: one "
            "of the two would return the other's draws.",
            stacklevel=2,
        )


def _is_still(number: int, path: Path) -> bool:
    """Whether the file that is open is the one with that name: another may have taken its place before it was locked."""
    try:
        return os.path.samestat(os.fstat(number), os.stat(path))
    except FileNotFoundError:
        return False
