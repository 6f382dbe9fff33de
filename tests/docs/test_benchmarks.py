"""Files of benchmarks/results have the form that the manual's page is made of; the page names what became worse."""

import json
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "benchmarks" / "results").glob("*.json"))
THREADS = [f"{name}_NUM_THREADS" for name in ("OPENBLAS", "MKL", "OMP", "VECLIB_MAXIMUM")]


@pytest.fixture(scope="module")
def tools():
    """The modules of the benchmarks, which change sys.path and the environment of their process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POSENC_BENCHMARK_TREE", "")
        for name in (*THREADS, "HF_HUB_OFFLINE"):
            patch.setenv(name, "1")
        patch.setattr(sys, "path", [*sys.path[:1], str(ROOT / "benchmarks"), str(ROOT / "docs"), *sys.path[1:]])
        names = ("tools.measure", "tools.results", "tools.compare", "run", "benchmark_page")
        yield SimpleNamespace(**{name.split(".")[-1].removeprefix("benchmark_"): import_module(name) for name in names})


def line(work="rope", **ratios):
    """A line of times; a ratio is (lower quartile, median, upper quartile)."""
    seconds = {"posenc": 1.0} | {name: ratio[1] for name, ratio in ratios.items()}
    return {"work": work, "ours": "posenc", "seconds": seconds, "ratios": {a: list(b) for a, b in ratios.items()}}


def run_of(*rows, date="2026-11-22", machine="Invented", left_out=None, **peers):
    return {
        "machine": machine,
        "date": date,
        "environment": {"cpu": "Invented", "commit": "abc1234"},
        "peers": peers,
        "scripts": {"speed/rope": {"rows": list(rows), "left_out": left_out or {}}},
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_committed_files(path, tools):
    run = json.loads(path.read_text("utf-8"))
    assert set(run["scripts"]) <= set(tools.run.SCRIPTS)
    for found in run["scripts"].values():
        works = [row["work"] for row in found["rows"]]
        assert len(set(works)) == len(works)
        for row in found["rows"]:
            assert all(0 < low <= middle <= high for low, middle, high in row.get("ratios", {}).values())
    assert path.name == tools.results.file_name(run["machine"], run["date"])


# ---- a script's figures ----


def test_a_line_has_the_quartiles_of_its_turns(tools, monkeypatch):
    samples = {"posenc": [1.0, 2.0, 1.0, 1.0, 1.0], "torch SDPA": [2.0, 2.0, 2.0, 3.0, 4.0]}
    monkeypatch.setattr(tools.measure, "alternate", lambda contenders, seconds, cold, turns: samples)
    report = tools.measure.Report(0.0)
    assert report.time("a", dict.fromkeys(samples)) == {"posenc": 1.0, "torch SDPA": 2.0}
    assert report.rows == [
        {
            "work": "a",
            "ours": "posenc",
            "seconds": {"posenc": 1.0, "torch SDPA": 2.0},
            "ratios": {"torch SDPA": [2.0, 2.0, 3.0]},
        }
    ]
    assert tools.measure.quartiles([5.0]) == [5.0] * 3


# ---- regressions ----


@pytest.mark.parametrize(
    ("was", "now", "worse"),
    [
        ((2.9, 3.0, 3.1), (2.0, 2.1, 2.2), [True]),
        ((2.0, 2.1, 2.2), (2.9, 3.0, 3.1), [False]),
        ((2.0, 3.0, 3.1), (2.05, 2.1, 2.2), []),  # within the spread
        ((2.99, 3.0, 3.01), (2.90, 2.91, 2.92), []),  # by 3 %
    ],
)
def test_a_ratio_is_worse_by_more_than_its_spread(tools, was, now, worse):
    found = tools.compare.changes(run_of(line(torch=was)), run_of(line(torch=now)))
    assert [change.is_worse for change in found] == worse


# ---- the page ----


def page_of(tools, *runs):
    """The page's results, its made part, and the tables of all lines."""
    by_machine = {}
    for run in runs:
        by_machine.setdefault(run["machine"], []).append(run)
    results = tools.page.Results(by_machine)
    return results, tools.page.overview(results) + "\n" + tools.page.every_line(results)


def test_the_page_has_a_column_per_machine(tools):
    first = run_of(
        line("a", **{"torch SDPA": (2, 2, 2), "copy": (0.5, 0.5, 0.5)}), machine="One", torch="2.13", jax=None
    )
    second = run_of(
        line("b", **{"np.add": (3, 3, 3)}),
        line("a", **{"torch SDPA": (4, 4, 4), "jax": (0.1, 0.123, 0.2)}),
        {"work": "memory", "value": 3.5, "unit": "MiB"},
        {"work": "first call", "value": 3.5, "unit": "ms"},
        machine="Two",
        left_out={"torch FlexAttention": "does not compile"},
        torch="2.14",
        jax="0.10",
    )
    results, made = page_of(tools, first, second)
    for expected in (
        "| torch | 2.13 | 2.14 |\n| jax | not installed | 0.10 |\n",
        "- Left out on Two: torch FlexAttention does not compile.\n",
        "| line | peer | One | Two |\n| --- | --- | ---: | ---: |\n| a | torch SDPA | 2 | 4 |\n|  | jax | - | 0.12 |\n"
        "| b | np.add | - | 3 |\n",
        "| a | copy | 2 | - |\n",
        "| Rotary embeddings | torch | 2 | 4 |\n",
        "| memory | MiB | - | 3.50 |\n",
        "- One: 2026-11-22 is the first run.\n- Two: 2026-11-22 is the first run.\n",
    ):
        assert expected in made
    assert "first call" not in made
    drawn = tools.page.picture(results)
    assert drawn.count('r="3.5"') == 4
    assert ">rotary-embedding-torch<" not in drawn
    assert all(f">{name}</text>" in drawn for name in ("One", "Two", "jax", "torch", "NumPy", "Rotary embeddings"))


def test_the_page_flags_what_became_worse(tools):
    runs = [
        run_of(line(torch=before), line("b", jax=(1, 1, 1)), date=date, torch=version)
        for before, date, version in (
            ((9, 9, 9), "2026-01-01", "2.11"),
            ((3, 3, 3), "2026-02-02", "2.12"),
            ((2, 2, 2), "2026-03-03", "2.13"),
        )
    ]
    _, made = page_of(tools, *runs)
    assert "| rope | torch | **2** |\n| b | jax | 1 |\n" in made
    assert (
        "- Invented: 1 figure became worse since 2026-02-02, at commit abc1234.\n"
        "  - speed/rope: rope: torch takes 3 -> 2 times the time of posenc; torch 2.12 -> 2.13\n"
    ) in made
    _, better = page_of(tools, runs[2], runs[1])
    assert "**" not in better
    assert "- Invented: no figures became worse since 2026-03-03, at commit abc1234.\n" in better
