// figures.js -- each figure: the state that it depends on, its picture, and one sentence about what it shows now.
"use strict";

const percent = (x) => `${(100 * x).toFixed(x > 0 && x < 0.001 ? 2 : 1)} %`;
const largest = (values) => values.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
const integer = (n) => n.toLocaleString("en-US");
const bounds = (curves) => {
  let low = Infinity, high = -Infinity;
  for (const curve of curves) for (const x of curve) if (Number.isFinite(x)) [low, high] = [Math.min(low, x), Math.max(high, x)];
  return high > low ? [low, high] : [low - 1, high + 1];
};
const padded = ([low, high]) => [low - 0.04 * (high - low), high + 0.04 * (high - low)];

const FIGURES = {
  order: {
    uses: ["positions"],
    draw(state, numbers, { context: c, width, height }, narrow) {
      const { before, after, change } = numbers.order(state), n = SENTENCE.length, none = state.positions === "none";
      const boxes = narrow
        ? [0, 1, 2].map((i) => ({ x: 58, y: i * height / 3 + 54, width: width - 74, height: height / 3 - 76 }))
        : panels(width, height, [1, 1, 1.15], false, { top: 58, bottom: 14, left: 56, gap: 26, right: 24 });
      const words = [SENTENCE, SWAPPED.map((word) => SENTENCE[word])];
      [before, after].forEach(({ weights }, side) => {
        const box = square(boxes[side]);
        matrix(c, box, weights, n, n, [-1, 1]);
        words[side].forEach((word, i) => {
          const step = box.width / n;
          text(c, word, box.x - 6, box.y + (i + 0.5) * step, { align: "right", base: "middle", color: colors().ink });
          c.save();
          c.translate(box.x + (i + 0.5) * step + 4, box.y - 6);
          c.rotate(-0.7);
          text(c, word, 0, 0, { color: colors().ink });
          c.restore();
          for (let j = 0; j < n; j++) {
            const p = weights[i * n + j];
            text(c, p.toFixed(2).slice(1), box.x + (j + 0.5) * step, box.y + (i + 0.5) * step + 4, {
              align: "center", size: Math.min(12, step / 3), color: p > 0.5 ? colors().panel : colors().ink,
            });
          }
        });
      });
      const box = boxes[2], most = Math.max(largest(change), 0.5), { px } = axes(c, { ...box, y: box.y - 8, height: box.height - 22 },
        { low: 0, high: most, label: "" }, { low: 0, high: n, label: "change of the output", ticks: [] });
      SENTENCE.forEach((word, i) => {
        const y = box.y - 8 + (i + 0.5) * (box.height - 22) / n;
        text(c, word, box.x - 7, y, { align: "right", base: "middle", color: colors().ink });
        c.fillStyle = colors().series[1];
        c.fillRect(box.x, y - 8, px(change[i]) - box.x, 16);
      });
      return none || largest(change) < 1e-5
        ? `No output changes by more than ${format(largest(change))}, which is rounding: the exchange is invisible.`
        : `The output of “${SENTENCE[change.indexOf(Math.max(...change))]}” changes most, by ${format(largest(change))}.`;
    },
  },

  encoding: {
    uses: ["length", "dim", "base", "channel"],
    draw(state, numbers, { context: c, width, height }) {
      const { values, w } = numbers.encoding(state), { length, dim, channel } = state;
      const box = { x: 52, y: 26, width: width - 66, height: (height - 70) * 0.56 };
      const turned = new Float32Array(values.length);
      for (let p = 0; p < length; p++) for (let k = 0; k < dim; k++) turned[k * length + p] = values[p * dim + k];
      text(c, "channel", box.x, box.y - 11, { weight: 600, color: colors().ink });
      matrix(c, box, turned, dim, length, [-1, 1]);
      [0, dim - 1].forEach((k) => text(c, String(k), box.x - 7, box.y + (k + 0.5) * box.height / dim, { align: "right", base: "middle", size: 12 }));
      markRow(c, box, channel, dim);
      const under = { x: box.x, y: box.y + box.height + 42, width: box.width, height: height - box.height - 112 };
      const { px, py } = axes(c, under, { low: -0.5, high: length - 0.5, label: "place in the text", ticks: niceTicks(0, length - 1, Math.max(3, width / 90)).filter(Number.isInteger) },
        { low: -1, high: 1, label: `channel ${channel}`, ticks: [-1, 0, 1] });
      line(c, range(length).map((p) => [px(p), py(values[p * dim + channel])]), { color: colors().accent });
      const wave = 2 * Math.PI / w[channel >> 1];
      return `Channel ${channel} is a ${channel % 2 ? "cosine" : "sine"} with a wave of ${format(wave)} places; ` +
        `${w.filter((x) => 2 * Math.PI / x > length).length} of ${dim / 2} frequencies make less than one turn in ${length} places.`;
    },
  },

  similarity: {
    uses: ["length", "dim", "base", "query"],
    draw(state, numbers, { context: c, width, height }, narrow) {
      const { products } = numbers.similarity(state), { length, query } = state;
      const [left, right] = panels(width, height, [1, 1.5], narrow), box = square(left);
      matrix(c, box, products, length, length, bounds([products]));
      markRow(c, box, query, length);
      text(c, "query ↓  key →", box.x, box.y - 10, { weight: 600, color: colors().ink });
      colorBar(c, box.x + 34, box.y + box.height + 18, box.width - 68, Math.min(...products), state.dim / 2);
      const row = products.subarray(query * length, (query + 1) * length), [low, high] = padded(bounds([row]));
      const { px, py } = axes(c, right, { low: 0, high: length - 1, label: "key" }, { low, high, label: `inner product with place ${query}` });
      line(c, Array.from(row, (y, x) => [px(x), py(y)]), { color: colors().accent });
      line(c, [[px(query), right.y], [px(query), right.y + right.height]], { color: colors().muted, dash: [2, 3], width: 1 });
      const near = query + 1 < length ? row[query + 1] : row[query - 1];
      return `The product of place ${query} with itself is ${format(row[query])}, with its neighbour ${format(near)}, ` +
        `with the farthest place ${format(query * 2 < length ? row[length - 1] : row[0])}.`;
    },
  },

  clocks: {
    uses: ["query", "key", "dim", "base", "scaling", "factor", "train"],
    draw(state, numbers, { context: c, width, height }, narrow) {
      const { w, table, score, moved } = numbers.clocks(state), pairs = w.length;
      const columns = narrow ? 3 : width < 900 ? 5 : 6, rows = narrow ? 4 : 2, shown = spread(pairs, columns * rows);
      const cell = width / columns, high = height / rows, r = Math.max(14, Math.min(cell * 0.36, high / 2 - 34));
      const angle = (row, k) => Math.atan2(table[row * 2 * pairs + pairs + k], table[row * 2 * pairs + k]);
      shown.forEach((k, i) => {
        const x = cell * (i % columns + 0.5), y = high * (Math.floor(i / columns) + 0.5) - 15;
        const q = angle(0, k), n = angle(1, k), turn = ((n - q) % (2 * Math.PI) + 3 * Math.PI) % (2 * Math.PI) - Math.PI;
        clock(c, x, y, r, {
          between: turn > 0 ? [q, q + turn] : [q + turn, q],
          hands: [{ angle: q, color: colors().series[0] }, { angle: n, color: colors().series[1], dash: [5, 3] }],
        });
        text(c, `pair ${k}`, x, y + r + 17, { align: "center", color: colors().ink, weight: 600 });
        text(c, `a turn in ${format(2 * Math.PI / w[k])}`, x, y + r + 33, { align: "center", size: 12 });
      });
      return `Query at ${state.query}, key at ${state.key}: the score of two equal words is ${score.toFixed(4)}. ` +
        `With both moved on by 1000 it is ${moved.toFixed(4)}.`;
    },
  },

  bias: {
    uses: ["bias", "heads", "head", "length", "query", "causal", "dim", "r1", "r2", "buckets", "reach", "c", "threshold"],
    draw(state, numbers, { context: c, width, height }, narrow) {
      const { length, heads, head, query } = state, values = numbers.matrix(state, state.bias);
      const all = numbers.bias(state, state.bias, [query], range(length)).data;
      const [left, middle, right] = panels(width, height, [1, 1.1, 1.1], narrow, { gap: 30 }), box = square(left);
      const [least, top] = bounds([values]);
      matrix(c, box, values, length, length, [least, top], state.causal ? (i, j) => j > i : null);
      markRow(c, box, query, length);
      text(c, `query ↓  key →   (head ${head})`, box.x, box.y - 10, { weight: 600, color: colors().ink });
      colorBar(c, box.x + 34, box.y + box.height + 18, box.width - 68, least, top);
      const curves = range(heads).map((h) => all.subarray(h * length, (h + 1) * length)), [low, high] = padded(bounds(curves));
      const seen = state.causal ? query : length - 1;
      const one = axes(c, middle, { low: 0, high: length - 1, label: "key" }, { low, high, label: "added to the score" });
      const order = [...range(heads).filter((h) => h !== head), head];
      inside(c, middle, () => order.forEach((h) => line(c, Array.from(curves[h].subarray(0, seen + 1), (y, x) => [one.px(x), one.py(y)]),
        h === head ? { color: colors().accent, width: 2.5 } : { color: colors().muted, width: 1 })));
      const { weights } = numbers.scheme(state, state.bias);
      const two = axes(c, right, { low: 0, high: length - 1, label: "key" }, { low: 0, high: Math.max(...weights) * 1.05, label: `attention of place ${query}` });
      line(c, Array.from(weights, (y, x) => [two.px(x), two.py(x > seen ? NaN : y)]), { color: colors().accent });
      const near = weights.slice(Math.max(0, query - 7), Math.min(seen, query + (state.causal ? 0 : 7)) + 1).reduce((a, b) => a + b, 0);
      return `${SCHEMES[state.bias].label}, head ${head} of ${heads}: place ${query} gives ${percent(near)} of its attention to ` +
        `places at most 7 away${state.causal ? "" : ", on both sides"}.`;
    },
  },

  reach: {
    uses: ["train", "stretch", "far", "scaling", "factor", "dim", "base"],
    draw(state, numbers, { context: c, width, height }, narrow) {
      const cover = numbers.coverage(state), trained = frequencies(state.dim, state.base);
      const { w } = scaledOf(state, state.scaling), pairs = w.length, distance = Math.round((cover.test - 1) * state.far / 1000);
      const columns = narrow ? 4 : 8, shown = spread(pairs, columns * (narrow ? 2 : 1)), cell = width / columns;
      const r = Math.min(cell * 0.36, 44), table = numbers.library.table([distance], { w, attention: 1 }).data;
      const rows = narrow ? 2 : 1, high = 2 * r + 46;
      let unseen = 0;
      trained.forEach((x, k) => { unseen += distance >= cover.firstUnseen[k] && isNew(k) ? 1 : 0; });
      function isNew(k) {
        const arc = (state.train - 1) * trained[k], turn = 2 * Math.PI;
        return arc < turn && distance * w[k] % turn > arc * (1 + 4 * Number.EPSILON);
      }
      shown.forEach((k, i) => {
        const x = cell * (i % columns + 0.5), y = Math.floor(i / columns) * high + r + 8;
        clock(c, x, y, r, {
          seen: (state.train - 1) * trained[k], cross: isNew(k),
          hands: [{ angle: Math.atan2(table[pairs + k], table[k]), color: isNew(k) ? colors().warn : colors().accent }],
        });
        text(c, `pair ${k}`, x, y + r + 19, { align: "center", color: isNew(k) ? colors().warn : colors().ink, weight: 600 });
      });
      const box = { x: 52, y: rows * high + 38, width: width - 66, height: height - rows * high - 84 };
      const { px, py } = axes(c, box, { low: -0.5, high: pairs - 0.5, label: "pair, from fast to slow", ticks: spread(pairs, Math.min(pairs, 9)) },
        { low: 0, high: 1, label: "share of the circle", ticks: [0, 0.25, 0.5, 0.75, 1] });
      bars(c, box, px, py, cover.covered, cover.needed);
      const reach = cover.reach === Infinity ? "every distance" : `distances up to ${integer(cover.reach - 1)}`;
      return `Trained on ${integer(state.train)} tokens, ${state.scaling === "default" ? "unscaled" : `${SCALING_LABELS[state.scaling]} by ${state.factor}`}: ` +
        `all angles are known for ${reach}. At distance ${integer(distance)}, ${unseen} of ${pairs} pairs show a new angle.`;
    },
  },

  matrices: {
    uses: ["schemes", "length", "dim", "base", "heads", "head", "query", "causal", "factor", "train", "r1", "r2", "buckets", "reach", "clip", "c", "threshold"],
    height(state, width) {
      const columns = Math.max(1, Math.min(state.schemes.length, Math.floor(width / 150), 6));
      const side = Math.min(width / columns - 18, 260);
      return Math.ceil(state.schemes.length / columns) * (side + 46) + 4;
    },
    draw(state, numbers, { context: c, width }) {
      const { length, schemes, query } = state, columns = Math.max(1, Math.min(schemes.length, Math.floor(width / 150), 6));
      const side = Math.min(width / columns - 18, 260);
      schemes.forEach((name, i) => {
        const values = numbers.matrix(state, name), [low, high] = name === "none" ? [0, 0] : bounds([values]);
        const box = { x: (i % columns) * (side + 18) + 1, y: Math.floor(i / columns) * (side + 46) + 36, width: side, height: side };
        matrix(c, box, values, length, length, [low, high], state.causal ? (r, k) => k > r : null);
        markRow(c, box, query, length);
        text(c, SCHEMES[name].label, box.x, box.y - 21, { weight: 600, color: colors().ink, size: 13 });
        text(c, `${format(low)} to ${format(high)}`, box.x, box.y - 6, { size: 12 });
      });
      return `${schemes.length} scheme${schemes.length === 1 ? "" : "s"}, ${length} places, head ${state.head} of ${state.heads}.`;
    },
  },

  curves: {
    height: heightByDistance,
    uses: ["schemes", "length", "dim", "base", "heads", "head", "query", "causal", "factor", "train", "r1", "r2", "buckets", "reach", "clip", "c", "threshold"],
    draw(state, numbers, canvas) {
      const curves = state.schemes.map((name) => numbers.scheme(state, name).logits).map((row) => row.map((x) => x - row[state.query]));
      drawByDistance(state, canvas, curves, { label: "score, less that of the query's own place" });
      return `From the query's own place to the first one, ${state.query} away, the score changes by: ` +
        state.schemes.map((name, i) => `${SCHEMES[name].label} ${format(curves[i][0])}`).join(", ") + ".";
    },
  },

  attention: {
    height: heightByDistance,
    uses: ["schemes", "length", "dim", "base", "heads", "head", "query", "causal", "factor", "train", "r1", "r2", "buckets", "reach", "clip", "c", "threshold"],
    draw(state, numbers, canvas) {
      const all = state.schemes.map((name) => numbers.scheme(state, name).weights);
      const seen = state.causal ? state.query : state.length - 1, shown = all.map((weights) => weights.subarray(0, seen + 1));
      drawByDistance(state, canvas, all, { label: "attention weight", log: true, least: 1e-6 });
      const share = (weights) => weights.subarray(Math.max(0, state.query - 7), state.query + 1).reduce((a, b) => a + b, 0);
      return "Attention to the last eight places: " +
        state.schemes.map((name, i) => `${SCHEMES[name].label} ${percent(share(shown[i]))}`).join(", ") + ".";
    },
  },

  bands: {
    uses: ["factor", "train", "dim", "base"],
    draw(state, numbers, { context: c, width, height }) {
      const { ratios, turns } = numbers.bands(state), pairs = turns.length, types = Object.keys(ratios);
      const items = types.map((type, i) => ({ label: SCALING_LABELS[type], ...seriesStyle(i) }));
      const top = legend(c, items, 52, 14, width - 66) + 24;
      const box = { x: 52, y: top, width: width - 66, height: height - top - 44 }, ticks = [1, 1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64].filter((t) => t >= 0.99 / state.factor);
      const { px, py } = axes(c, box, { low: 0, high: pairs - 1, label: "pair, from fast to slow", ticks: spread(pairs, Math.min(pairs, 9)) },
        { low: 0.6 / state.factor, high: 1.08, log: true, label: "ratio", ticks, names: (t) => t === 1 ? "1" : `1/${Math.round(1 / t)}` });
      [32, 1].forEach((count) => {
        const last = turns.findLastIndex((t) => t >= count);
        if (last < 0 || last === pairs - 1) return;
        line(c, [[px(last + 0.5), box.y], [px(last + 0.5), box.y + box.height]], { color: colors().muted, dash: [2, 3], width: 1 });
        text(c, count === 1 ? "1 turn" : "32 turns", px(last + 0.5) + 4, box.y + box.height - 6, { size: 12 });
      });
      types.forEach((type, i) => line(c, Array.from(ratios[type].ratio, (y, x) => [px(x), py(y)]), { ...seriesStyle(i), width: 2.5 }));
      const kept = (type) => ratios[type].ratio.filter((x) => Math.abs(x - 1) < 1e-9).length;
      return `Of ${pairs} pairs YaRN keeps ${kept("yarn")} and Llama 3 keeps ${kept("llama3")}. ` +
        `YaRN multiplies the rotated vectors by ${ratios.yarn.attention.toFixed(4)}.`;
    },
  },

  precision: {
    uses: ["position", "dim", "base"],
    draw(state, numbers, { context: c, width, height }, narrow) {
      const { at, curve } = numbers.precision(state), floor = 1e-10, style = [{ ...seriesStyle(1), label: "usual formula in float32" }, { ...seriesStyle(0), dash: [], label: "posenc in float32" }];
      const top = legend(c, style, 52, 14, width - 62) + 26;
      const [left, right] = panels(width, height - top + 30, [1.15, 1], narrow, { right: 20 }).map((box) => ({ ...box, y: box.y + top - 30 }));
      const y = { low: floor, high: 4, log: true };
      const one = axes(c, left, { low: 1, high: 2 ** 53, log: true, label: "position", ticks: [0, 10, 20, 30, 40, 53].map((e) => 2 ** e), names: (t) => `2${superscript(Math.log2(t))}` }, { ...y, label: "error of the worst pair" });
      const shown = (x) => Math.max(x, floor);
      [curve.usual, curve.library].forEach((errors, i) => line(c, errors.map((e, k) => [one.px(curve.positions[k]), one.py(shown(e))]), { ...style[i], width: 2.5 }));
      const place = Math.max(Math.abs(state.position), 1);
      line(c, [[one.px(place), left.y], [one.px(place), left.y + left.height]], { color: colors().muted, dash: [2, 3], width: 1 });
      const pairs = at.usualError.length;
      const two = axes(c, right, { low: -0.5, high: pairs - 0.5, label: "pair, from fast to slow", ticks: spread(pairs, Math.min(pairs, 7)) }, { ...y, label: "error by pair" });
      [at.usualError, at.libraryError].forEach((errors, i) => errors.forEach((e, k) => {
        c.fillStyle = style[i].color;
        c.beginPath();
        if (i) c.arc(two.px(k), two.py(shown(e)), 3, 0, 2 * Math.PI);
        else c.rect(two.px(k) - 3, two.py(shown(e)) - 3, 6, 6);
        c.fill();
      }));
      const worst = at.usualError.indexOf(Math.max(...at.usualError));
      const [exact, library, usual] = [at.exact, at.library, at.usual].map((x) => x[worst].toFixed(8).replace("-", "−"));
      return `At position ${integer(state.position)}, pair ${worst}: the exact cosine is ${exact}, posenc has ${library}, ` +
        `the usual formula ${usual}.`;
    },
  },

  config: {
    uses: ["config", "sample", "layer", "sequence", "trained"],
    height: (state, width, numbers) => numbers.config(state).error ? 1 : width < 620 ? 560 : 380,
    draw(state, numbers, { context: c, width, height }, narrow, figure) {
      const read = numbers.config(state), error = Boolean(read.error);
      figure.querySelector(".readout").classList.toggle("error", error);
      fillTable(figure, error ? null : read);
      if (error) return `This config.json cannot be read: ${read.error}.`;
      const pairs = read.w.length, least = Math.min(...read.ratio.filter((x) => x > 0), 1), half = (height - 30) / 2;
      const x = { low: -0.5, high: pairs - 0.5, ticks: spread(pairs, Math.min(pairs, narrow ? 5 : 9)) };
      const upper = { x: 52, y: 30, width: width - 66, height: half - 50 }, under = { ...upper, y: half + 46, height: half - 60 };
      const one = axes(c, upper, x, { low: 0, high: 1.05, label: "frequency, scaled / unscaled", ticks: [0, 0.25, 0.5, 0.75, 1] });
      Array.from(read.ratio).forEach((y, k) => {
        c.fillStyle = colors().accent;
        c.beginPath(); c.arc(one.px(k), one.py(y), Math.min(3.2, Math.max(1.8, width / pairs / 4)), 0, 2 * Math.PI); c.fill();
      });
      const two = axes(c, under, { ...x, label: "pair, from fast to slow" }, { low: 0, high: 1, label: "share of the circle seen in training", ticks: [0, 0.5, 1] });
      bars(c, under, two.px, two.py, read.covered, read.covered);
      const reach = read.reach === Infinity ? "every distance" : `distances up to ${integer(read.reach - 1)}`;
      return `${2 * pairs} rotated channels, base ${integer(read.base)}, ${read.type === "default" ? "no scaling" : `scaling ${read.type}, smallest ratio ${format(least)}`}` +
        `${read.layerType ? `, ${read.layerType} layers` : ""}; ${layoutOf(read)}${scalesOf(read)}. ${state.trained ? "Trained" : read.isAssumed ? "The config does not say the training length. If trained" : "By its config, trained"} on ${integer(read.trained)} tokens: all angles are known for ${reach}.`;
    },
  },
};

