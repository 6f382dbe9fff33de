"""Measure the tests: change one thing in the sources, a mutant, and see whether a test fails.

    python benchmarks/tools/mutants.py draw --seed 1 --c 60 --python 100 > LIST
    python benchmarks/tools/mutants.py run LIST --tree TREE > RESULTS

A mutant is a line with one operator, number, sign, index or comparison changed, or a statement of Python left out. A
file is drawn by its lines of code, then a line of it. C that does not compile, or that is not in the build, is drawn
again. RESULTS is LIST with the test that killed each mutant, or "survived", and can be run again, also on a later tree:
a line is found by its text, and a file that has moved by its name.

A run works in a copy of the tree, built with -O1 for AVX2 alone. Each mutant meets the tests of its folder, 500 random
calls, and the tests of tests/contract that name it, but none that read the sources, or that need the other variants.
"""

from __future__ import annotations

import argparse
import ast
import csv
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

TABLE = {"delimiter": "\t", "quoting": csv.QUOTE_NONE, "quotechar": None}
FIELDS = ("id", "file", "line", "flip", "original", "mutated", "result", "judgement")
C_FILES = ("csrc/kernels/**/*.c", "csrc/python/bind.c", "csrc/python/signature.c", "csrc/python/run.c")
PYTHON_FILES = tuple(
    f"posenc/{place}*.py"
    for place in ("_core_api/**/", "absolute/**/", "rotary/**/", "bias/**/", "relative/**/", "attention/**/", "runtime")
)
SWAPS = {
    "+": "-", "-": "+", "*": "+", "/": "*", "//": "*", "%": "*", "**": "*", "+=": "-=", "-=": "+=", "*=": "+=",
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "is": "is not", "is not": "is", "in": "not in",
    "not in": "in", "&&": "||", "||": "&&", "and": "or", "or": "and", "&": "|", "|": "&", "<<": ">>", ">>": "<<",
    "vec_min": "vec_max", "vec_max": "vec_min", "vec_add": "vec_mul", "vec_mul": "vec_add",
}  # fmt: skip
NOT_CODE = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'|^[ \t]*\#(?:\\\n|[^\n])*""", re.DOTALL | re.MULTILINE
)
DECLARATION = re.compile(r"\s*(?:\w+ )+[^=(]*;\s*")
TOKEN = re.compile(r"(?<= )(?:[-+*/%&|<>]|[<>=!+*-]=|&&|\|\||<<|>>)(?= )|\bvec_(?:min|max|add|mul)\b")
SIGN = re.compile(r"(?<=[(\[=?:, ])[-!](?=[\w(])")
NUMBER, INDEX = re.compile(r"(?<![\w.])(?:0|[1-9]\d*)(?!\w)"), re.compile(r"(?<=\w)\[[a-z_]\w*(?=\])")
AVX2 = ["-mavx2", "-mfma", "-mf16c"]
MEMORY, PATIENCE, STILL = 8 << 30, 120, 60
"""Bytes of a test process, seconds of the tests of a mutant, and seconds without an end of a test that are a hang."""
ALL_CASES = ("forward", "vjp", "operators", "options", "sizes", "contract", "contract_out")
ARGUMENTS = ("core", "options", "sizes", "operators", "range", "properties", "runtime")
RANDOM_CALLS = ["tests/contract/test_random_calls.py"]
UNFIT = ("use_isa", "unknown_isa_is_refused", "half_storage", "gradient_beyond_float32")

Edit = tuple[int, int, bytes, str]
"""The first and last byte of a change in a file, the new bytes and the name of the change."""
Row = dict[str, str]


def c_edits(text: bytes, rng: random.Random) -> Iterator[Edit]:
    """All single changes of C, outside of comments, strings, lines of the preprocessor and declarations."""
    code = NOT_CODE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text.decode("latin-1"))
    begin = 0
    for line in code.splitlines(keepends=True):
        if not DECLARATION.fullmatch(line):
            for pattern in (TOKEN, SIGN, NUMBER, INDEX):
                for found in pattern.finditer(line):
                    old = found[0]
                    new = next_number(old, rng) if pattern is NUMBER else f"{old} + 1" if pattern is INDEX else ""
                    new = SWAPS[old] if pattern is TOKEN else new
                    yield begin + found.start(), begin + found.end(), new.encode(), f"{old} -> {new or 'nothing'}"
        begin += len(line)


