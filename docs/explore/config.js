// config.js -- rotary frequencies from a config.json: posenc/rotary/config.py, function by function and in its order, so
// that both refuse a config for the same reason. RULES holds the tables of config.py, _models.py and scaling.py, which
// build.py reads from Python.
"use strict";

const { full: FULL, sliding: SLIDING, lengths: LENGTHS } = RULES;
const ROPE_PART = new RegExp(`^(?:${RULES.rope_part})`), USES_ROPE = new RegExp(`^(?:${RULES.uses_rope})$`);
const has = (object, key) => Object.hasOwn(object, key);
const get = (object, key) => (has(object, key) ? object[key] : undefined);
const isKnown = (name) => typeof name === "string" && (has(RULES.models, name) || has(RULES.others, name));

// ---- JSON as Python reads it ----

/** A number that the text writes with a point or an exponent: 64.0 is no width. Arithmetic takes it for a number. */
class Float extends Number {
  toString() {
    const x = this.valueOf();
    if (!Number.isFinite(x)) return Number.isNaN(x) ? "nan" : x > 0 ? "inf" : "-inf";
    const size = Math.abs(x), isSmall = size !== 0 && size < 1e-4;
    if (isSmall || size >= 1e16) return x.toExponential().replace(/([-+])(\d)$/, "$10$2");
    return Number.isInteger(x) ? `${x}.0` : String(x);
  }
}
const TOKEN = /"(?:[^"\\]|\\.)*"|NaN|-?Infinity|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?/g;

/**
 * The value of a text. Python's json writes and reads Infinity and NaN, so some checkpoints have them.
 *
 * JSON.parse reads a text in which each string begins with s, and each float is a string that begins with f. So no
 * string of the text can pass for a float.
 */
function readJSON(text) {
  const mark = (token) => token.startsWith('"') ? `"s${token.slice(1)}` : /^-?\d+$/.test(token) ? token : `"f${token}"`;
  const marked = text.replace(TOKEN, mark);
  const readKey = ([key, value]) => {
    if (key[0] !== "s") throw new SyntaxError("a key is a number");
    return [key.slice(1), value];
  };
  const revive = (key, value) => {
    if (typeof value === "string") return value[0] === "s" ? value.slice(1) : new Float(value.slice(1));
    return isObject(value) ? Object.fromEntries(Object.entries(value).map(readKey)) : value;
  };
  try {
    return JSON.parse(marked, revive);
  } catch (error) {
    let reason = error.message;
    try { JSON.parse(text); } catch (plain) { reason = plain.message; } // it counts characters of the reader's text
    fail("config", `no JSON: ${reason}`, "the content of a config.json");
  }
}

const isNumber = (x) => typeof x === "number" || x instanceof Float;
const isObject = (x) => x !== null && typeof x === "object" && !Array.isArray(x) && !(x instanceof Number);
const isTrue = (x) => isNumber(x) ? Number(x) !== 0 : Array.isArray(x) ? x.length > 0 : isObject(x) ? Object.keys(x).length > 0 : Boolean(x);

function typeName(x) {
  if (x === null || x === undefined) return "NoneType";
  if (isNumber(x)) return x instanceof Float ? "float" : "int";
  return Array.isArray(x) ? "list" : { boolean: "bool", string: "str" }[typeof x] ?? "dict";
}

/** A value as Python prints it. */
function shown(x) {
  if (x === null || x === undefined) return "None";
  if (typeof x === "boolean") return x ? "True" : "False";
  if (typeof x === "string") {
    const quote = x.includes("'") && !x.includes('"') ? '"' : "'";
    return quote + x.replaceAll("\\", "\\\\").replaceAll("\n", "\\n").replaceAll(quote, `\\${quote}`) + quote;
  }
  if (isNumber(x)) return String(x);
  if (Array.isArray(x)) return `[${x.map(shown).join(", ")}]`;
  return `{${Object.entries(x).map(([key, value]) => `${shown(key)}: ${shown(value)}`).join(", ")}}`;
}

function isEqual(a, b) {
  const plain = (x) => (typeof x === "boolean" || isNumber(x) ? Number(x) : x);
  if (!isObject(a) && !Array.isArray(a)) return plain(a) === plain(b);
  if (typeName(a) !== typeName(b) || Object.keys(a).length !== Object.keys(b).length) return false;
  return Object.keys(a).every((key) => has(b, key) && isEqual(a[key], b[key]));
}

// ---- checks: posenc/_core_api/read.py ----

