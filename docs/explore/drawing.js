// drawing.js -- plots on a canvas: axes, lines, matrices, legends, in the colours of the page.
"use strict";

const LIGHT = ["#0a6b6b", "#b0401c", "#5a4a9c", "#8a6400", "#2768a8", "#9c3470", "#4a741c", "#666666"];
const DARK = ["#5fbdb5", "#f08d62", "#b3a4f0", "#dcb34e", "#7fb4ea", "#ec8fc0", "#a5cf6b", "#b5b5b5"];
const DASHES = [[], [7, 4], [2, 3], [9, 3, 2, 3], [4, 2], [12, 4], [14, 3, 3, 3], [6, 2, 1, 2, 1, 2]];

const dark = matchMedia("(prefers-color-scheme: dark)");
let theme = null;
function colors() {
  if (!theme) {
    const style = getComputedStyle(document.documentElement), isDark = dark.matches && !onPaper();
    const of = (name) => style.getPropertyValue(`--${name}`).trim();
    theme = {
      ...Object.fromEntries(["ink", "muted", "grid", "line", "panel", "accent", "warn"].map((name) => [name, of(name)])),
      series: isDark ? DARK : LIGHT, sans: of("sans"),
      ramp: ramp([of("panel"), ...(isDark ? ["#2f8580", "#a9f0e8"] : ["#63aaa5", "#064a4b"])]),
    };
  }
  return theme;
}
dark.addEventListener("change", () => { theme = null; });

const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));

/** 256 colours from the smallest number of a matrix to the largest, blended from three. */
function ramp(three) {
  const [low, middle, high] = three.map(rgb);
  const blend = (a, b, t) => a.map((x, channel) => Math.round(x + (b[channel] - x) * t));
  return range(256).map((i) => i < 128 ? blend(low, middle, i / 127.5) : blend(middle, high, i / 127.5 - 1));
}

/** A canvas of the element's width; `draw` gets the context and sizes in CSS pixels. */
function prepare(canvas, height) {
  const width = canvas.clientWidth, scale = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  context.lineJoin = "round";
  return { context, width, height };
}

/** Black or white, whichever has the larger contrast with a cell by WCAG 2: at least 4.58. */
function inkOn(cell) {
  const [red, green, blue] = cell.map((x) => x <= 10 ? x / 255 / 12.92 : ((x / 255 + 0.055) / 1.055) ** 2.4);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000000" : "#ffffff";
}

function text(c, words, x, y, { align = "left", color = colors().muted, size = 12.5, weight = 400, base = "alphabetic" } = {}) {
  c.font = `${weight} ${size}px ${colors().sans}`;
  c.fillStyle = color;
  c.textAlign = align;
  c.textBaseline = base;
  c.fillText(words, x, y);
  return c.measureText(words).width;
}

function format(x) {
  if (x === 0) return "0";
  const size = Math.abs(x);
  if (size >= 1e6 || size < 1e-3) {
    const [digits, exponent] = x.toExponential(1).split("e"), power = `10${superscript(Number(exponent))}`;
    return (digits === "1.0" ? power : `${digits.replace(/\.0$/, "")}·${power}`).replace("-", "−");
  }
  return String(Number(x.toPrecision(3))).replace("-", "−");
}

const superscript = (n) => String(n).replace(/./g, (digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit] ?? "⁻");

function niceTicks(low, high, count) {
  const raw = (high - low) / count, unit = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * unit).find((m) => m >= raw * 0.999);
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) ticks.push(k * step);
  return ticks;
}

/** Round numbers among 0 .. n - 1. */
const wholeTicks = (n, count) => n < 2 ? [0] : niceTicks(0, n - 1, count).filter(Number.isInteger);

function logTicks(low, high, count) {
  const first = Math.ceil(Math.log10(low) - 1e-9), last = Math.floor(Math.log10(high) + 1e-9);
  const step = Math.max(1, Math.ceil((last - first + 1) / count));
  const ticks = [];
  for (let e = first; e <= last; e += step) ticks.push(10 ** e);
  return ticks;
}

/**
 * Axes in a box {x, y, width, height}. x and y are {low, high, label, log, ticks, names}. Returns functions from numbers
 * to pixels.
 */
