"""The page to touch, in headless Chromium: its numbers are those of the library, and every control moves a figure.

WebAssembly has no fused multiply-add and vectors of 16 bytes, as the variant `base` on x86-64 has. So kernels agree bit
for bit, with three exceptions:

- lse, by 1 ulp: its logarithm is that of musl there and that of the C library here;
- attention weights below 2**-126, which the library flushes to 0; WebAssembly cannot;
- powers and logarithms of parameters (ALiBi's slopes, NTK, YaRN's factor), which JavaScript and NumPy compute by
  functions of their own. They are compared first, and the kernels then get the page's parameters here too.
"""

import base64
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import pytest

import posenc
import posenc.analysis

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
F32_FLUSHED = 2.0**-126
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


@pytest.fixture
def base():
    if platform.machine().lower() not in ("x86_64", "amd64"):
        pytest.skip("the base variant of other machines has fused multiply-adds")
    with posenc.use_isa("base"):
        yield


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


def test_a_link_has_no_names_of_javascript(browser, html, page):
    """Objects of JavaScript inherit constructor, toString and __proto__; a link that says them changes nothing."""
    page.tab.click("#reset")
    strange = Page(browser, html, "#sample=constructor&bias=toString&schemes=valueOf,rope&toString=1&__proto__=2")
    assert strange("state") == {**page("state"), "schemes": ["rope"]}
    assert strange("explore.link()") == "#schemes=rope"
    strange.context.close()
    assert strange.errors == []