function fail(argument, found, expected) { throw new Error(`${argument} has ${found}; expected ${expected}`); }
function failValue(argument, value, expected) { throw new Error(`${argument} is ${shown(value)}; expected ${expected}`); }

function asIndex(name, value, least) {
  if (typeof value !== "number") fail(name, `type ${typeName(value)}`, "an integer");
  if (value < least) failValue(name, value, `at least ${least}`);
  if (value > 2 ** 53) failValue(name, value, "at most 2**53");
  return value;
}

function asNumber(name, value) {
  if (!isNumber(value)) fail(name, `type ${typeName(value)}`, "a number");
  if (!Number.isFinite(Number(value))) failValue(name, value, "a finite number");
  return value;
}

// ---- posenc/rotary/config.py ----

/** The keys among `names` that the config has and that are not null. */
const present = (config, names) =>
  Object.fromEntries(names.filter((name) => (get(config, name) ?? null) !== null).map((name) => [name, config[name]]));
const isEmpty = (object) => Object.keys(object).length === 0;
const quoted = (names) => names.map(shown).join(", ");

function textPart(given) {
  const config = namedTextPart(given);
  if (!isEmpty(present(config, [...RULES.bases, "rope_parameters", "rope_scaling"])) || isKnown(get(config, "model_type"))) return config;
  for (const known of [RULES.models, RULES.others]) {
    const parts = Object.keys(config).filter((name) => has(known, modelType(namedTextPart(config[name]))));
    if (parts.length > 1) {
      const each = parts.map((name) => `config[${shown(name)}]`).join(", ");
      fail("config", `${parts.length} parts with positions of their own`, `one of ${each}`);
    }
    if (parts.length) return textPart(config[parts[0]]);
  }
  return config;
}

/** A part that does not name its model_type has that of the whole with `_text`. */
function namedTextPart(config) {
  if (isObject(config)) {
    for (const name of RULES.text_parts) {
      const part = get(config, name), type = get(config, "model_type");
      if (isObject(part) && !isEmpty(part)) {
        return namedTextPart({ model_type: `${typeof type === "string" ? type : shown(type)}_text`, ...part });
      }
    }
  }
  return config;
}

function modelType(config) {
  const found = isObject(config) ? get(config, "model_type") : null;
  if (typeof found !== "string") return null;
  return !isKnown(found) && has(RULES.models, `${found}_text`) ? `${found}_text` : found;
}

function checkModel(config) {
  const name = modelType(config);
  if (name !== null && has(RULES.others, name)) {
    failValue("model_type", name, `a model that rotates q and k by their positions; this one ${RULES.others[name]}`);
  }
  if (name !== null && has(RULES.rotates_if, name)) {
    const [key, wanted, otherwise] = RULES.rotates_if[name], value = has(config, key) ? config[key] : otherwise;
    if (!isEqual(value, wanted)) failValue(key, value, `${shown(wanted)}: ${name} rotates only with it`);
  }
}

function checkNames(config) {
  for (const [key, value] of Object.entries(config)) {
    if (saysNope(config, key, value)) failValue(key, value, RULES.expected_rotation);
    if (value !== null && !RULES.known.includes(key) && ROPE_PART.test(key)) {
      fail("config", shown(key), `only known keys of the rope part: ${RULES.known.join(", ")}`);
    }
  }
}

/** Whether a key says that no layer rotates, or may say so. */
function saysNope(config, key, value) {
  if (RULES.rotated_layers.includes(key)) return Array.isArray(value) && value.length > 0 && !value.some(isTrue);
  if (key === "no_rope_layer_interval") return isEqual(value, 1) && !isTrue(get(config, "no_rope_layers"));
  if (key.toLowerCase().includes("nope")) {
    return !(value === null || key.endsWith("qk_nope_head_dim") || (key.endsWith("use_nope") && value === false));
  }
  return (typeof value === "string" && value.toLowerCase() === "nope") || (value === false && USES_ROPE.test(key));
}

/** The name and the value of rope_parameters or rope_scaling. */
function ropePart(config) {
  const found = Object.entries(present(config, ["rope_parameters", "rope_scaling"]));
  for (const [name, value] of found) if (!isObject(value)) fail(name, `type ${typeName(value)}`, "a dict");
  const parts = found.filter(([, value]) => !isEmpty(value));
  if (parts.length === 2 && !isEqual(parts[0][1], parts[1][1])) {
    fail("config", "rope_parameters and rope_scaling that differ", "one of them");
  }
  return parts[0] ?? ["rope_parameters", {}];
}

