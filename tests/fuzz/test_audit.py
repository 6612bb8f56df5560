"""Nothing that is read is executed: no pickle, no eval, no unpacked archives in the library."""

import ast
from pathlib import Path

import inbounds

ROOT = Path(inbounds.__file__).parent
SOURCES = sorted(ROOT.rglob("*.py"))
MODULES = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "yaml"}
CALLS = {"eval", "exec", "extractall", "extract", "unpack_archive", "os.system", "os.popen"}
IMPORTS_BY_DESIGN = {
    "cli.py"
}  # `inbounds tune FILE:FUNCTION` and `inbounds check MODULE:POSTERIOR` run what the user names


def findings(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            yield from (f"imports {name}" for name in names if name.partition(".")[0] in MODULES)
        elif isinstance(node, ast.Call):
            function = node.func
            name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
            options = {keyword.arg: keyword.value for keyword in node.keywords}
            owner = getattr(getattr(function, "value", None), "id", "")
            if name in CALLS or f"{owner}.{name}" in CALLS:
                yield f"calls {name}"
            elif name == "exec_module":
                yield "runs a file"
            elif name == "load" and owner == "np":
                allowed = options.get("allow_pickle")
                if not (isinstance(allowed, ast.Constant) and allowed.value is False):
                    yield "calls np.load without allow_pickle=False"
            elif isinstance(options.get("shell"), ast.Constant) and options["shell"].value:
                yield "runs a shell"


def test_the_audit_sees_what_it_is_to_see():
    bad = "import pickle\nfrom yaml import load\neval('1')\nnp.load(path)\nzip.extractall()\nrun(x, shell=True)\nos.system(x)\n"
    assert len(list(findings(ast.parse(bad)))) == 7


def test_no_source_executes_what_it_reads():
    """But for the command line, where `tune FILE:FUNCTION` and `check MODULE:POSTERIOR` run what the user names."""
    found = {str(path.relative_to(ROOT)): list(findings(ast.parse(path.read_text()))) for path in SOURCES}
    assert {name: what for name, what in found.items() if what} == {"cli.py": ["runs a file"]}