function bars(c, box, px, py, filled, needed) {
  const wide = Math.max(1, (px(1) - px(0)) * 0.72);
  filled.forEach((share, k) => {
    c.fillStyle = colors().accent;
    c.fillRect(px(k) - wide / 2, py(share), wide, py(0) - py(share));
    if (needed[k] <= share + 0.002) return; // less than a pixel
    const top = py(needed[k]), low = py(share);
    c.save();
    c.beginPath(); c.rect(px(k) - wide / 2, top, wide, low - top); c.clip();
    for (let y = top - wide; y < low + wide; y += 5) line(c, [[px(k) - wide, y + wide], [px(k) + wide, y - wide]], { color: colors().warn, width: 1.4 });
    c.restore();
    c.strokeStyle = colors().warn;
    c.lineWidth = 1;
    c.strokeRect(px(k) - wide / 2, top, wide, low - top);
  });
}

/** The height of a plot with a legend of all schemes above it. */
function heightByDistance({ schemes }, width) {
  return 310 + 20 * Math.ceil(schemes.length / Math.max(1, Math.floor((width - 70) / 130)));
}

function drawByDistance(state, { context: c, width, height }, curves, { label, log = false, least = 0 }) {
  const { schemes, query, length, causal } = state, seen = causal ? query : length - 1;
  const items = schemes.map((name, i) => ({ label: SCHEMES[name].label, ...seriesStyle(i) }));
  const top = legend(c, items, 56, 14, width - 70) + 26, box = { x: 56, y: top, width: width - 72, height: height - top - 44 };
  const visible = curves.map((curve) => Array.from(curve.subarray(0, seen + 1)));
  let [low, high] = bounds(visible);
  if (log) [low, high] = [Math.max(least, Math.min(low, high / 10)), high * 1.3];
  else [low, high] = padded([low, high]);
  const { px, py } = axes(c, box, { low: -query, high: Math.max(seen - query, 1 - query), label: "position of the key − position of the query" }, { low, high, label, log });
  inside(c, box, () => visible.forEach((curve, i) => {
    line(c, curve.map((y, x) => [px(x - query), py(log ? Math.max(y, least / 100) : y)]), { ...seriesStyle(i), width: 2 });
  }));
}

