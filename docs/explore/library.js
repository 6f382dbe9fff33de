// library.js -- the library on this page: its kernels, compiled to WebAssembly, and the steps that Python takes before a
// call. Frequencies are powers in integer arithmetic of 320 bits, rounded once, as posenc.frequencies computes them.
"use strict";

// ---- calls of the kernels ----

const STORAGE = new Map([[Float32Array, 2], [Float64Array, 3], [BigInt64Array, 4], [Uint8Array, 5]]);
const ALIGNMENT = 64;

/** An array of numbers in C order. */
function array(data, ...shape) {
  return { data, shape };
}
const zeros = (type, ...shape) => array(new type(shape.reduce((a, b) => a * b, 1)), ...shape);
const doubles = (numbers, ...shape) => array(Float64Array.from(numbers), ...(shape.length ? shape : [numbers.length]));
const range = (n) => Array.from({ length: n }, (_, i) => i);

class Kernels {
  static async load(bytes) {
    const never = () => { throw new Error("a kernel called the operating system"); };
    const system = new Proxy({}, { get: () => never });
    const { instance } = await WebAssembly.instantiate(bytes, { wasi_snapshot_preview1: system });
    return new Kernels(instance.exports);
  }

  constructor(c) {
    this.c = c;
    this.rows = new Map();
    this.calls = 0;
    for (let row = 0; row < c.pe_count(); row++) {
      const [name, signature] = this.text(c.pe_signature(row)).split(/ (.*)/s);
      this.rows.set(name, { row, ...readSignature(signature) });
    }
  }

  text(address) {
    const bytes = new Uint8Array(this.c.memory.buffer, address);
    return new TextDecoder().decode(bytes.slice(0, bytes.indexOf(0)));
  }

  take(bytes) {
    const address = Math.ceil(this.free / ALIGNMENT) * ALIGNMENT;
    this.free = address + bytes;
    const missing = this.free - this.c.memory.buffer.byteLength;
    if (missing > 0) this.c.memory.grow(Math.ceil(missing / 65536));
    return address;
  }

  put(data) {
    const address = this.take(data.byteLength);
    new data.constructor(this.c.memory.buffer, address, data.length).set(data);
    return address;
  }

  /** Set an operand; the lengths that it names go to `lengths`. Returns the address of its memory. */
  operand(k, o, given, lengths) {
    if (!given) {
      this.c.pe_operand(k, 0, 0, 0, 0, 0, 0, 0);
      return 0;
    }
    const { data, shape } = given, size = data.BYTES_PER_ELEMENT, loops = shape.length - o.axes.length;
    if (loops < 0 || loops > 1) throw new Error(`${o.name} has ${shape.length} axes`);
    o.axes.forEach((axis, d) => {
      const length = shape[loops + d];
      if ((lengths.get(axis) ?? length) !== length) throw new Error(`${o.name} has ${length} for axis ${axis}`);
      lengths.set(axis, length);
    });
    const steps = shape.map((length, d) => length === 1 ? 0 : size * shape.slice(d + 1).reduce((a, b) => a * b, 1));
    if (loops && shape[0] !== 1) lengths.set("loop", shape[0]);
    const core = steps.slice(loops), address = this.put(data);
    this.c.pe_operand(
      k, address, STORAGE.get(data.constructor), loops ? steps[0] : 0, core[0] ?? 0, core[1] ?? 0, core[2] ?? 0,
      data.length);
    return address;
  }

  /**
   * Run a row of ops.def: `operands` by name, outputs included, which are filled. `terms` are operators of attention,
   * each [row, operands].
   */
  call(name, operands, parameters = [], terms = []) {
    const { row, operands: signature } = this.rows.get(name), lengths = new Map(), written = [];
    const real = signature.find((o) => o.type === "real" && operands[o.name]);
    const isDouble = real && operands[real.name].data instanceof Float64Array ? 1 : 0;
    this.free = this.c.pe_heap();
    this.c.pe_begin(row, signature.length);
    signature.forEach((o, k) => {
      const address = this.operand(k, o, operands[o.name], lengths);
      if (o.output && address) written.push([operands[o.name].data, address]);
    });
    if (lengths.has("loop")) this.c.pe_loop(lengths.get("loop"));
    lengths.delete("loop");
    for (const [axis, length] of lengths) this.c.pe_length(axis.charCodeAt(0) - 65, length);
    parameters.forEach((value, k) => this.c.pe_parameter(k, value));
    for (const [term, given] of terms) {
      const its = this.rows.get(term), own = new Map();
      this.c.pe_begin_term(its.row);
      its.operands.filter((o) => !o.inTile && (!o.output || given[o.name])).forEach((o, k) => {
        this.operand(k, o, given[o.name], own);
      });
      for (const [axis, length] of own) if (axis < "a") this.c.pe_length(axis.charCodeAt(0) - 65, length);
    }
    const scratch = this.take(this.c.pe_scratch(isDouble));
    if (this.c.pe_run(isDouble, scratch) < 0) throw new Error(`${name}: lengths or parameters do not fit`);
    for (const [data, address] of written) {
      data.set(new data.constructor(this.c.memory.buffer, address, data.length));
    }
    this.calls++;
  }
}

