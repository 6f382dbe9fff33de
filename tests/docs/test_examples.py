"""The examples run, and their assertions hold."""

from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"


def test_decoding(run_python):
    done = run_python((EXAMPLES / "decode.py").read_text(encoding="utf-8"))
    assert done.returncode == 0, done.stderr
    assert done.stdout
