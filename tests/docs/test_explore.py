"""The page to touch, in headless Chromium: controls move figures, and the page computes what the library computes.

The kernels of the page are those of csrc/. What can differ are its JavaScript, which passes them their arguments and
computes powers and logarithms of parameters, and its own reading of config.json.
"""

import base64
import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest

import posenc

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
PLAIN = """(x) => {
    const text = (x) => {
        const bytes = new Uint8Array(x.buffer, x.byteOffset, x.byteLength);
        return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
    };
    const plain = (x) => ArrayBuffer.isView(x) ? { type: x.constructor.name, text: text(x) }
        : Array.isArray(x) ? x.map(plain)
        : x && typeof x === "object" ? Object.fromEntries(Object.entries(x).map(([k, v]) => [k, plain(v)])) : x;
    return plain(x);
}"""
"""Arrays as base64: playwright takes a millisecond for some ten numbers."""


def arrays_of(x):
    """The value of PLAIN, with NumPy arrays."""
    if isinstance(x, dict) and set(x) == {"type", "text"}:
        dtype = x["type"].removeprefix("Big").removesuffix("Array").lower()
        return np.frombuffer(base64.b64decode(x["text"]), dtype)
    if isinstance(x, dict):
        return {key: arrays_of(value) for key, value in x.items()}
    return [arrays_of(value) for value in x] if isinstance(x, list) else x


MOVE = """({ input, control }) => {
    const fire = (one) => ["input", "change"].forEach((name) => one.dispatchEvent(new Event(name, { bubbles: true })));
    if (control.kind === "checks") {
        const box = input.querySelector("input:not(:checked)");
        box.checked = true;
        return fire(box);
    }
    const number = Number(input.value), most = Number(input.max);
    if (control.kind === "check") input.checked = !input.checked;
    else if (control.kind === "select") input.selectedIndex = (input.selectedIndex + 1) % input.options.length;
    else if (control.kind === "text") input.value = '{"model_type": "gemma3_text"}';
    else if (control.kind === "line") input.value = "The dog bit the little man";
    else if (control.kind === "number") input.value = number + 17;
    else input.value = number === most ? number - 1 : number + 1;
    fire(input);
}"""
"""Move a control to another value, by the events of a user."""