function readSignature(text) {
  const [inputs, outputs = ""] = text.split(";")[0].split("->");
  const read = (part, output) => [...part.matchAll(/(\w+) \+?(\w+)([?~!@#]*)\(([^)]*)\)/g)].map(
    ([, type, name, marks, axes]) => ({ type, name, output, inTile: marks.includes("@"), axes: axes ? axes.split(",") : [] }));
  return { operands: [...read(inputs, false), ...read(outputs, true)] };
}

// ---- numbers with 320 bits after the point ----

const BITS = 320n, ONE = 1n << BITS;
const times = (a, b) => (a * b) >> BITS;

/** A double as [integer, exponent of 2]. */
function parts(x) {
  const bits = new DataView(new ArrayBuffer(8));
  bits.setFloat64(0, x);
  const high = bits.getUint32(0), biased = (high >>> 20) & 0x7ff;
  const fraction = (BigInt(high & 0xfffff) << 32n) | BigInt(bits.getUint32(4));
  const whole = biased ? fraction | (1n << 52n) : fraction;
  return [x < 0 ? -whole : whole, BigInt((biased || 1) - 1075)];
}
const shift = (a, by) => (by >= 0n ? a << by : a >> -by);
const fixed = (x) => { const [whole, exponent] = parts(x); return shift(whole, exponent + BITS); };
/** The nearest double; Number() rounds an integer correctly. */
const nearestDouble = (a) => Number(a) * 2 ** -Number(BITS);

function sumOfOddPowers(z, sign) { // z + sign z^3 / 3 + z^5 / 5 + ...
  const square = times(z, z);
  let sum = 0n, power = z;
  for (let k = 1n; power && power !== -1n; k += 2n, power = times(power, square)) { // -1n >> n stays -1n
    sum += (sign < 0 && k % 4n === 3n ? -power : power) / k;
  }
  return sum;
}
const LN_2 = 2n * sumOfOddPowers(ONE / 3n, 1);
const TWO_PI = 8n * (4n * sumOfOddPowers(ONE / 5n, -1) - sumOfOddPowers(ONE / 239n, -1));

function logarithm(a) {
  let doublings = 0n;
  for (; a > ONE + ONE / 2n; doublings++) a >>= 1n;
  for (; a < ONE - ONE / 4n; doublings--) a <<= 1n;
  return doublings * LN_2 + 2n * sumOfOddPowers(((a - ONE) << BITS) / (a + ONE), 1);
}

function exponential(a) {
  const doublings = a / LN_2, rest = a - doublings * LN_2;
  let sum = ONE, term = ONE;
  for (let k = 1n; term && term !== -1n; k++) {
    term = times(term, rest) / k;
    sum += term;
  }
  return shift(sum, doublings);
}

/** base**-(k numerator / divisor) for k < count, as double-doubles. */
const geometric = remember(24, (count, base, numerator, divisor) => {
  const root = exponential(-logarithm(fixed(base)) * BigInt(numerator) / BigInt(divisor));
  const high = new Float64Array(count), low = new Float64Array(count);
  for (let k = 0, power = ONE; k < count; k++, power = times(power, root)) {
    high[k] = nearestDouble(power);
    low[k] = nearestDouble(power - fixed(high[k]));
  }
  return { high, low };
});

/** Sine and cosine of position * frequency, exact but for the last rounding. Both numbers are doubles. */
function exactSineCosine(position, frequency) {
  const [p, ep] = parts(position), [w, ew] = parts(frequency), kept = 120n, one = 1n << kept;
  const angle = shift(p * w, ep + ew + BITS) % TWO_PI, quarters = (4n * angle + TWO_PI / 2n) / TWO_PI;
  const x = (angle - quarters * TWO_PI / 4n) >> (BITS - kept), square = (x * x) >> kept;
  const [sine, cosine] = [1n, 0n].map((first) => {
    let term = first ? x : one, sum = term;
    for (let k = first + 1n; term && term !== -1n; k += 2n) {
      term = -((term * square) >> kept) / (k * (k + 1n));
      sum += term;
    }
    return Number(sum) * 2 ** -Number(kept);
  });
  return [[sine, cosine], [cosine, -sine], [-sine, -cosine], [-cosine, sine], [sine, cosine]][Number(quarters)];
}

function remember(most, compute) {
  const known = new Map();
  return (...values) => {
    const key = values.join();
    if (!known.has(key)) {
      if (known.size >= most) known.delete(known.keys().next().value);
      known.set(key, compute(...values));
    }
    return known.get(key);
  };
}

// ---- rotary frequencies: posenc/rotary/scaling.py ----

const frequencies = (dim, base) => geometric(dim / 2, base, 2, dim).high;
const clip = (x, low, high) => Math.min(Math.max(x, low), high);

const SCALINGS = {
  default: (r) => [r.w.slice()],
  linear: (r) => [r.w.map((w) => w / r.factor())],
  ntk: (r) => [largerBase(r, r.factor())],
  dynamic: (r) => {
    const trained = r.trained("max_position_embeddings"), beyond = Math.max((r.length ?? 0) - trained, 0);
    return [largerBase(r, 1 + r.factor() * beyond / trained)];
  },
  ntk_by_parts: (r) => [blend(r, keptByRotations(r, ...r.beta()), r.factor())],
  llama3: (r) => [blend(r, keptByRotations(r, r.number("low_freq_factor"), r.number("high_freq_factor")), r.factor())],
  yarn: (r) => {
    const factor = r.factorOrRatio(), scale = r.number("mscale", 0), all = r.number("mscale_all_dim", 0);
    const m = (u) => 0.1 * u * Math.log(factor) + 1;
    const attention = scale && all ? m(scale) / m(all) : m(1);
    return [blend(r, keptByPair(r), factor), r.number("attention_factor", attention), m(all) * m(all)];
  },
  longrope: (r) => {
    const trained = r.trained(), beyond = (r.length ?? 0) > trained;
    const divisors = r.keys[beyond ? "long_factor" : "short_factor"];
    if (divisors?.length !== r.w.length) throw new Error(`${beyond ? "long" : "short"}_factor needs ${r.w.length} numbers`);
    const attention = r.keys.attention_factor ?? Math.sqrt(1 + Math.log(r.factorOrRatio()) / Math.log(trained));
    return [r.w.map((w, k) => w / divisors[k]), attention];
  },
  proportional: (r) => {
    const rotated = Math.trunc(r.number("partial_rotary_factor", 1) * r.dim / 2), factor = r.keys.factor ?? 1;
    return [r.w.map((w, k) => (k < rotated ? w : 0) / factor)];
  },
  ntk_mixed: (r) => {
    const b = r.number("b", 0.625), n = r.w.length;
    return [r.w.map((w, k) => w * Math.pow(r.factor(), -Math.pow((k + 1) / n, b)))];
  },
};

function largerBase(r, factor) {
  if (r.dim < 4) throw new Error("NTK needs at least 4 rotated channels: the first pair is kept, the last is divided");
  return r.w.map((w, k) => w * Math.pow(factor, -2 * k / (r.dim - 2)));
}
const blend = (r, keep, factor) => r.w.map((w, k) => w * (1 - keep[k]) / factor + w * keep[k]);
const keptByRotations = (r, low, high) =>
  r.w.map((w) => clip((r.trained() * w / (2 * Math.PI) - low) / (high - low), 0, 1));

function keptByPair(r) {
  const trained = r.trained(), [slow, fast] = r.beta();
  const pair = (rotations) => r.dim * (Math.log(trained / (2 * Math.PI)) - Math.log(rotations)) / (2 * Math.log(r.base));
  let first = pair(fast), last = pair(slow);
  if (r.keys.truncate ?? true) [first, last] = [Math.floor(first), Math.ceil(last)];
  [first, last] = [Math.max(first, 0), Math.min(last, r.dim - 1)];
  if (last < first) throw new Error("the training length leaves no room for YaRN's ramp");
  if (first === last) last += 0.001;
  return r.w.map((_, k) => 1 - clip((k - first) / (last - first), 0, 1));
}

/** posenc.rope_frequencies: {w, attention, softmax}. */
function ropeFrequencies(dim, base, type = "default", keys = {}, length = null) {
  const wide = "max_position_embeddings", old = `original_${wide}`;
  const request = {
    dim, base, length, keys, w: frequencies(dim, base),
    number(key, otherwise) {
      const value = keys[key] ?? otherwise;
      if (typeof value !== "number") throw new Error(`rope_type ${type} needs ${key}`);
      return value;
    },
    factor() { return this.number("factor"); },
    factorOrRatio() { return keys.factor ?? this.number(wide) / this.number(old); },
    trained(preferred = old) { return keys[preferred] ?? keys[wide] ?? this.number(old); },
    beta() { return [this.number("beta_slow", 1), this.number("beta_fast", 32)]; },
  };
  if (!(type in SCALINGS)) throw new Error(`unknown rope_type ${type}`);
  if (keys.factor != null && !(keys.factor >= 1)) throw new Error(`factor is ${keys.factor}; expected at least 1`);
  const [w, attention = 1, softmax = 1] = SCALINGS[type](request);
  return { w, attention, softmax };
}

// ---- encodings, rotations and biases ----

const INFINITY = Infinity;

class Library {
  constructor(kernels) { this.kernels = kernels; }

  /** posenc.sinusoidal(positions, dim, base=base): (N, dim). */
  sinusoidal(positions, dim, base, type = Float32Array) {
    const { high, low } = geometric(dim / 2, base, 2, dim), out = zeros(type, positions.length, dim);
    this.kernels.call("sinusoid", {
      positions: doubles(positions), frequencies: doubles(high), lo: doubles(low), out,
    }, [0, 1, 2, 1, 1]);
    return out;
  }

  /** Rows [cos | sin] of positions * frequencies, times the attention factor. */
  table(positions, { w, attention }, type = Float64Array) {
    const out = zeros(type, positions.length, 2 * w.length);
    this.kernels.call("sinusoid", { positions: doubles(positions), frequencies: doubles(w), out },
      [w.length, 0, 1, attention, attention]);
    return out;
  }

  /** posenc.rope(x, positions, frequencies, layout="half") of float32 rows. */
  rope(x, positions, scaled) {
    const table = this.table(positions, scaled, Float32Array), out = zeros(Float32Array, ...x.shape);
    this.kernels.call("rope", { x, table, out }, [0, 0, 0, 0]);
    return out;
  }

  gram(x) {
    const n = x.shape[0], out = zeros(x.data.constructor, n, n);
    this.kernels.call("gram", { x, out }, [0]);
    return out;
  }

  /** A DISTANCE row: the bias (H, distances) in float32. */
  distance(row, operands, heads, rel) {
    const out = zeros(Float32Array, heads, rel.length);
    this.kernels.call(row, { ...operands, rel: doubles(rel), out });
    return out;
  }

  /** A PAIR row: the bias (H, n, m) in float32. */
  pair(row, operands, heads, q, k) {
    const out = zeros(Float32Array, heads, q.length, k.length);
    this.kernels.call(row, { ...operands, q_positions: doubles(q), k_positions: doubles(k), out });
    return out;
  }

  /** posenc.attention of float32 arrays (H, n, d), with the first query at position `shift`. */
  attention(q, k, v, { causal = false, shift = 0, terms = [], scale = q.shape[2] ** -0.5 } = {}) {
    const [heads, n] = q.shape, out = zeros(Float32Array, heads, n, v.shape[2]), lse = zeros(Float32Array, heads, n);
    const parts = 1, invariant = 0;
    this.kernels.call(
      "attention", { q, k, v, out, lse },
      [scale, 0, -INFINITY, causal ? 0 : INFINITY, shift, parts, invariant], terms);
    return { out, lse };
  }

  /** The logits that an operator on q and k adds, before the common scale: (H, n, m). */
  logits(q, k, shift, term) {
    const out = zeros(Float32Array, q.shape[0], q.shape[1], k.shape[1]);
    this.kernels.call("logits", { q, k, out }, [q.shape[2] ** -0.5, 0, -INFINITY, INFINITY, shift], [term]);
    return out;
  }
}

/** posenc.alibi_slopes(heads). */
function alibiSlopes(heads) {
  const power = 2 ** Math.floor(Math.log2(heads));
  const slopes = range(power).map((h) => Math.pow(2, -8 * (h + 1) / power));
  return [...slopes, ...range(heads - power).map((h) => Math.pow(2, -8 * (2 * h + 1) / (2 * power)))];
}

/** T5's buckets of rel = -reach .. reach for a causal model, as integers decide them: posenc.t5_bucket. */
const t5Lookup = remember(24, (buckets, most) => {
  const exact = buckets >> 1, steps = buckets - exact, edges = [];
  for (let k = 1; k < steps; k++) {
    const needed = BigInt(most) ** BigInt(k) * BigInt(exact) ** BigInt(steps - k);
    let n = Math.floor(Math.exp((k * Math.log(most) + (steps - k) * Math.log(exact)) / steps)) - 1;
    while (BigInt(n) ** BigInt(steps) < needed) n++;
    edges.push(n);
  }
  const reach = Math.max(edges[edges.length - 1] ?? exact, exact);
  const bucket = (n) => (n < exact ? n : exact + edges.filter((edge) => edge <= n).length);
  const backward = range(reach + 1).map(bucket);
  return [...backward.slice().reverse(), ...range(reach).map(() => 0)];
});
