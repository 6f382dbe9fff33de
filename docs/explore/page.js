// page.js -- the state, its controls, its link, and the loop that draws.
"use strict";

const SAMPLES = {
  "Llama 3.1 8B": {
    model_type: "llama", hidden_size: 4096, num_attention_heads: 32, max_position_embeddings: 131072, rope_theta: 500000,
    rope_scaling: {
      rope_type: "llama3", factor: 8, low_freq_factor: 1, high_freq_factor: 4, original_max_position_embeddings: 8192,
    },
  },
  "Llama 2 7B": {
    model_type: "llama", hidden_size: 4096, num_attention_heads: 32, max_position_embeddings: 4096, rope_theta: 10000,
    rope_scaling: null,
  },
  "Qwen 2.5 7B with YaRN": {
    model_type: "qwen2", hidden_size: 3584, num_attention_heads: 28, max_position_embeddings: 32768, rope_theta: 1000000,
    rope_scaling: { type: "yarn", factor: 4, original_max_position_embeddings: 32768 },
  },
  "Gemma 3 4B (text)": {
    model_type: "gemma3_text", head_dim: 256, hidden_size: 2560, num_attention_heads: 8, max_position_embeddings: 131072,
    rope_theta: 1000000, rope_local_base_freq: 10000, rope_scaling: { rope_type: "linear", factor: 8 },
  },
  "DeepSeek V3": {
    model_type: "deepseek_v3", qk_rope_head_dim: 64, hidden_size: 7168, num_attention_heads: 128,
    max_position_embeddings: 163840, rope_theta: 10000,
    rope_scaling: {
      type: "yarn", factor: 40, beta_fast: 32, beta_slow: 1, mscale: 1, mscale_all_dim: 1,
      original_max_position_embeddings: 4096,
    },
  },
  "GPT-NeoX 20B": {
    model_type: "gpt_neox", hidden_size: 6144, num_attention_heads: 64, max_position_embeddings: 2048, rotary_pct: 0.25,
    rotary_emb_base: 10000,
  },
};
const sampleText = (name) => JSON.stringify(SAMPLES[name], null, 2);

const TENS = [10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 150000, 200000, 500000, 1e6, 2e6, 5e6, 1e7];
const TWOS = range(12).map((e) => 64 * 2 ** e);
const scalings = SCALED.map((type) => [type, SCALING_LABELS[type]]);