@pytest.mark.parametrize("width", [320, 390, 1280, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_the_screen(browser, html, width, scheme, tmp_path):
    shown = Page(browser, html, viewport={"width": width, "height": 900}, color_scheme=scheme)
    shown("explore.figures.forEach((figure) => { figure.visible = true; explore.draw(figure); })")
    assert shown("document.documentElement.scrollWidth - innerWidth") <= 0
    shown.tab.screenshot(path=tmp_path / "page.png", full_page=True)
    assert (tmp_path / "page.png").stat().st_size > 100_000
    shown.context.close()
    assert shown.errors == []


# ---- the numbers ----


def same(found, expected, flushed=False):
    """Assert equal bits; return how many numbers were compared."""
    expected = np.asarray(expected)
    found = np.array(found, expected.dtype).reshape(expected.shape)
    if flushed:
        found = np.where(abs(found) < F32_FLUSHED, 0, found).astype(expected.dtype)
    np.testing.assert_array_equal(found, expected)
    return expected.size


def near(found, expected, ulp):
    np.testing.assert_array_max_ulp(np.asarray(found, np.asarray(expected).dtype), np.asarray(expected), ulp)
    return np.size(expected)


def products(q, k):
    """Inner products in the order of the page: one after another, in double."""
    return np.cumsum(q[:, None].astype(np.float64) * k, -1)[..., -1].astype(np.float32)


def random_states(count=14):
    rng = np.random.default_rng(21)

    def one_of(*values):
        return values[rng.integers(len(values))]

    def number(low, high):
        return int(rng.integers(low, high + 1))

    for _ in range(count):
        length, heads = number(8, 120), number(1, 16)
        yield {
            "length": length, "query": number(0, length - 1), "key": number(0, 255), "causal": one_of(True, False),
            "dim": 2 * number(2, 64), "base": one_of(10, 500, 10000, 150000, 10**7),
            "heads": heads, "head": number(0, heads - 1), "r1": one_of(0.1, 1.5, 8.0), "r2": one_of(0.05, 0.5, 2.0),
            "buckets": 2 * number(2, 32), "reach": one_of(16, 128, 512), "clip": number(1, 128),
            "c": one_of(0.01, 0.1, 2.0), "threshold": number(1, 256),
            "scaling": one_of("default", "linear", "ntk", "yarn", "llama3"), "factor": number(1, 64),
            "train": 64 * 2 ** number(0, 7), "stretch": one_of(1, 4, 32), "position": number(0, 2 ** number(1, 53)),
        }  # fmt: skip


def keys_of(state, rope_type):
    keys = {} if rope_type == "default" else {"factor": state["factor"]}
    if rope_type == "llama3":
        keys |= {"low_freq_factor": 1, "high_freq_factor": 4}
    if rope_type in ("llama3", "yarn"):
        keys["original_max_position_embeddings"] = state["train"]
    return keys


def scaled(page, state, rope_type):
    """The page's frequencies, after a comparison with the library's."""
    found = page("explore.scaledOf(state, given)", rope_type)
    expected = posenc.rope_frequencies(
        state["dim"], base=state["base"], rope_type=rope_type, **keys_of(state, rope_type)
    )
    if rope_type == "ntk":
        near(found["w"], expected.inv_freq, POWER_ULP)
    else:
        same(found["w"], expected.inv_freq)
    near(found["attention"], np.float64(expected.attention_factor), 2)
    return posenc.RopeFrequencies(np.array(found["w"]), found["attention"], 1.0)


def bias_of(page, state, name):
    """The operator with the page's parameters, which are compared where they are powers."""
    given = page("explore.biasParameters(state, given)", name)
    arrays = {key: np.array(value["data"], np.float64).reshape(value["shape"]) for key, value in given.items()}
    if name == "alibi":
        near(arrays["slopes"], posenc.alibi_slopes(state["heads"]), POWER_ULP)
    if name == "t5":
        reach = max(state["reach"], state["buckets"])
        return posenc.t5(arrays["table"], bidirectional=False, max_distance=reach)
    if name == "sandwich":
        return posenc.sandwich(state["heads"], state["dim"])
    return getattr(posenc, name)(**arrays)


def bias_matrix(operator, q, k):
    return operator.matrix(len(q), len(k), q_positions=np.asarray(q), k_positions=np.asarray(k))


BIASES = ("alibi", "t5", "kerple_log", "kerple_power", "fire", "sandwich")
ROTARY = {"rope": "default", "pi": "linear", "ntk": "ntk", "yarn": "yarn", "llama3": "llama3"}


def expected_scheme(page, state, name):
    """(logits, attention weights, lse, matrix) of the library."""
    n, dim, query, head = (state[key] for key in ("length", "dim", "query", "head"))
    factor, keys = dim**-0.5, np.arange(n)
    q, k, operator = np.zeros((1, dim), np.float32), np.zeros((n, dim), np.float32), None
    logits, matrix = np.zeros(n, np.float32), np.zeros((n, n), np.float32)
    if name == "sinusoidal":
        q, k = (posenc.sinusoidal(p, dim, base=state["base"]) for p in ([query], n))
    if name in ROTARY:
        frequencies, ones = scaled(page, state, ROTARY[name]), np.ones((n, dim), np.float32)
        q, k = (
            posenc.rope(ones[:1], [query], frequencies, layout="half"),
            posenc.rope(ones, n, frequencies, layout="half"),
        )
    if name == "sinusoidal" or name in ROTARY:
        logits, matrix = ((products(x, k).astype(np.float64) * factor).astype(np.float32) for x in (q, k))
        logits = logits[0]
    if name in BIASES:
        operator = bias_of(page, state, name)
        logits = np.ascontiguousarray(bias_matrix(operator, [query], keys)[head, 0])
        matrix = (
            operator.matrix(n)
            if name == "fire"
            else posenc.toeplitz(np.ascontiguousarray(bias_matrix(operator, [0], np.arange(1 - n, n))[:, 0])).matrix(n)
        )[head]
        operator = posenc.toeplitz(logits[None])
    if name == "shaw":
        operator = posenc.shaw(posenc.sinusoidal(2 * state["clip"] + 1, dim))
        q, ones = np.ones((1, dim), np.float32), np.ones((1, n, dim), np.float32)
        logits = operator.logits(q[None], k[None], q_positions=[query], k_positions=keys)[0, 0] * np.float32(factor)
        matrix = (operator.logits(ones, ones)[0].astype(np.float64) * factor).astype(np.float32)
    weights, lse = posenc.attention(
        q[None], k[None], np.eye(n, dtype=np.float32)[None], bias=() if operator is None else operator,
        causal=state["causal"], q_positions=[query], k_positions=keys, return_lse=True,
    )  # fmt: skip
    return logits, weights[0, 0], lse[0], matrix


def test_schemes_have_the_bits_of_base(page, base):
    compared = 0
    for wanted in random_states():
        state = page.set(**wanted)
        for name in ("none", "sinusoidal", *ROTARY, *BIASES, "shaw"):
            found = page("numbers.scheme(state, given)", name)
            logits, weights, lse, matrix = expected_scheme(page, state, name)
            compared += same(found["logits"], logits) + same(found["weights"], weights, flushed=True)
            compared += near([found["lse"]], lse, 1) + same(page("numbers.matrix(state, given)", name), matrix)
    assert compared > 500_000


def test_encodings_and_rotations_have_the_bits_of_base(page, base):
    compared = 0
    for wanted in random_states(30):
        state = page.set(**wanted)
        n, dim = state["length"], state["dim"]
        encoding, found = posenc.sinusoidal(n, dim, base=state["base"]), page("numbers.encoding(state)")
        compared += same(found["values"], encoding) + same(found["w"], posenc.frequencies(dim, base=state["base"]))
        compared += same(page("numbers.similarity(state).products"), products(encoding, encoding))
        frequencies, found = scaled(page, state, state["scaling"]), page("numbers.clocks(state)")
        table = posenc.rope_table([state["query"], state["key"]], frequencies, dtype=np.float64)
        compared += same(found["table"], np.concatenate(table, axis=-1))
        compared += same(found["score"], score(state["query"], state["key"], frequencies, dim))
        plain = posenc.rope_frequencies(dim, base=state["base"])
        cover = posenc.analysis.rope_coverage(plain, state["train"], test_frequencies=frequencies)
        found = page("numbers.coverage(state)")
        compared += same(found["turns"], cover.turns) + same(found["covered"], cover.covered)
        compared += same(found["firstUnseen"], cover.first_unseen)
        for rope_type, band in page("numbers.bands(state).ratios").items():
            bands = posenc.analysis.rope_bands(scaled(page, state, rope_type), plain, train_length=state["train"])
            compared += same(band["ratio"], bands.ratio)
        bands = posenc.analysis.rope_bands(plain, plain, train_length=state["train"])
        found = page("numbers.bands(state)")
        compared += same(found["wavelength"], bands.wavelength) + same(found["turns"], bands.turns)
    assert compared > 100_000


def score(query, key, frequencies, dim):
    """The score of a query and a key of ones, rotated, as the page computes it: divided by the root of `dim`."""
    ones = np.ones((1, dim), np.float32)
    rows = [posenc.rope(ones, [p], frequencies, layout="half") for p in (query, key)]
    return products(*rows)[0, 0].astype(np.float64) / np.sqrt(dim)


EXAMPLE = "Jack gave a photo to Molly"


@pytest.mark.parametrize("positions", ["none", "sinusoidal", "rope", "alibi"])
@pytest.mark.parametrize(
    ("sentence", "first", "second"), [(EXAMPLE, 0, 5), ("word", 0, 5), ("The dog bit the man, the man!", 4, 1)]
)
def test_the_order_of_words(page, base, positions, sentence, first, second):
    """Bits of both sentences, and of equal words. A single word cannot change places, so the page shows its example."""
    page.set(positions=positions, sentence=sentence, first=str(first), second=str(second))
    found, shown = page("numbers.order(state)"), re.findall(r"\w+", sentence if " " in sentence else EXAMPLE)
    n, exchanged = len(shown), list(range(len(shown)))
    exchanged[first], exchanged[second] = second, first
    words = np.array(found["vectors"], np.float32).reshape(n, 16)
    np.testing.assert_array_equal((words[:, None] == words).all(axis=-1), [[a == b for a in shown] for b in shown])
    outputs = []
    for side, order in (("before", list(range(n))), ("after", exchanged)):
        x = words[order]
        x = x + posenc.sinusoidal(n, 16) if positions == "sinusoidal" else x
        q, k = x, np.roll(x, -5, axis=-1)
        if positions == "rope":
            q, k = (posenc.rope(rows, n, posenc.rope_frequencies(16), layout="half") for rows in (q, k))
        bias, eye = posenc.alibi([0.5]) if positions == "alibi" else (), np.eye(n, dtype=np.float32)[None]
        outputs.append(posenc.attention(q[None], k[None], x[None], bias=bias)[0])
        same(found[side]["out"], outputs[-1])
        same(found[side]["weights"], posenc.attention(q[None], k[None], eye, bias=bias)[0])
    change = abs(outputs[0] - outputs[1][np.argsort(exchanged)]).max(axis=-1)
    np.testing.assert_allclose(found["change"], change, atol=1e-6)
    assert change.max() < 1e-6 if positions == "none" else change.max() > 0.01
    said = f"The output of “{shown[change.argmax()]}” changes most"
    assert ("the exchange is invisible" if positions == "none" else said) in page.readout("order")
    page.tab.click("#reset")


# ---- sentences, questions, colours, paper ----


@pytest.mark.parametrize(
    ("sentence", "words", "note"),
    [
        ("<img src=x onerror=alert(1)><i>1</i>", ["img", "src", "x", "onerror", "alert", "1", "i", "1", "i"], ""),
        ("Dr. O'Neil doesn't, “she” does!", ["Dr", "O'Neil", "doesn't", "she", "does"], ""),
        ("я тебя люблю", ["я", "тебя", "люблю"], ""),
        ("我喜欢北京大学", ["我", "喜欢", "北京", "大学"], ""),
        (" ".join(f"w{i}" for i in range(30)), [f"w{i}" for i in range(12)], "The first 12 of 30 words are shown."),
        ("\u202e\0 !", EXAMPLE.split(), "A sentence needs two words, so this is the example."),
        ("constructor __proto__ toString", ["constructor", "__proto__", "toString"], ""),
        ("a" * 5000 + " b", EXAMPLE.split(), "A sentence needs two words, so this is the example."),
    ],
)
def test_a_sentence_of_ones_own(browser, html, sentence, words, note):
    """A sentence from the address is text and nothing else, and is split into at most 12 words."""
    other = Page(browser, html, "#" + urlencode({"sentence": sentence}))
    assert other("[...document.querySelectorAll('[data-key=first] option')].map((one) => one.textContent)") == words
    assert other("[state.first, state.second]") == ["0", str(len(words) - 1)]
    assert other("document.querySelectorAll('main img, main script').length") == 0
    assert note in other.readout("order")
    assert len(other("state.sentence")) <= 200
    other.tab.fill("[data-key=sentence]", "Dogs bite men")
    other.tab.select_option("[data-key=first]", "1")
    other.two_frames()
    assert "“Dogs” gives “bite”" in other.tab.text_content("#readout-order")
    assert other("explore.link()") == "#sentence=Dogs+bite+men&first=1"
    other.context.close()
    assert other.errors == []


ALL = ["none", "sinusoidal", *ROTARY, *BIASES, "shaw"]


def named(text, opening):
    """The names that the sentence with the opening lists."""
    found = re.search(f"{opening}([^.:]*)[.:]", text)
    return set(re.split(", | and ", found[1])) if found else set()


def test_sentences_are_true_in_every_state(page):
    """Recompute from the numbers what the figures say, at the start and in random states."""
    page.tab.click("#reset")
    assert "It rises somewhere on the way: sinusoidal, RoPE and RoPE + YaRN." in page.readout("curves")
    assert "The attention factor of RoPE + YaRN multiplies its score by 1.3." in page.readout("curves")
    boxes = "[...document.querySelectorAll('[data-key=schemes]')].map((x) => [x.value, x.parentElement.textContent])"
    labels, seen = dict(page(boxes)), set()
    for wanted in ({}, {"threshold": 256}, {"query": 0, "causal": False}, *random_states(12)):
        state = page.set(**wanted, schemes=ALL)
        n, query, factor = state["length"], state["query"], state["factor"]
        matrices = {name: np.reshape(page("numbers.matrix(state, given)", name), (n, n)) for name in ALL}
        hidden = np.triu(np.ones((n - 1, n - 1), bool), 1) & state["causal"]
        steps = {name: np.where(hidden, 0, abs(m[1:, 1:] - m[:-1, :-1])).max() for name, m in matrices.items()}
        varies = {labels[name] for name, m in matrices.items() if steps[name] > 1e-4 * np.ptp(m)}
        assert varies == named(page.readout("matrices"), "beside the distance in ")
        seen.add("FIRE" in varies)

        said, far = page.readout("curves"), 0 if state["causal"] or 2 * query >= n else n - 1
        rows = {labels[name]: np.array(page("numbers.scheme(state, given).logits", name)) for name in ALL}
        ways = {name: row[query::-1] if far == 0 else row[query:] for name, row in rows.items()}
        rises = {name for name, way in ways.items() if (np.diff(way) > 1e-5).any()}
        assert named(said, "It rises somewhere on the way: ") == rises
        assert named(said, "It falls without rising again: ") == {x for x in ways if ways[x][-1] < ways[x][0]} - rises
        assert f"to place {far}, {abs(query - far)} away" in said

        plain, tested = (
            posenc.frequencies(state["dim"], base=state["base"]),
            page("explore.scaledOf(state, state.scaling).w"),
        )
        arc, distance = (state["train"] - 1) * plain, int((state["train"] * state["stretch"] - 1) * 0.7 + 0.5)
        new = (arc < 2 * np.pi) & (distance * np.array(tested) % (2 * np.pi) > arc * (1 + 4 * 2.0**-52))
        assert f"At distance {distance:,}, {new.sum()} of {len(plain)} pair" in page.readout("reach")

        for label, rope_type in (("NTK", "ntk"), ("YaRN", "yarn"), ("Llama 3", "llama3")):
            ratio = np.array(page("explore.scaledOf(state, given).w", rope_type)) / plain
            kept, divided = (np.sum(abs(ratio - x) < 1e-9) for x in (1, 1 / factor))
            said = f"{label} keeps {kept} and divides {divided} by {factor}" if factor > 1 else "The factor is 1"
            assert said in page.readout("bands")

        row = page("numbers.similarity(state).products").reshape(n, n)[query]
        peaks = [k for k in range(1, n - 1) if k != query and row[k] > max(row[k - 1], row[k + 1])]
        assert (f"{len(peaks)} other peak" if peaks else "no other peak") in page.readout("similarity")
    assert seen == {True, False}
    page.set(schemes=[])
    assert {page.readout(name) for name in ("matrices", "curves", "attention")} == {"No scheme is chosen."}
    page.tab.click("#reset")


QUESTIONS = ("order", "encoding", "similarity", "clocks", "bias", "reach")


def test_questions_come_before_answers(page):
    """A step asks; the answer appears on demand, speaks of the state that the question names, and goes with it."""
    for wanted in ({}, {"query": 63, "key": 0, "heads": 1, "stretch": 1}, *random_states(4)):
        for figure in QUESTIONS:
            page.tab.click("#reset")
            state = page.set(**wanted)
            page.readout(figure)
            answer, button = f"[data-figure={figure}] .answer", f"[data-figure={figure}] .expect button"
            assert page.tab.text_content(f"[data-figure={figure}] .expect span").endswith("?")
            assert page.tab.is_hidden(answer)
            page.tab.focus(button)
            page.tab.keyboard.press("Enter")
            page.tab.wait_for_selector(answer)
            said, after = page.tab.text_content(answer), page("state")
            assert said.endswith(".")
            assert page.tab.text_content(button) == "Ask again"
            if figure == "order":
                assert said == "6 of 6 outputs change with RoPE, by up to 0.3. 0 of 6 outputs change without positions."
            if figure == "encoding":
                of = [
                    sum(posenc.frequencies(x["dim"], base=x["base"]) * x["length"] < 2 * np.pi) for x in (after, state)
                ]
                assert f": {of[0]} of {state['dim'] // 2} with base {after['base']:,}, {of[1]} with" in said
            if figure == "similarity":
                assert re.search(r"at most (0\.000|\d(\.\d)?·10⁻|0,)", said)
            if figure == "clocks":
                assert after["query"] - after["key"] == state["query"] - state["key"]
                scores = [float(score.replace("−", "-")) for score in re.findall(r"([−-]?[0-9.]+) for", said)]
                assert abs(scores[0] - scores[1]) <= 2e-4
            if figure == "reach":
                assert said.count("At distance") == 2
            page.set(dim=8 if after["dim"] != 8 else 10, sentence="a b", length=9 if after["length"] != 9 else 10)
            page.readout(figure)
            assert page.tab.is_hidden(answer)
    page.tab.click(button)
    page.tab.wait_for_selector(answer)
    page.tab.click(button)
    page.tab.wait_for_selector(answer, state="hidden")
    page.tab.click("#reset")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_stronger_colour_is_the_larger_number(browser, html, scheme):
    """In each panel of the first figure of "Schemes side by side" a larger number is farther from its colour."""
    size = {"width": 1280, "height": 900}
    other = Page(browser, html, "#causal=false&length=16&query=0", viewport=size, color_scheme=scheme)
    other.set(schemes=ALL)
    other.readout("matrices")
    width, data = other("""(() => {
        const { canvas } = explore.figures.find((figure) => figure.name === "matrices"), { width, height } = canvas;
        return [width, new Uint8Array(canvas.getContext("2d").getImageData(0, 0, width, height).data)];
    })()""")
    image, side = np.reshape(data, (-1, width, 4))[..., :3].sum(axis=-1).astype(int), width / 6 - 18
    for i, name in enumerate(ALL[1:], 1):
        x, y = i % 6 * (side + 18) + 1, i // 6 * (side + 46) + 36
        at = (np.arange(16) + 0.5) * side / 16
        cells = image[(y + at).astype(int)[1:, None], (x + at).astype(int)].ravel()
        values = np.reshape(other("numbers.matrix(state, given)", name), (16, 16))[1:].ravel()
        strength = cells[np.argsort(values)] * (1 if scheme == "dark" else -1)
        assert np.diff(strength).min() >= 0, name
        assert np.ptp(strength) > 300, name
    other.context.close()


@pytest.mark.parametrize(
    "link", ["", "#dim=30&length=100&heads=3", "#dim=4&length=8", "#dim=128&length=256&causal=false"]
)
def test_ticks_are_round(browser, html, measure, link):
    """The numbers below an axis have a step of 1, 2 or 5 times a power of 10, or are powers of 10."""
    tab = measure.load(browser, html, link)
    measure.contrast(tab)
    rows = {}
    for text in tab.evaluate("measure.drawn"):
        if text["align"] == "center" and text["figure"] != "order" and re.fullmatch("[−0-9.]+", text["words"]):
            number = float(text["words"].replace("−", "-"))
            axes = rows.setdefault((text["figure"], round(text["y"])), [[]])
            if axes[-1] and axes[-1][-1] >= number:
                axes.append([])  # another axis beside it
            axes[-1].append(number)
    assert len(rows) >= 10
    for place, ticks in ((place, ticks) for place, axes in rows.items() for ticks in axes):
        steps = np.diff(ticks)
        is_even = len(steps) == 0 or (np.ptp(steps) < 1e-9 and f"{steps[0]:e}"[:4] in ("1.00", "2.00", "5.00"))
        assert is_even or all(f"{tick:e}"[:4] == "1.00" for tick in ticks), (place, ticks)
    tab.context.close()


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
    assert tab.evaluate(answers) == len(QUESTIONS)
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


def test_float32_and_exact_at_any_position(page, base):
    mpmath = pytest.importorskip("mpmath", reason="mpmath is not installed")
    positions = [
        0,
        1,
        131071,
        2**24 + 1,
        2**31,
        2**52 + 1,
        2**53,
        *(wanted["position"] for wanted in random_states(20)),
    ]
    with mpmath.workprec(300):
        for position in positions:
            state = page.set(position=position, dim=24, base=10000)
            found, w = page("numbers.precision(state).at"), posenc.frequencies(24)
            assert state["position"] == position
            cos, sin = posenc.rope_table([position], w)
            same(found["library"], np.concatenate([cos[0], sin[0]]))
            exact = [f(position * mpmath.mpf(float(x))) for f in (mpmath.cos, mpmath.sin) for x in w]
            near(found["exact"], np.array([float(x) for x in exact]), 0)
            angle = np.float32(position) * w.astype(np.float32)
            usual = np.concatenate([f(angle.astype(np.float64)) for f in (np.cos, np.sin)]).astype(np.float32)
            near(found["usual"], usual, 1)  # sine and cosine of JavaScript and of NumPy, in double
            assert max(found["libraryError"]) <= 2.0**-25  # half a unit in the last place of numbers from 1/2 to 1
    page.tab.click("#reset")


CONFIGS = [
    {
        "model_type": "llama", "head_dim": 64, "max_position_embeddings": 2048,
        "rope_scaling": {"type": "dynamic", "factor": 2},
    },
    {
        "model_type": "phi3", "hidden_size": 96, "num_attention_heads": 4, "max_position_embeddings": 131072,
        "rope_scaling": {
            "type": "su", "short_factor": [1 + k / 20 for k in range(12)], "long_factor": [1 + k for k in range(12)],
        },
    },
    {"model_type": "gptj", "n_embd": 4096, "n_head": 16, "n_positions": 2048},
    {
        "model_type": "qwen3", "rope_theta": 1000000,
        "rope_parameters": {
            "rope_type": "yarn", "factor": 4, "rope_theta": 1000000, "original_max_position_embeddings": 32768,
        },
    },
    {
        "model_type": "gemma3_text",
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8, "rope_theta": 1000000},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000},
        },
    },
    {"model_type": "modernbert", "hidden_size": 768, "num_attention_heads": 12},
    {"model_type": "minicpm3"},
    {"model_type": "phi", "hidden_size": 2048, "num_attention_heads": 32},
]  # fmt: skip


