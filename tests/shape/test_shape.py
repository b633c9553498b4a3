"""The shape of the package: what importing it does, where numba lives, how long modules are."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest
from tools.touched import changes, paths_of, rooms_of

import pandora_router
from pandora_router.search import kernels
from tests.support import routers

PACKAGE = Path(pandora_router.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
CORE = ("index", "boxes", "search", "search.batch", "search.baselines", "search.kernels")


def in_fresh_process(code: str) -> str:
    """Run code in a new interpreter that sees the same package, and return what it printed."""
    paths = [p for p in sys.path if p]
    head = f"import sys; sys.path[:0] = {paths!r}\n"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", head + code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


WATCH = """
import os, socket, threading
asked = []
plain = os._Environ.__getitem__
def watched(self, key):
    asked.append(key)
    return plain(self, key)
os._Environ.__getitem__ = watched
def refuse(*args, **options):
    raise AssertionError("a socket was opened")
socket.socket.__init__ = refuse
started = []
begin = threading.Thread.start
def start(self):
    started.append(self.name)
    begin(self)
threading.Thread.start = start
"""
REPORT = """
print(sorted(m for m in sys.modules if m.split(".")[0] in HEAVY))
print(sorted({key for key in asked if "PANDORA" in key.upper()}))
print(started, threading.active_count())
"""


@pytest.mark.parametrize("module", ["", *CORE])
def test_importing_has_no_side_effects(module: str) -> None:
    name = f"pandora_router.{module}".rstrip(".")
    heavy = 'HEAVY = {"numba", "llvmlite", "torch", "ray", "litellm", "matplotlib", "pandas"}\n'
    printed = in_fresh_process(f"{WATCH}{heavy}import {name}\n{REPORT}")
    assert printed.splitlines() == ["[]", "[]", "[] 1"]


HELP = {"_PANDORA_COMPLETE": "bash_complete", "COMP_WORDS": "pandora r", "COMP_CWORD": "1"}


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["--version"], ["rout"], []], ids=" ".join)
@pytest.mark.parametrize("environment", [{}, HELP], ids=["run", "completed"])
def test_help_and_completion_import_only_click(words: list[str], environment: dict[str, str]) -> None:
    printed = in_fresh_process(
        f"""
import contextlib, os
os.environ.update({environment!r})
sys.argv = ["pandora", *{words!r}]
from pandora_router.cli.main import main
with contextlib.suppress(SystemExit):
    main(prog_name="pandora")
heavy = {{"numpy", "scipy", "numba", "lightgbm", "pyarrow", "pydantic", "yaml", "rich", "tokenizers"}}
print(sorted(heavy & set(sys.modules)))
"""
    )
    assert printed.splitlines()[-1] == "[]"


def test_reading_a_configuration_imports_no_market(tmp_path: Path) -> None:
    path = tmp_path / "pandora.yaml"
    path.write_text(
        "specialists: {a: {kind: function, function: 'x:y', prices: free}}\nmarket: {default: a}\n"
    )
    printed = in_fresh_process(
        f"""
from pathlib import Path
from pandora_router.config import read_config
read_config(Path({str(path)!r}))
rooms = ("pandora_router.market", "pandora_router.bidding")
print([name for name in sys.modules if name.startswith(rooms)])
"""
    )
    assert printed.splitlines()[-1] == "[]"


def test_public_names_are_imported_when_they_are_first_used() -> None:
    printed = in_fresh_process(
        "import pandora_router as p\n"
        "print({'numpy', 'click'} & set(sys.modules), set(p.__all__) <= set(dir(p)))\n"
        "print([n for n in p.__all__ if not hasattr(p, n)], len(set(p.__all__)) == len(p.__all__))\n"
        "print('numba' in sys.modules)\n"
        "try: p.Roter\n"
        "except AttributeError as error: print(error)"
    )
    assert printed.splitlines() == [
        "set() True",
        "[] True",
        "False",
        "module 'pandora_router' has no attribute 'Roter'",
    ]


def test_a_public_name_is_the_same_object_as_in_its_package() -> None:
    """Type checkers read the imports at the head of the package, users meet `__getattr__`: they agree."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    declared = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("pandora_router.")
        for alias in node.names
    }
    assert sorted(declared) == sorted(pandora_router.__all__)
    for name, module in declared.items():
        assert getattr(pandora_router, name) is getattr(import_module(str(module)), name)
    modules = {path.stem for path in PACKAGE.iterdir()}
    assert not modules & set(pandora_router.__all__)  # importing such a module would hide the name