// kind: range (min, max, step, or values), select, check, checks, number, text
const CONTROLS = {
  sentence: { label: `Your sentence, at most ${MOST_WORDS} words`, kind: "line", start: EXAMPLE, most: 200,
    write: (sentence) => ({ sentence, first: "0", second: String(sentenceOf({ sentence }).list.length - 1) }) },
  first: { label: "Exchange", kind: "select", start: "0", options: wordOptions },
  second: { label: "with", kind: "select", start: (s) => wordOptions(s).at(-1)[0], options: wordOptions },
  positions: { label: "Tell positions by", kind: "select", start: "none", options: () => Object.entries(POSITIONS) },
  length: { label: "Length of the text", kind: "range", min: 8, max: 256, start: 64 },
  dim: { label: "Dimension d", kind: "range", min: 4, max: 128, step: 2, start: 64 },
  base: { label: "Base", kind: "range", values: TENS, start: 10000 },
  channel: { label: "Channel", kind: "range", min: 0, max: (s) => s.dim - 1, start: 6 },
  query: { label: "Query at place", kind: "range", min: 0, max: (s) => s.length - 1, start: 40 },
  key: { label: "Key at place", kind: "range", min: 0, max: 255, start: 46 },
  scaling: { label: "Scaling", kind: "select", start: "default", options: () => scalings },
  factor: { label: "Factor s", kind: "range", min: 1, max: 64, start: 4 },
  bias: { label: "Bias", kind: "select", start: "alibi", options: () => BIASES.map((name) => [name, SCHEMES[name].label]) },
  heads: { label: "Heads", kind: "range", min: 1, max: 16, start: 8 },
  head: { label: "Head shown", kind: "range", min: 0, max: (s) => s.heads - 1, start: 2 },
  causal: { label: "Causal: no query sees later keys", kind: "check", start: true },
  r1: { label: "KERPLE r₁ (times ALiBi's slope)", kind: "range", min: 0.1, max: 8, step: 0.1, start: 4 },
  r2: { label: "KERPLE r₂", kind: "range", min: 0.05, max: 2, step: 0.05, start: 0.5 },
  buckets: { label: "T5 buckets", kind: "range", min: 4, max: 64, step: 2, start: 32 },
  reach: { label: "T5 max distance", kind: "range", values: [16, 32, 64, 128, 256, 512], start: 128 },
  c: { label: "FIRE c", kind: "range", values: [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2], start: 0.1 },
  threshold: { label: "FIRE threshold", kind: "range", min: 1, max: 256, start: 32 },
  clip: { label: "Shaw's clipping distance", kind: "range", min: 1, max: 128, start: 16 },
  train: { label: "Training length L", kind: "range", values: TWOS, start: 4096 },
  stretch: { label: "Test length / L", kind: "range", values: [1, 2, 4, 8, 16, 32], start: 4 },
  far: { label: "Distance", kind: "range", min: 0, max: 1000, start: 700, show: (s) => integer(Math.round((s.train * s.stretch - 1) * s.far / 1000)) },
  schemes: { label: "Schemes", kind: "checks", start: ["sinusoidal", "rope", "yarn", "alibi", "t5", "fire"], options: () => Object.entries(SCHEMES).map(([name, { label }]) => [name, label]) },
  octave: { label: "Position, as a power of 2", kind: "range", min: 0, max: 53, step: 0.125, virtual: true, show: (s) => integer(s.position),
    read: (s) => s.position ? Math.round(8 * Math.log2(s.position)) / 8 : 0, write: (x) => ({ position: Math.min(Math.round(2 ** x), 2 ** 53) }) },
  position: { label: "Position, at most 2⁵³", kind: "number", min: 0, max: 2 ** 53, start: 131071 },
  sample: { label: "Example", kind: "select", start: "Llama 3.1 8B", options: () => [...Object.keys(SAMPLES).map((name) => [name, name]), ["own", "my own"]],
    write: (name) => name === "own" ? { sample: name } : { sample: name, config: sampleText(name), layer: "" } },
  config: { label: "config.json, or its rope_parameters alone", kind: "text", start: sampleText("Llama 3.1 8B"), write: (config) => ({ config, sample: "own" }) },
  layer: { label: "Layers", kind: "select", start: (s) => layersOf(s)[0], options: (s) => layersOf(s).map((type) => [type, type || "all layers alike"]) },
  trained: { label: "Training length, 0 if the config says it", kind: "number", min: 0, max: 2 ** 31, start: 0 },
  sequence: { label: "Sequence length (dynamic, longrope)", kind: "number", min: 1, max: 2 ** 31, start: 4096 },
};
const ONLY_FOR = { r1: /^kerple/, r2: /^kerple/, buckets: /^t5/, reach: /^t5/, c: /^fire/, threshold: /^fire/, dim: /^sandwich/ };

function wordOptions(state) {
  return sentenceOf(state).list.map((word, i) => [String(i), word]);
}

function layersOf(state) {
  try {
    const types = layerTypes(readConfig(state.config));
    return types.length ? types : [""];
  } catch {
    return [""];
  }
}

const stored = Object.entries(CONTROLS).filter(([, control]) => !control.virtual);
const startOf = ({ start }, state) => typeof start === "function" ? start(state) : structuredClone(start);
const startState = () => stored.reduce((state, [key, control]) => ({ ...state, [key]: startOf(control, state) }), {});
let state = startState();