const typesOfLayers = (config) => (Array.isArray(get(config, "layer_types")) ? config.layer_types : []);

/** The rope part of each layer type, or null if all layers share one, and whether it was stored by type. */
function byLayerType(config, model, rope) {
  if (Object.values(rope).some(isObject)) {
    const mixed = Object.keys(rope).filter((key) => rope[key] !== null && !isObject(rope[key]));
    if (mixed.length) fail("config", `${shown(mixed[0])} beside layer types`, "parameters inside each layer type");
    return [rope, true];
  }
  if (!isEmpty(present(config, ["compress_rope_theta"]))) { // DeepSeek-V4
    const factor = ropeType(rope) === "yarn" ? { attention_factor: 1 } : {};
    return [{ main: {}, compress: { ...factor, ...rope, rope_theta: config.compress_rope_theta } }, true];
  }
  if (!isEmpty(present(config, ["rope_scaling_layers"])) && ropeType(rope) !== "default") { // Molmo 2
    return [{ scaled: rope, unscaled: present(rope, ["rope_theta"]) }, false];
  }
  const types = get(config, "yarn_only_types") ?? null, hasTwo = hasTwoBases(config, model);
  if (types !== null && !Array.isArray(types)) fail("yarn_only_types", `type ${typeName(types)}`, "a list of layer types");
  const scaled = [model.scaled, types ?? [], hasTwo ? [FULL] : []].find((one) => one.length);
  if (!scaled) return [null, false];
  const unscaled = present(rope, hasTwo ? RULES.parts.slice(0, 1) : [RULES.parts[0], "rope_theta"]);
  return [Object.fromEntries([FULL, SLIDING].map((type) => [type, scaled.includes(type) ? rope : unscaled])), false];
}

/** Whether sliding layers have a base with a name of its own. */
const hasTwoBases = (config, model) => model.sliding_base !== null || !isEmpty(present(config, RULES.sliding_bases));

const modelOf = (config) => ({ ...RULES.model, ...(get(RULES.models, modelType(config)) ?? {}) });

function readLayer(config, layerType, isPart) {
  const model = modelOf(config), [name, shared] = ropePart(config), [byType, nested] = byLayerType(config, model, shared);
  let rope = shared;
  if (byType === null) {
    if (layerType !== null && !typesOfLayers(config).includes(layerType)) {
      failValue("layer_type", layerType, "None, because all layers have one rotation");
    }
  } else {
    if (layerType === null || !has(byType, layerType)) failValue("layer_type", layerType, `one of ${quoted(Object.keys(byType))}`);
    rope = byType[layerType];
    if (rope === null) failValue("layer_type", layerType, "a type of layers with a rotation");
  }
  if (model.requires_scaling && isEmpty(rope)) {
    fail(name, "no value", `the scaling, which is not the same for all checkpoints of ${shown(modelType(config))}`);
  }
  return new Layer(config, model, present(rope, Object.keys(rope)), nested, layerType, isPart);
}

function ropeType(rope) {
  const names = present(rope, ["rope_type", "type"]);
  for (const [name, value] of Object.entries(names)) if (typeof value !== "string") fail(name, `type ${typeName(value)}`, "a string");
  const found = new Set(Object.values(names).map((type) => get(RULES.aliases, type) ?? type));
  if (found.size > 1) fail("rope_type", Object.values(names).map(shown).join(" and "), "one type");
  const [type = "default"] = found;
  if (type === "axial") {
    failValue("rope_type", type, "a rotation by one position; rope_nd rotates by rows and columns of patches");
  }
  if (type === "yarn" && has(rope, "short_factor")) return "longrope"; // early configs of Phi-3
  if (isEmpty(names) && has(rope, "factor")) fail("rope_type", "no value", "the type of the scaling");
  return type;
}

/** The first of `names` that the config has, or null. */
function size(config, ...names) {
  const [first] = Object.entries(present(config, names));
  return first ? asIndex(first[0], first[1], 1) : null;
}

/** The part of a config that describes the layers of one type. */
class Layer {
  constructor(config, model, rope, nested, layerType, isPart) {
    Object.assign(this, { config, model, rope, nested, layerType, isPart });
  }

  /** The number stored as `key` in the rope part or under one of `names` in the config, or null. */
  number(names, key) {
    const outside = this.nested && has(this.rope, key) ? {} : present(this.config, names);
    const found = { ...(has(this.rope, key) ? { [`${key} inside`]: this.rope[key] } : {}), ...outside };
    for (const [name, value] of Object.entries(found)) found[name] = this.oneOf(name.split(" ")[0], value);
    const values = Object.entries(found).map(([name, value]) => Number(asNumber(name.split(" ")[0], value)));
    if (new Set(values).size > 1) {
      fail(key, Object.entries(found).map(([name, value]) => `${name} ${shown(value)}`).join(" and "), "one value");
    }
    return Object.values(found)[0] ?? null;
  }