function axes(c, box, x, y) {
  const scale = (axis, from, to) => {
    const f = axis.log ? Math.log10 : (v) => v, low = f(axis.low), high = f(axis.high);
    return (v) => from + (to - from) * (high === low ? 0.5 : (f(v) - low) / (high - low));
  };
  const px = scale(x, box.x, box.x + box.width), py = scale(y, box.y + box.height, box.y);
  const ticksOf = (axis, room) => axis.ticks ?? (axis.log ? logTicks : niceTicks)(axis.low, axis.high, Math.max(2, Math.floor(room)));
  c.lineWidth = 1;
  ticksOf(y, box.height / 36).forEach((tick) => {
    c.strokeStyle = colors().grid;
    c.beginPath(); c.moveTo(box.x, Math.round(py(tick)) + 0.5); c.lineTo(box.x + box.width, Math.round(py(tick)) + 0.5); c.stroke();
    text(c, y.names?.(tick) ?? format(tick), box.x - 7, py(tick), { align: "right", base: "middle", size: 12 });
  });
  ticksOf(x, box.width / 60).forEach((tick) => {
    text(c, x.names?.(tick) ?? format(tick), px(tick), box.y + box.height + 17, { align: "center", size: 12 });
    c.strokeStyle = colors().line;
    c.beginPath(); c.moveTo(px(tick), box.y + box.height); c.lineTo(px(tick), box.y + box.height + 4); c.stroke();
  });
  c.strokeStyle = colors().line;
  c.beginPath(); c.moveTo(box.x, box.y + box.height + 0.5); c.lineTo(box.x + box.width, box.y + box.height + 0.5); c.stroke();
  if (x.label) text(c, x.label, box.x + box.width / 2, box.y + box.height + 35, { align: "center" });
  if (y.label) text(c, y.label, box.x, box.y - 11, { weight: 600, color: colors().ink });
  return { px, py };
}

function line(c, points, { color, dash = [], width = 2 }) {
  c.strokeStyle = color;
  c.lineWidth = width;
  c.setLineDash(dash);
  c.beginPath();
  let pen = false;
  for (const [x, y] of points) {
    if (!Number.isFinite(y)) { pen = false; continue; }
    if (pen) c.lineTo(x, y); else c.moveTo(x, y);
    pen = true;
  }
  c.stroke();
  c.setLineDash([]);
}

function inside(c, box, draw) {
  c.save();
  c.beginPath(); c.rect(box.x - 1, box.y - 2, box.width + 2, box.height + 4); c.clip();
  draw();
  c.restore();
}

const seriesStyle = (i) => ({ color: colors().series[i % 8], dash: DASHES[(i + (i >= 8 ? 1 : 0)) % 8] });

/** Names of the series, wrapped to `width`; returns the height. */
function legend(c, items, x, y, width) {
  let left = x, top = y;
  c.font = `400 12.5px ${colors().sans}`;
  for (const { label, ...style } of items) {
    const need = 34 + c.measureText(label).width + 16;
    if (left + need > x + width && left > x) { left = x; top += 20; }
    line(c, [[left, top - 4], [left + 27, top - 4]], style);
    text(c, label, left + 33, top, { color: colors().ink });
    left += need;
  }
  return top - y + 20;
}

const scratch = document.createElement("canvas");

/** The colour of a number. On the whole page the stronger colour is the larger number. */
const shade = (value, low, high) => colors().ramp[Math.round(255 * (high > low ? clip((value - low) / (high - low), 0, 1) : 0.5))];

/** A matrix as cells in a box, in colours from `low` to `high`. Cells with `hidden(i, j)` are grey. */
function matrix(c, box, values, rows, columns, [low, high], hidden = () => false) {
  const image = new ImageData(columns, rows), grey = rgb(colors().grid);
  for (let i = 0, at = 0; i < rows; i++) {
    for (let j = 0; j < columns; j++, at++) {
      image.data.set(hidden(i, j) ? grey : shade(values[at], low, high), 4 * at);
      image.data[4 * at + 3] = 255;
    }
  }
  scratch.width = columns;
  scratch.height = rows;
  scratch.getContext("2d").putImageData(image, 0, 0);
  c.imageSmoothingEnabled = box.width * devicePixelRatio < columns;
  c.drawImage(scratch, box.x, box.y, box.width, box.height);
  c.strokeStyle = colors().line;
  c.lineWidth = 1;
  c.strokeRect(box.x + 0.5, box.y + 0.5, box.width - 1, box.height - 1);
}