def test_routing_needs_the_core_dependencies_alone(saved_router: Path, tmp_path: Path) -> None:
    """With every extra missing a saved router routes, and a command that needs an extra names it."""
    (tmp_path / "rows.csv").write_text("prompt\ntell about the river\n")
    extras = {
        "pyarrow",
        "sklearn",
        "httptools",
        "matplotlib",
        "torch",
        "onnxruntime",
        "faiss",
        "ray",
        "sympy",
    }
    printed = in_fresh_process(
        f"""
import contextlib
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {extras!r}:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Missing())
sys.stderr = sys.stdout
from pandora_router.cli.main import main
asked = ["route", "-r", {str(saved_router)!r}]
rows = {str(tmp_path / "rows.csv")!r}
batch = [*asked, "--batch", rows, "-o", rows.replace("csv", "parquet")]
check = ["data", "check", rows, "--format", "long", "--free"]
for words in ([*asked, "tell about the river"], batch, check):
    with contextlib.suppress(SystemExit):
        main(words, prog_name="pandora")
"""
    )
    first, *others = printed.splitlines()
    assert first in routers.fitted().specialists
    assert ["pip install '.[fit]'" in line for line in others] == [True, True]
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]  # found before the work


def test_a_decision_without_kernels_does_without_numba() -> None:
    """Draws need no compiled code, so numba stays out until a kernel is needed, and then comes in."""
    printed = in_fresh_process(
        "from pandora_router.boxes import Draws, Independent\n"
        "from pandora_router.search import Obligatory, Rollout, State, drive, reveal\n"
        "drive(Rollout(), State(Draws([[0., 1.], [.2, .6]], .1)), reveal([.5, .2]))\n"
        "print('numba' in sys.modules)\n"
        "drive(Obligatory(), State(Independent([.5, .4], [.1, .1], .01)), reveal([.5, .2]))\n"
        "print('numba' in sys.modules)"
    )
    assert printed.split() == ["False", "True"]


def test_routing_imports_nothing_that_only_fitting_needs(saved_router: Path) -> None:
    late = {f"pandora_router.router.{name}" for name in ("table_fit", "fit_report", "out_of_fold", "recipes")}
    assert late <= set(NAMES), "a name of a module that is gone guards nothing"
    printed = in_fresh_process(
        "from pandora_router.router import Router\n"
        f"router = Router.load({str(saved_router)!r})\n"
        "router.route('count the king'), router.route_batch(['count the king'])\n"
        f"print(sorted({late!r} & set(sys.modules)))"
    )
    assert printed == "[]"


def imports(path: Path) -> set[str]:
    """The top-level packages a module imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_modules_are_short_documented_and_import_numba_only_in_kernels(path: Path) -> None:
    text = path.read_text()
    if path.name != "index_tables.py":
        assert len(text.splitlines()) <= 400
    assert ast.get_docstring(ast.parse(text))
    if PACKAGE / "search" / "kernels" not in path.parents:
        assert "numba" not in imports(path)


def imported_at_load(path: Path) -> set[str]:
    """The modules of ours that importing a module imports at once: not in functions, nor for types alone."""
    statements, found = list(ast.parse(path.read_text()).body), set[str]()
    for node in statements:  # grows while it is read
        if isinstance(node, ast.If) and ast.unparse(node.test) != "TYPE_CHECKING":
            statements += node.body
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("pandora_router"):
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add(whole if whole in NAMES else str(node.module))
    return found


NAMES = {
    ".".join(("pandora_router", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(
        ".__init__"
    ): path
    for path in MODULES
}


def test_no_module_imports_itself_through_others() -> None:
    graph = {name: imported_at_load(path) - {name} for name, path in NAMES.items()}
    assert len(list(TopologicalSorter(graph).static_order())) >= len(NAMES)  # raises CycleError


def test_the_decision_core_knows_no_clock_no_files_and_no_global_randomness() -> None:
    core = {PACKAGE / "index.py", *PACKAGE.glob("boxes/*.py"), *PACKAGE.glob("search/**/*.py")}
    core -= {PACKAGE / "search" / "kernels" / "__init__.py"}  # looks after its own compiled files
    for path in core:
        assert not imports(path) & {"time", "datetime", "random", "socket", "pathlib", "io", "logging"}, path
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in ("print", "input", "np.random.default_rng", "np.random.seed"), path


def test_every_kernel_compiles_for_one_kind_of_array() -> None:
    """Fresh, conditioned, grouped and lost boxes reach a kernel alike: no compilation in mid-search."""
    printed = in_fresh_process(
        """