/** Which channels make a pair, and the direction of nanochat. */
function layoutOf({ layout, w }) {
  const pairs = { half: "pairs k and k + r/2 (layout half)", interleaved: "pairs 2k and 2k + 1 (layout interleaved)" };
  return `${pairs[layout] ?? "the layout of this model_type is unknown"}${w[0] < 0 ? ", rotated backwards" : ""}`;
}

function scalesOf({ attention, softmax }) {
  const one = attention === 1 ? "" : `; cos and sin times ${attention.toPrecision(5)}`;
  return softmax === 1 ? one : `${one}; logits times ${softmax.toPrecision(5)}`;
}

/** The bands of a config as a table, for readers of the screen and of numbers. */
function fillTable(figure, read) {
  const place = figure.querySelector(".table");
  if (!read) { place.replaceChildren(); return; }
  const wasOpen = place.querySelector("details")?.open ?? false;
  const rows = spread(read.w.length, 16).map((k) => [
    k, format(2 * Math.PI / read.speed[k]), format(read.turns[k]), format(read.ratio[k]), percent(read.covered[k]),
    read.firstUnseen[k] === Infinity ? "none" : integer(read.firstUnseen[k]),
  ]);
  const heads = ["pair", "a turn in", "turns in training", "scaled / unscaled", "circle seen", "first new distance"];
  place.innerHTML = `<details${wasOpen ? " open" : ""}><summary>The bands as a table</summary><table><thead><tr>` +
    heads.map((head) => `<th scope="col">${head}</th>`).join("") + "</tr></thead><tbody>" +
    rows.map((row) => `<tr>${row.map((cell) => `<td>${cell}</td>`).join("")}</tr>`).join("") + "</tbody></table></details>";
}