/** A frame around row i of a matrix of n rows. */
function markRow(c, box, i, n) {
  const high = Math.max(box.height / n, 3), y = box.y + (i + 0.5) * box.height / n - high / 2;
  c.strokeStyle = colors().ink;
  c.lineWidth = 1.5;
  c.strokeRect(box.x - 1, y - 1, box.width + 2, high + 2);
}

/** The scale of a matrix under a box. */
function colorBar(c, x, y, width, low, high) {
  for (let i = 0; i < width; i++) {
    c.fillStyle = `rgb(${shade(i, 0, width - 1)})`;
    c.fillRect(x + i, y, 1.5, 9);
  }
  c.strokeStyle = colors().line;
  c.strokeRect(x + 0.5, y + 0.5, width, 9);
  text(c, format(low), x - 6, y + 5, { align: "right", base: "middle", size: 12 });
  text(c, format(high), x + width + 8, y + 5, { base: "middle", size: 12 });
}

/** Boxes side by side, or one under the other if the canvas is narrow. `shares` are their widths. */
function panels(width, height, shares, isNarrow, { top = 30, bottom = 44, left = 52, gap = 44, right = 10 } = {}) {
  if (isNarrow) {
    const each = height / shares.length;
    return shares.map((_, i) => ({ x: left, y: i * each + top, width: width - left - right, height: each - top - bottom }));
  }
  const all = shares.reduce((a, b) => a + b), room = width - right - (left + gap) * shares.length + gap;
  let x = 0;
  return shares.map((share) => {
    const box = { x: x + left, y: top, width: room * share / all, height: height - top - bottom };
    x += left + room * share / all + gap;
    return box;
  });
}

/** The largest square at the left of a box. */
function square(box) {
  const side = Math.max(40, Math.min(box.width, box.height));
  return { x: box.x + (box.width - side) / 2, y: box.y, width: side, height: side };
}

function clock(c, x, y, r, { seen = null, hands = [], between = null, cross = false }) {
  const at = (angle, length = r) => [x + length * Math.sin(angle), y - length * Math.cos(angle)]; // from twelve, clockwise
  const sector = (from, to, fill) => {
    c.fillStyle = fill;
    c.beginPath(); c.moveTo(x, y); c.arc(x, y, r, from - Math.PI / 2, to - Math.PI / 2); c.closePath(); c.fill();
  };
  c.globalAlpha = 0.2;
  if (seen !== null) sector(0, Math.min(seen, 2 * Math.PI), colors().accent);
  if (between) sector(...between, colors().warn);
  c.globalAlpha = 1;
  c.strokeStyle = colors().muted;
  c.lineWidth = 1;
  c.globalAlpha = 0.55;
  c.beginPath(); c.arc(x, y, r, 0, 2 * Math.PI); c.stroke();
  c.globalAlpha = 1;
  for (const { angle, color, dash = [] } of hands) {
    line(c, [[x, y], at(angle, r * 0.9)], { color, dash, width: 2.5 });
    c.fillStyle = color;
    c.beginPath(); c.arc(...at(angle, r * 0.9), 2.8, 0, 2 * Math.PI); c.fill();
  }
  if (cross) {
    const [a, b] = at(hands[0].angle, r + 0.5);
    line(c, [[a - 4, b - 4], [a + 4, b + 4]], { color: colors().warn, width: 2.5 });
    line(c, [[a - 4, b + 4], [a + 4, b - 4]], { color: colors().warn, width: 2.5 });
  }
}

/** About `count` whole numbers from 0 to n - 1, evenly spaced. */
const spread = (n, count) => n <= count ? range(n) : range(count).map((i) => Math.round(i * (n - 1) / (count - 1)));
