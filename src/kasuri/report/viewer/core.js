// The viewer of a kasuri report. It knows the rows in this file and nothing else; the page's policy lets it fetch
// nothing. core: language, numbers, colours, elements; rows: the packed table; codes: mesh codes; ground: coasts, names
// and search; mesh, shapes: what maps are made of; charts; bars; map; start.

const RAMP = { // viridis, cividis and a diverging purple-orange: even steps of lightness, safe for colour-blind readers
  value: "481769 472a7a 433d84 3d4e8a 355e8d 2e6d8e 297b8e 23898e 1f978b 21a585 2eb37c 46c06f 65cb5e 89d548 b0dd2f d8e219 fde725",
  share: "1a386f 32436d 434e6c 535a6d 61656f 6f7073 7d7c78 8c8878 9b9476 aba072 bcae6c cdbb63 dec958 f0d846 fee838",
  error: "b59bff 9a86d8 7568a8 474061 232833 6b4a1c a86f1d e09a35 ffc873",
};
const GOOD = 10, POOR = 50; // relative error in per cent: below GOOD a number can be used as it is, above POOR not alone
const NEGATIVE = [226, 59, 46], DARK = [9, 13, 22], GROUND = "#0e1420", LAND = "#1d2738", SEA = [28, 38, 56];
const spaced = (level) => level.replace(/^(\d+)(k?m)$/, "$1 $2");
const $ = (id) => document.getElementById(id);
const told = (id) => JSON.parse($(id).textContent);
let language = "en";
const t = () => WORDS[language];
/** An axis, a level or a label as readers of the language know it. */
const called = (name) => (language === "ja" && called.ja?.[name]) || name;
const shown = []; // what to draw again when the language changes

function speak(next) {
  language = next;
  document.documentElement.lang = next;
  const titles = [document.title, document.querySelector("meta[name=title-ja]").content];
  speak.titles ??= { en: titles[0], ja: titles[1] };
  document.title = speak.titles[next];
  for (const button of document.querySelectorAll("[data-language]"))
    button.setAttribute("aria-pressed", String(button.dataset.language === next));
  for (const draw of shown) draw();
}