@pytest.fixture(scope="module")
def measure():
    """docs/explore/measure.py."""
    spec = spec_from_file_location("measure", ROOT / "docs/explore/measure.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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


class Page:
    """A loaded page, with a record of its requests and errors."""

    def __init__(self, browser, html, link="", **options):
        self.context = browser.new_context(offline=True, **options)
        self.tab = self.context.new_page()
        self.errors, self.requests = [], []
        self.tab.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        self.tab.on("pageerror", lambda error: self.errors.append(str(error)))
        self.tab.on("request", lambda request: self.requests.append(request.url))
        self.tab.goto(html.as_uri() + link)
        self.tab.wait_for_function("window.explore && explore.firstPicture > 0", timeout=60_000)

    def __call__(self, script, *arguments):
        """The value of a JavaScript expression of `explore`, `state`, `numbers` and `given`."""
        body = f"({script})"
        function = (
            f"(given) => {{ const state = explore.state(), numbers = explore.numbers(); return ({PLAIN})({body}); }}"
        )
        return arrays_of(self.tab.evaluate(function, arguments[0] if arguments else None))

    def two_frames(self):
        """Wait until the changes are drawn."""
        self.tab.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def set(self, **changes):
        self("explore.set(given)", changes)
        return self("state")

    def readout(self, name):
        """Draw a figure; return the sentences below it."""
        self("explore.draw(explore.figures.find((figure) => figure.name === given))", name)
        return self.tab.text_content(f"#readout-{name}")


@pytest.fixture(scope="module")
def page(browser, html):
    opened = Page(browser, html)
    yield opened
    opened.context.close()
    assert opened.errors == []


# ---- the page ----


def test_no_network_and_no_framework(page, html):
    assert [url for url in page.requests if not url.startswith(("file:", "data:", "blob:"))] == []
    text = html.read_text("utf-8")
    assert "http://" not in text
    assert "https://" not in text
    assert html.stat().st_size < 400_000


def test_every_control_moves_a_figure(page):
    """Move each control by the event of a user; the figures that depend on it are drawn again, without an error."""
    page.tab.set_viewport_size({"width": 1280, "height": 20_000})  # figures out of sight wait to be drawn
    page.set(bias="kerple_log")
    moved = 0
    for number in range(page("explore.inputs.length")):
        key = page(f"explore.inputs[{number}].key")
        page.two_frames()
        before, drawn = page("state"), page("explore.figures.map((f) => f.drawn ?? 0)")
        page(f"({MOVE})(explore.inputs[{number}])")
        page.two_frames()
        after = page("state")
        changed = {name for name in after if after[name] != before[name]}
        assert changed, key
        uses = page("explore.figures.map((f) => f.uses)")
        now = page("explore.figures.map((f) => f.drawn ?? 0)")
        redrawn = [new > old for old, new in zip(drawn, now, strict=True)]
        assert redrawn == [bool(changed & set(keys)) for keys in uses], (key, changed)
        moved += 1
    assert moved >= 60
    assert page("document.querySelectorAll('.readout').length") == 12
    assert (
        page("explore.figures.filter((f) => f.place.querySelector('.readout').textContent.includes('cannot')).length")
        == 0
    )
    page.tab.click("#reset")
    page.tab.set_viewport_size({"width": 1280, "height": 900})


def test_keyboard_and_names(page):
    """Each control has a name and answers the keyboard; each picture has a title and a sentence about what it shows."""
    unnamed = page("[...document.querySelectorAll('input, select, textarea')].filter((x) => !x.labels.length).length")
    assert unnamed == 0
    for figure in page("explore.figures.map((f) => f.name)"):
        label, description = f"#figure-{figure}", f"#readout-{figure}"
        assert page.tab.text_content(label).strip()
        assert page.tab.text_content(description).strip().endswith(".")
        assert page.tab.get_attribute(f"[data-figure={figure}] canvas", "aria-labelledby") == label[1:]
        assert len(page.tab.text_content(f"[data-figure={figure}] figcaption")) > 80
    page.set(dim=64)
    page.tab.focus("[data-figure=encoding] [data-key=dim]")
    page.tab.keyboard.press("ArrowRight")
    assert page("state.dim") == 66
    assert page.tab.get_attribute("[data-figure=encoding] [data-key=dim]", "aria-valuetext") == "66"


def test_a_link_keeps_the_state(browser, html, page):
    wanted = page.set(dim=32, base=500000, schemes=["rope", "shaw"], causal=False, position=2**53, sample="DeepSeek V3")
    other = Page(browser, html, page("explore.link()"))
    assert other("state")["schemes"] == ["rope", "shaw"]
    assert {k: v for k, v in other("state").items() if k != "config"} == {
        k: v for k, v in wanted.items() if k != "config"
    }
    other.context.close()
    page.tab.click("#reset")
    assert page("explore.link()") == ""


@pytest.mark.parametrize("link", ["#dim=abc&length=1e9&schemes=x,rope&bias=none&layer=q", "#config=%7B&sample=own"])
def test_a_bad_link_is_repaired(browser, html, link):
    bad = Page(browser, html, link)
    state = bad("state")
    assert state["dim"] == 64
    assert state["length"] in (64, 256)
    assert state["query"] < state["length"]
    bad("explore.figures.forEach((f) => explore.draw(f))")
    bad.context.close()
    assert bad.errors == []


@pytest.mark.parametrize(("width", "scheme"), [(320, "dark"), (1440, "light")])
def test_it_fits_the_screen(browser, html, width, scheme, tmp_path):
    shown = Page(browser, html, viewport={"width": width, "height": 900}, color_scheme=scheme)
    shown("explore.figures.forEach((figure) => { figure.visible = true; explore.draw(figure); })")
    assert shown("document.documentElement.scrollWidth - innerWidth") <= 0
    shown.tab.screenshot(path=tmp_path / "page.png", full_page=True)
    assert (tmp_path / "page.png").stat().st_size > 100_000
    shown.context.close()
    assert shown.errors == []


# ---- the numbers ----


def near(found, expected, ulp):
    np.testing.assert_array_max_ulp(np.asarray(found, np.asarray(expected).dtype), np.asarray(expected), ulp)


ROTARY = {"rope": "default", "pi": "linear", "ntk": "ntk", "yarn": "yarn", "llama3": "llama3"}
STATES = [
    {},
    {"length": 40, "query": 17, "causal": False, "dim": 24, "base": 500, "heads": 5, "head": 3, "buckets": 12,
     "reach": 16, "clip": 6, "factor": 7, "train": 512},
]  # fmt: skip


def weights_of(page, state, name):
    """The attention weights of the library, for the state of the page."""
    n, dim, query, head = (state[key] for key in ("length", "dim", "query", "head"))
    q, k, bias = np.zeros((1, dim), np.float32), np.zeros((n, dim), np.float32), ()
    if name == "sinusoidal":
        q, k = (posenc.sinusoidal(p, dim, base=state["base"]) for p in ([query], n))
    elif name in ROTARY:
        keys = {"factor": state["factor"]} if name != "rope" else {}
        keys |= {"low_freq_factor": 1, "high_freq_factor": 4} if name == "llama3" else {}
        keys |= {"original_max_position_embeddings": state["train"]} if name in ("llama3", "yarn") else {}
        frequencies = posenc.rope_frequencies(dim, base=state["base"], rope_type=ROTARY[name], **keys)
        q, k = (posenc.rope(x + 1, p, frequencies, layout="half") for x, p in ((q, [query]), (k, n)))
    elif name == "shaw":
        bias, q = posenc.shaw(posenc.sinusoidal(2 * state["clip"] + 1, dim)), q + 1
    elif name == "sandwich":
        bias = posenc.sandwich(state["heads"], dim)
    elif name != "none":
        given = page("explore.biasParameters(state, given)", name).items()
        arrays = {key: np.array(value["data"], np.float64).reshape(value["shape"]) for key, value in given}
        if name == "t5":
            limits = {"bidirectional": False, "max_distance": max(state["reach"], state["buckets"])}
            arrays = {"table": arrays["table"], **limits}
        bias = getattr(posenc, name)(**arrays)
        assert name != "alibi" or np.allclose(arrays["slopes"], posenc.alibi_slopes(state["heads"]), rtol=1e-15)
    if name in ("none", "sinusoidal", "shaw", *ROTARY):
        q, k = q[None], k[None]
    else:
        q, k = (np.broadcast_to(x, (state["heads"], *x.shape)) for x in (q, k))
    weights = posenc.attention_weights(q, k, bias=bias, causal=state["causal"], q_positions=[query], k_positions=n)
    return weights[head if len(weights) > 1 else 0, 0]


@pytest.mark.parametrize("wanted", STATES)
def test_schemes_and_encodings_are_those_of_the_library(page, wanted):
    state = page.set(**wanted)
    biases = ("alibi", "t5", "kerple_log", "kerple_power", "fire", "sandwich", "shaw")
    for name in ("none", "sinusoidal", *ROTARY, *biases):
        found = page("numbers.scheme(state, given).weights", name)
        np.testing.assert_allclose(found, weights_of(page, state, name), rtol=1e-5, atol=1e-7, err_msg=name)
    encoding = posenc.sinusoidal(state["length"], state["dim"], base=state["base"])
    near(page("numbers.encoding(state).values"), encoding.ravel(), 1)
    page.tab.click("#reset")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_print_and_contrast(browser, html, measure, scheme):
    """A PDF made right after a load has all canvases and answers, in light colours; texts have the contrast of AA."""
    tab = measure.load(browser, html, scheme=scheme)
    answers = (
        "[...document.querySelectorAll('.answer')].filter((one) => !one.hidden && one.textContent.endsWith('.')).length"
    )
    assert measure.printed(tab) == (12, 12)
    assert tab.evaluate(answers) == 0
    tab.emulate_media(media="print")
    tab.wait_for_function("document.documentElement.classList.contains('paper')")
    assert tab.evaluate("measure.painted()") == 12
    assert tab.evaluate(answers) == 6
    assert tab.evaluate("getComputedStyle(document.body).getPropertyValue('--panel').trim()") == "#ffffff"
    tab.emulate_media(media="screen")
    tab.wait_for_function("!document.documentElement.classList.contains('paper')")
    texts = measure.contrast(tab)
    assert len(texts) > 500
    assert [text for text in texts if text.ratio < text.least] == []
    tab.context.close()


def test_the_keyboard_reaches_every_control(browser, html, measure):
    tab = measure.load(browser, html, "#bias=fire")
    count, reached, visible = measure.keyboard(tab)
    assert count > 90
    assert (reached, visible) == (count, count)
    tab.context.close()


# ---- config.json: the page reads it as the library does ----

READ = """given.map(([text, layer, sequence]) => {
    try {
        return explore.ropeFromConfig(explore.readJSON(text), layer, sequence);
    } catch (error) {
        return { error: error.message };
    }
})"""
LAYERS = "given.map((text) => { try { return explore.layerTypes(explore.readJSON(text)); } catch { return []; } })"


def compare_configs(page, configs, lengths=(None,)):
    """Compare the page with `rope_from_config` for every type of layer; return how many are read and refused."""
    texts = [json.dumps(config) for config in configs]
    calls = [
        (config, text, layer, length)
        for config, text, layers in zip(configs, texts, page(LAYERS, texts), strict=True)
        for layer in (*layers, None)
        for length in lengths
    ]
    read = refused = 0
    for (config, _, layer, length), found in zip(calls, page(READ, [call[1:] for call in calls]), strict=True):
        try:
            expected, reason = posenc.rope_from_config(config, layer_type=layer, seq_len=length), None
        except (TypeError, ValueError) as error:
            expected, reason = None, str(error).removeprefix("rope_from_config: ")
        assert found.get("error") == reason, (config, layer)
        if expected is None:
            refused += 1
            continue
        near(found["w"], expected.inv_freq, POWER_ULP)
        near(found["attention"], np.float64(expected.attention_factor), 4)
        near(found["softmax"], np.float64(expected.softmax_factor), 8)
        assert found["layout"] == expected.layout, (config, layer)
        read += 1
    return read, refused


SIZES = {"hidden_size": 4096, "num_attention_heads": 32}
WITHOUT_BASE = {"rope_theta": 10000.0}
SCALED = {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}


def test_every_model_type(page):
    """The table of models that the page holds is that of the library, and it reads it in the same way."""
    from posenc.rotary.models import MODELS, OTHERS, ROTATES_IF

    switches = {name: {key: value} for name, (key, value, _) in ROTATES_IF.items()}
    configs = [
        {"model_type": name, **SIZES, **switches.get(name, {}), **extra}
        for name in (*MODELS, *OTHERS, *ROTATES_IF)
        for extra in ({}, WITHOUT_BASE, SCALED)
    ]
    configs += [{"model_type": f"{name}_whole", "text_config": {"model_type": name}} for name in (*MODELS, *OTHERS)]
    configs += [{"model_type": name.removesuffix("_text"), "text_config": SIZES} for name in MODELS]
    read, refused = compare_configs(page, configs)
    assert read > 600
    assert refused > 500
