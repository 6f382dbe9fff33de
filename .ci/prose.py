"""Find sentences that a reader would have to read twice.

    python .ci/prose.py [--count] [PATH ...]

The linter reads pages, the Markdown and the comments of notebooks, docstrings, comments and messages. It prints
``file:line: rule: finding`` and exits with status 1 if there is a finding. Without a path it reads the paths of
``.ci/prose-paths``; ``--count`` prints only the number of findings per directory.

Two sources of rules are used: the checks of proselint that suit technical prose, and the list ``RULES`` below. Code is
exempt: fenced blocks, words in backticks, identifiers with an underscore, formulas, examples of docstrings.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import sys
import tokenize
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from proselint.checks import __register__
from proselint.registry import CheckRegistry
from proselint.tools import LintFile

ROOT = Path(__file__).resolve().parent.parent
PATHS = Path(__file__).with_name("prose-paths")

Line = tuple[int, str]
"""The number of a line in its file, and its text."""

# ---- rules ----

WIDEST_CELL = 60
"""Characters of a table cell."""
WIDEST_LINE = 120
"""Characters of a line of Markdown or C; ruff measures Python."""

PROSELINT = [
    "annotations", "archaism", "cliches", "hedging", "industrial_language", "malapropisms", "mixed_metaphors",
    "mondegreens", "needless_variants", "nonwords", "oxymorons", "redundancy", "skunked_terms",
    "spelling", "uncomparables",
]  # fmt: skip
"""Not the checks of typography, dates and people: straight quotes, dots and 24-hour clocks are right in a source."""

GIVEN = "inputs, panel_bias, caller_table, caller_out"
COMPARED = (
    r"faster|slower|more|less|fewer|larger|smaller|longer|shorter|higher|lower|better|worse|closer|further|wider|cheaper"
    r"|the \w+|as (?:long|fast|many|much|large)"
)

NAME_FIRST = "names no thing; begin with the noun"
RULES = [
    (name, re.compile(pattern, re.IGNORECASE), message)
    for name, pattern, message in [
        # A sentence that begins with a free relative clause is read as a question first.
        (
            "opening",
            r"(?:^|(?<=[.!?:] ))(?:what(?:ever)?|whichever|who(?:ever)?|whether|how(?! to\b| many\b[^.]*\?))\b"
            r"(?=[^.?!]*(?:[.!]|$))",
            NAME_FIRST,
        ),
        ("opening", r"(?:^|(?<=[.!?:] ))(?:(?-i:Where)|where (?:to|the))\b(?=[^.?!,;:]*(?:[.!;:]|$))", NAME_FIRST),
        ("relative", r"\b(?:is|are|was|of|from|with|than|into|as|and|or|by) what\b", "name the thing"),
        (
            "ratio",
            r"(?<![\w.*/^(|\-+=])(?<![*/^(|+=] )\d+(?:\.\d+)? ?[x×](?![\w(^*=)\]}]|\.\w)"
            rf"(?! ?(?:\d|[-+*/=^|)\]§]|[A-Za-z]\b|{COMPARED}\b))",
            "say the comparison: '2x faster than', '2x the time of'",
        ),
        ("ratio", r"\bas (?:fast|long|much) again\b", "say the factor"),
        ("weasel", r"\bvery\b", "leave it out, or say how much"),
        ("repeated", r"(?-i:\b(?!long|had|that)([a-z]{2,}) \1\b(?!-))", "a word twice"),
        # Words with a meaning that only this project gave them.
        ("term", r"\bsoften(?:s|ed|ing)?\b", "online softmax step"),
        ("term", r"\bcareful(?:ly)?\b", "say what is masked or checked: nonfinite, mask_nonfinite"),
        ("term", r"\bodd (?:queries|keys|values|lanes?|cotangents)\b|\bthe odd\b(?! \w)", "nonfinite"),
        ("term", r"\b(?:un)?turned\b(?! (?:on|off|into|out))", "transposed, or rotated"),
        ("term", r"\brelations?\b", "relative-embedding lookup"),
        ("term", r"\b(?:meets?|meeting|met)\b", "multiply by, read, reach"),
        ("term", r"\b(?:a|the|its|no|of) given (?:table|bias|out|inputs?|panel|row)s?\b", GIVEN),
        ("term", r"\b(?:the|a) given(?=[.,;:)]| (?:is|are|of)\b)", GIVEN),
        ("term", r"\broom (?:for|of|is|to)\b|\b(?:no|has|have|more|is) room\b", "buffer, space"),
        ("term", r"\b(?:or|of|and) some(?=[.,;:)]|$)", "say how many, or of which kind"),
        ("term", r"\b(?:so|the|of|how) few\b", "count; say how many"),
        ("term", r"\bthe ways? (?:back|down|up|on)\b", "gradient, conversion"),
        ("term", r"\bwalk(?:s|ed|ing)?\b", "scan, iterate over, visit"),
        ("term", r"\bask(?:s|ed|ing)? memory\b|\bmemory is asked\b|\bask(?:s|ed)? for early\b", "prefetch"),
        ("term", r"\b(?:nobody|somebody)\b", "no query, no thread: name it"),
        ("term", r"\bpieces? of (?:the )?(?:work|code|tape)\b|\bone piece for\b", "function, block"),
    ]
]


REPEAT = ("repeat", re.compile(r"\b(?:but for|of (?:its|their) own|that of (?:the|an?|its)|those of)\b", re.IGNORECASE))
"""Words that stand for a noun, which a reader has to look for. The paths after STRICT in prose-paths have none."""
STRICT = "# without a word for a noun:"


class Finding(NamedTuple):
    path: Path
    line: int
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.text}"


# ---- prose of each kind of file, as passages ----

CODE = [
    (re.compile(r"!?\[([^\]]*)\]\((?:[^()]|\([^()]*\))*\)"), r"\1"),  # a link or a picture: its text
    (re.compile(r"(`{1,2})(?!`).+?\1"), "§"),
    (re.compile(r"\$[^$]+\$"), "§"),
    (re.compile(r"<?https?://\S+"), "§"),
    (re.compile(r":\w+:§|\{[\w:]+\}§"), "§"),
    (re.compile(r"\w*_\w+|\w+_\b|\w+\(\)|\b[\w/-]+\.(?:c|h|py|md|json|def|ipynb|png|csv)\b"), "§"),
    (re.compile(r"<!--.*?-->|</?\w+[^>]*>"), ""),
    (re.compile(r"\*\*|__|(?<!\w)\*(?=\w)|(?<=\w)\*(?!\w)"), ""),
]


def without_code(text: str) -> str:
    """Replace inline code, formulas and addresses by a sign that no rule knows."""
    for pattern, by in CODE:
        text = pattern.sub(by, text)
    return text


def paragraphs(lines: list[Line]) -> Iterator[list[Line]]:
    """Split lines at blank ones, at items of lists, and where the indentation grows or shrinks."""
    passage: list[Line] = []
    indentation = 0
    for number, line in lines:
        text = line.strip()
        begins = len(line) - len(line.lstrip())
        item = re.match(r"(?:[-*+]|\d+\.) ", text)
        if passage and (not text or item or begins != indentation):
            yield passage
            passage = []
        if text:
            indentation = begins + (len(item[0]) if item else 0)
            passage.append((number, text[len(item[0]) :] if item else text))
    if passage:
        yield passage


def markdown(lines: list[Line]) -> Iterator[list[Line]]:
    """Headings, paragraphs, items and table cells; not fenced or indented code, formulas, or front matter."""
    kept: list[Line] = []
    fence = ""
    blank = True
    if lines and lines[0][1].strip() == "---":
        fence = "---"
        lines = lines[1:]
    for number, line in lines:
        text = line.strip()
        if fence:
            closes = text.endswith(fence) if fence == "$$" else text.startswith(fence) and not text.strip(fence[0])
            fence = "" if closes else fence
            text = ""
        elif found := re.match(r"```+|\$\$", text):
            fence = "" if found[0] == "$$" and text.endswith("$$") and len(text) > 2 else found[0]
            text = ""
        elif (blank and line.startswith("    ")) or re.fullmatch(r"\|?[-:| ]+\|[-:| ]*", text):
            text = ""
        if text.startswith(("#", "|")):
            yield from paragraphs(kept)
            kept = []
            if text[0] == "|":
                yield from ([(number, cell)] for cell in cells(text))
            else:
                yield [(number, text.lstrip("# "))]
        else:
            kept.append((number, line if text else ""))
        blank = not text
    yield from paragraphs(kept)


def cells(row: str) -> list[str]:
    """The cells of a row of a table; a bar in code or behind a backslash does not end one."""
    row = re.sub(r"`[^`]*`", lambda code: code[0].replace("|", "¦"), row.replace("\\|", "¦"))
    return [text for cell in row.strip().strip("|").split("|") if (text := cell.strip())]


def wide_cells(path: Path, lines: list[Line]) -> Iterator[Finding]:
    """Cells that are too wide, counted as they are shown: a link by its text, a formula as one sign."""
    fenced = False
    for number, line in lines:
        fenced ^= line.lstrip().startswith("```")
        if fenced or not line.lstrip().startswith("|"):
            continue
        for cell in cells(line):
            shown = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"\$[^$]+\$", "§", cell)).replace("`", "")
            if len(shown) > WIDEST_CELL:
                yield Finding(path, number, "cell", f"{len(shown)} characters, {shown[:40]!r}...; split it")


def wide_lines(path: Path, lines: list[Line]) -> Iterator[Finding]:
    """Lines that are too wide; rows of tables are measured by cell, and one word cannot be broken."""
    for number, line in lines:
        if len(line) > WIDEST_LINE and not line.startswith("|") and " " in line.strip():
            yield Finding(path, number, "line", f"{len(line)} characters; at most {WIDEST_LINE}")


def powers(path: Path, passage: list[Line]) -> Iterator[Finding]:
    """Two powers in one paragraph: Markdown shows the text between them in bold, and 2**53 as 253."""
    text = re.sub(r"`[^`]*`|\$[^$]*\$|(?<!\w)\*\*[^*]+\*\*(?!\w)", "§", " ".join(line for _, line in passage))
    if re.search(r"\w\*\*\w.*\w\*\*", text):
        yield Finding(path, passage[0][0], "power", "two powers in a paragraph; put them in backticks")


def docstring(lines: list[Line]) -> Iterator[list[Line]]:
    """Paragraphs of a docstring: not its examples, the names of its sections, or its ``name : type`` lines."""
    kept: list[Line] = []
    example = literal = False
    for number, line in lines:
        text = line.strip()
        example = (example and bool(text)) or text.startswith(">>>")
        if literal and text:
            literal = line.startswith("    ") or not kept[-1][1]
        skipped = example or re.fullmatch(r"-{3,}|={3,}", text) or re.match(r"[*\w, ]+ : \S", text)
        skipped = skipped or re.match(r"\.\. \w+::|:\w+:", text)
        if re.fullmatch(r"-{3,}", text) and kept:
            kept[-1] = (kept[-1][0], "")
        kept.append((number, "" if skipped else line))
    yield from paragraphs(kept)


def is_sentence(text: str) -> bool:
    """Return True for a string constant that has at least three words in a row."""
    return bool(re.search(r"[A-Za-z]{2,}[,:;]? [a-z]+[,:;]? [a-z]{2,}", text)) and "\\" not in text and "==" not in text


def python(text: str, first: int = 1) -> Iterator[list[Line]]:
    """Docstrings, messages and comments of a Python source that begins at line ``first`` of its file."""
    tree = ast.parse(text)
    documentation = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            documentation.add(node.value)
            begins = node.value.lineno + first - 1
            lines = [line.rstrip() for line in node.value.value.split("\n")]
            margin = min((len(line) - len(line.lstrip()) for line in lines[1:] if line), default=0)
            lines = lines[:1] + [line[margin:] for line in lines[1:]]
            yield from docstring([(begins + at, line) for at, line in enumerate(lines)])
    inside = {part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        message = ""
        if isinstance(node, ast.JoinedStr):
            message = "".join(str(one.value) if isinstance(one, ast.Constant) else "§" for one in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in documentation | inside:
            message = node.value
        if is_sentence(message) and "\n" not in message.strip():
            yield [(node.lineno + first - 1, message)]
        elif is_sentence(message) and not re.search(r"^\s*(?:import|from|def) |[^=]=[^=]", message, re.MULTILINE):
            yield from docstring([(node.lineno + first - 1, line) for line in message.split("\n")])
    block: list[Line] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not re.match(
            r"#!|# ?(?:noqa|type:|fmt:|pragma|doctest:|pyright)", token.string
        ):
            number, column = token.start
            alone = not token.line[:column].strip()
            if block and not (alone and number + first - 2 == block[-1][0]):
                yield from paragraphs(block)
                block = []
            block.append((number + first - 1, token.string.lstrip("#").strip("- ")))
            if not alone:
                yield from paragraphs(block)
                block = []
    yield from paragraphs(block)


def c(text: str) -> Iterator[list[Line]]:
    """Comments and messages of a C source; indented lines of a comment are formulas."""
    token = re.compile(r'/\*.*?\*/|//[^\n]*|(?:"(?:[^"\\\n]|\\.)*"\s*)+|\'(?:[^\'\\]|\\.)+\'', re.DOTALL)
    for found in token.finditer(text):
        first = text.count("\n", 0, found.start()) + 1
        if found[0].startswith("/"):
            body = re.sub(r"^/[*/]|\*/$", "", found[0]).split("\n")
            lines = [re.sub(r"^\s*\*(?!\*)|^\s*//", "", line).rstrip() for line in body]
            lines = [re.sub(r"^ (?! {2})", "", line) for line in lines]
            formulas = (line.startswith("   ") for line in lines)
            yield from paragraphs(
                [
                    (first + at, "" if formula and at else re.sub(r"^\s*-+|-+\s*$", "", line))
                    for at, (line, formula) in enumerate(zip(lines, formulas, strict=True))
                ]
            )
        else:
            message = re.sub(r"%[-\d.]*l?[a-zA-Z]|\\n", "§", "".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', found[0])))
            if is_sentence(message):
                yield [(first, message)]


def notebook(text: str) -> Iterator[list[Line]]:
    """Markdown, docstrings and comments of a notebook, by the lines of its file."""
    raw = text.split("\n")
    at = 0
    for cell in json.loads(text)["cells"]:
        lines: list[Line] = []
        for line in cell["source"]:
            quoted = json.dumps(line, ensure_ascii=False)
            at = next((n for n in range(at, len(raw)) if quoted in raw[n]), at) + 1
            lines.append((at, line.rstrip("\n")))
        if cell["cell_type"] == "markdown":
            yield from markdown(lines)
        elif lines:
            code = "\n".join("" if line.startswith("%") else line for _, line in lines)
            yield from python(code, lines[0][0])


def passages(path: Path) -> Iterator[list[Line]]:
    """The prose of a file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        yield from python(text)
    elif path.suffix == ".ipynb":
        yield from notebook(text)
    elif path.suffix in (".c", ".h", ".def"):
        yield from c(text)
    else:
        yield from markdown(list(enumerate(text.split("\n"), 1)))


