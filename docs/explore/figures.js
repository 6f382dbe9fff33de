// figures.js -- each figure: the state that it depends on, its picture, and sentences computed from what it shows now.
// A step asks what the reader expects: `changes` of the state, the `question`, and the `answer` from both states.
"use strict";

const percent = (x) => `${(100 * x).toFixed(x > 0 && x < 0.001 ? 2 : 1)}\u00a0%`;
const largest = (values) => values.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
const integer = (n) => n.toLocaleString("en-US");
const bounds = (curves) => {
  let low = Infinity, high = -Infinity;
  for (const curve of curves) for (const x of curve) if (Number.isFinite(x)) [low, high] = [Math.min(low, x), Math.max(high, x)];
  return high > low ? [low, high] : [low - 1, high + 1];
};
const padded = ([low, high]) => [low - 0.04 * (high - low), high + 0.04 * (high - low)];

const several = (n, one, many = `${one}s`) => `${integer(n)} ${n === 1 ? one : many}`;
const listed = (names) => names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;
const SIDE_BY_SIDE = [
  "schemes", "length", "dim", "base", "heads", "head", "query", "causal", "factor", "train", "r1", "r2", "buckets", "reach", "clip", "c", "threshold",
];
const POSITIONS = { none: "nothing", sinusoidal: "sinusoidal vectors", rope: "RoPE", alibi: "ALiBi" };
const NO_SCHEME = "No scheme is chosen.";
const toldBy = ({ positions }) => positions === "none" ? "without positions" : `with ${POSITIONS[positions]}`;
/** Outputs that differ by less differ by rounding. */
const ROUNDING = 1e-5;