def test_configs(page, base):
    """Every example, and configs that reach the other branches, for each type of layer and two lengths."""
    for config in [*page("Object.values(explore.samples)"), *CONFIGS]:
        page.set(config=json.dumps(config), sample="own", layer="")
        options = page("explore.inputs.find((one) => one.key === 'layer').control.options(state)")
        layers = [layer or None for layer, _ in options]
        for layer in layers:
            for sequence in (4096, 200000):
                page.set(layer=layer or "", sequence=sequence)
                expected = posenc.rope_from_config(config, seq_len=sequence, layer_type=layer)
                found = page("numbers.config(state)")
                assert "error" not in found, (config, found)
                near(found["w"], expected.inv_freq, POWER_ULP)
                near(found["attention"], np.float64(expected.attention_factor), 4)
                near(found["softmax"], np.float64(expected.softmax_factor), 8)
                assert found["reach"] > 1
    page.tab.click("#reset")


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


KEYS = {
    "model_type": ["llama", "nanochat", "glm4", "gemma3_text", "gptj", "minimax_m3_vl_text", "hunyuan_v1_dense",
                   "falcon", "deepseek_v3", "phi3", "esm", "zamba2", "bert", "modernbert", "qwen3_vl", "toString", None,
                   3, ["llama"]],
    "rope_theta": [10000, 10000.0, 500000.0, 0, -1.0, "10000", True, 1e300, 0.5, None],
    "rotary_emb_base": [10000, 5e5], "global_rope_theta": [160000.0], "rope_local_base_freq": [10000.0, 1e-5],
    "head_dim": [64, 64.0, 63, 0, "64", True, 2, 128], "hidden_size": [4096, 100], "num_attention_heads": [32, 7],
    "global_head_dim": [512], "kv_channels": [32], "n_embd": [1024], "n_head": [16], "n_positions": [2048],
    "rotary_dim": [64, 16, None, 3], "qk_rope_head_dim": [64, 32],
    "partial_rotary_factor": [0.5, 1, 1.0, 0.3, 0, 1.5, 1e-5], "rotary_pct": [0.25, 0.5],
    "max_position_embeddings": [2048, 131072, 1, 0, 2048.0, None],
    "original_max_position_embeddings": [4096, 8192, 1], "rope_interleave": [False, True], "rope_kind": [1, None],
    "layer_types": [["full_attention", "sliding_attention"], ["chunked"]], "alibi": [True, False],
    "layer_rope_theta": [[10000.0, 0], [10000, 1e6], [0, 0], [[1]], ["1"], 5], "rope_scaling_layers": [[0, 1]],
    "compress_rope_theta": [160000.0], "position_embedding_type": ["rotary", "absolute"], "use_mem_rope": [True],
    "per_layer_config": [{"00": {"head_dim": 256}, "1": {"head_dim": 64}}, {"0": {}}, {"0": 5, "1": []}, {"1": "x"}],
    "text_config": [{"model_type": "llama", "head_dim": 64}, {"head_dim": 64}, {}],
    "talker": [{"model_type": "qwen3", "head_dim": 64}],
    "time_step_limit": [[0.0, float("inf")], float("nan")],
}  # fmt: skip
PART_KEYS = {
    "rope_type": ["default", "linear", "ntk", "dynamic", "ntk_by_parts", "yarn", "longrope", "llama3", "proportional",
                  "ntk_mixed", "su", "mrope", "axial", "unheard of", 1],
    "type": ["linear", "yarn", "su"], "factor": [2, 4.0, 1, 0.5, "2", float("inf"), None],
    "rope_theta": [10000, 1e6, 0],
    "low_freq_factor": [1.0, 4], "high_freq_factor": [4.0, 1], "beta_fast": [32, 0.5], "beta_slow": [1, 64.5],
    "original_max_position_embeddings": [4096, 8192, 200000, 0, 1], "max_position_embeddings": [8192],
    "attention_factor": [1.1, 0], "mscale": [1.0, 0, -1], "mscale_all_dim": [1, 0.707, 1e300], "truncate": [False, 0],
    "short_factor": [[1.0] * 32, [1] * 16, [1.0, 0.0] * 16], "long_factor": [[1.5] * 32, [2] * 64],
    "partial_rotary_factor": [0.5, 0.25], "alpha": [1000.0, 0, "x"], "b": [0.625, -1], "mrope_section": [[16, 24, 24]],
    "unheard_of": [1], "full_attention": [{"rope_type": "linear", "factor": 8}, {}, None],
    "sliding_attention": [{}, None],
}  # fmt: skip