# ---- findings ----


def check(path: Path, strict: bool) -> list[Finding]:
    """All findings of one file, in the order of its lines; `strict` adds the rule REPEAT."""
    if not CheckRegistry().checks:
        CheckRegistry().register_many(__register__)
    shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    found = []
    lines = list(enumerate(path.read_text(encoding="utf-8").split("\n"), 1))
    if path.suffix == ".md":
        found += wide_cells(shown, lines)
    if path.suffix in (".md", ".c", ".h", ".def"):
        found += wide_lines(shown, lines)
    rules = [*RULES, (*REPEAT, "repeat the noun")] if strict else RULES
    for passage in passages(path):
        found += powers(shown, passage) if path.suffix == ".md" else []
        ends, text = [], ""
        for _, line in passage:
            text += without_code(line) + " "
            ends.append(len(text))
        text = text.rstrip()
        for rule, pattern, message in rules:
            for match in pattern.finditer(text):
                line = passage[bisect_right(ends, match.start())][0]
                found.append(Finding(shown, line, rule, f"{text[match.start() : match.end() + 24]!r}: {message}"))
        prose = re.sub(r"[\"“”]|(?<!\w)'|'(?!\w)", " ", text)  # a quotation is linted, too
        for result in LintFile("passage", prose or " ").lint(
            {"checks": dict.fromkeys(PROSELINT, True), "max_errors": 99}
        ):
            line = passage[min(bisect_right(ends, max(result.check_result.span[0] - 1, 0)), len(passage) - 1)][0]
            found.append(Finding(shown, line, result.check_result.check_path, result.check_result.message))
    return sorted(set(found), key=lambda one: one.line)