const FIGURES = {
  order: {
    uses: ["positions", "sentence", "first", "second"],
    height(state, width) {
      const more = sentenceOf(state).list.length - 6;
      return width < 620 ? 860 + 40 * Math.max(more, 0) : 350 + 20 * Math.max(more, 0);
    },
    draw(state, numbers, { context: c, width, height }, narrow) {
      const { list, order, a, b, note } = sentenceOf(state), n = list.length, { before, after, change } = numbers.order(state);
      const label = (word) => word.length > 12 ? `${Array.from(word).slice(0, 11).join("")}…` : word;
      c.font = `400 12.5px ${colors().sans}`;
      const longest = Math.max(...list.map((word) => c.measureText(label(word)).width)), left = Math.max(40, longest + 12), top = 24 + 0.65 * longest;
      const third = height / 3, boxes = narrow
        ? [0, 1, 2].map((i) => ({ x: left, y: i * third + Math.max(top, 60), width: width - left - 24, height: third - Math.max(top, 60) - 44 }))
        : panels(width, height, [1, 1, 1.15], false, { top: Math.max(top, 60), bottom: 44, left, gap: 24, right: 30 });
      const asked = range(n).find((i) => i !== a && i !== b) ?? a, most = Math.max(...before.weights, ...after.weights);
      [[before, range(n)], [after, order]].forEach(([{ weights }, places], side) => {
        const box = square(boxes[side]), step = box.width / n;
        matrix(c, box, weights, n, n, [0, most]);
        places.forEach((word, i) => {
          text(c, label(list[word]), box.x - 6, box.y + (i + 0.5) * step, { align: "right", base: "middle", color: colors().ink });
          c.save();
          c.translate(box.x + (i + 0.5) * step + 4, box.y - 6);
          c.rotate(-0.7);
          text(c, label(list[word]), 0, 0, { color: colors().ink });
          c.restore();
          for (let j = 0; j < n && step >= 22; j++) {
            const p = weights[i * n + j];
            text(c, p.toFixed(2).replace(/^0/, ""), box.x + (j + 0.5) * step, box.y + (i + 0.5) * step + 4, {
              align: "center", size: Math.min(12, step / 2.6), color: inkOn(shade(p, 0, most)),
            });
          }
        });
        markRow(c, box, places.indexOf(asked), n);
      });
      const box = boxes[2], furthest = Math.max(...change), color = colors().series[1];
      const { px } = axes(c, box, { low: 0, high: Math.max(furthest, 0.1) * 1.15, label: "largest change of a channel" }, { low: 0, high: n, label: "change of the output", ticks: [] });
      list.forEach((word, i) => {
        const y = box.y + (i + 0.5) * box.height / n, end = px(change[i]);
        text(c, label(word), box.x - 9, y, { align: "right", base: "middle", color: colors().ink });
        line(c, [[box.x, y], [end, y]], { color, width: 4 });
        c.fillStyle = color;
        c.beginPath(); c.arc(end, y, 5, 0, 2 * Math.PI); c.fill();
        text(c, change[i] < ROUNDING ? "0" : change[i].toFixed(2), end + 9, y, { base: "middle", size: 12 });
      });
      if (list[a] === list[b]) return `${note}The two words are the same, so the sentence stays as it is.`;
      const row = order.indexOf(asked), share = ({ weights }, i, j) => weights[i * n + j].toFixed(2);
            return `${note}“${list[asked]}” gives “${list[a]}” ${share(before, asked, a)} and “${list[b]}” ${share(before, asked, b)} of its attention; ` +
        `after the exchange ${share(after, row, b)} and ${share(after, row, a)}. ` + (furthest < ROUNDING
        ? `No output changes by more than ${format(furthest)}, which is rounding: the exchange is invisible.`
        : `The output of “${list[change.indexOf(furthest)]}” changes most, by ${format(furthest)}.`);
    },
    expect: {
      changes: ({ positions }) => ({ positions: positions === "none" ? "rope" : "none" }),
      question(before, after) {
        const { list, a, b } = sentenceOf(before);
        return `“${list[a]}” and “${list[b]}” change places. How many of the ${list.length} words get another output ${toldBy(after)}?`;
      },
      answer: (before, after, numbers) => [after, before].map((state) => {
        const { change } = numbers.order(state), moved = change.filter((x) => x > ROUNDING).length;
        return `${moved} of ${change.length} outputs change ${toldBy(state)}${moved ? `, by up to ${format(Math.max(...change))}` : ""}.`;
      }).join(" "),
    },
  },

  encoding: {
    uses: ["length", "dim", "base", "channel"],
    draw(state, numbers, { context: c, width, height }) {
      const { values, w } = numbers.encoding(state), { length, dim, channel } = state, pairs = dim / 2;
      const stored = (k) => k < pairs ? 2 * k : 2 * (k - pairs) + 1; // the library stores each sine beside its cosine
      const box = { x: 62, y: 26, width: width - 76, height: (height - 70) * 0.56 }, rows = new Float32Array(values.length);
      for (let k = 0; k < dim; k++) for (let p = 0; p < length; p++) rows[k * length + p] = values[p * dim + stored(k)];
      text(c, "channel", box.x, box.y - 11, { weight: 600, color: colors().ink });
      colorBar(c, box.x + box.width - 130, box.y - 18, 100, -1, 1);
      matrix(c, box, rows, dim, length, [-1, 1]);
      ["sines", "cosines"].forEach((name, i) => text(c, name, box.x - 7, box.y + (i + 0.5) * box.height / 2, { align: "right", base: "middle", size: 12 }));
      markRow(c, box, channel, dim);
      const under = { x: box.x, y: box.y + box.height + 42, width: box.width, height: height - box.height - 112 };
      const { px, py } = axes(c, under, { low: -0.5, high: length - 0.5, label: "place in the text", ticks: wholeTicks(length, Math.max(3, width / 90)) },
        { low: -1, high: 1, label: `channel ${channel}`, ticks: [-1, 0, 1] });
      line(c, range(length).map((p) => [px(p), py(rows[channel * length + p])]), { color: colors().accent });
      return `Channel ${channel} is a ${channel < pairs ? "sine" : "cosine"} with a wave of ${format(2 * Math.PI / w[channel % pairs])} places. ` +
        `${slowOf(w, length)} of ${several(pairs, "frequency", "frequencies")} make less than one turn in ${length} places. ` +
        `The slowest pair turns by ${format((length - 1) * w[pairs - 1] * 180 / Math.PI)}° from the first place to the last.`;
    },
    expect: {
      changes: ({ base }) => ({ base: base < 1e6 ? 1e6 : 100 }),
      question: (before, after) => `The base changes from ${integer(before.base)} to ${integer(after.base)}. Do more or fewer frequencies make less than one turn in the text?`,
      answer(before, after, numbers) {
        const [was, is] = [before, after].map((state) => slowOf(numbers.encoding(state).w, state.length));
        return `${is > was ? "More" : is < was ? "Fewer" : "As many"}: ${is} of ${after.dim / 2} with base ${integer(after.base)}, ${was} with base ${integer(before.base)}.`;
      },
    },
  },

  similarity: {
    uses: ["length", "dim", "base", "query"],
    draw(state, numbers, { context: c, width, height }, narrow) {
      const { products } = numbers.similarity(state), { length, query } = state;
      const [left, right] = panels(width, height, [1, 1.5], narrow), box = square(left), all = bounds([products]);
      matrix(c, box, products, length, length, all);
      markRow(c, box, query, length);
      text(c, "query ↓  key →", box.x, box.y - 10, { weight: 600, color: colors().ink });
      colorBar(c, box.x + 34, box.y + box.height + 18, box.width - 68, ...all);
      const row = products.subarray(query * length, (query + 1) * length), [low, high] = padded(bounds([row]));
      const { px, py } = axes(c, right, { low: 0, high: length - 1, label: "key" }, { low, high, label: `inner product with place ${query}` });
      line(c, Array.from(row, (y, x) => [px(x), py(y)]), { color: colors().accent });
      line(c, [[px(query), right.y], [px(query), right.y + right.height]], { color: colors().muted, dash: [2, 3], width: 1 });
      const peaks = range(length).slice(1, -1).filter((k) => k !== query && row[k] > row[k - 1] && row[k] > row[k + 1]);
      const highest = peaks.reduce((a, k) => a === null || row[k] > row[a] ? k : a, null);
      return `The product of place ${query} with itself is ${format(row[query])}, with place ${query ? query - 1 : 1} it is ${format(row[query ? query - 1 : 1])}. ` +
        (highest === null ? "The curve has no other peak." : `The curve has ${several(peaks.length, "other peak")}; the highest, at place ${highest}, ` +
        `reaches ${percent(row[highest] / row[query])} of the product with itself.`);
    },
    expect: {
      changes: ({ query, length }) => ({ query: 2 * query < length ? query + Math.floor(length / 4) : query - Math.floor(length / 4) }),
      question: (before, after) => `The query moves from place ${before.query} to place ${after.query}. Does the curve change its form, or does it only move?`,
      answer(before, after, numbers) {
        const { products } = numbers.similarity(after), n = after.length, shift = after.query - before.query;
        const pairs = range(n).filter((j) => j + shift >= 0 && j + shift < n);
        const most = largest(pairs.map((j) => products[after.query * n + j + shift] - products[before.query * n + j]));
        return `It moves by ${several(Math.abs(shift), "place")} to the ${shift > 0 ? "right" : "left"}. At equal distances the two curves differ by at most ${format(most)}, which is rounding.`;
      },
    },
  },

  clocks: {
    uses: ["query", "key", "dim", "base", "scaling", "factor", "train"],
    draw(state, numbers, { context: c, width, height }, narrow) {
      const { w, attention, table, score } = numbers.clocks(state), pairs = w.length;
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
      const turns = (k) => format(Math.abs(state.query - state.key) * w[k] / (2 * Math.PI));
      return `Query at ${state.query}, key at ${state.key}: the score of two equal words, divided by √d, is ${score.toFixed(4)}. ` +
        `Over this distance pair 0 makes ${turns(0)} turns, pair ${pairs - 1} makes ${turns(pairs - 1)}.` + (attention === 1 ? ""
        : ` ${SCALING_LABELS[state.scaling]} multiplies cosines and sines by ${format(attention)}, and so the score by ${format(attention ** 2)}.`);
    },
    expect: {
      changes({ query, key, length }) {
        const by = Math.max(query, key) + 10 <= 255 ? 10 : -Math.min(10, query, key);
        return { query: query + by, key: key + by, length: Math.max(length, query + by + 1) };
      },
      question: (before, after) => `Query and key both move ${after.query < before.query ? "back" : "on"} by ${several(Math.abs(after.query - before.query), "place")}. Does the score rise, fall or stay?`,
      answer: (before, after, numbers) => `It stays: ${[before, after].map((state) =>
        `${numbers.clocks(state).score.toFixed(4)} for the places ${state.query} and ${state.key}`).join(", ")}. The hands turn, and the angles between them stay.`,
    },
  },

  bias: {
    uses: ["bias", "heads", "head", "length", "query", "causal", "dim", "r1", "r2", "buckets", "reach", "c", "threshold"],
    draw(state, numbers, { context: c, width, height }, narrow) {
      const { length, heads, head, query } = state, values = numbers.matrix(state, state.bias);
      const all = numbers.bias(state, state.bias, [query], range(length)).data;
      const [left, middle, right] = panels(width, height, [1, 1.1, 1.1], narrow, { gap: 30 }), box = square(left);
      const [least, top] = bounds([values]);
      matrix(c, box, values, length, length, [least, top], (i, j) => state.causal && j > i);
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
      return `${SCHEMES[state.bias].label}: place ${query} gives ${percent(nearOf(state, numbers))} of its attention in head ${head} to ` +
        `places at most 7 away${heads === 1 ? "" : `; heads 0 and ${heads - 1} give them ${[0, heads - 1].map((one) => percent(nearOf({ ...state, head: one }, numbers))).join(" and ")}`}.`;
    },
    expect: {
      changes: ({ heads, head }) => heads === 1 ? { heads: 8, head: 7 } : { head: head === heads - 1 ? 0 : heads - 1 },
      question: (before, after) => `Head ${after.head} of ${after.heads} is shown instead of head ${before.head} of ${before.heads}. ` +
        `Does place ${before.query} give more or less attention to places at most 7 away?`,
      answer(before, after, numbers) {
        const [was, is] = [before, after].map((state) => nearOf(state, numbers));
        return `${is > was ? "More" : is < was ? "Less" : "As much"}: ${percent(is)} in head ${after.head}, ${percent(was)} in head ${before.head}.`;
      },
    },
  },

  reach: {
    uses: ["train", "stretch", "far", "scaling", "factor", "dim", "base"],
    draw(state, numbers, { context: c, width, height }, narrow) {
      const { w, arc, isNew, distance, unseen, covered, needed, reach } = numbers.newAngles(state), pairs = w.length;
      const columns = narrow ? 4 : 8, shown = spread(pairs, columns * (narrow ? 2 : 1)), cell = width / columns;
      const r = Math.min(cell * 0.36, 44), table = numbers.library.table([distance], { w, attention: 1 }).data;
      const rows = narrow ? 2 : 1, high = 2 * r + 46;
      shown.forEach((k, i) => {
        const x = cell * (i % columns + 0.5), y = Math.floor(i / columns) * high + r + 8;
        clock(c, x, y, r, {
          seen: arc[k], cross: isNew[k],
          hands: [{ angle: Math.atan2(table[pairs + k], table[k]), color: isNew[k] ? colors().warn : colors().accent }],
        });
        text(c, `pair ${k}`, x, y + r + 19, { align: "center", color: isNew[k] ? colors().warn : colors().ink, weight: 600 });
      });
      const box = { x: 52, y: rows * high + 38, width: width - 66, height: height - rows * high - 84 };
      const { px, py } = axes(c, box, { low: -0.5, high: pairs - 0.5, label: "pair, from fast to slow", ticks: wholeTicks(pairs, 9) },
        { low: 0, high: 1, label: "share of the circle", ticks: [0, 0.25, 0.5, 0.75, 1] });
      const hatched = bars(c, box, px, py, covered, needed);
      return `Trained on ${integer(state.train)} tokens, ${scalingOf(state)}: ${reachOf(reach)}. ` +
        `At distance ${integer(distance)}, ${unseen} of ${several(pairs, "pair")} show a new angle; up to the test length, ` +
        `${hatched} need at least 0.2 % more of the circle than training has shown (hatched).`;
    },
    expect: {
      changes: ({ scaling, factor, stretch }) => scaling === "linear" && factor === stretch ? { scaling: "default" } : { scaling: "linear", factor: stretch },
      question: (before, after) => after.scaling === "default" ? "PI is switched off. How many pairs show a new angle at the chosen distance?"
        : `PI divides all frequencies by ${after.factor}, the test length over the training length. How many pairs show a new angle at the chosen distance?`,
      answer: (before, after, numbers) => [after, before].map((state) => {
        const { unseen, w, distance } = numbers.newAngles(state);
        return `At distance ${integer(distance)}, ${scalingOf(state)}: ${unseen} of ${w.length}, and neighbours differ by ${format(w[0] * 180 / Math.PI)}° in pair 0.`;
      }).join(" "),
    },
  },

  matrices: {
    uses: SIDE_BY_SIDE,
    height(state, width) {
      const columns = Math.max(1, Math.min(state.schemes.length, Math.floor(width / 150), 6));
      const side = Math.min(width / columns - 18, 260);
      return Math.ceil(state.schemes.length / columns) * (side + 46) + 4;
    },
    draw(state, numbers, { context: c, width }) {
      const { length, schemes, query } = state, columns = Math.max(1, Math.min(schemes.length, Math.floor(width / 150), 6));
      const side = Math.min(width / columns - 18, 260), isHidden = (r, k) => state.causal && k > r;
      const all = schemes.map((name) => numbers.matrix(state, name));
      if (!schemes.length) return NO_SCHEME;
      schemes.forEach((name, i) => {
        const [low, high] = name === "none" ? [0, 0] : bounds([all[i]]);
        const box = { x: (i % columns) * (side + 18) + 1, y: Math.floor(i / columns) * (side + 46) + 36, width: side, height: side };
        matrix(c, box, all[i], length, length, [low, high], isHidden);
        markRow(c, box, query, length);
        text(c, SCHEMES[name].label, box.x, box.y - 21, { weight: 600, color: colors().ink, size: 13 });
        text(c, low === high ? `${format(low)} everywhere` : `${format(low)} to ${format(high)}`, box.x, box.y - 6, { size: 12 });
      });
      const byPlace = schemes.filter((name, i) => variesByPlace(all[i], length, isHidden)).map((name) => SCHEMES[name].label);
      return `${several(schemes.length, "scheme")}, ${length} places, head ${state.head} of ${state.heads}. ` + (byPlace.length
        ? `The place counts beside the distance in ${listed(byPlace)}: the cells of a diagonal differ.`
        : "The cells of each diagonal are equal: the place does not count beside the distance.");
    },
  },

  curves: {
    height: heightByDistance,
    uses: SIDE_BY_SIDE,
    draw(state, numbers, canvas) {
      if (!state.schemes.length) return NO_SCHEME;
      const { query, schemes, causal, length } = state, far = causal || 2 * query >= length ? 0 : length - 1;
      const curves = schemes.map((name) => numbers.scheme(state, name).logits).map((row) => row.map((x) => x - row[query]));
      drawByDistance(state, canvas, curves, { label: "score, less the score at distance 0" });
      const labelled = (test) => listed(schemes.filter((name, i) => test(curves[i], name)).map((name) => SCHEMES[name].label));
      const towards = (curve) => range(Math.abs(far - query) + 1).map((d) => curve[query + Math.sign(far - query) * d]);
      const rises = (curve) => towards(curve).some((x, d, all) => d && x > all[d - 1] + 1e-5);
      const factors = schemes.filter((name) => SCHEMES[name].kind === "rotary")
        .map((name) => [SCHEMES[name].label, scaledOf(state, SCHEMES[name].scaling).attention ** 2]).filter(([, factor]) => factor !== 1);
      const falls = labelled((curve) => !rises(curve) && towards(curve).at(-1) < 0), ripples = labelled(rises);
      return `From the query's own place to place ${far}, ${Math.abs(query - far)} away, the score changes by: ` +
        `${schemes.map((name, i) => `${SCHEMES[name].label} ${format(curves[i][far])}`).join(", ")}.` +
        (falls ? ` It falls without rising again: ${falls}.` : "") + (ripples ? ` It rises somewhere on the way: ${ripples}.` : "") +
        factors.map(([name, factor]) => ` The attention factor of ${name} multiplies its score by ${format(factor)}.`).join("");
    },
  },

  attention: {
    height: heightByDistance,
    uses: SIDE_BY_SIDE,
    draw(state, numbers, canvas) {
      if (!state.schemes.length) return NO_SCHEME;
      const all = state.schemes.map((name) => numbers.scheme(state, name).weights);
      drawByDistance(state, canvas, all, { label: "attention weight", log: true, least: 1e-6 });
      const share = (weights) => weights.subarray(Math.max(0, state.query - 7), state.query + 1).reduce((a, b) => a + b, 0);
      return `Attention to the query's own place and the ${several(Math.min(7, state.query), "place")} before it: ` +
        `${state.schemes.map((name, i) => `${SCHEMES[name].label} ${percent(share(all[i]))}`).join(", ")}.`;
    },
  },

  bands: {
    uses: ["factor", "train", "dim", "base"],
    draw(state, numbers, { context: c, width, height }) {
      const { ratios, turns } = numbers.bands(state), pairs = turns.length, types = Object.keys(ratios);
      const items = types.map((type, i) => ({ label: SCALING_LABELS[type], ...seriesStyle(i) }));
      const top = legend(c, items, 52, 14, width - 66) + 24;
      const box = { x: 52, y: top, width: width - 66, height: height - top - 44 }, ticks = [1, 1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64].filter((t) => t >= 0.99 / state.factor);
      const { px, py } = axes(c, box, { low: 0, high: pairs - 1, label: "pair, from fast to slow", ticks: wholeTicks(pairs, 9) },
        { low: 0.6 / state.factor, high: 1.08, log: true, label: "ratio", ticks, names: (t) => t === 1 ? "1" : `1/${Math.round(1 / t)}` });
      [32, 1].forEach((count) => {
        const last = turns.findLastIndex((t) => t >= count);
        if (last < 0 || last === pairs - 1) return;
        line(c, [[px(last + 0.5), box.y], [px(last + 0.5), box.y + box.height]], { color: colors().muted, dash: [2, 3], width: 1 });
        text(c, count === 1 ? "1 turn" : "32 turns", px(last + 0.5) + 4, box.y + box.height - 6, { size: 12 });
      });
      types.forEach((type, i) => line(c, Array.from(ratios[type].ratio, (y, x) => [px(x), py(y)]), { ...seriesStyle(i), width: 2.5 }));
      const near = (type, wanted) => ratios[type].ratio.filter((x) => Math.abs(x - wanted) < 1e-9).length, each = 1 / state.factor;
      const between = types.some((type) => near(type, 1) + near(type, each) < pairs) ? " The other pairs are between." : "";
      return state.factor === 1 ? "The factor is 1, so the frequencies stay as they are." : `Of ${several(pairs, "pair")}, ` +
        `${types.map((type) => `${SCALING_LABELS[type]} keeps ${near(type, 1)} and divides ${near(type, each)} by ${state.factor}`).join("; ")}.${between} ` +
        `YaRN multiplies cosines and sines by ${ratios.yarn.attention.toFixed(4)}.`;
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
      const two = axes(c, right, { low: -0.5, high: pairs - 0.5, label: "pair, from fast to slow", ticks: wholeTicks(pairs, 7) }, { ...y, label: "error by pair" });
      [at.usualError, at.libraryError].forEach((errors, i) => errors.forEach((e, k) => {
        c.fillStyle = style[i].color;
        c.beginPath();
        if (i) c.arc(two.px(k), two.py(shown(e)), 3, 0, 2 * Math.PI);
        else c.rect(two.px(k) - 3, two.py(shown(e)) - 3, 6, 6);
        c.fill();
      }));
      const badFrom = curve.usual.findIndex((error) => error > 0.01), worst = at.usualError.indexOf(Math.max(...at.usualError));
      const [exact, library, usual] = [at.exact, at.library, at.usual].map((x) => x[worst].toFixed(8).replace("-", "−"));
      return `At position ${integer(state.position)}, pair ${worst}: the exact cosine is ${exact}, posenc has ${library}, ` +
        `the usual formula ${usual}. ${badFrom < 0 ? "The usual formula nowhere errs by more than 0.01"
          : `Of the positions on the curve, the first at which the usual formula errs by more than 0.01 is ${integer(curve.positions[badFrom])}`}; ` +
        `posenc errs by at most ${format(Math.max(...curve.library))} on the curve.`;
    },
  },

  config: {
    uses: ["config", "sample", "layer", "sequence", "trained"],
    height: (state, width, numbers) => numbers.config(state).error ? 1 : width < 620 ? 748 : 560,
    draw(state, numbers, { context: c, width, height }, narrow, figure) {
      const read = numbers.config(state), error = Boolean(read.error);
      figure.querySelector(".readout").classList.toggle("error", error);
      fillTable(figure, error ? null : read);
      if (error) return `This config.json cannot be read: ${read.error}.`;
      const pairs = read.w.length, least = Math.min(...read.ratio.filter((x) => x > 0), 1);
      const x = { low: -0.5, high: pairs - 0.5, ticks: wholeTicks(pairs, narrow ? 5 : 9) };
      const [upper, under, lowest] = panels(width, height - 20, [1, 1, 1], true, { top: narrow ? 66 : 50, bottom: 36, right: 14 });
      const one = axes(c, upper, x, { low: 0, high: 1.05, label: "frequency, scaled / unscaled", ticks: [0, 0.25, 0.5, 0.75, 1] });
      Array.from(read.ratio).forEach((y, k) => {
        c.fillStyle = colors().accent;
        c.beginPath(); c.arc(one.px(k), one.py(y), Math.min(3.2, Math.max(1.8, width / pairs / 4)), 0, 2 * Math.PI); c.fill();
      });
      const two = axes(c, under, { ...x, label: "pair, from fast to slow" }, { low: 0, high: 1, label: "share of the circle seen in training", ticks: [0, 0.5, 1] });
      bars(c, under, two.px, two.py, read.covered, read.covered);
      const own = numbers.decay(read.speed, read.attention ** 2 * read.softmax, read.trained), original = numbers.decay(read.plain, 1, read.trained);
      const styles = [{ ...seriesStyle(1), label: "without the scaling" }, { ...seriesStyle(0), label: "this config" }];
      const three = axes(c, lowest, { low: 1, high: own.ends.at(-1), log: true, label: "distance" }, (([low, high]) => ({ low, high, label: "mean score of two equal words" }))(padded(bounds([own.means, original.means]))));
      legend(c, styles, narrow ? 52 : 280, lowest.y - (narrow ? 48 : 11), width - 66);
      [original, own].forEach(({ ends, means }, i) => line(c, means.map((y, k) => [three.px(Math.sqrt(ends[k] * ends[k + 1])), three.py(y)]), styles[i]));
      const last = own.means.length - 1, from = integer(Math.round(own.ends[last])), to = integer(own.ends[last + 1]);
      return `${isPasted(readJSON(state.config)) ? `rope_parameters alone, for a head of ${PASTED_HEAD}. ` : ""}${2 * pairs} rotated channels, base ${integer(read.base)}, ${read.type === "default" ? "no scaling" : `scaling ${read.type}, smallest ratio ${format(least)}`}` +
        `${read.layerType ? `, ${read.layerType} layers` : ""}; ${layoutOf(read)}${scalesOf(read)}. ${state.trained ? "Trained" : read.isAssumed ? "The config does not say the training length. If trained" : "By its config, trained"} on ${integer(read.trained)} tokens: ${reachOf(read.reach)}. ` +
        `Between the distances ${from} and ${to} the mean score is ${format(own.means[last])}, without the scaling ${format(original.means[last])}.`;
    },
  },
};