def drawn_configs(count):
    """Configs with a few keys of any kind, beside those that their scaling needs."""
    rng = np.random.default_rng(5)

    def values(keys, most):
        names = rng.permutation(list(keys))[: rng.integers(most + 1)]
        return {str(name): keys[name][rng.integers(len(keys[name]))] for name in names}

    whole = {
        "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "short_factor": [1.0] * 32,
        "long_factor": [1.5] * 32, "original_max_position_embeddings": 4096,
    }  # fmt: skip
    from posenc.rotary.scaling import ROPE_TYPES

    for _ in range(count):
        rope_type = PART_KEYS["rope_type"][rng.integers(len(PART_KEYS["rope_type"]))]
        known = (*ROPE_TYPES[rope_type][1], "original_max_position_embeddings") if rope_type in ROPE_TYPES else ()
        part = {key: whole[key] for key in known if key in whole} | {"rope_type": rope_type}
        part |= values(PART_KEYS, rng.integers(4))
        config = {"model_type": "llama", "head_dim": 64, **values(KEYS, rng.integers(5))}
        if rng.random() < 0.8:
            config[str(rng.choice(["rope_scaling", "rope_parameters"]))] = part
        if rng.random() < 0.1:
            config["rope_parameters"] = values(PART_KEYS, 3)
        yield config


