"""A smoke test of the interactive page, in headless Chromium: it opens, controls move figures, its numbers are right.

The kernels of the page are those of csrc/. What can differ are its JavaScript, which passes them their arguments and
computes powers and logarithms of parameters, and its own reading of config.json.
"""

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import posenc
from posenc.rotary.models import MODELS, OTHERS, ROTATES_IF

ROOT = Path(posenc.__file__).parent.parent
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not find_spec("playwright"), reason="playwright is not installed"),
    pytest.mark.skipif(not find_spec("ziglang"), reason="ziglang is not installed, and it compiles the page's kernels"),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium in PATH"),
]

POWER_ULP = 6
"""NumPy's vectorized power has an error of up to 4 ulp, JavaScript's of 1; a product rounds once on each side."""

MOVE = """({ input, control }) => {
    const fire = (one) => ["input", "change"].forEach((name) => one.dispatchEvent(new Event(name, { bubbles: true })));
    const before = JSON.stringify(explore.state());
    if (control.kind === "checks") {
        const box = input.querySelector("input:not(:checked)");
        box.checked = true;
        fire(box);
    } else {
        const number = Number(input.value), most = Number(input.max);
        if (control.kind === "check") input.checked = !input.checked;
        else if (control.kind === "select") input.selectedIndex = (input.selectedIndex + 1) % input.options.length;
        else if (control.kind === "text") input.value = '{"model_type": "gemma3_text"}';
        else if (control.kind === "line") input.value = "The dog bit the little man";
        else if (control.kind === "number") input.value = number + 17;
        else input.value = number === most ? number - 1 : number + 1;
        fire(input);
    }
    explore.figures.filter((figure) => figure.uses.includes(control.key)).forEach((figure) => explore.draw(figure));
    return JSON.stringify(explore.state()) !== before;
}"""
"""Move a control by the events of a user, and draw its figures; true if the state of the page is another."""


class Page:
    """A loaded page, with a record of its errors."""

    def __init__(self, browser, html, link=""):
        self.tab = browser.new_context(offline=True).new_page()
        self.errors = []
        self.tab.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        self.tab.on("pageerror", lambda error: self.errors.append(str(error)))
        self.tab.goto(html.as_uri() + link)
        self.tab.wait_for_function("window.explore && explore.firstPicture > 0", timeout=60_000)

    def __call__(self, script, given=None):
        """The value of a JavaScript expression of `explore`, `state`, `numbers` and `given`."""
        function = (
            "(given) => { const state = explore.state(), numbers = explore.numbers(); "
            f"return JSON.stringify(({script}), (_, x) => ArrayBuffer.isView(x) ? Array.from(x) : x) ?? null; }}"
        )
        found = self.tab.evaluate(function, given)
        return None if found is None else json.loads(found)

    def draw_all(self):
        self("explore.figures.forEach((figure) => { figure.visible = true; explore.draw(figure); })")
        self.tab.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


@pytest.fixture(scope="module")
def html(tmp_path_factory):
    """The page, built as the manual builds it."""
    out = tmp_path_factory.mktemp("explore") / "page with a space.html"
    build = [sys.executable, str(ROOT / "docs/explore/build.py"), str(out)]
    subprocess.run(build, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    return out


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def page(browser, html):
    opened = Page(browser, html)
    yield opened
    assert opened.errors == []


def test_every_control_moves(page):
    """The page is offline, so it loads nothing."""
    page("explore.set({ bias: 'kerple_log' })")
    page.draw_all()
    moved = page(f"explore.inputs.map({MOVE})")
    assert len(moved) >= 60
    assert all(moved)
    page.draw_all()
    readouts = page("[...document.querySelectorAll('.readout')].map((one) => one.textContent.trim())")
    assert len(readouts) == 12
    assert [text for text in readouts if "cannot" in text or not text.endswith(".")] == []
    page.tab.click("#reset")


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("#dim=32&schemes=rope,shaw&causal=0", {"dim": 32, "schemes": ["rope", "shaw"]}),
        ("#dim=abc&length=1e9&schemes=x,rope&bias=none&layer=q", {"dim": 64}),
        ("#config=%7B&sample=own", {"dim": 64}),
    ],
)
def test_a_link_has_a_state_and_a_bad_one_is_repaired(browser, html, link, expected):
    opened = Page(browser, html, link)
    opened.draw_all()
    assert expected.items() <= opened("state").items()
    assert opened.errors == []