import numpy as np
from pandora_router.boxes import Costs, Independent, Joint, LowRank
from pandora_router.search import *
from pandora_router.search import kernels
mean, std = [.5, .45, .55], [.2, .25, .1]
cost = Costs([0., .001, .002], [.002], [0, 0, -1])
laws = [Independent(mean, std, c) for c in (.002, cost)]
laws += [Joint(mean, np.diag(np.square(std)) + .002, c) for c in (.002, cost)]
laws += [LowRank(mean, [[.1], [.2], [.1]], [.01, .01, .02], .002)]
for policy in (Obligatory(), Rollout("backup"), KnowledgeGradient(), Committing(samples=4),
               Committing("mean", payoff="exact")):
    for law in laws:
        state = State(law, .3)
        for now in (state, state.observe(1, .4), state.lose(0), state.observe(0, .3).observe(1, .6)):
            drive(policy, now, reveal([.3, .6, .5]))
            policy.next(now)
names = ("normal_prices", "rollout_step", "gradient_step",
         "simulated_payoffs", "committing_payoffs")
for name in names:
    print(name, len(getattr(kernels.load(), name).signatures))
"""
    )
    counts = dict(line.split() for line in printed.splitlines())
    assert set(counts.values()) == {"1"}, counts


def test_a_single_decision_and_a_loop_over_queries_share_compiled_code() -> None:
    """Numba keeps one file (.nbc) per function and kind of arguments: there is one for each kernel."""
    folder = kernels.warm()
    assert folder is not None
    files = [file.name for file in folder.rglob("*.nbc")]
    for entry in (name for entries in kernels.ENTRIES.values() for name in entries):
        assert sum(f".{entry}-" in name for name in files) == 1, entry


def test_a_class_name_stands_for_one_thing() -> None:
    homes: dict[str, list[str]] = {}
    for module in MODULES:
        for node in ast.parse(module.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(module.relative_to(PACKAGE).as_posix())
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}


def listed(docstring: str) -> list[str]:
    """The modules that the table of a package's docstring names: indented lines `name, name   what it is`."""
    rows = re.findall(r"(?m)^    (\w+/?(?:, \w+/?)*)  +\S", docstring)
    return sorted(name.rstrip("/") for row in rows for name in row.split(", "))


def test_the_table_of_a_package_names_its_modules() -> None:
    tables = {path.parent: listed(ast.get_docstring(ast.parse(path.read_text()), clean=False) or "")
              for path in MODULES if path.name == "__init__.py"}  # fmt: skip
    wrong = {}
    for folder, names in tables.items():
        parts = [path.stem for path in folder.glob("*.py") if path.stem != "__init__"]
        parts += [path.parent.name for path in folder.glob("*/__init__.py")]
        if names and names != sorted(parts):
            wrong[folder.name] = f"gone: {set(names) - set(parts)}, not named: {set(parts) - set(names)}"
    assert wrong == {}
    assert {folder.name for folder, names in tables.items() if names} >= TABLES


TABLES = {"bidding", "boxes", "calibrate", "collect", "config", "dashboard", "data", "demo", "estimators",
          "evaluate", "folders", "gateway", "http", "importers", "kernels", "learn", "market", "prices",
          "providers", "report", "request", "router", "run", "search", "specialists", "stack", "store",
          "transport", "wires"}  # fmt: skip
"""Rooms whose docstring must have a table: all but `cli`, and those of two modules or three."""


@pytest.mark.parametrize("kind", ["new", "again"])
def test_a_decision_that_buys_nothing_goes_through_few_modules_and_rooms(kind: str) -> None:
    router = routers.fitted().with_policy(pandora_router.Never())
    entered = paths_of(router, f"How many {kind} legs has a spider?")[kind]
    assert len(set(entered)) < 20, sorted(set(entered))
    assert changes(entered) < 12, rooms_of(entered)