def test_drawn_configs(page):
    """Bits, layout and reasons of refusal, whatever a config has."""
    read, refused = compare_configs(page, list(drawn_configs(6000)), lengths=(None, 100_000))
    assert read > 2000
    assert refused > 4000


def test_configs_of_transformers(page, monkeypatch):
    """The default config of every class in the directories of transformers that have rotary code, as it writes it."""
    pytest.importorskip("torch", reason="transformers runs on torch, which is not installed")
    pytest.importorskip("transformers", reason="transformers is not installed")
    monkeypatch.syspath_prepend(ROOT / "bridges" / "tests")
    from rotations import configs, directories, written

    found = [json.loads(json.dumps(written(one), default=str)) for name in directories() for one in configs(name)]
    read, refused = compare_configs(page, found)
    assert read > 200
    assert refused > 100


def test_wide_heads(page):
    """A head wider than that of any model is refused at once, because a link or a file may have any number."""
    llama = {"model_type": "llama", "rope_theta": 1e4}
    configs = [{**llama, "head_dim": width} for width in (65536, 65538, 2 * 10**6, 2 * 10**8, 2**53)]
    configs += [{**llama, "head_dim": 10**6, "partial_rotary_factor": part} for part in (0.0625, 0.5)]
    configs += [{**llama, "rotary_dim": 10**9}, {**llama, "qk_rope_head_dim": 10**9}, {**llama, "n_embd": 2**50}]
    before = time.monotonic()
    assert compare_configs(page, configs) == (2, 8)
    assert time.monotonic() - before < 20


