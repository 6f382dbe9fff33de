"""Print lines of code and words of the manual beside their limits, and fail above one: `python .ci/budgets.py`.

Blank lines, comments and docstrings do not count, and neither do fenced blocks of pages, comments and addresses. A
limit is what stood when it was written, and 2 %: a change of some lines fits, and a larger one must first take away.
"""

import ast
import io
import re
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CORE = [
    f"posenc/{name}"
    for name in ("__init__.py", "_core.pyi", "runtime.py", "typing.py", "interop.py", "_core_api", "absolute")
    + ("rotary", "bias", "relative", "attention")
]
LIMITS = {
    "csrc": (["csrc"], 11_998),
    "core of posenc": (CORE, 5_254),
    "reference": (["posenc/reference"], 1_291),
    "check": (["posenc/check"], 4_040),
    "analysis, plot, __main__": (["posenc/analysis", "posenc/plot", "posenc/__main__.py"], 1_300),
    "tests": (["tests"], 17_040),
    "bridges": (["bridges/posenc_bridges"], 3_290),
    "tests of the bridges": (["bridges/tests", "bridges/conftest.py"], 5_364),
    "examples": (["examples"], 2_190),
    "benchmarks": (["benchmarks"], 3_060),
    "programs of docs": (["docs"], 3_236),
    "machinery": ([".ci", "noxfile.py", "setup.py"], 621),
}
SILENT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
SUFFIXES = (".c", ".h", ".def", ".js", ".py", ".pyi")
NOT_WORDS = re.compile(r"^(`{3,}).*?^\1\s*$|<!--.*?-->|\]\([^)\s]*\)", re.DOTALL | re.MULTILINE)
C_COMMENT = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.DOTALL)


def lines_of(file: Path) -> int:
    text = file.read_text("utf-8")
    if file.suffix in (".c", ".h", ".def", ".js"):
        code = C_COMMENT.sub(lambda m: m[0] if m[0][0] == '"' else "\n" * m[0].count("\n") or " ", text)
        return sum(bool(line.strip()) for line in code.split("\n"))
    if file.suffix not in (".py", ".pyi"):  # shell, rules of check
        return sum(bool(line.strip()) and not line.lstrip().startswith("#") for line in text.split("\n"))
    held = {
        n
        for t in tokenize.generate_tokens(io.StringIO(text).readline)
        if t.type not in SILENT
        for n in range(t.start[0], t.end[0] + 1)
    }
    alone = [node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Expr)]
    strings = [node for node in alone if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return len(held - {n for node in strings for n in range(node.lineno, (node.end_lineno or node.lineno) + 1)})


def files_of(place: str) -> list[Path]:
    path = ROOT / place
    found = [path] if path.is_file() else [f for f in path.rglob("*") if f.parent.name != "__pycache__" and f.is_file()]
    rules = ROOT / "posenc/check/hypotheses.txt"
    return [file for file in found if file.suffix in SUFFIXES or ".ci" in file.parts or file == rules]


over = []
for room, (places, limit) in LIMITS.items():
    count = sum(lines_of(file) for place in places for file in files_of(place))
    print(f"{room:32}{count:7,} of {limit:7,}")
    over += [room] if count > limit else []
pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
words = sum(any(map(str.isalnum, w)) for page in pages for w in NOT_WORDS.sub(" ", page.read_text("utf-8")).split())
print(f"{f'words of {len(pages)} pages':32}{words:7,} of  42,000")
over += ["words"] * (words > 42_000)
sys.exit(f"above the limit: {', '.join(over)}; take lines away, or merge" if over else 0)