ROTARY = {
    "rope": {},
    "yarn": {"rope_type": "yarn", "factor": 7, "original_max_position_embeddings": 512},
    "llama3": {
        "rope_type": "llama3",
        "factor": 7,
        "low_freq_factor": 1,
        "high_freq_factor": 4,
        "original_max_position_embeddings": 512,
    },
}
STATE = {"length": 40, "query": 17, "causal": False, "dim": 24, "base": 500, "heads": 5, "head": 3, "factor": 7,
         "train": 512, "clip": 6}  # fmt: skip


def test_numbers_are_those_of_the_library(page):
    page("explore.set(given)", STATE)
    dim, length, query, base, head = (STATE[name] for name in ("dim", "length", "query", "base", "head"))
    encoding = posenc.sinusoidal(length, dim, base=base)
    found = np.array(page("numbers.encoding(state).values"), np.float32)
    np.testing.assert_array_max_ulp(found, encoding.ravel(), 1)
    ones, at = np.ones((length, dim)), {"q_positions": [query], "k_positions": length}
    weights = {"sinusoidal": posenc.attention_weights(encoding[[query]], encoding)}
    for name, options in ROTARY.items():
        turned = posenc.rope(ones, length, posenc.rope_frequencies(dim, base=base, **options), layout="half")
        weights[name] = posenc.attention_weights(turned[[query]], turned)
    shaw = posenc.shaw(posenc.sinusoidal(2 * STATE["clip"] + 1, dim, dtype=np.float64))
    weights["shaw"] = posenc.attention_weights(ones[[query]], 0 * ones, bias=shaw, **at)
    for name in ("alibi", "kerple_log", "kerple_power", "fire"):
        given = page("explore.biasParameters(state, given)", name).items()
        bias = getattr(posenc, name)(**{key: np.reshape(value["data"], value["shape"]) for key, value in given})
        zeros = np.zeros((STATE["heads"], length, dim))
        weights[name] = posenc.attention_weights(zeros[:, :1], zeros, bias=bias, **at)[head]
    for name, expected in weights.items():
        found = page("numbers.scheme(state, given).weights", name)
        np.testing.assert_allclose(found, expected[0], rtol=1e-5, atol=1e-7, err_msg=name)
    page.tab.click("#reset")


READ = """given.map((text) => {
    try {
        return explore.ropeFromConfig(explore.readJSON(text), null, null);
    } catch (error) {
        return { error: error.message };
    }
})"""


def test_every_model_type_is_read_as_by_the_library(page):
    sizes = {"hidden_size": 4096, "num_attention_heads": 32, "rope_theta": 1e4}
    switches = {name: {key: value} for name, (key, value, _) in ROTATES_IF.items()}
    scaled = {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}
    configs = [
        {"model_type": name, **sizes, **switches.get(name, {}), **extra}
        for name in (*MODELS, *OTHERS, *ROTATES_IF)
        for extra in ({}, scaled)
    ]
    yarn = {"type": "yarn", "factor": 32.0, "beta_fast": 1, "beta_slow": 1, "original_max_position_embeddings": 4096}
    scalings = (yarn, {**yarn, "beta_slow": 2}, {**yarn, "attn_factor": 0.9}, {"type": "xdrope", "alpha": 9.0})
    configs += [{**sizes, "rope_theta": [5e4, 5e4], "rope_scaling": scaling} for scaling in scalings]
    keys = {"use_nope": True, "no_rope_layers": [0], "use_rope": False, "partial_rotary_factors": [0.5, 1]}
    keys |= {"rotary_emb_interleaved": True, "swa_rope_theta": 1e4, "yarn_only_types": 1}
    configs += [{**sizes, key: value} for key, value in keys.items()]
    results = page(READ, [json.dumps(config) for config in configs])
    refused = 0
    for config, found in zip(configs, results, strict=True):
        try:
            expected, reason = posenc.rope_from_config(config), None
        except (TypeError, ValueError) as error:
            expected, reason = None, str(error).removeprefix("rope_from_config: ")
        assert found.get("error") == reason, config
        if expected is None:
            refused += 1
            continue
        np.testing.assert_array_max_ulp(np.array(found["w"], np.float64), expected.inv_freq, POWER_ULP)
        assert (found["attention"], found["layout"]) == (expected.attention_factor, expected.layout), config
    assert 100 < refused < len(configs) - 100
