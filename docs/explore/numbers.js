// numbers.js -- the numbers that the figures show, as functions of the page's state. The test compares them with Python.
"use strict";

const SCHEMES = {
  none: { label: "no positions", kind: "none" },
  sinusoidal: { label: "sinusoidal", kind: "absolute" },
  rope: { label: "RoPE", kind: "rotary", scaling: "default" },
  pi: { label: "RoPE + PI", kind: "rotary", scaling: "linear" },
  ntk: { label: "RoPE + NTK", kind: "rotary", scaling: "ntk" },
  yarn: { label: "RoPE + YaRN", kind: "rotary", scaling: "yarn" },
  llama3: { label: "RoPE + Llama 3", kind: "rotary", scaling: "llama3" },
  alibi: { label: "ALiBi", kind: "bias" },
  t5: { label: "T5", kind: "bias" },
  kerple_log: { label: "KERPLE log", kind: "bias" },
  kerple_power: { label: "KERPLE power", kind: "bias" },
  fire: { label: "FIRE", kind: "bias" },
  sandwich: { label: "Sandwich", kind: "bias" },
  shaw: { label: "Shaw (NEZHA)", kind: "content" },
};
const BIASES = Object.keys(SCHEMES).filter((name) => SCHEMES[name].kind === "bias");
const SCALED = ["default", "linear", "ntk", "yarn", "llama3"];
const SCALING_LABELS = {
  default: "none", linear: "PI (linear)", ntk: "NTK", yarn: "YaRN", llama3: "Llama 3", ntk_by_parts: "NTK by parts",
};
/** What the schemes of each kind depend on. */
const READS = {
  none: ["length"], absolute: ["length", "dim", "base"], rotary: ["length", "dim", "base", "factor", "train"],
  bias: ["length", "dim", "heads", "head", "r1", "r2", "buckets", "reach", "c", "threshold"], content: ["length", "dim", "clip"],
};
const EXAMPLE = "Jack gave a photo to Molly", MOST_WORDS = 12;
const segmenter = Intl.Segmenter ? new Intl.Segmenter("en", { granularity: "word" }) : null; // Firefox has it since 2024
/** The words of a text in any script, without punctuation. */
const wordsIn = (text) => segmenter
  ? Array.from(segmenter.segment(text)).filter(({ isWordLike }) => isWordLike).map(({ segment }) => segment)
  : text.match(/[\p{L}\p{M}\p{N}_'’]+/gu) ?? [];

/** The words that step 1 shows, their places after the exchange, and what is to be said about the text. */
function sentenceOf({ sentence, first, second }) {
  const all = wordsIn(sentence), list = (all.length > 1 ? all : wordsIn(EXAMPLE)).slice(0, MOST_WORDS);
  const order = range(list.length), [a, b] = [Number(first), Number(second)];
  [order[a], order[b]] = [b, a];
  const note = all.length < 2 ? `A sentence needs two words, so this is the example. `
    : all.length > MOST_WORDS ? `The first ${MOST_WORDS} of ${all.length} words are shown. ` : "";
  return { list, order, a, b, note };
}

/** Park and Miller 1988, from a hash of a text. */
function randomNumbers(text, count) {
  let seed = Array.from(text).reduce((hash, letter) => (hash * 31 + letter.codePointAt(0)) % 2147483647, 7) || 1;
  return range(count + 2).map(() => (seed = (seed * 48271) % 2147483647) / 2147483647).slice(2);
}
const LEARNED_SLOPE = 0.7;

/** The keys of a scaling, named as in a config.json. */
function scalingKeys(state, type = state.scaling) {
  if (type === "default") return {};
  const keys = { factor: state.factor };
  if (type === "llama3") Object.assign(keys, { low_freq_factor: 1, high_freq_factor: 4 });
  if (type === "llama3" || type === "yarn") keys.original_max_position_embeddings = state.train;
  return keys;
}
const scaledOf = (state, type) => ropeFrequencies(state.dim, state.base, type, scalingKeys(state, type));

/** Parameters of a bias. T5 and FIRE learn theirs; here they follow ALiBi's slopes, so that their form is visible. */
function biasParameters(state, name) {
  const { heads } = state, slopes = alibiSlopes(heads);
  switch (name) {
    case "alibi": return { slopes: doubles(slopes) };
    case "kerple_log": case "kerple_power":
      return { r1: doubles(slopes.map((m) => m * state.r1)), r2: doubles(slopes.map(() => state.r2)) };
    case "t5": {
      const lookup = t5Lookup(state.buckets, Math.max(state.reach, state.buckets)), table = [];
      for (let b = 0; b < state.buckets; b++) table.push(...slopes.map((m) => -m * LEARNED_SLOPE * b));
      return {
        table: doubles(table, state.buckets, heads),
        lookup: array(BigInt64Array.from(lookup.map(BigInt)), lookup.length), edges: array(new BigInt64Array(0), 0),
      };
    }
    case "fire":
      return {
        w1: doubles([1, 1], 2, 1), b1: doubles([0, -0.5]), w2: doubles(slopes.flatMap((m) => [-8 * m, -8 * m]), heads, 2),
        b2: doubles(slopes.map(() => 0)), c: array(Float64Array.of(state.c)), threshold: array(Float64Array.of(state.threshold)),
      };
    case "sandwich": {
      const half = state.dim / 2, { high, low } = geometric(half + 1, 10000, 1, half);
      return {
        frequencies: doubles(high.subarray(1)), lo: doubles(low.subarray(1)),
        divisor: doubles(range(heads).map((h) => 8 * (h + 1) / heads)),
      };
    }
  }
}

class Numbers {
  constructor(library) {
    this.library = library;
    this.known = new Map();
  }

  /** The bias of all heads for the queries q and the keys k, (H, q, k). */
  bias(state, name, q, k) {
    if (name === "fire") return this.library.pair(name, biasParameters(state, name), state.heads, q, k);
    const rel = q.flatMap((i) => k.map((j) => j - i));
    const values = this.library.distance(name, biasParameters(state, name), state.heads, rel);
    return array(values.data, state.heads, q.length, k.length);
  }

  nezha(state) {
    return this.library.sinusoidal(range(2 * state.clip + 1), state.dim, 10000, Float32Array);
  }

  /**
   * A scheme for the query at position `state.query`: what it adds to the logits of keys 0 .. N-1 that have all the same
   * content, and the attention weights.
   */
  scheme(state, name) {
    return this.once("scheme", state, name, ["query", "causal"], () => this.computeScheme(state, name));
  }

  /** A result of a scheme, unless it is known: two figures show the same, and most controls change a few schemes only. */
  once(what, state, name, others, compute) {
    const key = [what, name, ...[...READS[SCHEMES[name].kind], ...others].map((read) => state[read])].join();
    if (!this.known.has(key)) {
      if (this.known.size >= 64) this.known.delete(this.known.keys().next().value);
      this.known.set(key, compute());
    }
    return this.known.get(key);
  }

  computeScheme(state, name) {
    const { dim, length, query, causal } = state, { kind, scaling } = SCHEMES[name];
    const keys = range(length), ones = (n) => array(new Float32Array(n * dim).fill(1), n, dim);
    const stack = (x) => array(x.data, 1, ...x.shape);
    const eye = zeros(Float32Array, 1, length, length);
    keys.forEach((j) => { eye.data[j * (length + 1)] = 1; });
    let q = stack(zeros(Float32Array, 1, dim)), k = stack(zeros(Float32Array, length, dim)), operators = [], logits;
    if (kind === "absolute") {
      q = stack(this.library.sinusoidal([query], dim, state.base));
      k = stack(this.library.sinusoidal(keys, dim, state.base));
    } else if (kind === "rotary") {
      const scaled = scaledOf(state, scaling);
      q = stack(this.library.rope(ones(1), [query], scaled));
      k = stack(this.library.rope(ones(length), keys, scaled));
    } else if (kind === "bias") {
      const all = this.bias(state, name, [query], keys);
      logits = all.data.slice(state.head * length, (state.head + 1) * length);
      operators = [["toeplitz", { diagonals: array(logits, 1, length) }]];
    } else if (kind === "content") {
      const table = this.nezha(state), rows = array(BigInt64Array.from(range(table.shape[0]).map(BigInt)), table.shape[0]);
      operators = [["shaw", { rel_k: stack(table), rows }]];
      q = stack(ones(1));
      logits = this.library.logits(q, k, query, operators[0]).data.map((x) => x * Math.fround(dim ** -0.5));
    }
    const { out, lse } = this.library.attention(q, k, eye, { causal, shift: query, operators });
    // Without an operator the logits are the product of q and k: the attention weight times exp(lse).
    logits ??= Float32Array.from(this.library.products(q, k).data, (x) => x * dim ** -0.5);
    return { logits, weights: out.data, lse: lse.data[0] };
  }

  /** The same of all queries: a matrix (N, N) of what the scheme adds to the logits. */
  matrix(state, name) {
    return this.once("matrix", state, name, [], () => this.computeMatrix(state, name));
  }

  computeMatrix(state, name) {
    const { dim, length } = state, { kind, scaling } = SCHEMES[name], all = range(length), factor = dim ** -0.5;
    if (kind === "none") return new Float32Array(length * length);
    if (kind === "absolute") {
      return this.library.products(this.library.sinusoidal(all, dim, state.base)).data.map((x) => x * factor);
    }
    if (kind === "rotary") {
      const x = array(new Float32Array(length * dim).fill(1), length, dim);
      return this.library.products(this.library.rope(x, all, scaledOf(state, scaling))).data.map((x) => x * factor);
    }
    if (kind === "content") {
      const x = array(new Float32Array(length * dim).fill(1), 1, length, dim);
      const table = this.nezha(state), rows = array(BigInt64Array.from(range(table.shape[0]).map(BigInt)), table.shape[0]);
      const rel_k = array(table.data, 1, ...table.shape);
      return this.library.logits(x, x, 0, ["shaw", { rel_k, rows }]).data.map((x) => x * factor);
    }
    if (name === "fire") {
      const one = this.ofHead(state, biasParameters(state, name));
      return this.library.pair(name, one, 1, all, all).data;
    }
    const last = length - 1, rel = range(2 * length - 1).map((d) => d - last);
    const diagonals = this.bias(state, name, [0], rel).data.subarray(state.head * rel.length, (state.head + 1) * rel.length);
    const out = new Float32Array(length * length);
    for (let i = 0; i < length; i++) out.set(diagonals.subarray(last - i, last - i + length), i * length);
    return out;
  }

  /** FIRE's operands for the chosen head alone. */
  ofHead(state, operands) {
    return {
      ...operands, w2: doubles(operands.w2.data.slice(2 * state.head, 2 * state.head + 2), 1, 2), b2: doubles([0]),
    };
  }

  /** Step 1: a sentence and the sentence with two words exchanged. A key is its query with the channels in another order. */
  order(state) {
    const dim = 16, { list, order: exchanged } = sentenceOf(state), n = list.length;
    const vectors = Float32Array.from(list.flatMap((word) => randomNumbers(word, dim).map((x) => 3 * x - 1.5)));
    const read = (order) => {
      const x = new Float32Array(n * dim);
      order.forEach((word, place) => x.set(vectors.subarray(word * dim, (word + 1) * dim), place * dim));
      if (state.positions === "sinusoidal") {
        this.library.sinusoidal(range(n), dim, 10000).data.forEach((p, i) => { x[i] += p; });
      }
      let q = array(x, n, dim), k = array(x.map((_, i) => x[i - i % dim + (i + 5) % dim]), n, dim), operators = [];
      if (state.positions === "rope") [q, k] = [q, k].map((rows) => this.library.rope(rows, range(n), ropeFrequencies(dim, 10000)));
      if (state.positions === "alibi") {
        const rel = range(2 * n - 1).map((d) => d - n + 1);
        operators = [["toeplitz", { diagonals: this.library.distance("alibi", { slopes: doubles([0.5]) }, 1, rel) }]];
      }
      const heads = (rows) => array(rows.data, 1, n, dim), v = array(x, n, dim);
      const { out } = this.library.attention(heads(q), heads(k), heads(v), { operators });
      const eye = zeros(Float32Array, 1, n, n);
      for (let i = 0; i < n; i++) eye.data[i * (n + 1)] = 1;
      return { out: out.data, weights: this.library.attention(heads(q), heads(k), eye, { operators }).out.data };
    };
    const places = range(n), before = read(places), after = read(exchanged);
    const change = places.map((word) => {
      let most = 0;
      for (let c = 0; c < dim; c++) {
        most = Math.max(most, Math.abs(before.out[word * dim + c] - after.out[exchanged.indexOf(word) * dim + c]));
      }
      return most;
    });
    return { vectors, before, after, change };
  }

  /** Step 2: the encoding, and step 3: its inner products. */
  encoding(state) {
    const values = this.library.sinusoidal(range(state.length), state.dim, state.base);
    return { w: frequencies(state.dim, state.base), values: values.data };
  }

  similarity(state) {
    return { products: this.library.products(this.library.sinusoidal(range(state.length), state.dim, state.base)).data };
  }

  /** Step 4: cosines and sines of the chosen scaling at the positions of the query and of the key. */
  clocks(state) {
    const scaled = scaledOf(state, state.scaling), table = this.library.table([state.query, state.key], scaled).data;
    const rotated = (position) =>
      array(this.library.rope(array(new Float32Array(state.dim).fill(1), 1, state.dim), [position], scaled).data, 1, 1, state.dim);
    const score = this.library.products(rotated(state.query), rotated(state.key)).data[0] / Math.sqrt(state.dim);
    return { w: scaled.w, attention: scaled.attention, table, score };
  }

  /** Step 6: posenc.analysis.rope_coverage, without its `gap` and `unseen`. */
  coverage(state, trained = frequencies(state.dim, state.base), tested = scaledOf(state, state.scaling).w) {
    const turn = 2 * Math.PI, length = state.train, test = length * state.stretch;
    const turns = trained.map((w) => length * w / turn), arc = trained.map((w) => (length - 1) * w);
    const covered = arc.map((a) => Math.min(a / turn, 1));
    const firstUnseen = arc.map((a, k) =>
      a >= turn || tested[k] === 0 ? Infinity : Math.floor(a * (1 + 4 * Number.EPSILON) / tested[k]) + 1);
    const needed = tested.map((w) => Math.min((test - 1) * w / turn, 1));
    return { turns, covered, firstUnseen, needed, test, reach: Math.min(...firstUnseen) };
  }

  /** Step 6: the pairs whose angle at the chosen distance was not seen in training. */
  newAngles(state) {
    const cover = this.coverage(state), { w } = scaledOf(state, state.scaling), turn = 2 * Math.PI;
    const distance = Math.round((cover.test - 1) * state.far / 1000);
    const arc = Array.from(frequencies(state.dim, state.base), (x) => (state.train - 1) * x);
    const isNew = arc.map((a, k) => a < turn && distance * w[k] % turn > a * (1 + 4 * Number.EPSILON));
    return { ...cover, w, arc, distance, isNew, unseen: isNew.filter(Boolean).length };
  }

  /** posenc.analysis.rope_bands of each scaling. */
  bands(state) {
    const before = frequencies(state.dim, state.base);
    const ratios = Object.fromEntries(SCALED.slice(1).map((type) => {
      const scaled = scaledOf(state, type);
      return [type, { w: scaled.w, attention: scaled.attention, ratio: scaled.w.map((w, k) => w / before[k]) }];
    }));
    return { wavelength: before.map((w) => 2 * Math.PI / w), turns: before.map((w) => state.train * w / (2 * Math.PI)), ratios };
  }

  /** Errors of float32 sines and cosines at one position, by pair: of the usual formula and of the library. */
  errorsAt(position, dim, base) {
    const w = frequencies(dim, base), pairs = w.length;
    const single = this.library.table([position], { w, attention: 1 }, Float32Array).data;
    const usual = new Float32Array(2 * pairs), exact = new Float64Array(2 * pairs);
    w.forEach((frequency, k) => {
      const angle = Math.fround(Math.fround(position) * Math.fround(frequency));
      [usual[k], usual[pairs + k]] = [Math.cos(angle), Math.sin(angle)];
      [exact[pairs + k], exact[k]] = exactSineCosine(position, frequency);
    });
    const error = (values) => range(pairs).map((k) =>
      Math.max(Math.abs(values[k] - exact[k]), Math.abs(values[pairs + k] - exact[pairs + k])));
    return { library: single, usual, exact, libraryError: error(single), usualError: error(usual) };
  }

  precision(state) {
    return { at: this.errorsAt(state.position, state.dim, state.base), curve: this.errorCurve(state.dim, state.base) };
  }

  /** The largest error over the pairs at one position in each octave up to 2**53. */
  errorCurve = remember(6, (dim, base) => {
    const positions = [...range(53).map((e) => Math.floor(2 ** e * 1.37)), 2 ** 53];
    const worst = positions.map((position) => {
      const { libraryError, usualError } = this.errorsAt(position, dim, base);
      return [Math.max(...libraryError), Math.max(...usualError)];
    });
    return { positions, library: worst.map((pair) => pair[0]), usual: worst.map((pair) => pair[1]) };
  });

  /**
   * The mean score of two words of ones over intervals of the distance from 1 to 4 * trained, equal in its logarithm.
   * A mean, because the score at one distance ripples faster than a plot can show.
   */
  decay(w, factor, trained) {
    const ends = range(97).map((i) => (4 * trained) ** (i / 96)), scale = 2 * factor / Math.sqrt(2 * w.length);
    const integral = (x) => w.reduce((sum, speed) => sum + (speed ? Math.sin(x * speed) / speed : x), 0);
    const sums = ends.map(integral);
    return { ends, means: ends.slice(1).map((end, i) => scale * (sums[i + 1] - sums[i]) / (end - ends[i])) };
  }

  /** The reader's config.json: frequencies, bands and the distance at which the first angle is new. */
  config(state) {
    try {
      const read = ropeFromConfig(readConfig(state.config), state.layer || null, state.sequence);
      const speed = read.w.map(Math.abs), plain = frequencies(2 * speed.length, read.base);
      const trained = state.trained || read.trained || 4096, cover = this.coverage({ train: trained, stretch: 1 }, plain, speed);
      return {
        ...read, trained, plain, isAssumed: !(state.trained || read.trained), speed, ratio: speed.map((w, k) => w / plain[k]), covered: cover.covered,
        firstUnseen: cover.firstUnseen, reach: cover.reach, turns: cover.turns,
      };
    } catch (error) {
      return { error: error.message };
    }
  }
}
