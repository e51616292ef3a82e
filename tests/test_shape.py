"""The shape of the source: sizes, names, imports and words that STYLE.md and the architecture promise.

Every test lists all faults at once, each as `path:line`, so that one run says all there is to mend.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "paceline"
MODULE_LINES = 400
FUNCTION_LINES = 60
NESTING = 3
SHELLS = {"files", "live", "engine", "jobs", "cli", "data"}
NAMES_THAT_SAY_NOTHING = {"utils", "util", "common", "helpers", "helper", "base", "manager"}
IMPURE = {"time", "datetime", "random", "os", "pathlib", "logging", "socket"}
LOADED_ON_FIRST_USE = {"torch", "transformers", "numba", "scipy", "pydantic", "rich", "tokenizers", "jinja2"}
# Written in two halves, or this file would be the first to hold them.
FORBIDDEN_WORDS = [
    "py" + "pi.org",
    "pythonho" + "sted",
    "/wo" + "rk/",
    "/ro" + "ot/",
    "sha" + "red/",
    "cla" + "ude",
    "anth" + "ropic",
    "copi" + "lot",
]
BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

MODULES = sorted(PACKAGE.rglob("*.py"))
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in MODULES}


def place(path: Path, line: int = 1) -> str:
    """Where a fault is, as an editor opens it."""
    return f"{path.relative_to(ROOT)}:{line}"


def expect_none(faults: list[str]) -> None:
    """Fail with every fault on a line of its own."""
    assert not faults, "\n" + "\n".join(faults)


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function and method, nested ones too."""
    return (node for node in ast.walk(tree) if isinstance(node, FUNCTIONS))


def is_elif(node: ast.AST, parent: ast.AST) -> bool:
    """Whether `node` is an `elif` of `parent`: the reader's eye does not move to the right for it."""
    return isinstance(node, ast.If) and isinstance(parent, ast.If) and parent.orelse == [node] and node.col_offset == parent.col_offset


def nesting(node: ast.AST) -> int:
    """The deepest blocks within blocks under `node`; functions defined inside count for themselves."""
    deepest = 0
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, FUNCTIONS):
            own = isinstance(child, BLOCKS) and not is_elif(child, node)
            deepest = max(deepest, own + nesting(child))
    return deepest