@pytest.mark.parametrize(
    "value", ['{"float of Python": "64.0"}', '"f64"', '"s64"', '{"f64": 1}', "64.0", '[1.5, "f"]', "-Infinity", "NaN"]
)
def test_floats_cannot_be_forged(page, value):
    """A text and an object stay what they are, whatever mark the page gives to floats."""
    assert compare_configs(page, [json.loads(f'{{"model_type": "llama", "head_dim": {value}}}')]) == (0, 1)


@pytest.mark.parametrize("text", ["{1.5: 2}", '{"head_dim": 01.5}', '{"head_dim": -NaN}', '{"head_dim": 1.5.5}'])
def test_bad_numbers_are_no_json(page, text):
    with pytest.raises(json.JSONDecodeError):
        json.loads(text)
    [found] = page(READ, [[text, None, None]])
    assert found["error"].startswith("config has no JSON")


OTHER_FORMS = "a dict, the path of a config.json or its text, or an object with to_dict()"
"""The forms of a config that Python takes; the page takes a text."""


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"model_type": "unheard of", "head_dim": 64}', '{"model_type": "llama"}',
     '{"model_type": "llama", "head_dim": 64, "rope_scaling": {"factor": 2}}',
     '{"model_type": "llama", "head_dim": 64, "rope_scaling": {"rope_type": "linear", "factor": 0.5}}',
     '{"model_type": "llama", "head_dim": 64, "rope_kind": 1}', '{"model_type": "gpt_oss"}'],
)  # fmt: skip
def test_bad_configs_are_said(page, text):
    try:
        config = json.loads(text)
    except json.JSONDecodeError:
        reason = "config has no JSON"
    else:
        with pytest.raises((TypeError, ValueError)) as refusal:
            posenc.rope_from_config(config)
        reason = str(refusal.value).removeprefix("rope_from_config: ")
        reason = reason.replace(OTHER_FORMS, "a dict, the content of config.json")
    page.set(config=text, sample="own")
    page("explore.draw(explore.figures.find((figure) => figure.name === 'config'))")
    assert f"This config.json cannot be read: {reason}" in page.tab.text_content("#readout-config")
    page.tab.click("#reset")