def python_edits(text: bytes, rng: random.Random) -> Iterator[Edit]:
    """All single changes of Python that keep to a line, outside of docstrings, annotations and f-strings."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def between(left: ast.expr, right: ast.expr, words: str) -> Iterator[Edit]:
        begin = starts[left.end_lineno - 1] + left.end_col_offset  # type: ignore[operator]
        segment = text[begin : starts[right.lineno - 1] + right.col_offset]
        if found := re.search(words.encode(), segment):
            old = found[0].decode()
            new = SWAPS.get(re.sub(r"\s+", " ", old))
            if new:
                yield begin + found.start(), begin + found.end(), new.encode(), f"{old} -> {new}"

    def visit(node: ast.AST) -> Iterator[Edit]:
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)):
            return
        begin = end = 0
        if isinstance(node, ast.expr | ast.stmt):
            begin = starts[node.lineno - 1] + node.col_offset
            end = starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[operator]
        if isinstance(node, ast.BinOp):
            yield from between(node.left, node.right, r"[-+%&|]|\*\*?|//?|<<|>>")
        elif isinstance(node, ast.BoolOp):
            yield from between(*node.values[:2], r"\b(and|or)\b")
        elif isinstance(node, ast.Compare):
            yield from between(node.left, node.comparators[0], r"[<>=!]=|[<>]|\b(is\s+not|not\s+in|is|in)\b")
        elif isinstance(node, ast.UnaryOp):
            yield begin, starts[node.operand.lineno - 1] + node.operand.col_offset, b"", "sign or `not` -> nothing"
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
            old = text[begin:end].decode()
            new = str(not node.value) if isinstance(node.value, bool) else next_number(old, rng)
            yield begin, end, new.encode(), f"{old} -> {new}"
        elif isinstance(node, ast.AugAssign | ast.Raise) or (
            isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant)
        ):
            yield begin, end, b"pass", "statement -> pass"
        for name, field in ast.iter_fields(node):
            if name not in ("annotation", "returns", "decorator_list"):
                for child in field if isinstance(field, list) else [field]:
                    if isinstance(child, ast.AST):
                        yield from visit(child)

    yield from visit(ast.parse(text))


def next_number(number: str, rng: random.Random) -> str:
    """One more or one less."""
    return str(ast.literal_eval(number) + rng.choice((1, -1)))


def draw_from(tree: Path, patterns: tuple[str, ...], count: int, rng: random.Random) -> Iterator[Row]:
    """Draw mutants that compile."""
    files = sorted({file for pattern in patterns for file in tree.glob(pattern)})
    texts = [file.read_bytes() for file in files]
    weights = [sum(map(bool, map(bytes.strip, text.splitlines()))) for text in texts]
    edits_of: dict[Path, list[Edit]] = {}
    seen: set[tuple[str, int]] = set()
    refused = 0
    while len(seen) < count:
        file, text = rng.choices(list(zip(files, texts, strict=True)), weights)[0]
        number = rng.randrange(text.count(b"\n"))
        if file not in edits_of:
            edits_of[file] = list((c_edits if file.suffix == ".c" else python_edits)(text, rng))
        edits = [
            edit for edit in edits_of[file] if text.count(b"\n", 0, edit[0]) == number == text.count(b"\n", 0, edit[1])
        ]
        name = file.relative_to(tree).as_posix()
        if not edits or (name, number) in seen:
            continue
        begin, end, new, flip = rng.choice(edits)
        mutated = text[:begin] + new + text[end:]
        if file.suffix == ".c" and not compiles(tree, file, text, mutated):
            refused += 1
            continue
        seen.add((name, number))
        original, changed = (version.split(b"\n")[number].decode() for version in (text, mutated))
        yield {"file": name, "line": str(number + 1), "flip": flip, "original": original, "mutated": changed}
    print(f"{count} drawn from {len(files)} files; {refused} that do not compile drawn again", file=sys.stderr)


def compiles(tree: Path, file: Path, text: bytes, mutated: bytes) -> bool:
    """Return whether a change of C is in the build and compiles."""
    numpy = Path(find_spec("numpy").origin).parent / "_core" / "include"  # type: ignore[union-attr, arg-type]
    folders = (file.parent, tree / "csrc", tree / "csrc" / "kernels", sysconfig.get_paths()["include"], numpy)
    macros = ("-DPE_ISA=avx2", "-DPE_REAL=32", "-DPE_VARIANTS=V(avx2)", '-DPE_BUILD=""')
    command = ["cc", *AVX2, "-std=c11", "-fopenmp-simd", "-x", "c", *(f"-I{folder}" for folder in folders), *macros]
    before, after = (
        subprocess.run([*command, "-E", "-P", "-"], input=version, capture_output=True).stdout
        for version in (text, mutated)
    )
    checked = subprocess.run([*command, "-fsyntax-only", "-"], input=mutated, capture_output=True)
    return before != after and checked.returncode == 0


def suites(tree: Path, file: Path) -> list[list[str]]:
    """The arguments of pytest for the tests of a file, in runs from the fastest to the slowest."""
    room, stem = file.parent.name, file.stem
    contract = {test.stem[5:]: str(test) for test in sorted(tree.glob("tests/**/test_*.py"))}
    of_cases, of_arguments = (
        [contract[name] for name in names if name in contract] for names in (ALL_CASES, ARGUMENTS)
    )
    rooms = {
        folder: f"tests/{folder}" for folder in ("relative", "bias", "rotary", "absolute", "analysis", "attention")
    }
    doctests = [str(file)] if file.suffix == ".py" else []
    if room in ("attention", "tile", "bf16"):
        others = [rooms["relative"], rooms["absolute"]] if room == "tile" else []
        by_name = "attention and not layout and not rows_of_a_batch and not float16"
        return [[*of_cases, "-k", by_name], [*doctests, *others, rooms["attention"]]]
    if room in rooms:
        modules = [module.read_text() for module in sorted(tree.glob(f"posenc/{room}/*.py"))]
        modules = [module for module in modules if re.search(rf"\b{stem.strip('_')}\b", module)] or modules
        names = {
            stem,
            *(name for module in modules for name in re.findall(r"^(?:def|class) ([A-Za-z]\w+)", module, re.M)),
        }
        return [[*doctests, rooms[room]], [*of_cases, "-k", " or ".join(sorted(names))]]
    return [[*doctests, *of_arguments], list(rooms.values())[:4], [*of_cases[-2:], contract["reference"]]]


def limit_child() -> None:
    """In the child: a process group of its own, and no more memory than a test needs."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def run_tests(tree: Path, file: Path) -> str:
    """Run the tests of a file until one fails: return its name, or "survived"."""
    begun, environment = time.monotonic(), dict(os.environ)
    environment |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "POSENC_TEST_CALLS": "500"}
    first, *others = suites(tree, file)
    for arguments in (first, RANDOM_CALLS, *others):
        unfit = " and ".join(f"not {name}" for name in UNFIT)
        if "-k" in arguments:
            *arguments, _, chosen = arguments
            unfit = f"({chosen}) and {unfit}"
        command = [sys.executable, "-m", "pytest", "-x", "-vv", "--tb=no", "-p", "no:cacheprovider", "-k", unfit]
        with tempfile.NamedTemporaryFile("w+") as output:
            process = subprocess.Popen(
                [*command, *arguments], cwd=tree, env=environment, stdout=output, stderr=output, preexec_fn=limit_child
            )
            size, moved, late = 0, time.monotonic(), ""
            while process.poll() is None and not late:
                time.sleep(0.1)
                if os.stat(output.name).st_size != size:
                    size, moved = os.stat(output.name).st_size, time.monotonic()
                late = "hangs in " if time.monotonic() - moved > STILL else ""
                late = late or ("survived (cap)" if time.monotonic() - begun > PATIENCE else "")
            if late:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            text = Path(output.name).read_text(errors="replace").replace(f"{tree}/", "")
        if late.startswith("survived"):
            return late
        failed = re.findall(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", text, re.MULTILINE)
        begun_tests = re.findall(r"^\S+::.*?(?= PASSED| SKIPPED| *Fatal| *$)", text, re.MULTILINE) or ["the import"]
        if late or process.returncode not in (0, 5):
            crash = f"{late or 'ends in '}{begun_tests[-1]}"
            return crash if late or not failed else failed[0]
    return "survived"


def locate(tree: Path, row: Row) -> tuple[Path, int] | None:
    """The file and the index of the line with the original text of a mutant, the nearest if there are several."""
    path = tree / row["file"]
    top = tree / row["file"].split("/")[0]
    for file in [path] if path.exists() else sorted(top.rglob(path.name)):
        lines = [line.strip() for line in file.read_text().split("\n")]
        found = [index for index, line in enumerate(lines) if line == row["original"].strip()]
        if found:
            return file, min(found, key=lambda index: abs(index + 1 - int(row["line"])))
    return None


def build(tree: Path) -> bool:
    """Compile what has changed in the copy."""
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    environment = {**os.environ, "POSENC_CFLAGS": "-O1", "POSENC_VARIANTS": "all"}  # all that copy_of left
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True).returncode == 0


