"""No file may run code: what unpickles, evaluates or compiles stays out of the package.

    python -m tests.persistence.lint src

Ruff's rules know calls by their plain names; this finds the ways around them as well: another
name, a string that is imported, a ``load`` of Stable-Baselines3. One module may do it,
`ottrpo.persistence.foreign`, which asks for trust first. Part of ``make check``.
"""

import ast
import sys
from pathlib import Path

ALLOWED = "ottrpo/persistence/foreign.py"
MODULES = frozenset(
    [
        *("pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "jsonpickle", "klepto"),
        *("marshal", "shelve", "yaml", "ruamel", "hickle"),
        *("builtins", "code", "codeop", "runpy", "imp"),
    ]
)
BUILTINS = frozenset({"eval", "exec", "compile", "__import__", "__builtins__"})
# loaders of other libraries that unpickle
LOADERS = frozenset(
    [
        *("torch.load", "torch.serialization", "torch.jit.load", "torch.hub", "torch.package"),
        *("numpy.load", "numpy.lib", "pandas.read_pickle", "pandas.read_hdf"),
        *("stable_baselines3.common.save_util", "importlib.machinery"),
        *("importlib.util.spec_from_file_location", "importlib.util.module_from_spec"),
    ]
)
UNPICKLING_PACKAGES = ("stable_baselines3", "sb3_contrib")  # every `load` of their classes
IMPORTERS = frozenset({"importlib.import_module", "importlib.__import__", "importlib.reload"})
ATTRIBUTES = frozenset({"load_from_zip_file", "load_from_pkl", "load_replay_buffer", "__reduce__"})


def violations(source: str, name: str = "<source>") -> list[str]:
    """What the source does that could run code from a file, one line each."""
    tree = ast.parse(source, name)
    names = _imported(tree)
    return [
        f"{name}:{node.lineno}: {complaint}"
        for node in ast.walk(tree)
        if (complaint := _complaint(node, names))
    ]


def _imported(tree: ast.AST) -> dict[str, str]:
    """What each name that an import binds stands for."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                whole = alias.name if alias.asname else alias.name.partition(".")[0]
                names[alias.asname or whole] = whole
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def _complaint(node: ast.AST, names: dict[str, str]) -> str:
    if isinstance(node, ast.Import):
        return _first(_banned(alias.name) for alias in node.names)
    if isinstance(node, ast.ImportFrom) and node.level == 0:
        return _first(_banned(f"{node.module}.{alias.name}") for alias in node.names)
    if isinstance(node, ast.Name) and node.id in BUILTINS and node.id not in names:
        return f"{node.id} runs code"
    if isinstance(node, ast.Attribute):
        return _of_attribute(node, names)
    if isinstance(node, ast.Call):
        return _of_call(node, names)
    return ""


def _of_attribute(node: ast.Attribute, names: dict[str, str]) -> str:
    if node.attr in ATTRIBUTES:
        return f"{node.attr} unpickles"
    whole = _qualified(node, names)
    foreign = whole.startswith(UNPICKLING_PACKAGES) and node.attr == "load"
    return f"{whole} unpickles" if foreign else _banned(whole)


def _of_call(node: ast.Call, names: dict[str, str]) -> str:
    function = _qualified(node.func, names)
    texts = [a.value for a in node.args if isinstance(a, ast.Constant) and type(a.value) is str]
    if function in IMPORTERS and (found := _first(_banned(text) for text in texts)):
        return found
    if function == "getattr" and texts:
        holder = _qualified(node.args[0], names)
        if found := _banned(f"{holder}.{texts[0]}"):
            return found
    if any(k.arg == "allow_pickle" and getattr(k.value, "value", 1) for k in node.keywords):
        return "allow_pickle unpickles"
    inherited = isinstance(node.func, ast.Attribute) and node.func.attr == "load"
    if inherited and _qualified(node.func.value, names) == "super()":
        return "super().load unpickles where the parent is one of Stable-Baselines3"
    return ""


def _qualified(node: ast.AST, names: dict[str, str]) -> str:
    """``np.load`` as ``numpy.load``; empty if it is no chain of names."""
    if isinstance(node, ast.Name):
        return names.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        holder = _qualified(node.value, names)
        return f"{holder}.{node.attr}" if holder else ""
    if isinstance(node, ast.Call) and _qualified(node.func, names) == "super":
        return "super()"
    return ""


def _banned(whole: str) -> str:
    first = whole.partition(".")[0]
    if first in MODULES:
        return f"{first} runs code from what it reads"
    found = [loader for loader in LOADERS if f"{whole}.".startswith(f"{loader}.")]
    return f"{found[0]} runs code from what it reads" if found else ""


def _first(complaints) -> str:
    return next((complaint for complaint in complaints if complaint), "")


def main(folders: list[str]) -> int:
    """Print all violations under the folders; 1 if there are any."""
    found = []
    for folder in folders:
        files = sorted(Path(folder).rglob("*.py"))
        if not files:
            found.append(f"there is no Python under {folder}")
        for path in files:
            if not path.as_posix().endswith(ALLOWED):
                found += violations(path.read_text(encoding="utf-8"), str(path))
    print("\n".join(found) or f"nothing under {' '.join(folders)} runs code from a file")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["src"]))
