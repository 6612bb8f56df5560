"""One damaged input: a clear error or a right answer, in bounded time and memory."""

import contextlib
import resource
import shutil
import signal
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

from tests.fuzz.damage import changes, damaged
from tests.fuzz.readers import READERS, Files, Reader

SECONDS = 20  # of a processor that a reader may take for a file of a few kilobytes, however busy the machine is,
PATIENCE = 600  # and of the clock: a reader that waits for something takes no processor
IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # a disk would be the slowest part
MEMORY = 2 << 30  # bytes that it may ask for beyond what the process has


def fuzz(name: str, inputs: int, seed: int = 0, place: Path | None = None) -> dict[str, int]:
    """Damage valid files `inputs` times; how many were refused and how many read. Raises on the first that does harm.

    Args:
        name: of the reader.
        inputs: how many.
        seed: of the damage.
        place: a folder that holds the input being read, so that it is there should the process die; None: a temporary one.
    """
    reader = READERS[name]
    reader.begin()
    counts = {"refused": 0, "read": 0}
    with tempfile.TemporaryDirectory(prefix="inbounds-fuzz-", dir=IN_MEMORY) as temporary:
        folder = (place or Path(temporary)) / "input"
        original = _make(reader, folder)
        names = sorted(path for path, content in original.items() if content)

        @seeded(seed)
        @settings(
            max_examples=inputs,
            database=None,
            deadline=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
            print_blob=False,
        )
        @given(st.sampled_from(names), changes)
        def harmless(which, done):
            files = dict(original)
            if reader.inside is None:
                files[which] = damaged(files[which], done)
            else:
                files[which] = reader.inside(files[which], lambda content: damaged(content, done))
            _write(files, folder)
            counts[_outcome(reader, folder)] += 1

        harmless()
    return counts


def _outcome(reader: Reader, folder: Path) -> str:
    try:
        with _limits(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a reader may be surprised
            reader.read(folder)
        refusal = None
    except reader.error as error:
        refusal = str(error)
    if refusal is None:
        return "read"
    assert str(folder) in refusal, f"the error does not say which file it is about: {refusal}"
    return "refused"


@contextlib.contextmanager
def _limits() -> Iterator[None]:
    """A hang becomes a TimeoutError, and a huge allocation a MemoryError: neither is what a reader documents."""

    def stop(*_: object) -> None:
        raise TimeoutError("the reader hangs")

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    timers = [(signal.SIGPROF, signal.ITIMER_PROF, SECONDS), (signal.SIGALRM, signal.ITIMER_REAL, PATIENCE)]
    before = [(number, signal.signal(number, stop)) for number, _, _ in timers]
    for _, timer, seconds in timers:
        signal.setitimer(timer, seconds)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (_mapped() + MEMORY, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        for _, timer, _ in timers:
            signal.setitimer(timer, 0)
        for number, handler in before:
            signal.signal(number, handler)


def _mapped() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _make(reader: Reader, folder: Path) -> Files:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    reader.make(folder)
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def _write(files: Files, folder: Path) -> None:
    if len(files) > 2 or not folder.is_dir():  # a reader of many files may leave some of its own
        shutil.rmtree(folder, ignore_errors=True)
        for path in {(folder / name).parent for name in files}:
            path.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
