"""The composite action: its shell steps run here, as a runner would run them."""

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import posenc

ROOT = Path(__file__).resolve().parents[2]
ACTION = ROOT / ".github" / "actions" / "check" / "action.yml"
ENGINE = """
import sys
from pathlib import Path
import numpy as np
base = float(sys.argv[1])
for file in Path(sys.argv[2]).glob("*-positions.npy"):
    angle = np.load(file)[:, None] * base ** (-np.arange(0, 32, 2) / 32)
    np.save(file.with_name(file.name[:5] + "out"), np.stack([np.sin(angle), np.cos(angle)], -1).reshape(-1, 32))
"""
pytestmark = [
    pytest.mark.skipif(not ACTION.is_file(), reason="the action is in a clone of the sources alone"),
    pytest.mark.skipif(shutil.which("bash") is None, reason="no bash in PATH"),
]


def script():
    """The commands of the second step; the first one installs posenc."""
    return textwrap.dedent(ACTION.read_text("utf-8").partition("run: |\n")[2])


def run(folder, **inputs):
    (folder / "engine.py").write_text(ENGINE)
    (folder / "mine.py").write_text("import posenc\ndef slopes(heads):\n    return posenc.alibi_slopes(heads)\n")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    of_step = {"IMPLEMENTATION": "", "ENGINE": "", "OPTIONS": "", **inputs}
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(Path(posenc.__file__).parents[1]), **of_step}
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script()]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("inputs", "status", "said"),
    [
        ({"KIND": "slopes", "IMPLEMENTATION": "mine:slopes", "OPTIONS": "--heads '12'"}, 0, "slopes: right."),
        ({"KIND": "slopes", "IMPLEMENTATION": "mine:slopes"}, 0, "slopes: right."),
        ({"KIND": "sinusoid", "ENGINE": "python engine.py 10000", "OPTIONS": "--dim 32"}, 0, "sinusoid: right."),
        ({"KIND": "sinusoid", "ENGINE": "python engine.py 30000", "OPTIONS": "--dim 32"}, 1, "The base is 30000"),
        ({"KIND": "sinusoid", "ENGINE": "false", "OPTIONS": "--dim 32"}, 1, "0 probes"),
        ({"KIND": "sinusoid", "ENGINE": "true", "OPTIONS": "--dim 32"}, 2, "0 probes"),
    ],
)
def test_the_steps_of_the_action(tmp_path, inputs, status, said):
    done = run(tmp_path, **inputs)
    assert done.returncode == status, done.stderr
    assert said in done.stdout


def test_inputs_are_declared_and_reach_the_shell_as_variables():
    text = ACTION.read_text("utf-8")
    declared = set(re.findall(r"^  (\w+):\n    description:", text, re.MULTILINE))
    assert declared == set(re.findall(r"\$\{\{ inputs\.(\w+) \}\}", text))
    assert "${{" not in script()