function number(x, unit = 1) {
  const digits = unit === 1 || Number.isInteger(x) ? 0 : 2;
  return x.toLocaleString(language === "ja" ? "ja-JP" : "en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}
const brief = (v, unit) => (Math.abs(v) >= 1e4 ? Intl.NumberFormat(language, { notation: "compact" }).format(v) : number(v, unit));
function ramp(name) {
  const stops = RAMP[name].split(" ").map((hex) => [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16))), out = [];
  for (let i = 0; i < 256; i++) {
    const at = (i / 255) * (stops.length - 1), k = Math.min(Math.floor(at), stops.length - 2);
    out.push(stops[k].map((v, j) => Math.round(v + (stops[k + 1][j] - v) * (at - k))));
  }
  return out;
}
const word = ([r, g, b]) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0; // little-endian RGBA
const css = (w) => `rgb(${w & 255},${(w >> 8) & 255},${(w >> 16) & 255})`;
/** 1, 2, 5, 10, ... that lie from low to high, at most about six. */
function ticks(low, high, log) {
  if (!log) { const step = 10 ** Math.floor(Math.log10(high || 1)), k = high / step < 2.5 ? 0.5 : high / step < 5 ? 1 : 2; const out = []; for (let v = 0; v <= high * 1.0001; v += step * k) out.push(v); return out; }
  const out = [];
  for (let v = 10 ** Math.floor(Math.log10(low)); v <= high; v *= 10) if (v >= low) out.push(v);
  return out.length > 1 ? out : [low, high];
}

function element(tag, more = {}, ...inside) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(more)) name in made && name !== "list" ? (made[name] = value) : made.setAttribute(name, value);
  made.append(...inside);
  return made;
}
/** A labelled select; `options` is called again for every language and gives [value, words]. */
function select(tools, id, label, options, change) {
  const box = element("select", { id }), words = element("span");
  tools.append(element("label", {}, words, box));
  const fill = () => {
    const kept = box.value;
    words.textContent = label();
    box.replaceChildren(...options().map(([value, text]) => element("option", { value, textContent: text })));
    if (kept && [...box.options].some((option) => option.value === kept)) box.value = kept;
  };
  fill();
  box.fill = fill;
  shown.push(fill);
  box.addEventListener("change", () => change(box.value));
  return box;
}
function press(place, id, words, act) {
  const button = element("button", { type: "button", id });
  place.append(button);
  shown.push(() => { button.textContent = words(); });
  button.addEventListener("click", act);
  return button;
}
/** A file for the reader, made here. */
function keep(blob, name) {
  const link = element("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
/** A cell of a CSV file, as `kasuri.names.cell` makes it: text that a spreadsheet would run has an apostrophe before it. */
function quoted(cell) {
  const text = String(cell), runs = typeof cell !== "number" && /^[=+@\t\r\n＝＋－＠-]/.test(text) && !/^[+-]\d+([.]\d+)?$/.test(text);
  return runs || /[",\r\n]/.test(text) ? `"${runs ? "'" : ""}${text.replace(/"/g, '""')}"` : text;
}
const keepCsv = (lines, name) => keep(new Blob(["\ufeff" + lines.map((line) => line.map(quoted).join(",")).join("\r\n") + "\r\n"], { type: "text/csv" }), name);

const MANY = 400; // labels from which a box to write in replaces a list
/** What people read for an index of an axis. */
const labelOf = (axis, i) => (axis.labels ? axis.labels[i] : axis.kind === "mesh" && axis.scheme ? codeOf(axis, axis.level, Math.floor(i / axis.cols) + axis.origin[0], (i % axis.cols) + axis.origin[1]) : String(i));
/** A box for one axis: one of its labels (or mesh codes), or all; times have a slider that can play. */
function choose(tools, axis, change) {
  const id = `axis-${axis.name}`;
  if (axis.kind === "time" && axis.labels && axis.size > 1) return slider(tools, axis, id, change);
  if (axis.labels && axis.labels.length <= MANY)
    return select(tools, id, () => called(axis.name), () => [["-1", t().sum], ...axis.labels.map((label, i) => [String(i), called(label)])], (v) => change(Number(v)));
  const box = element("input", { id, size: 12, autocomplete: "off" }), words = element("span");
  tools.append(element("label", {}, words, box));
  const say = () => { words.textContent = t().other(called(axis.name)); };
  say();
  shown.push(say);
  box.addEventListener("change", () => {
    const text = box.value.trim();
    let at = -1;
    if (text && axis.labels) { at = axis.labels.indexOf(text); if (at < 0) at = axis.labels.findIndex((label) => label.startsWith(text)); if (at < 0) at = NaN; }
    else if (text && axis.scheme) { const rc = placeOf(axis, axis.level, text); at = rc ? (rc[0] - axis.origin[0]) * axis.cols + rc[1] - axis.origin[1] : NaN; }
    else if (text) at = Number(text);
    const good = !text || (Number.isInteger(at) && at >= 0 && at < axis.size);
    box.setAttribute("aria-invalid", String(!good));
    if (good) change(at);
  });
  return box;
}
function slider(tools, axis, id, change) {
  const box = element("input", { id, type: "range", min: -1, max: axis.size - 1, step: 1, value: -1 }), words = element("span"), when = element("output", { htmlFor: id });
  const play = element("button", { type: "button", className: "play" });
  tools.append(element("div", { className: "time" }, element("label", { htmlFor: id }, words, box), element("div", {}, play, when)));
  let timer = 0;
  const say = () => { words.textContent = called(axis.name); when.textContent = Number(box.value) < 0 ? t().sum : axis.labels[box.value]; box.setAttribute("aria-valuetext", when.textContent); play.textContent = timer ? "❚❚" : "▶"; play.setAttribute("aria-label", timer ? t().pause : t().play); };
  const stop = () => { clearInterval(timer); timer = 0; say(); };
  const go = () => { say(); change(Number(box.value)); };
  box.addEventListener("input", () => { stop(); go(); });
  box.addEventListener("change", go);
  box.set = (v) => { box.value = v; say(); };
  play.addEventListener("click", () => {
    if (timer) { stop(); return; }
    const next = () => { box.value = (Number(box.value) + 1) % axis.size; go(); };
    timer = setInterval(next, 700);
    next();
  });
  shown.push(say);
  return box;
}
