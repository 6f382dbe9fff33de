// measure.js -- what measure.py reads in the browser. It runs before the page's own scripts.
"use strict";

const measure = { drawn: [], paintedOnPaper: 0 };
window.measure = measure;
addEventListener("afterprint", () => { measure.paintedOnPaper = measure.painted(); });

const channelsOf = (color) => color.match(/[\d.]+/g).map(Number);
const styleOf = (one) => getComputedStyle(one);

/** The contrast of two colours by WCAG 2. */
function contrast(a, b) {
  const linear = (x) => x <= 10 ? x / 255 / 12.92 : ((x / 255 + 0.055) / 1.055) ** 2.4;
  const luminance = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const [low, high] = [a, b].map(luminance).sort((x, y) => x - y);
  return (high + 0.05) / (low + 0.05);
}

/** Canvases with more than 8 colours. */
measure.painted = () => [...document.querySelectorAll("canvas")].filter((canvas) => {
  if (!canvas.width || !canvas.height) return false;
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return new Set(new Uint32Array(data.buffer)).size > 8;
}).length;

/** Record each text that a figure draws from now on, with its contrast. */
measure.watchTexts = () => {
  measure.drawn = [];
  CanvasRenderingContext2D.prototype.fillText = function (words, x, y) {
    const figure = this.canvas.closest("figure"), { width } = this.measureText(words), counts = {};
    const left = x - { left: 0, center: 0.5, right: 1 }[this.textAlign] * width, middle = this.textBaseline === "middle" ? y : y - 4;
    for (const share of [0.1, 0.3, 0.5, 0.7, 0.9]) { // a line may cross the text: the commonest of five places counts
      const at = this.getTransform().transformPoint({ x: left + share * width, y: middle });
      const [r, g, b, alpha] = this.getImageData(at.x, at.y, 1, 1).data;
      const color = alpha ? `${r},${g},${b}` : styleOf(figure).backgroundColor;
      counts[color] = (counts[color] ?? 0) + 1;
    }
    const behind = Object.keys(counts).reduce((a, b) => counts[b] > counts[a] ? b : a);
    const ink = this.fillStyle.match(/[0-9a-f]{2}/g).map((x) => parseInt(x, 16));
    const place = { y, align: this.textAlign, figure: figure.dataset.figure };
    measure.drawn.push({ words, ...place, ratio: contrast(ink, channelsOf(behind)), least: 4.5 });
    fillText.call(this, words, x, y);
  };
};
const { fillText } = CanvasRenderingContext2D.prototype;

/** The visible texts of the page, with their contrast. */
measure.texts = () => {
  const found = new Set(document.querySelectorAll("input:not([type=range], [type=checkbox]), select, textarea"));
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) if (walk.currentNode.data.trim()) found.add(walk.currentNode.parentElement);
  return [...found].filter((one) => one.checkVisibility() && !one.closest("script, style, option")).map((one) => {
    let box = one;
    while ((channelsOf(styleOf(box).backgroundColor)[3] ?? 1) === 0) box = box.parentElement;
    const { color, fontSize, fontWeight } = styleOf(one), size = parseFloat(fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && Number(fontWeight) >= 700);
    const ratio = contrast(channelsOf(color), channelsOf(styleOf(box).backgroundColor));
    return { words: (one.value ?? one.textContent).slice(0, 60), ratio, least: isLarge ? 3 : 4.5 };
  });
};

/** Open what can be opened; return how many controls and links are visible. */
measure.startKeyboard = () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
  const all = document.querySelectorAll("a[href], button, input, select, textarea, summary");
  Object.assign(measure, { focusable: [...all].filter((one) => one.checkVisibility()), reached: new Set() });
  return measure.focusable.length;
};

/** The element with the focus, or null at the end of the path. Its outline needs 2 pixels and a contrast of 3. */
measure.focused = () => {
  const one = document.activeElement, { outlineStyle, outlineWidth, outlineColor } = styleOf(one);
  if (one === document.body || measure.reached.has(one)) return null;
  measure.reached.add(one);
  const ratio = contrast(channelsOf(outlineColor), channelsOf(styleOf(document.body).backgroundColor));
  return { isKnown: measure.focusable.includes(one), isVisible: outlineStyle !== "none" && parseFloat(outlineWidth) >= 2 && ratio >= 3 };
};

/** Move a slider once per frame for 0.4 s; return the frames per second. */
measure.drag = async (number) => {
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
};
