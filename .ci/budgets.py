"""Print the lines of code of each room beside its limit, and fail above a limit: `python .ci/budgets.py`.

Blank lines, comments and docstrings do not count. A limit is what stands; a change that adds must first take away.
"""

import ast
import io
import re
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CORE = ("__init__.py", "runtime.py", "interop.py", "_core_api", "absolute", "rotary", "bias",
        "relative", "attention")  # fmt: skip
LIMITS = {
    "csrc": (["csrc"], 11_326),
    "core of posenc": ([f"posenc/{name}" for name in CORE], 5_423),
    "reference": (["posenc/reference"], 1_108),
    "analysis, plot, check, __main__": ([f"posenc/{x}" for x in ("analysis", "plot", "check", "__main__.py")], 3_277),
    "tests": (["tests", "conftest.py"], 12_024),
    "bridges": (["bridges/posenc_bridges"], 3_247),
    "tests of the bridges": (["bridges/tests", "bridges/conftest.py"], 4_800),
    "examples": (["examples"], 1_799),
    "benchmarks": (["benchmarks"], 3_478),
    "machinery": ([".ci", "noxfile.py"], 514),
}
SILENT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
C_COMMENT = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.DOTALL)


def lines_of(file: Path) -> int:
    text = file.read_text("utf-8")
    if file.suffix in (".c", ".h", ".def"):
        code = C_COMMENT.sub(lambda m: m[0] if m[0][0] == '"' else "\n" * m[0].count("\n") or " ", text)
        return sum(bool(line.strip()) for line in code.split("\n"))
    if file.suffix not in (".py", ".pyi"):  # shell
        return sum(bool(line.strip()) and not line.lstrip().startswith("#") for line in text.split("\n"))
    held = {n for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type not in SILENT
            for n in range(t.start[0], t.end[0] + 1)}  # fmt: skip
    alone = [node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Expr)]
    strings = [node for node in alone if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return len(held - {n for node in strings for n in range(node.lineno, (node.end_lineno or node.lineno) + 1)})


def files_of(place: str) -> list[Path]:
    path = ROOT / place
    found = [path] if path.is_file() else [f for f in path.rglob("*") if f.parent.name != "__pycache__" and f.is_file()]
    return [file for file in found if file.suffix in (".c", ".h", ".def", ".py", ".pyi") or ".ci" in file.parts]


over = []
for room, (places, limit) in LIMITS.items():
    count = sum(lines_of(file) for place in places for file in files_of(place))
    print(f"{room:32}{count:7,} of {limit:7,}")
    over += [room] if count > limit else []
sys.exit(f"above the limit: {', '.join(over)}; take lines away, or merge" if over else 0)