  /** The value of the layers of the type from a list by the layer's index. Any other value is returned itself. */
  oneOf(name, values) {
    if (!Array.isArray(values)) return values;
    const types = this.layerType === null ? values.map(() => null) : typesOfLayers(this.config), rotated = new Map();
    values.forEach((value, i) => {
      if (i >= types.length || types[i] !== this.layerType) return;
      asNumber(name, value);
      if (Number(value) !== 0) rotated.set(Number(value), rotated.get(Number(value)) ?? value);
    });
    const found = [...rotated.values()].sort((a, b) => a - b);
    if (found.length !== 1) {
      const what = found.length ? `values ${found.map(shown).join(", ")}` : "no value above 0";
      fail(name, what, "one value: choose layers by layer_type");
    }
    return found[0];
  }

  base() {
    const { config, model, layerType } = this;
    const sliding = layerType === SLIDING && hasTwoBases(config, model), byIndex = get(config, "layer_rope_theta");
    const names = sliding ? RULES.sliding_bases : RULES.bases;
    const stored = Array.isArray(byIndex) ? this.oneOf("layer_rope_theta", byIndex) : this.number(names, "rope_theta");
    const base = stored ?? (sliding ? model.sliding_base : model.base);
    if (base === null) fail(names[0], "no value", `the base, because model_type ${shown(get(config, "model_type"))} has no known default`);
    if (base <= 0) failValue(names[0], base, "a positive number");
    return Number(base);
  }

  /** The head width of the layer's type, or null. */
  perLayerHeadDim() {
    const { config, layerType } = this, overrides = get(config, "per_layer_config");
    if (!isObject(overrides) || layerType === null) {
      const own = { [FULL]: "global_head_dim", [SLIDING]: "swa_head_dim" }[layerType];
      return own ? size(config, own) : null;
    }
    const byIndex = Object.fromEntries(Object.entries(overrides).map(([i, override]) => [i.replace(/^0+/, "") || "0", override]));
    const indices = typesOfLayers(config).flatMap((type, i) => (type === layerType ? [i] : []));
    const chosen = indices.map((i) => get(byIndex, String(i)) ?? {});
    const wrong = chosen.find((override) => !isObject(override));
    if (wrong !== undefined) fail("per_layer_config", `type ${typeName(wrong)}`, "a dict of each layer");
    const widths = chosen.map((override) => size(override, "head_dim"));
    if (new Set(widths).size > 1) fail("per_layer_config", "several widths for one layer type", "one head_dim");
    return widths[0] ?? null;
  }

  headDim() {
    const { config, model } = this, own = size(config, "head_dim", "attention_head_dim", "kv_channels");
    const width = this.perLayerHeadDim() ?? own ?? model.head_dim;
    if (width !== null) return width;
    let hidden = size(config, ...RULES.hidden), heads = size(config, ...RULES.heads);
    if (this.isPart && model.sizes !== null) [hidden, heads] = [hidden ?? model.sizes[0], heads ?? model.sizes[1]];
    if (hidden === null || heads === null) {
      fail("head_dim", `no value, nor has ${hidden === null ? "hidden_size" : "num_attention_heads"}`, "the width of a head");
    }
    if (hidden % heads) failValue("hidden_size", hidden, `a multiple of num_attention_heads, ${heads}`);
    return hidden / heads;
  }