/** The state with every number inside its limits, whatever a link says. */
function repaired(wanted) {
  const s = { ...wanted };
  for (const [key, control] of stored) {
    if (control.kind === "range" || control.kind === "number") {
      const x = Number(s[key]);
      if (control.values) {
        s[key] = control.values.reduce((a, b) => Math.abs(b - x) < Math.abs(a - x) ? b : a, control.start);
        continue;
      }
      const max = typeof control.max === "function" ? control.max(s) : control.max, step = control.step ?? 1;
      const value = Number.isFinite(x) ? Math.min(Math.max(x, control.min), max) : Math.min(control.start, max);
      s[key] = control.kind === "number" ? Math.round(value) : Number((control.min + Math.round((value - control.min) / step) * step).toFixed(6));
    } else if (control.kind === "check") {
      s[key] = s[key] === true || s[key] === "true";
    } else if (control.kind === "checks") {
      const names = Array.isArray(s[key]) ? s[key] : String(s[key]).split(",");
      s[key] = Object.keys(SCHEMES).filter((name) => names.includes(name));
    } else if (control.kind === "select") {
      s[key] = control.options(s).some(([value]) => value === s[key]) ? s[key] : startOf(control, s);
    } else if (control.most) {
      s[key] = Array.from(String(s[key])).slice(0, control.most).join("");
    }
  }
  return s;
}

function fromLink() {
  const wanted = startState(), given = new URLSearchParams(location.hash.slice(1));
  for (const [key, { start }] of stored) if (typeof start === "function") wanted[key] = null; // it depends on what the link says
  for (const [key, value] of given) if (has(wanted, key)) wanted[key] = value;
  if (has(SAMPLES, wanted.sample)) wanted.config = sampleText(wanted.sample);
  return repaired(wanted);
}

function link() {
  const given = new URLSearchParams();
  for (const [key, control] of stored) {
    if (key === "config" && state.sample !== "own") continue;
    if (String(state[key]) !== String(startOf(control, state))) given.set(key, String(state[key]));
  }
  const text = given.toString();
  return text ? `#${text}` : "";
}

// ---- controls ----

const inputs = [];
const element = (name, attributes = {}, ...children) => {
  const made = Object.assign(document.createElement(name), attributes);
  made.append(...children);
  return made;
};

function makeControl(key, place) {
  const control = CONTROLS[key], id = `${key}-${inputs.length}`, change = (value) => set(control.write ? control.write(value) : { [key]: value });
  let box, input;
  if (control.kind === "checks") {
    input = element("div", { className: "choices" });
    box = element("fieldset", {}, element("legend", { textContent: control.label }), input);
    for (const [name, label] of control.options(state)) {
      const one = element("input", { type: "checkbox", value: name });
      one.dataset.key = key;
      one.addEventListener("change", () => change([...input.querySelectorAll(":checked")].map((other) => other.value)));
      input.append(element("label", {}, one, label));
    }
  } else {
    const label = element("label", { htmlFor: id, textContent: control.label });
    if (control.kind === "select") input = element("select", { id });
    else if (control.kind === "text") input = element("textarea", { id, spellcheck: false, autocomplete: "off" });
    else input = element("input", { id, type: { range: "range", check: "checkbox", number: "number", line: "text" }[control.kind] });
    if (control.most) Object.assign(input, { maxLength: control.most, spellcheck: false, autocomplete: "off" });
    input.dataset.key = key;
    if (control.kind === "number") Object.assign(input, { min: control.min, max: control.max, step: 1, inputMode: "numeric" });
    box = control.kind === "check" ? element("div", { className: "control check" }, input, label) : element("div", { className: "control" }, label);
    if (control.kind === "range") box.append(element("output", { htmlFor: id }));
    if (control.kind !== "check") box.append(input);
    if (control.kind === "text" || control.kind === "line") box.classList.add("wide");
    const read = () => control.kind === "check" ? input.checked : control.kind === "range" ? valueAt(control, Number(input.value)) : control.kind === "number" ? Number(input.value) : input.value;
    input.addEventListener(["range", "text", "line"].includes(control.kind) ? "input" : "change", () => change(read()));
  }
  box.dataset.control = key;
  place.append(box);
  inputs.push({ key, control, box, input });
}
const valueAt = (control, number) => control.values ? control.values[number] : number;