def run_mutant(tree: Path, row: Row) -> str:
    """Apply a mutant to the copy, run its tests, and take it back."""
    place = locate(tree, row)
    if place is None:
        return "lost"
    file, index = place
    name = file.relative_to(tree)
    (module,) = tree.glob("posenc/_core*.so")
    kept = {path: path.read_bytes() for path in (file, module, *tree.glob(f"build/*/*/{name.with_suffix('.o')}*"))}
    lines = file.read_text().split("\n")
    indent = lines[index][: len(lines[index]) - len(lines[index].lstrip())]
    lines[index] = indent + row["mutated"].strip()
    try:
        file.write_text("\n".join(lines))
        remove_bytecode(file)
        if file.suffix == ".c" and not build(tree):
            return "does not compile"
        if file.suffix == ".c" and module.read_bytes() == kept[module]:
            return "survived (same machine code)"
        return run_tests(tree, name)
    finally:
        for path, content in kept.items():
            path.write_bytes(content)
        remove_bytecode(file)


def remove_bytecode(file: Path) -> None:
    """Remove what Python compiled from a file: a mutant may have the size and the second of another one."""
    for compiled in file.parent.glob(f"__pycache__/{file.stem}.*"):
        compiled.unlink()


def copy_of(tree: Path, to: Path) -> Path:
    """Copy a tree and build it for one variant."""
    ignored = shutil.ignore_patterns(".git", "build", "__pycache__", "*.so")
    shutil.copytree(tree, to, ignore=ignored)
    setup = to / "setup.py"
    setup.write_text(re.sub(r"(?ms)^X86 = .*?^}$", f'X86 = {{"avx2": {AVX2}}}', setup.read_text()))
    if not build(to):
        sys.exit(f"{tree} does not compile")
    return to


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    draw, run = commands.add_parser("draw", help="draw mutants"), commands.add_parser("run", help="run their tests")
    for command in (draw, run):
        command.add_argument("--tree", type=Path, default=Path(__file__).resolve().parents[2], help="a clone")
    draw.add_argument("--seed", type=int, default=1)
    draw.add_argument("--c", type=int, default=60, help="number of mutants of C")
    draw.add_argument("--python", type=int, default=100, help="number of mutants of Python")
    run.add_argument("list", type=Path)
    options = parser.parse_args()
    tree = options.tree.resolve()
    table = csv.DictWriter(sys.stdout, FIELDS, restval="", lineterminator="\n", **TABLE)
    table.writeheader()
    if options.command == "draw":
        for letter, patterns, count in (("c", C_FILES, options.c), ("p", PYTHON_FILES, options.python)):
            rng = random.Random(f"{options.seed} {letter}")
            for number, row in enumerate(draw_from(tree, patterns, count, rng), 1):
                table.writerow({"id": f"{letter}{number}", **row})
        return
    with tempfile.TemporaryDirectory() as folder, options.list.open(newline="") as rows:
        copy = copy_of(tree, Path(folder, "copy"))
        for row in csv.DictReader(rows, **TABLE):
            table.writerow({**row, "result": run_mutant(copy, row)})
            sys.stdout.flush()


if __name__ == "__main__":
    main()