def files(paths: list[str]) -> list[Path]:
    """Sources and pages at the paths, which may be files, directories or patterns."""
    chosen: dict[Path, None] = {}
    for path in paths:
        for one in [Path(path)] if Path(path).is_absolute() else sorted(ROOT.glob(path)):
            below = sorted(one.rglob("*")) if one.is_dir() else [one]
            chosen |= dict.fromkeys(
                file for file in below if file.suffix in (".md", ".py", ".ipynb", ".c", ".h", ".def", ".pyi")
            )
    return [file for file in chosen if not any(part in ("build", "notebooks", ".git") for part in file.parts)]


def main() -> int:
    parser = argparse.ArgumentParser(prog=".ci/prose.py", description=__doc__.split("\n", 1)[0])
    parser.add_argument("paths", nargs="*", metavar="PATH", help="files, directories or patterns below the root")
    parser.add_argument("--strict", action="store_true", help="apply the rule of repeated nouns to these paths")
    parser.add_argument("--count", action="store_true", help="print the number of findings per directory only")
    asked = parser.parse_args()
    loose, _, strict = PATHS.read_text("utf-8").partition(STRICT)
    named = [[line for line in part.splitlines() if line and not line.startswith("#")] for part in (loose, strict)]
    always = set(files(named[1]))
    chosen = files(asked.paths or [*named[0], *named[1]])
    found = [one for file in chosen for one in check(file, asked.strict or file in always)]
    if asked.count:
        for directory, count in sorted(Counter(str(one.path.parent) for one in found).items()):
            print(f"{count:5} {directory}")
        for rule, count in Counter(one.rule for one in found).most_common():
            print(f"{count:5} {rule}")
    else:
        print(*found, sep="\n", end="\n" if found else "")
    print(f"{len(found)} findings", file=sys.stderr)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