function showControl({ key, control, box, input }) {
  const value = control.read ? control.read(state) : state[key];
  if (control.kind === "range") {
    const max = control.values ? control.values.length - 1 : typeof control.max === "function" ? control.max(state) : control.max;
    Object.assign(input, { min: control.values ? 0 : control.min, max, step: control.values ? 1 : control.step ?? 1 });
    input.value = control.values ? control.values.indexOf(value) : value;
    const shown = control.show ? control.show(state) : Number.isInteger(value) ? integer(value) : String(value);
    box.querySelector("output").textContent = shown;
    input.setAttribute("aria-valuetext", shown);
  } else if (control.kind === "check") {
    input.checked = value;
  } else if (control.kind === "checks") {
    for (const one of input.querySelectorAll("input")) one.checked = value.includes(one.value);
  } else if (control.kind === "select") {
    const options = control.options(state), now = JSON.stringify(options);
    if (input.dataset.options !== now) {
      input.replaceChildren(...options.map(([name, label]) => element("option", { value: name, textContent: label })));
      input.dataset.options = now;
    }
    input.value = value;
  } else if (document.activeElement !== input || input.value !== String(value)) {
    input.value = value;
  }
  if (box.closest('[data-figure="bias"]') && ONLY_FOR[key]) box.hidden = box.style.display = ONLY_FOR[key].test(state.bias) ? "" : "none";
}

// ---- the loop ----

const figures = [];
let numbers = null, frame = 0, saving = 0;
const changed = new Set();

function set(changes) {
  const before = state;
  state = repaired({ ...state, ...changes });
  for (const key of Object.keys(state)) if (String(state[key]) !== String(before[key])) changed.add(key);
  for (const one of inputs) showControl(one);
  for (const figure of figures) if (figure.uses.some((key) => changed.has(key))) figure.stale = true;
  changed.clear();
  schedule();
  clearTimeout(saving);
  saving = setTimeout(save, 250);
}

function save() {
  history.replaceState(null, "", location.pathname + location.search + link());
}

function schedule() {
  if (!frame) frame = requestAnimationFrame(draw);
}

function draw() {
  frame = 0;
  for (const figure of figures) if (figure.stale && figure.visible) drawFigure(figure);
}

function drawFigure(figure) {
  const { canvas, plan, place } = figure, narrow = canvas.clientWidth < 620;
  if (plan.expect) showQuestion(figure);
  const height = plan.height ? plan.height(state, canvas.clientWidth, numbers) : Number(place.dataset[narrow ? "narrow" : "height"]);
  const readout = place.querySelector(".readout");
  try {
    readout.textContent = plan.draw(state, numbers, prepare(canvas, height), narrow, place);
  } catch (error) {
    readout.textContent = `This figure cannot be computed: ${error.message}.`;
    readout.classList.add("error");
    console.error(error);
  }
  figure.stale = false;
  figure.drawn = (figure.drawn ?? 0) + 1;
}

// ---- what would you expect? ----

/**
 * The question of a figure and, once the reader has asked for it, the answer: the state before and after the changes that
 * the question names. Another change of the figure takes the answer away, since it would speak of another state.
 */
function makeQuestion(figure) {
  const question = element("span"), answer = element("p", { className: "answer", hidden: true });
  const button = element("button", { type: "button", textContent: "Show me" });
  answer.setAttribute("aria-live", "polite");
  button.addEventListener("click", () => {
    figure.asked = figure.asked ? null : { before: state, after: changedBy(figure) };
    figure.stale = true;
    set(figure.asked?.after ?? {});
  });
  const box = element("div", { className: "expect" }, element("p", {}, element("strong", { textContent: "What would you expect? " }), question, " ", button), answer);
  figure.place.querySelector(".controls").before(box);
  Object.assign(figure, { question, answer, button });
}
const changedBy = ({ plan }) => repaired({ ...state, ...plan.expect.changes(state) });

