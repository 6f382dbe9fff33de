"""Build the interactive page: one HTML file that runs the kernels in WebAssembly and needs no network.

    python docs/explore/build.py [FILE]          by default build/explore/index.html

ziglang (``pip install ziglang``) compiles explore.c and the kernels that it calls for wasm32 with SIMD. The module is
compressed and stands in the page as base64, together with the scripts, the style sheet and the tables
of `posenc.rope_from_config`. A second build compiles nothing unless the sources of C have changed.
"""

from __future__ import annotations

import ast
import base64
import gzip
import hashlib
import html
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CSRC = ROOT / "csrc"
KERNELS = (
    "attention/decode.c", "attention/dropout.c", "attention/forward.c", "attention/plan.c", "attention/scores.c",
    "base/half.c", "bias/*.c", "relative/*.c", "rotary/rope.c", "absolute/sinusoid.c", "tile/*.c",
)  # fmt: skip
"""Files of csrc/kernels that the entries of explore.c reach."""
SCRIPTS = ("library.js", "config.js", "numbers.js", "drawing.js", "figures.js", "page.js")
TARGET = ("-target", "wasm32-wasi", "-msimd128")
LINK = ("-mexec-model=reactor", "-Wl,--gc-sections", "-Wl,--strip-all")


def flags_of_setup() -> list[str]:
    """The flags with which setup.py compiles the kernels, read without running it."""
    for node in ast.parse((ROOT / "setup.py").read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "GNU_FLAGS":
            return list(ast.literal_eval(node.value))
    raise SystemExit("docs/explore/build.py: setup.py has no GNU_FLAGS")


def compiler() -> list[str]:
    if not find_spec("ziglang"):
        raise SystemExit(
            "docs/explore/build.py: ziglang is not installed, and it compiles the kernels to WebAssembly; "
            "pip install ziglang"
        )
    return [sys.executable, "-m", "ziglang", "cc", *TARGET]


def run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"docs/explore/build.py: {' '.join(command)}\n{done.stderr}")


def module() -> bytes:
    """The kernels as a WebAssembly module."""
    flags = [
        *flags_of_setup(),
        "-g0",
        "-ffunction-sections",
        "-Wno-pass-failed",
        "-I",
        str(CSRC),
        "-I",
        str(CSRC / "kernels"),
    ]
    sources = sorted(path for pattern in KERNELS for path in (CSRC / "kernels").glob(pattern))
    read = sorted([*CSRC.glob("*.[dh]*"), *(CSRC / "kernels").rglob("*.[ch]"), HERE / "explore.c"])
    digest = hashlib.sha256(
        repr((flags, TARGET, LINK, KERNELS)).encode() + b"".join(path.read_bytes() for path in read)
    )
    kept = ROOT / "build" / "explore" / f"{digest.hexdigest()[:16]}.wasm"
    if kept.exists():
        return kept.read_bytes()
    command = [*compiler(), *flags]
    with tempfile.TemporaryDirectory() as folder:

        def compile_one(job: tuple[Path, str]) -> str:
            source, bits = job
            out = f"{folder}/{source.parent.name}_{source.stem}_{bits}.o"
            run([*command, "-DPE_ISA=base", f"-DPE_REAL={bits}", "-c", str(source), "-o", out])
            return out

        with ThreadPoolExecutor() as pool:
            objects = list(pool.map(compile_one, [(source, bits) for source in sources for bits in ("32", "64")]))
        linked = Path(folder, "explore.wasm")
        run([*command, str(HERE / "explore.c"), *objects, *LINK, "-o", str(linked)])
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(linked.read_bytes())
    return kept.read_bytes()


def rules() -> dict[str, object]:
    """The tables from which `posenc.rope_from_config` reads a config: models without fields that have the default."""
    from posenc._core_api import read
    from posenc.rotary import config, models, scaling

    default = models.Model()._asdict()
    return {
        "models": {
            name: {key: value for key, value in model._asdict().items() if value != default[key]}
            for name, model in models.MODELS.items()
        },
        "model": default,
        "others": models.OTHERS,
        "rotates_if": models.ROTATES_IF,
        "full": models.FULL,
        "sliding": models.SLIDING,
        "lengths": scaling.LENGTHS,
        "keys": {rope_type: keys for rope_type, (_, keys) in scaling.ROPE_TYPES.items()},
        "aliases": config.ALIASES,
        "length_types": config.LENGTH_TYPES,
        "other_arguments": config.OTHER_ARGUMENTS,
        "text_parts": config.TEXT_PARTS,
        "bases": config.BASES,
        "sliding_bases": config.SLIDING_BASES,
        "parts": config.PARTS,
        "hidden": config.HIDDEN,
        "heads": config.HEADS,
        "known": config.KNOWN,
        "rope_part": config.ROPE_PART.pattern,
        "rotated_layers": config.ROTATED_LAYERS,
        "uses_rope": config.USES_ROPE.pattern,
        "expected_rotation": config.EXPECTED_ROTATION,
        "most_channels": read.MOST_CHANNELS,
    }


def page() -> str:
    """The page as one HTML document."""
    import posenc

    scripts = "\n".join((HERE / name).read_text("utf-8").replace('"use strict";\n', "") for name in SCRIPTS)
    compressed = base64.b64encode(gzip.compress(module(), 9, mtime=0)).decode()
    parts = {
        "style": (HERE / "page.css").read_text("utf-8"),
        "version": html.escape(posenc.__version__),
        "rules": json.dumps(rules(), separators=(",", ":")),
        "wasm": compressed,
        "scripts": scripts.replace("</script", "<\\/script"),
    }
    text = (HERE / "page.html").read_text("utf-8")
    for name, part in parts.items():
        mark = f"@{name}@"
        if text.count(mark) != 1:
            raise SystemExit(f"docs/explore/build.py: page.html has {text.count(mark)} marks {mark}; expected 1")
        text = text.replace(mark, part)
    return text


def main() -> None:
    out = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "explore" / "index.html")
    text = page()
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, "utf-8")
    print(f"{out}: {out.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