def test_rope_parameters_alone(page):
    """The part of a config that describes the rotation is read for a head of 128 channels."""
    part = {"rope_type": "yarn", "factor": 4, "rope_theta": 1e6, "original_max_position_embeddings": 32768}
    page.set(config=json.dumps(part), sample="own")
    found = page("numbers.config(state)")
    expected = posenc.rope_from_config({"head_dim": 128, "rope_parameters": part})
    near(found["w"], expected.inv_freq, POWER_ULP)
    said = page.readout("config")
    assert said.startswith(
        "rope_parameters alone, for a head of 128. 128 rotated channels, base 1,000,000, scaling yarn"
    )
    page.tab.click("#reset")


def test_the_score_of_a_config_beside_the_original(page):
    """The mean over an interval of distances is the mean of samples, for the config and without its scaling."""
    for name in page("Object.keys(explore.samples)"):
        page.set(sample=name, config=json.dumps(page("explore.samples[given]", name)))
        page.set(sample=name)
        read, said = page("numbers.config(state)"), page.readout("config")
        factor = read["attention"] ** 2 * read["softmax"]
        for w, scale, opening in ((read["speed"], factor, "mean score is"), (read["plain"], 1, "without the scaling")):
            found = page("numbers.decay(...given)", [list(w), scale, read["trained"]])
            ends, w = np.array(found["ends"]), np.array(w)
            for i in (0, 40, 80):
                samples = ends[i] + (np.arange(20_000) + 0.5) / 20_000 * (ends[i + 1] - ends[i])
                mean = 2 * scale / np.sqrt(2 * len(w)) * np.cos(samples[:, None] * w).sum(axis=1).mean()
                assert abs(found["means"][i] - mean) < 1e-4 * scale * np.sqrt(len(w))
            number = re.search(f"{opening} ([−0-9.]+[0-9])", said)[1].replace("−", "-")
            assert abs(float(number) - found["means"][-1]) <= 0.005 * abs(found["means"][-1])
        assert (read["type"] == "default") == np.array_equal(read["speed"], read["plain"])
    page.tab.click("#reset")