# Names that stand in several rooms because they are one thing seen from each of them.
SAME_THING = {
    "batch": "many searches at once, and their compiled loops",
}
# Modules of these are named after what they are for: a verb, a page, a section of the file, a compiled loop,
# a part of the demo, a wire.
NAMED_AFTER = {"cli", "dashboard", "config", "kernels", "demo", "wires"}


def test_modules_are_nouns() -> None:
    """Those that end in -ing are the ones that are named so in the plan of the package."""
    verbs = {path.stem for path in MODULES if path.stem.endswith("ing")}
    assert verbs == {"deciding", "looking", "moving", "sampling", "testing"}


def test_cited_sections_of_the_method_exist() -> None:
    sections = re.findall(r"(?m)^## (\d+)\.", (PACKAGE.parents[1] / "docs" / "method.md").read_text())
    for path in MODULES:
        cited = re.findall(r"method\.md,\s+sections? (\d+)", path.read_text())
        assert set(cited) <= set(sections), path


def test_a_module_name_stands_for_one_thing() -> None:
    homes: dict[str, list[str]] = {}
    for path in MODULES:
        if path.stem not in ("__init__", "__main__"):
            homes.setdefault(path.stem, []).append(path.parent.name)
    own = {name: [room for room in rooms if room not in NAMED_AFTER] for name, rooms in homes.items()}
    assert not {name: rooms for name, rooms in own.items() if len(rooms) > 1 and name not in SAME_THING}
    assert all(len(homes[name]) > 1 for name in SAME_THING), "an exception that is not needed any more"
    packages = {path.parent.name for path in MODULES if path.parent.parent.name == "pandora_router"}
    assert not {name: rooms for name, rooms in own.items() if name in packages and rooms not in ([], [name])}


class Renamed(ast.NodeTransformer):
    """Replaces names by their order of first use and drops annotations: equal functions become the same."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self.names.setdefault(node.id, f"name{len(self.names)}"), node.ctx)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg(self.names.setdefault(node.arg, f"name{len(self.names)}"))


def test_no_two_functions_of_three_lines_are_equal_up_to_names() -> None:
    ours = [PACKAGE.parents[1] / room for room in ("benchmarks", "paper", "tools")]
    homes: dict[str, list[str]] = {}
    for path in (*MODULES, *(file for room in ours for file in sorted(room.rglob("*.py")))):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                if body and body[-1].end_lineno - body[0].lineno >= 2:  # type: ignore[operator]
                    wholly = ast.Module([ast.FunctionDef("f", node.args, body, [])], [])
                    homes.setdefault(ast.dump(Renamed().visit(wholly)), []).append(f"{path}: {node.name}")
    assert len(homes) > 1000
    assert [places for places in homes.values() if len(places) > 1] == []


def test_the_index_of_decisions_lists_every_page_with_its_title_and_status() -> None:
    folder = PACKAGE.parents[1] / "docs" / "decisions"
    pages = sorted(path for path in folder.glob("*.md") if path.name != "README.md")
    rows = re.findall(r"(?m)^\| \[(\d{4})\]\((.+?)\) \| (.+) \| (.+) \|$", (folder / "README.md").read_text())
    heads = [re.match(r"# (\d{4}):? (.+)", path.read_text()) for path in pages]
    assert [(number, name, title) for number, name, title, _ in rows] == [
        (head[1], path.name, head[2]) for path, head in zip(pages, heads, strict=True) if head
    ]
    numbers = {number for number, *_ in rows}
    for number, _, _, status in rows:
        successor = re.fullmatch(r"in force|deleted|superseded by (\d{4})", status)
        assert successor, (number, status)
        assert successor[1] is None or successor[1] in numbers - {number}


def test_the_states_of_a_request_are_reached_by_methods_that_exist() -> None:
    from pandora_router.gateway import request
    from pandora_router.gateway.request.attempts import RunningAttempt
    from pandora_router.gateway.request.calls import Caller
    from pandora_router.gateway.request.exchange import Exchange

    owners = {owner.__name__: owner for owner in (Caller, Exchange, RunningAttempt)}
    steps = re.findall(
        r"(?m)^    \| \w+ +\| `(\w+)\.(\w+)`(?:, `(\w+)`)?(?:, `(\w+)`)?", request.__doc__ or ""
    )
    assert len(steps) == 13
    for owner, *methods in steps:
        assert all(hasattr(owners[owner], method) for method in methods if method), (owner, methods)
