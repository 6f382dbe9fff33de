// config.js -- rotary frequencies from a config.json: posenc.rope_from_config. MODELS, the defaults of transformers by
// model_type, is written by build.py from posenc/rotary/_models.py.
"use strict";

const FULL = "full_attention", SLIDING = "sliding_attention";
const BASES = ["rope_theta", "rotary_emb_base", "global_rope_theta"];
const SLIDING_BASES = ["rope_local_base_freq", "local_rope_theta"];
const PARTIAL = ["partial_rotary_factor", "rotary_pct"];
const LENGTHS = ["max_position_embeddings", "original_max_position_embeddings"];
const LENGTH_TYPES = ["dynamic", "ntk_by_parts", "yarn", "longrope", "llama3"];
const KNOWN = [...BASES, ...SLIDING_BASES, ...PARTIAL, "rope_parameters", "rope_scaling", "rotary_dim", "rope_interleave"];
const ROPE_PART = /^(rope_|rotary_|rotery_|partial_rotary|.*(ntk|yarn|_rope_theta|rope_scal))/;
const NO_DEFAULTS = {
  base: null, partial_rotary_factor: 1, head_dim: null, rotary_dim: null, qk_rope_head_dim: null, sliding_base: null,
  scaled: [], original_length: null, requires_scaling: false,
};

const isObject = (x) => x !== null && typeof x === "object" && !Array.isArray(x);
const present = (config, names) =>
  Object.fromEntries(names.filter((name) => config[name] != null).map((name) => [name, config[name]]));

/** The layer types of a config whose layers differ, else []. */
function layerTypes(config) {
  const model = { ...NO_DEFAULTS, ...MODELS[config.model_type] };
  const rope = config.rope_parameters ?? config.rope_scaling ?? {};
  if (isObject(rope) && Object.values(rope).some(isObject)) return Object.keys(rope).filter((type) => rope[type]);
  return model.scaled.length || Object.keys(present(config, SLIDING_BASES)).length ? [FULL, SLIDING] : [];
}

function ropeFromConfig(given, layer, length) {
  if (!isObject(given)) throw new Error("config.json must be an object: { ... }");
  const config = isObject(given.text_config) ? { model_type: given.model_type, ...given.text_config } : given;
  const model = { ...NO_DEFAULTS, ...MODELS[config.model_type] };
  for (const [key, value] of Object.entries(config)) {
    if (value !== null && !KNOWN.includes(key) && ROPE_PART.test(key)) throw new Error(`unknown key of the rotary part: ${key}`);
  }
  const types = layerTypes(config), layerType = types.length ? (types.includes(layer) ? layer : types[0]) : null;
  const { rope, nested } = ropeOf(config, model, layerType);
  if (model.requires_scaling && !Object.keys(rope).length) throw new Error(`${config.model_type} needs rope_parameters`);
  const number = (names, key) => {
    const outside = nested && key in rope ? {} : present(config, names);
    const found = { ...(key in rope ? { [key]: rope[key] } : {}), ...outside }, values = Object.values(found);
    if (new Set(values).size > 1) throw new Error(`${Object.keys(found).join(" and ")} differ`);
    return values[0] ?? null;
  };

  let type = rope.rope_type ?? rope.type ?? "default";
  type = { su: "longrope", mrope: "default" }[type] ?? type;
  if (type === "yarn" && rope.short_factor) type = "longrope";
  if (!("rope_type" in rope) && !("type" in rope) && "factor" in rope) throw new Error("the scaling has no rope_type");

  const ignored = ["rope_type", "type", "rope_theta", "partial_rotary_factor", "mrope_section", "mrope_interleaved"];
  const keys = Object.fromEntries(Object.entries(rope).filter(([key]) => !ignored.includes(key)));
  if (LENGTH_TYPES.includes(type)) {
    Object.assign(keys, present(config, nested ? LENGTHS.slice(0, 1) : LENGTHS));
    keys[LENGTHS[0]] ??= config.n_positions;
    keys[LENGTHS[1]] ??= model.original_length ?? undefined;
  }
  if (type === "proportional") keys.partial_rotary_factor = number(PARTIAL, "partial_rotary_factor") ?? undefined;

  const slides = layerType === SLIDING && (model.sliding_base !== null || Object.keys(present(config, SLIDING_BASES)).length);
  const base = number(slides ? SLIDING_BASES : BASES, "rope_theta") ?? (slides ? model.sliding_base : model.base);
  if (base === null) throw new Error(`no rope_theta, and no known default for model_type ${config.model_type}`);
  if (!(base > 0)) throw new Error(`rope_theta is ${base}; expected a positive number`);
  const dim = rotaryDim(config, model, layerType, type, number(PARTIAL, "partial_rotary_factor"));
  const longest = config.max_position_embeddings ?? config.n_positions ?? null;
  const trained = keys[LENGTHS[1]] ?? longest; // some scalings do not say the length before them
  return { type, dim, base, layerType, types, longest, trained, ...ropeFrequencies(dim, base, type, keys, length) };
}

function ropeOf(config, model, layerType) {
  const rope = Object.values(present(config, ["rope_parameters", "rope_scaling"])).find((x) => Object.keys(x).length) ?? {};
  if (!isObject(rope)) throw new Error("rope_parameters or rope_scaling is no object");
  if (Object.values(rope).some(isObject)) return { rope: present(rope[layerType], Object.keys(rope[layerType])), nested: true };
  const scaled = model.scaled.length ? model.scaled : layerType ? [FULL] : [];
  return { rope: scaled.length && !scaled.includes(layerType) ? {} : present(rope, Object.keys(rope)), nested: false };
}

function rotaryDim(config, model, layerType, type, stored) {
  const part = stored ?? model.partial_rotary_factor;
  const size = (...names) => names.map((name) => config[name]).find((value) => value != null) ?? null;
  const perLayer = layerType === FULL ? size("global_head_dim") : null;
  const headDim = () => {
    const own = perLayer ?? size("head_dim", "attention_head_dim", "kv_channels") ?? model.head_dim;
    if (own !== null) return own;
    const hidden = size("hidden_size", "n_embd"), heads = size("num_attention_heads", "n_head");
    if (hidden === null || heads === null) throw new Error("no head_dim, and no hidden_size and num_attention_heads");
    return Math.floor(hidden / heads);
  };
  const latent = size("qk_rope_head_dim") ?? model.qk_rope_head_dim;
  let dim;
  if (type === "proportional") dim = latent ?? headDim();
  else if (size("rotary_dim") ?? model.rotary_dim) dim = size("rotary_dim") ?? model.rotary_dim;
  else if (latent !== null) dim = part === 1 ? latent : Math.trunc((size("head_dim") ?? latent) * part);
  else dim = Math.trunc(headDim() * part);
  if (!(dim >= 2) || dim % 2) throw new Error(`${dim} rotated channels; expected an even number`);
  return dim;
}