  /** The number of rotated channels. */
  rotaryDim(type) {
    const { config, model } = this, stored = this.number(RULES.parts, "partial_rotary_factor");
    const part = stored ?? model.partial_rotary_factor;
    if (!(part > 0 && part <= 1)) failValue("partial_rotary_factor", part, "a number above 0, at most 1");
    if (model.rotary_dim && get(config, "rotary_dim") === null) {
      failValue("rotary_dim", null, "a number, because transformers replaces null by the hidden size");
    }
    const rotary = size(config, "rotary_dim") ?? model.rotary_dim;
    const own = this.layerType === SLIDING ? ["swa_qk_rope_head_dim"] : [];
    const latent = size(config, ...own, "qk_rope_head_dim") ?? model.qk_rope_head_dim;
    let name, dim;
    if (type === "proportional") {
      [name, dim] = ["head_dim", latent ?? this.headDim()];
    } else if (rotary !== null) {
      [name, dim] = ["rotary_dim", rotary];
      if (model.ignores_rotary_dim && stored === null) {
        failValue(name, dim, "partial_rotary_factor beside it, which alone is read by transformers");
      }
      if (stored !== null && Math.trunc(this.headDim() * part) !== dim) {
        failValue(name, dim, `the width of partial_rotary_factor ${shown(stored)}`);
      }
    } else if (latent !== null) {
      [name, dim] = ["qk_rope_head_dim", latent];
      const headDim = size(config, "head_dim") ?? model.head_dim ?? dim;
      if (Number(part) !== 1) {
        dim = Math.trunc(headDim * part);
        if (headDim !== latent && latent !== dim) {
          failValue(name, latent, `the width of head_dim ${headDim} and partial_rotary_factor ${shown(part)}`);
        }
      }
    } else {
      [name, dim] = [Number(part) !== 1 ? "partial_rotary_factor" : "head_dim", Math.trunc(this.headDim() * part)];
    }
    const value = name === "partial_rotary_factor" ? part : dim;
    if (dim < 2 || dim % 2) failValue(name, value, `an even number of rotated channels, not ${dim}`);
    if (dim > RULES.most_channels) failValue(name, value, `at most ${RULES.most_channels} rotated channels, not ${dim}`);
    return dim;
  }
}

/** posenc.rope_from_config: {w, attention, softmax, layout}, and what the page draws from it. */
function ropeFromConfig(whole, layerType = null, length = null) {
  if (!isObject(whole)) fail("config", `type ${typeName(whole)}`, "a dict, the content of config.json");
  const part = textPart(whole);
  checkModel(part);
  checkNames(part);
  const layer = readLayer(part, layerType, part !== whole), { rope, model } = layer;
  const apart = ["rope_type", "type", "rope_theta", "partial_rotary_factor", ...RULES.other_arguments];
  let type = ropeType(rope), keys = Object.fromEntries(Object.entries(rope).filter(([key]) => !apart.includes(key)));
  const readsAlpha = type === "xdrope" || (type === "dynamic" && model.reads_alpha);
  if (readsAlpha && isTrue(get(keys, "alpha"))) [type, keys] = ["ntk", { factor: keys.alpha }];
  if (RULES.length_types.includes(type)) {
    Object.assign(keys, present(part, layer.nested ? LENGTHS.slice(0, 1) : LENGTHS));
    if (!has(keys, LENGTHS[0])) keys[LENGTHS[0]] = get(part, "n_positions") ?? null;
    if (!has(keys, LENGTHS[1])) keys[LENGTHS[1]] = model.original_length;
  }
  if (type === "proportional") keys.partial_rotary_factor = layer.number(RULES.parts, "partial_rotary_factor");
  const dim = layer.rotaryDim(type), base = layer.base();
  const found = ropeFrequencies(dim, base, type, keys, length, "config");
  const interleaved = get(part, "rotary_emb_interleaved") ?? null;
  if (![null, true, false].includes(interleaved)) fail("rotary_emb_interleaved", `type ${typeName(interleaved)}`, "True or False");
  const isSwapped = model.layout === "interleaved" && get(part, "rope_interleave") === false;
  const layout = interleaved === null ? (isSwapped ? "half" : model.layout) : interleaved ? "interleaved" : "half";
  const longest = [keys[LENGTHS[1]], get(part, LENGTHS[0]), get(part, "n_positions")].find((x) => typeof x === "number");
  return {
    ...found, w: model.is_backwards ? found.w.map((w) => -w) : found.w, layout,
    type, base, layerType, trained: longest ?? null, // some scalings do not say the length before them
  };
}

const PASTED_HEAD = 128;
/** The config that a text holds. rope_parameters alone get a head of 128 channels around them. */
function readConfig(text) {
  const found = readJSON(text);
  return isPasted(found) ? { head_dim: PASTED_HEAD, rope_parameters: found } : found;
}
/** Whether a text is rope_parameters alone: a config has no type of rotation outside. */
const isPasted = (found) => isObject(found) && (has(found, "rope_type") || has(found, "type")) &&
  !["model_type", "rope_parameters", "rope_scaling"].some((key) => has(found, key));

/** The layer types of a config with rotations of their own, else []. */
function layerTypes(config) {
  const part = textPart(config), [byType] = byLayerType(part, modelOf(part), ropePart(part)[1]);
  return Object.keys(byType ?? {}).filter((type) => byType[type] !== null);
}