def test_the_layout_is_said(page):
    """Which channels make a pair, a rotation backwards, and both factors."""
    for config, said in (
        ({"model_type": "nanochat", "head_dim": 64}, "pairs k and k + r/2 (layout half), rotated backwards."),
        ({"model_type": "glm4", "head_dim": 64}, "pairs 2k and 2k + 1 (layout interleaved)."),
        ({"head_dim": 64, "rope_theta": 1e4}, "the layout of this model_type is unknown."),
        (page("explore.samples['Qwen 2.5 7B with YaRN']"), "cos and sin times 1.1386."),
        (page("explore.samples['DeepSeek V3']"), "(layout interleaved); logits times 1.8739."),
    ):
        page.set(config=json.dumps(config), sample="own")
        page("explore.draw(explore.figures.find((figure) => figure.name === 'config'))")
        assert said in page.tab.text_content("#readout-config")
    page.tab.click("#reset")


def test_assumed_training_length_is_named(page):
    """A config without a length is not said to hold one."""
    for length, changes in (("", {}), (', "max_position_embeddings": 8192', {}), ("", {"trained": 2048})):
        page.set(sample="own", config='{"model_type": "gemma3_text"' + length + "}", **{"trained": 0, **changes})
        page.tab.evaluate("document.querySelector('#config canvas').scrollIntoView({ behavior: 'instant' })")
        page.tab.wait_for_function("document.querySelector('#config .readout').textContent.includes('tokens: all')")
        page.two_frames()
        readout = page.tab.inner_text("#config .readout")
        is_assumed = "The config does not say the training length. If trained on 4,096" in readout
        assert is_assumed == (not length and not changes), readout
    page.set(sample="Llama 3.1 8B", trained=0)
