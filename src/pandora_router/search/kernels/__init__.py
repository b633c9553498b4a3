"""Compiled twins of the plain code. A decision never waits for a compiler.

    batch, simulate     whole searches over many queries, and simulated payoffs
    gradient, groups    the knowledge gradient, of one box and of several opened together
    payoffs, special    exact payoffs of committing policies, and the functions of `index`
    neighbours          word vectors, nearest rows and sums of trees for the estimators
    rehearsal           one call of each, so that all are compiled for what they will meet

    ready()   the compiled kernels if they can be had at once, else None: then the plain twins decide, alike
    warm()    compile every kernel and keep the result on disk; the only function here that takes long

Compiled code is kept in a folder named by a hash of everything it is made from: the sources of the kernels
and of the modules whose constants they hold, where they lie (numba finds code again by the path of its
source), and the versions of Python, numpy, numba and llvmlite. A change in any of them means another folder,
so stale code is never run, and code that numba would not find never counts as compiled. The first usable of
these places is taken: `NUMBA_CACHE_DIR`, the `__pycache__` of this package, the user's cache folder, a
private folder under the temporary one; where none can be written, `warm` compiles for this process alone.
`import pandora_router` imports neither numba nor this code.
"""

from __future__ import annotations

import gc
import hashlib
import os
import platform
import shutil
import stat
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module, metadata
from pathlib import Path
from types import SimpleNamespace

from pandora_router.types import Progress

ENTRIES = {
    "special": ("unit_loss_inverse", "normal_prices"),
    "payoffs": ("committing_payoffs",),
    "groups": ("group_gain",),
    "gradient": ("knowledge_gradient", "gradient_step", "learning_gains"),
    "simulate": ("simulated_payoffs",),
    "neighbours": (
        *("half_means", "packed_nearest", "largest_rows", "graph_nearest"),
        *("neighbour_means", "tree_sums"),
    ),
    "batch": ("held_rows", "exact_holdouts", "rollout_step", "rollout_rows", "gradient_rows"),
}
ROOM = Path(__file__).resolve().parent
PACKAGE = ROOM.parent.parent
USER = os.getuid() if sys.platform != "win32" else 0
MARKER = "complete"  # written last: says for which processor every kernel has been compiled

_lock = threading.RLock()
_kernels: SimpleNamespace | None = None  # once imported, for the life of the process
_looked = False  # whether the disk has been searched


def ready() -> SimpleNamespace | None:
    """Return the compiled kernels without compiling: those of this process, or complete ones on disk.

    The disk is searched once in a process; `warm` in the same process changes the answer.
    """
    if _kernels is not None or _looked:
        return _kernels
    return _search_disk()


def warm(progress: Progress | None = None) -> Path | None:
    """Compile every kernel (tens of CPU-seconds the first time) and return the folder that keeps them.

    Does nothing if `ready()`. None means that no folder could be written: the kernels serve this process
    only. `progress` is called with (kernel, kernels done, kernels in all).
    """
    from pandora_router.search.kernels.rehearsal import rehearse

    with _lock:
        if ready() is not None:
            return _complete()
        folder = next((place for place in places() if _writable(place)), None)
        kernels = _import(folder)
        rehearse(kernels, progress or (lambda what, done, total: None))
        if folder is not None:
            (folder / MARKER).write_text(_processor(), encoding="utf-8")
            for old in (ROOM / "__pycache__").glob("kernels-*"):
                if folder.parent == old.parent and folder != old:
                    shutil.rmtree(old, ignore_errors=True)
        _keep(kernels)
        return folder


def load() -> SimpleNamespace:
    """Return the kernels whether they are compiled or not: each is compiled by its first call."""
    with _lock:
        kernels = ready()
        if kernels is None:
            kernels = _import(next((place for place in places() if _writable(place)), None))
            _keep(kernels)
        return kernels