def exported(tree: ast.Module) -> list[str] | None:
    """The names in `__all__`, None where there is none."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(each, ast.Name) and each.id == "__all__" for each in node.targets):
            return list(ast.literal_eval(node.value))
    return None


def defined(tree: ast.Module) -> set[str]:
    """The names a module has at its top level."""
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update(each.asname or each.name.partition(".")[0] for each in node.names)
        else:
            names.update(each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store))
    return names


def imported(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every top-level package a module imports, wherever the import stands, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((each.name.partition(".")[0], node.lineno) for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0], node.lineno


def is_pure(path: Path) -> bool:
    """Whether a module belongs to the half that maps values to values."""
    return path.relative_to(PACKAGE).parts[0] not in SHELLS


@pytest.mark.parametrize(
    ("body", "depth"),
    [
        ("return 1", 0),
        ("if a:\n        pass\n    elif b:\n        pass\n    elif c:\n        pass", 1),
        ("if a:\n        pass\n    else:\n        if b:\n            pass", 2),
        ("for a in b:\n        while c:\n            with d:\n                pass", 3),
        ("try:\n        pass\n    except OSError:\n        if a:\n            pass", 2),
        ("match a:\n        case 1:\n            if b:\n                pass", 2),
        ("if a:\n        def inner():\n            for b in c:\n                pass", 1),
        ("return [a for b in c for a in b if a]", 0),
    ],
)
def test_nesting_is_counted_as_a_reader_sees_it(body: str, depth: int) -> None:
    """Whoever trusts this file trusts a rule that is not applied."""
    assert nesting(ast.parse(f"def f():\n    {body}").body[0]) == depth


def test_modules_end_at_four_hundred_lines() -> None:
    """Whoever looks for a formula reads a file that nobody can hold in mind."""
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}
    expect_none([f"{place(path)} has {lines} lines" for path, lines in lengths.items() if lines > MODULE_LINES])


def test_functions_end_at_sixty_lines() -> None:
    """A function that does five things is changed for one of them, and the other four change too."""
    lengths = [
        (path, node.name, node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1)
        for path, tree in TREES.items()
        for node in functions(tree)
    ]
    expect_none([f"{place(path, line)} {name} has {lines} lines" for path, name, line, lines in lengths if lines > FUNCTION_LINES])


def test_blocks_nest_three_deep_at_most() -> None:
    """The one case that matters stands where nobody sees under which conditions it is reached."""
    depths = [(path, node.name, node.lineno, nesting(node)) for path, tree in TREES.items() for node in functions(tree)]
    expect_none([f"{place(path, line)} {name} nests {depth} deep" for path, name, line, depth in depths if depth > NESTING])


def test_every_module_says_what_it_is_about() -> None:
    """Whoever opens a file has to read all of it to learn whether it is the right one."""
    expect_none([place(path) for path, tree in TREES.items() if not ast.get_docstring(tree)])


def test_every_module_lists_its_public_names_in_order() -> None:
    """A name is taken for public that its author meant to change, or the list names something that is gone."""
    faults = []
    for path, tree in TREES.items():
        names = exported(tree)
        if path.name == "__init__.py" and path.parent != PACKAGE:
            continue
        if names is None:
            faults.append(f"{place(path)} has no __all__")
        elif names != sorted(set(names)):
            faults.append(f"{place(path)} __all__ is not sorted, or names something twice")
        elif missing := set(names) - defined(tree):
            faults.append(f"{place(path)} __all__ names {sorted(missing)}, which the module lacks")
    expect_none(faults)


def test_a_sub_package_s_init_is_one_docstring_and_nothing_else() -> None:
    """Importing one verb loads all of them, and one name has two places to come from."""
    inits = [path for path in MODULES if path.name == "__init__.py" and path.parent != PACKAGE]
    assert inits
    expect_none([place(path) for path in inits if len(TREES[path].body) != 1 or not ast.get_docstring(TREES[path])])


def test_no_module_has_a_name_that_says_nothing() -> None:
    """A drawer for everything fills with things that nobody finds again."""
    paths = [*MODULES, *(path.parent for path in MODULES if path.name == "__init__.py")]
    expect_none([place(path) for path in paths if NAMES_THAT_SAY_NOTHING & set(path.stem.split("_"))])


def test_the_pure_half_imports_no_clock_file_log_or_global_chance() -> None:
    """The same inputs give another verdict tomorrow."""
    faults = [
        f"{place(path, line)} imports {name}"
        for path, tree in TREES.items()
        if is_pure(path)
        for name, line in imported(tree)
        if name in IMPURE
    ]
    expect_none(faults)


def test_importing_paceline_loads_no_heavy_library() -> None:
    """`paceline --help` takes seconds, and fails where torch is not installed."""
    listing = subprocess.run(
        [sys.executable, "-c", "import sys, paceline; print(*sys.modules, sep='\\n')"], capture_output=True, text=True, check=True
    )
    loaded = {name.partition(".")[0] for name in listing.stdout.split()}
    assert "paceline" in loaded
    assert sorted(loaded & LOADED_ON_FIRST_USE) == []


def texts() -> Iterator[tuple[Path, str]]:
    """Every text file of the repository that we wrote; what others' servers wrote (tests/data) is theirs."""
    folders = ["src", "tests", "docs", "scripts", "benchmarks", "skills", "changelog.d", ".ci"]
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*"))]
    paths += [path for pattern in ("*.md", "*.toml") for path in sorted(ROOT.glob(pattern))]
    foreign = ROOT / "tests" / "data"
    for path in paths:
        if path.is_file() and "__pycache__" not in path.parts and (foreign not in path.parents or path.suffix == ".md"):
            yield path, path.read_bytes().decode("utf-8", errors="replace")


def test_no_text_names_a_machine_s_path_or_a_registry_s_host() -> None:
    """A reader follows a path that exists on one machine only."""
    faults = [
        f"{place(path, number)} holds {word}"
        for path, text in texts()
        for number, line in enumerate(text.splitlines(), 1)
        for word in FORBIDDEN_WORDS
        if word in line.casefold()
    ]
    expect_none(faults)


def test_the_search_for_words_reaches_every_kind_of_text() -> None:
    """The words are looked for where nobody writes."""
    found = {path.relative_to(ROOT).as_posix() for path, _ in texts()}
    assert {"README.md", "pyproject.toml", "src/paceline/run.py", "tests/test_shape.py", "tests/data/SOURCES.md"} <= found