const slowOf = (w, length) => w.filter((x) => x * length < 2 * Math.PI).length;
const scalingOf = ({ scaling, factor }) => scaling === "default" ? "unscaled" : `${SCALING_LABELS[scaling]} by ${factor}`;
const reachOf = (reach) => `all angles are known for ${reach === Infinity ? "every distance" : `distances up to ${integer(reach - 1)}`}`;

/** The attention of the query's place to places at most 7 away. */
function nearOf(state, numbers) {
  const { query, causal, length } = state, { weights } = numbers.scheme(state, state.bias);
  return weights.slice(Math.max(0, query - 7), Math.min(length - 1, query + (causal ? 0 : 7)) + 1).reduce((a, b) => a + b, 0);
}

/** Whether the visible cells of some diagonal of a matrix differ by more than rounding. */
function variesByPlace(values, n, isHidden) {
  const [low, high] = bounds([values]);
  for (let i = 1; i < n; i++) {
    for (let j = 1; j < n; j++) {
      if (!isHidden(i, j) && Math.abs(values[i * n + j] - values[(i - 1) * n + j - 1]) > 1e-4 * (high - low)) return true;
    }
  }
  return false;
}

/** Bars of the share that training has shown, and hatched above them the share that the test needs. Returns how many are hatched. */
function bars(c, box, px, py, filled, needed) {
  const wide = Math.max(1, (px(1) - px(0)) * 0.72);
  let hatched = 0;
  filled.forEach((share, k) => {
    c.fillStyle = colors().accent;
    c.fillRect(px(k) - wide / 2, py(share), wide, py(0) - py(share));
    if (needed[k] <= share + 0.002) return; // less than a pixel
    hatched++;
    const top = py(needed[k]), low = py(share);
    c.save();
    c.beginPath(); c.rect(px(k) - wide / 2, top, wide, low - top); c.clip();
    for (let y = top - wide; y < low + wide; y += 5) line(c, [[px(k) - wide, y + wide], [px(k) + wide, y - wide]], { color: colors().warn, width: 1.4 });
    c.restore();
    c.strokeStyle = colors().warn;
    c.lineWidth = 1;
    c.strokeRect(px(k) - wide / 2, top, wide, low - top);
  });
  return hatched;
}

/** The height of a plot with a legend of all schemes above it. */
function heightByDistance({ schemes }, width) {
  return schemes.length && 310 + 20 * Math.ceil(schemes.length / Math.max(1, Math.floor((width - 70) / 130)));
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