@cache
def fingerprint() -> str:
    """A hash of everything compiled code is made from, the processor apart."""
    sources = [*ROOM.glob("*.py"), ROOM.parent / "gradient.py", PACKAGE / "boxes" / "joint.py"]
    sources += PACKAGE.glob("index*.py")
    digest = hashlib.blake2b(digest_size=10)
    for source in sorted(sources):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    versions = [metadata.version(name) for name in ("numba", "llvmlite", "numpy")]
    digest.update(repr([str(ROOM), sys.version, platform.machine(), *versions]).encode())
    return digest.hexdigest()


def places() -> Iterator[Path]:
    """The folders where compiled code may be, in the order in which they are tried."""
    name = f"kernels-{fingerprint()}"
    if "NUMBA_CACHE_DIR" in os.environ:
        yield Path(os.environ["NUMBA_CACHE_DIR"]) / name
    yield ROOM / "__pycache__" / name
    with suppress(RuntimeError):  # no home folder
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        yield Path(base) / "pandora-router" / name
    with suppress(FileNotFoundError):  # no temporary folder
        yield Path(tempfile.gettempdir()) / f"pandora-router-{USER}" / name


def _search_disk() -> SimpleNamespace | None:
    global _looked
    with _lock:
        if _kernels is None and not _looked:
            folder = _complete()
            if folder is not None and not _writable(folder):  # numba reads only where it can write
                folder = _copied(folder)
            if folder is not None:
                kernels = _import(folder)
                if (folder / MARKER).read_text(encoding="utf-8") == _processor():
                    _keep(kernels)
        _looked = True
        return _kernels


def _keep(kernels: SimpleNamespace) -> None:
    global _kernels, _looked
    _kernels, _looked = kernels, True


def _complete() -> Path | None:
    """The first readable folder in which every kernel is compiled and that nobody else can have written."""
    for place in places():
        with suppress(PermissionError):
            if (place / MARKER).is_file() and _private(place):
                return place
    return None


def _private(folder: Path) -> bool:
    """Whether only this user or root can write the folder and its parent: compiled code is trusted."""
    for part in (folder, folder.parent):
        facts = part.stat()
        if facts.st_uid not in (USER, 0) or facts.st_mode & stat.S_IWOTH:
            return False
    return True


def _writable(folder: Path) -> bool:
    """Whether files can be made in the folder, which is made if need be."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.mkdir(exist_ok=True, mode=0o700)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return _private(folder)


def _copied(folder: Path) -> Path | None:
    """A writable copy of a read-only folder, whole or not at all; None where nothing can be written."""
    for place in places():
        if place != folder and _writable(place.parent / "copies"):
            draft = Path(tempfile.mkdtemp(dir=place.parent / "copies"))
            shutil.copytree(folder, draft, dirs_exist_ok=True)
            shutil.rmtree(place, ignore_errors=True)  # incomplete, or it would have been taken
            with suppress(OSError):  # another process was faster
                draft.rename(place)
            return place if (place / MARKER).is_file() else None
    return None


def _processor() -> str:
    """The processor that code is compiled for; llvmlite is imported by then."""
    binding = import_module("llvmlite.binding")
    return f"{binding.get_host_cpu_name()} {binding.get_host_cpu_features().flatten()}"


def _import(folder: Path | None) -> SimpleNamespace:
    """Import the kernels (numba comes along); compiled code is read from and written to `folder`."""
    names: dict[str, object] = {}
    with _without_collector(), _cache_folder(folder):
        for module, entries in ENTRIES.items():
            loaded = import_module(f"{__name__}.{module}")
            names.update({entry: getattr(loaded, entry) for entry in entries})
    return SimpleNamespace(**names)


@contextmanager
def _cache_folder(folder: Path | None) -> Iterator[None]:
    """Let numba keep what is decorated inside in `folder`; other code of the process is not affected."""
    config = import_module("numba").config
    before = config.CACHE_DIR
    config.CACHE_DIR = "" if folder is None else str(folder)
    try:
        yield
    finally:
        config.CACHE_DIR = before


@contextmanager
def _without_collector() -> Iterator[None]:
    """Numba makes so many objects that the garbage collector takes a tenth of a second over them."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
