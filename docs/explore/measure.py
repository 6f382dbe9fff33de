"""Print the size of the page, the time to its first picture, and frames per second while each slider is dragged.

    python docs/explore/measure.py [FILE]          by default build/explore/index.html, which build.py makes

It needs playwright and a chromium in PATH. Each slider is moved once per frame for 0.4 s, with all figures that
depend on it in sight or near it drawn.
"""

from __future__ import annotations

import shutil
import statistics
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

PAGE = Path(
    sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent.parent / "build/explore/index.html"
)
DRAG = """async (number) => {
    const { input } = explore.inputs[number];
    const first = Number(input.min), last = Number(input.max), step = Number(input.step) || 1;
    input.scrollIntoView({ block: "start", behavior: "instant" });
    await new Promise((done) => setTimeout(done, 150));
    const frame = () => new Promise(requestAnimationFrame);
    let frames = 0, at = Number(input.value), way = step;
    await frame();
    const begun = performance.now();
    while (performance.now() - begun < 400) {
        if (at + way > last || at + way < first) way = -way;
        at += way;
        input.value = at;
        input.dispatchEvent(new Event("input", { bubbles: true }));
        await frame();
        frames++;
    }
    return 1000 * frames / (performance.now() - begun);
}"""


def main() -> None:
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        raise SystemExit("docs/explore/measure.py: there is no chromium in PATH")
    print(f"size: {PAGE.stat().st_size / 1000:.0f} kB")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        first = []
        for _ in range(5):
            tab = browser.new_context(offline=True).new_page()
            tab.goto(PAGE.as_uri())
            tab.wait_for_function("window.explore && explore.firstPicture > 0")
            first.append(tab.evaluate("explore.firstPicture"))
        print(f"time to the first picture: {statistics.median(first):.0f} ms, the median of {len(first)} loads")
        names = tab.evaluate(
            "explore.inputs.map(({ control, box, key }) => control.kind === 'range' && box.offsetParent && key)"
        )
        rates = {f"{name} ({number})": tab.evaluate(DRAG, number) for number, name in enumerate(names) if name}
        slowest = sorted(rates, key=rates.get)[:5]
        print(
            f"controls: {tab.evaluate('document.querySelectorAll(`[data-key]`).length')}, {len(rates)} sliders dragged"
        )
        print(f"frames per second: median {statistics.median(rates.values()):.0f}, slowest", end=" ")
        print(", ".join(f"{name} {rates[name]:.0f}" for name in slowest))
        browser.close()


if __name__ == "__main__":
    main()
