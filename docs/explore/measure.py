"""Print figures of the page: size, first picture, contrast, keyboard, printing, and frames per second while dragging.

    python docs/explore/measure.py [FILE]          by default build/explore/index.html, which build.py makes

It needs playwright and a chromium in PATH.

- Contrast is the ratio of WCAG 2, for each text of the page and each text on a canvas. Level AA asks for 4.5, or 3 for
  large text.
- The keyboard path presses Tab until the focus leaves the page.
- Printing makes a PDF right after a load and counts the canvases that are painted at that moment.
- Each slider is moved once per frame for 0.4 s, with the figures near it drawn.
"""

from __future__ import annotations

import shutil
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from playwright.sync_api import sync_playwright

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SCRIPT = Path(__file__).with_name("measure.js")


class Text(NamedTuple):
    """A text, the contrast with its background, and the least contrast of WCAG AA."""

    words: str
    ratio: float
    least: float


def load(browser: Browser, page: Path, link: str = "", *, scheme: str = "light") -> Page:
    """Load the page without network, and measure.js before it."""
    tab = browser.new_context(
        offline=True, viewport={"width": 1280, "height": 900}, color_scheme="dark" if scheme == "dark" else "light"
    ).new_page()
    tab.add_init_script(path=SCRIPT)
    tab.goto(page.as_uri() + link)
    tab.wait_for_function("window.explore && explore.firstPicture > 0", timeout=60_000)
    return tab


def contrast(tab: Page) -> list[Text]:
    """Contrast of the page's texts and of those in its figures."""
    tab.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    tab.evaluate("measure.watchTexts(); explore.figures.forEach((figure) => explore.draw(figure))")
    found = tab.evaluate("[...measure.texts(), ...measure.drawn]")
    return [Text(one["words"], one["ratio"], one["least"]) for one in found]


def keyboard(tab: Page) -> tuple[int, int, int]:
    """Controls and links, how many of them Tab reaches, and how many show the focus by an outline."""
    count: int = tab.evaluate("measure.startKeyboard()")
    path = []
    for _ in range(2 * count):
        tab.keyboard.press("Tab")
        found = tab.evaluate("measure.focused()")
        if found is None:
            break
        path.append(found)
    reached = [one for one in path if one["isKnown"]]
    return count, len(reached), sum(one["isVisible"] for one in reached)


def printed(tab: Page) -> tuple[int, int]:
    """Canvases, and how many are painted in a PDF."""
    tab.pdf(format="A4")
    count, painted = tab.evaluate("[document.querySelectorAll('canvas').length, measure.paintedOnPaper]")
    return count, painted


def main() -> None:
    default = Path(__file__).resolve().parent.parent.parent / "build/explore/index.html"
    page = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else default
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        raise SystemExit("docs/explore/measure.py: there is no chromium in PATH")
    print(f"size: {page.stat().st_size / 1000:.0f} kB")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        tabs = [load(browser, page) for _ in range(5)]
        first = statistics.median(tab.evaluate("explore.firstPicture") for tab in tabs)
        text = statistics.median(
            tab.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime") for tab in tabs
        )
        print(f"first text: {text:.0f} ms, first picture: {first:.0f} ms, medians of {len(tabs)} loads")
        for scheme in ("light", "dark"):
            tab = load(browser, page, scheme=scheme)
            count, painted = printed(tab)
            texts = contrast(tab)
            low = min(texts, key=lambda one: one.ratio / one.least)
            passed = sum(one.ratio >= one.least for one in texts)
            print(
                f"{scheme}: contrast AA {passed} of {len(texts)} texts, lowest {low.ratio:.2f} ({low.words!r});",
                end=" ",
            )
            print(f"printed {painted} of {count} canvases")
        count, reached, visible = keyboard(load(browser, page))
        print(f"keyboard: Tab reaches {reached} of {count} controls and links, {visible} with a visible focus")
        tab = tabs[0]
        names = tab.evaluate(
            "explore.inputs.map(({ control, box, key }) => control.kind === 'range' && box.offsetParent && key)"
        )
        rates = {
            f"{name} ({number})": tab.evaluate("(number) => measure.drag(number)", number)
            for number, name in enumerate(names)
            if name
        }
        slowest = sorted(rates, key=rates.__getitem__)[:5]
        print(
            f"controls: {tab.evaluate('document.querySelectorAll(`[data-key]`).length')}, {len(rates)} sliders dragged"
        )
        print(f"frames per second: median {statistics.median(rates.values()):.0f}, slowest", end=" ")
        print(", ".join(f"{name} {rates[name]:.0f}" for name in slowest))
        browser.close()


if __name__ == "__main__":
    main()