function showQuestion(figure) {
  const { plan, question, answer, button } = figure;
  if (figure.asked && plan.uses.some((key) => String(state[key]) !== String(figure.asked.after[key]))) figure.asked = null;
  const { before, after } = figure.asked ?? { before: state, after: changedBy(figure) };
  question.textContent = plan.expect.question(before, after);
  answer.hidden = !figure.asked && !onPaper();
  if (!answer.hidden) answer.textContent = plan.expect.answer(before, after, numbers);
  button.textContent = figure.asked ? "Ask again" : "Show me";
}

// ---- paper ----

const onPaper = () => document.documentElement.classList.contains("paper");

/** Draw all figures, in the colours and with the answers of the printed page, or of the screen again. */
function usePaper(wanted) {
  if (wanted === onPaper()) return;
  document.documentElement.classList.toggle("paper", wanted);
  theme = null;
  figures.forEach(drawFigure);
}

const explore = {
  state: () => state, set, link, figures, inputs, readConfig, readJSON, layerTypes, ropeFromConfig, ropeFrequencies, geometric, samples: SAMPLES,
  biasParameters, scaledOf, exactSineCosine, numbers: () => numbers, draw: drawFigure, firstPicture: 0,
};
window.explore = explore;

async function unpack(base64) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

async function start() {
  state = fromLink();
  for (const place of document.querySelectorAll("[data-controls]")) {
    for (const key of place.dataset.controls.split(" ")) makeControl(key, place);
  }
  for (const place of document.querySelectorAll("[data-figure]")) {
    const name = place.dataset.figure, canvas = place.querySelector("canvas"), title = place.querySelector("h3");
    title.id = `figure-${name}`;
    const readout = place.querySelector(".readout");
    readout.id = `readout-${name}`;
    readout.setAttribute("aria-live", "polite");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-labelledby", title.id);
    canvas.setAttribute("aria-describedby", readout.id);
    figures.push({ name, place, canvas, plan: FIGURES[name], uses: FIGURES[name].uses, stale: true, visible: false });
    if (FIGURES[name].expect) makeQuestion(figures.at(-1));
  }
  for (const one of inputs) showControl(one);
  numbers = new Numbers(new Library(await Kernels.load(await unpack(WASM))));
  drawFigure(figures[0]);
  explore.firstPicture = performance.now();
  const watch = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) figures.find(({ place }) => place === target).visible = isIntersecting;
    schedule();
  }, { rootMargin: "400px" });
  for (const { place } of figures) watch.observe(place);
  addEventListener("beforeprint", () => usePaper(true));
  addEventListener("afterprint", () => usePaper(false));
  const print = matchMedia("print");
  print.addEventListener("change", () => usePaper(print.matches));
  usePaper(print.matches);
  const again = () => { for (const figure of figures) figure.stale = true; schedule(); };
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth !== width) again(); // a figure that grows changes the height alone
    width = innerWidth;
  });
  dark.addEventListener("change", again);
  addEventListener("hashchange", () => {
    if (location.hash.includes("=")) set(fromLink());
  });
  document.querySelector("#copy").addEventListener("click", async () => {
    save();
    try {
      await navigator.clipboard.writeText(location.href);
      say("Copied.");
    } catch {
      say("The address bar has the link.");
    }
  });
  document.querySelector("#reset").addEventListener("click", () => { set(startState()); say("Reset."); });
}
function say(words) {
  document.querySelector("#said").textContent = words;
  setTimeout(() => { document.querySelector("#said").textContent = ""; }, 2500);
}

explore.ready = start().catch((error) => {
  const message = `This page needs a browser with WebAssembly SIMD (2023 or later): ${error.message}`;
  document.querySelector(".lead").after(element("p", { className: "readout error", textContent: message }));
  throw error;
});
