// library.js -- the library on this page: its kernels, compiled to WebAssembly, and the steps that Python takes before a
// call. Frequencies are powers in integer arithmetic of 320 bits, rounded once, as posenc.sinusoidal_frequencies computes them.
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
    this.entries = new Map();
    this.calls = 0;
    for (let entry = 0; entry < c.pe_count(); entry++) {
      const [name, signature] = this.text(c.pe_signature(entry)).split(/ (.*)/s);
      this.entries.set(name, { entry, ...readSignature(signature) });
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
      this.c.pe_operand(k, 0, 0, 0, 0, 0, 0);
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
      k, address, STORAGE.get(data.constructor), loops ? steps[0] : 0, core[0] ?? 0, core[1] ?? 0, core[2] ?? 0);
    return address;
  }

  /**
   * Run an entry of ops.def: `operands` by name, outputs included, which are filled. `operators` are those of attention,
   * each [name, operands].
   */
  call(name, operands, parameters = [], operators = []) {
    const { entry, operands: signature } = this.entries.get(name), lengths = new Map(), written = [];
    for (const given of Object.keys(operands)) {
      if (!signature.some((o) => o.name === given)) throw new Error(`${name} has no operand ${given}`);
    }
    const real = signature.find((o) => o.type === "real" && operands[o.name]);
    const isDouble = real && operands[real.name].data instanceof Float64Array ? 1 : 0;
    this.free = this.c.pe_heap();
    this.c.pe_begin(entry, signature.length);
    signature.forEach((o, k) => {
      const address = this.operand(k, o, operands[o.name], lengths);
      if (o.output && address) written.push([operands[o.name].data, address]);
    });
    if (lengths.has("loop")) this.c.pe_loop(lengths.get("loop"));
    lengths.delete("loop");
    for (const [axis, length] of lengths) this.c.pe_length(axis.charCodeAt(0) - 65, length);
    parameters.forEach((value, k) => this.c.pe_parameter(k, value));
    for (const [operator, given] of operators) {
      const its = this.entries.get(operator), own = new Map();
      this.c.pe_begin_operator(its.entry);
      its.operands.filter((o) => !o.tiled && (!o.output || given[o.name])).forEach((o, k) => {
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
  const read = (part, output) => [...part.matchAll(/(\w+) (\w+)\(([^)]*)\)([^()]*)(?:,|$)/g)].map(([, type, name, axes, words]) => ({
    type, name, output, tiled: words.split(" ").includes("tiled"), axes: axes ? axes.split(",") : [] }));
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

/** exp(a) = x 2**doublings, with x near 1: [x, doublings]. */
function exponential(a) {
  const doublings = a / LN_2, rest = a - doublings * LN_2;
  let sum = ONE, term = ONE;
  for (let k = 1n; term && term !== -1n; k++) {
    term = times(term, rest) / k;
    sum += term;
  }
  return [sum, doublings];
}

/** base**-(k numerator / divisor) for k < count, as double-doubles. */
const geometric = remember(24, (count, base, numerator, divisor) => {
  const [root, rootDoublings] = exponential(-logarithm(fixed(base)) * BigInt(numerator) / BigInt(divisor));
  const high = new Float64Array(count), low = new Float64Array(count);
  for (let k = 0, power = ONE, doublings = 0n; k < count; k++) {
    const nearest = nearestDouble(power), unit = 2 ** Number(doublings);
    high[k] = nearest * unit;
    low[k] = nearestDouble(power - fixed(nearest)) * unit;
    power = times(power, root);
    for (doublings += rootDoublings; power < ONE; doublings--) power <<= 1n;
    for (; power >= 2n * ONE; doublings++) power >>= 1n;
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
  linear: (r) => { const factor = r.factor(); return [r.w.map((w) => w / factor)]; },
  ntk: (r) => [largerBase(r, r.factor())],
  dynamic: (r) => {
    const factor = r.factor(), trained = r.trained(LENGTHS[0]), beyond = Math.max((r.length ?? 0) - trained, 0);
    return [largerBase(r, 1 + factor * beyond / trained)];
  },
  ntk_by_parts: (r) => { const factor = r.factor(); return [blend(r, keptByRotations(r, ...r.beta()), factor)]; },
  llama3: (r) => {
    const factor = r.factor(), limits = r.ordered("low_freq_factor", null, "high_freq_factor", null);
    return [blend(r, keptByRotations(r, ...limits), factor)];
  },
  yarn: (r) => {
    const factor = r.factorOrRatio(), keep = keptByPair(r);
    const scale = r.number("mscale", 0, 0, false), all = r.number("mscale_all_dim", 0, 0, false);
    const m = (u) => 0.1 * u * Math.log(factor) + 1;
    const attention = scale && all ? m(scale) / m(all) : m(1), softmax = m(all) * m(all);
    if (!Number.isFinite(softmax)) failValue("mscale_all_dim", new Float(all), "a number whose square is finite");
    return [blend(r, keep, factor), r.number("attention_factor", attention), softmax];
  },
  longrope: (r) => {
    const trained = r.trained(), short = r.divisors("short_factor"), long = r.divisors("long_factor");
    let attention;
    if (has(r.keys, "attention_factor")) {
      attention = r.number("attention_factor");
      r.factor(1);
    } else {
      const factor = r.factorOrRatio();
      if (trained < 2) failValue(LENGTHS[1], trained, "at least 2, because its logarithm is a divisor");
      attention = Math.sqrt(1 + Math.log(factor) / Math.log(trained));
    }
    const divisors = (r.length ?? 0) > trained ? long : short;
    return [r.w.map((w, k) => w / divisors[k]), attention];
  },
  proportional: (r) => {
    const part = r.number("partial_rotary_factor", 1, 0, false);
    if (part > 1) failValue("partial_rotary_factor", new Float(part), "a number from 0 to 1");
    const rotated = Math.floor(Math.trunc(part * r.dim / 2)), factor = r.factor(1);
    return [r.w.map((w, k) => (k < rotated ? w : 0) / factor)];
  },
  ntk_mixed: (r) => {
    const factor = r.factor(), b = r.number("b", 0.625, 0, false), n = r.w.length;
    return [r.w.map((w, k) => w * Math.pow(factor, -Math.pow((k + 1) / n, b)))];
  },
};

function largerBase(r, factor) {
  if (r.dim < 4) failValue("dim", r.dim, "at least 4: the first pair is kept and the last is divided");
  return r.w.map((w, k) => w * Math.pow(factor, -2 * k / (r.dim - 2)));
}
const blend = (r, keep, factor) => r.w.map((w, k) => w * (1 - keep[k]) / factor + w * keep[k]);
function keptByRotations(r, low, high) {
  const trained = r.trained();
  return r.w.map((w) => clip((trained * w / (2 * Math.PI) - low) / (high - low), 0, 1));
}

function keptByPair(r) {
  const trained = r.trained(), [slow, fast] = r.beta(true);
  if (r.base <= 1) failValue("base", new Float(r.base), "more than 1: rope_type 'yarn' divides by its logarithm");
  const pair = (rotations) => r.dim * (Math.log(trained / (2 * Math.PI)) - Math.log(rotations)) / (2 * Math.log(r.base));
  let first = pair(fast), last = pair(slow);
  const truncate = r.keys.truncate ?? true;
  if (typeof truncate !== "boolean") fail("truncate", `type ${typeName(truncate)}`, "True or False");
  if (truncate) [first, last] = [Math.floor(first), Math.ceil(last)];
  [first, last] = [Math.max(first, 0), Math.min(last, r.dim - 1)];
  if (last < first) failValue(LENGTHS[1], trained, `a length in which pairs make between ${slow} and ${fast} rotations`);
  if (first === last) last += 0.001;
  return r.w.map((_, k) => 1 - clip((k - first) / (last - first), 0, 1));
}

/** One call of ropeFrequencies. Its methods read and check the keys. */
class Request {
  constructor(dim, base, type, keys, length) { Object.assign(this, { dim, base, type, keys, length, w: frequencies(dim, base) }); }

  /** A number above `least`, or of at least `least`; without a default it is required. */
  number(key, otherwise = null, least = 0, above = true) {
    const expected = above ? `a number above ${least}` : `a number of at least ${least}`;
    if (!has(this.keys, key)) return otherwise ?? this.failMissing(key, expected);
    const value = Number(asNumber(key, this.keys[key]));
    if (value < least || (above && value === least)) failValue(key, this.keys[key], expected);
    return value;
  }
  failMissing(key, expected) { fail(key, "no value", `${expected}: rope_type ${shown(this.type)} needs it`); }

  factor(otherwise = null) { return this.number("factor", otherwise, 1, false); }
  /** The factor, which defaults to the ratio of the two lengths. */
  factorOrRatio() {
    if (has(this.keys, "factor") || !LENGTHS.every((name) => has(this.keys, name))) return this.factor();
    const [extended, trained] = LENGTHS.map((name) => this.keys[name]);
    if (extended < trained) failValue(LENGTHS[0], extended, `at least ${LENGTHS[1]}, ${trained}: their ratio is the missing factor`);
    return extended / trained;
  }
  trained(preferred = LENGTHS[1]) {
    for (const key of [preferred, ...LENGTHS]) if (has(this.keys, key)) return this.keys[key];
    return this.failMissing(preferred, "an integer");
  }
  /** One positive number for each pair. */
  divisors(key) {
    const pairs = this.dim / 2, numbers = this.keys[key];
    if (!has(this.keys, key)) this.failMissing(key, `${pairs} numbers`);
    if (!Array.isArray(numbers) || numbers.some((x) => !isNumber(x))) fail(key, `type ${typeName(numbers)}`, `${pairs} numbers`);
    if (numbers.length !== pairs) fail(key, `${numbers.length} entries`, `one number for each of the ${pairs} pairs`);
    const found = numbers.map(Number);
    if (!found.every((x) => Number.isFinite(x) && x > 0)) fail(key, "entries that are not finite and positive", "positive numbers");
    return found;
  }
  beta(mayBeEqual = false) { return this.ordered("beta_slow", 1, "beta_fast", 32, mayBeEqual); }
  ordered(low, lowDefault, high, highDefault, mayBeEqual = false) {
    const first = this.number(low, lowDefault), second = this.number(high, highDefault);
    if (second < first || (second === first && !mayBeEqual)) {
      failValue(high, new Float(second), `${mayBeEqual ? "at least" : "more than"} ${low}, ${new Float(first)}`);
    }
    return [first, second];
  }
}

/** posenc.rope_frequencies: {w, attention, softmax}. An unknown key is an error of `argument`. */
function ropeFrequencies(dim, base, type = "default", keys = {}, length = null, argument = "keys") {
  if (!has(RULES.keys, type)) failValue("rope_type", type, `one of ${quoted(Object.keys(RULES.keys))}`);
  const known = [...RULES.keys[type], ...LENGTHS];
  for (const key of Object.keys(keys)) {
    if (known.includes(key)) continue;
    const replaced = "attention_factor, the factor of cos and sin: attn_factor if it replaces 0.1 ln(factor) + 1, or the " +
      "product of both if it multiplies it, as in vLLM", only = `only the keys of rope_type ${shown(type)}: ${known.join(", ")}`;
    fail(argument, shown(key), key === "attn_factor" && type === "yarn" ? replaced : only);
  }
  const given = present(keys, Object.keys(keys));
  for (const name of LENGTHS) if (has(given, name)) asIndex(name, given[name], 1);
  const [w, attention = 1, softmax = 1] = SCALINGS[type](new Request(dim, base, type, given, length));
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
    const operands = { x, positions: doubles(positions), frequencies: doubles(scaled.w) };
    const out = zeros(Float32Array, ...x.shape);
    this.kernels.call("rope_positions", { ...operands, out }, [0, 0, 0, NaN, 0, scaled.attention, 0]);
    return out;
  }

  /** Inner products of all rows of q with all rows of k (..., d), summed in double. */
  products(q, k = q) {
    const [n, d] = q.shape.slice(-2), m = k.shape.at(-2), out = zeros(q.data.constructor, n, m);
    for (let i = 0; i < n; i++) {
      for (let j = 0; j < m; j++) {
        let sum = 0;
        for (let c = 0; c < d; c++) sum += q.data[i * d + c] * k.data[j * d + c];
        out.data[i * m + j] = sum;
      }
    }
    return out;
  }

  /** A DISTANCE entry: the bias (H, distances) in float32. */
  distance(entry, operands, heads, rel) {
    const out = zeros(Float32Array, heads, rel.length);
    this.kernels.call(entry, { ...operands, rel: doubles(rel), out });
    return out;
  }

  /** A PAIR entry: the bias (H, n, m) in float32. */
  pair(entry, operands, heads, q, k) {
    const out = zeros(Float32Array, heads, q.length, k.length);
    this.kernels.call(entry, { ...operands, q_positions: doubles(q), k_positions: doubles(k), out });
    return out;
  }

  /** posenc.attention of float32 arrays (H, n, d), with the first query at position `shift`. */
  attention(q, k, v, { causal = false, shift = 0, operators = [], scale = q.shape[2] ** -0.5 } = {}) {
    const [heads, n] = q.shape, out = zeros(Float32Array, heads, n, v.shape[2]), lse = zeros(Float32Array, heads, n);
    this.kernels.call("attention", { q, k, v, out, lse }, parameters(scale, causal ? 0 : INFINITY, shift), operators);
    return { out, lse };
  }

  /** The logits that an operator on q and k adds, before the common scale: (H, n, m). */
  logits(q, k, shift, operator) {
    const out = zeros(Float32Array, q.shape[0], q.shape[1], k.shape[1]);
    this.kernels.call("logits", { q, k, out }, parameters(q.shape[2] ** -0.5, INFINITY, shift), [operator]);
    return out;
  }
}

/** Parameters of attention in the order of fits.h: keys are visible up to the distance `high`. */
function parameters(scale, high, shift) {
  const softcap = 0, low = -INFINITY, precision = 0, dropout = [0, 0, 0], causal = 0, align = 0, invariant = 0, parts = 1;
  return [scale, softcap, low, high, precision, ...dropout, causal, align, invariant, shift, parts];
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
