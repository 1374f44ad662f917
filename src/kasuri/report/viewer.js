"use strict";
// The viewer of a kasuri report: language switch, a zoomable map of the released mesh, bars for other tables.
// It knows the rows in this file and nothing else; the page's policy lets it fetch nothing.

const WORDS = {
  en: {
    level: "Areas", show: "Show", scale: "Colours", log: "logarithmic", linear: "linear", all: "all", sum: "all (sum)", along: "Rows by",
    value: "released value", share: "can I use it? (relative error)", hatched: (p) => `hatched: over ± ${p} %`, per_cent: (p) => `${p} % range, ± % of the value`,
    advice: (a, b, u, p) => `Between ${a} and ${b} ${u} (such ranges hold for ${p} of 100 places): `, good: (s) => `± ${s} %, good to use.`, care: (s) => `± ${s} %, use with care.`, poor: (s) => `± ${s} %, too uncertain to use alone; choose larger areas.`, truth: "TRUE value (confidential)", error: "released minus true (confidential)",
    released: "Released", true_: "True", off: "Error", interval: (p) => `${p} % interval`, to: "to", none: "not listed: released as 0",
    sea: "outside what is possible (declared public): 0", outside: "outside the window", row: "row", col: "column",
    no_interval: "no interval for this area", go: "Go to mesh code", find: "no such area here", cells: (s) => `${spaced(s)} cells`,
    side: (k) => (k === 1 ? "1 cell" : `${k} x ${k} cells`), largest: (n, s) => `The ${n} largest (${s})`, place: "area", count: "released",
    per: (u, s) => `${u} per area (${s})`, negative: "negative", zoomed: "mean", in: "Zoom in", out: "Zoom out", fit: "Show all",
    is: ": ", and: ", ", then: ";", gap: " ", map: "Map of the released values", grid: "Grid of the released values", secret: "CONFIDENTIAL", unit: (u) => (u === "person" ? "people" : u || "counts"), more: (n) => `and ${n} more`,
    cut: "part of the area lies outside the window", start: "Point at a cell, or use the arrow keys, to read a value.",
  },
  ja: {
    level: "区域", show: "表示", scale: "配色", log: "対数", linear: "線形", all: "すべて", sum: "すべて（合計）", along: "行の軸",
    value: "公表値", share: "利用の目安（相対誤差）", hatched: (p) => `斜線：± ${p} % 超`, per_cent: (p) => `${p} % 信頼区間の半幅（値に対する %）`,
    advice: (a, b, u, p) => `${a} から ${b} の間（${u}。このような範囲は 100 か所のうち ${p} か所で正しい値を含みます）：`, good: (s) => `± ${s} %。利用できます。`, care: (s) => `± ${s} %。注意して利用してください。`, poor: (s) => `± ${s} %。単独では利用できません。より広い区域を選んでください。`, truth: "真の値（部外秘）", error: "公表値と真の値の差（部外秘）",
    released: "公表値", true_: "真の値", off: "誤差", interval: (p) => `${p} % 信頼区間`, to: "〜", none: "掲載なし：0 として公表",
    sea: "ありえない場所（公開情報として宣言）：0", outside: "対象範囲の外", row: "行", col: "列",
    no_interval: "この区域の信頼区間はありません", go: "メッシュコードへ移動", find: "この範囲にありません", cells: (s) => `${s}メッシュ`,
    side: (k) => (k === 1 ? "1 セル" : `${k} × ${k} セル`), largest: (n, s) => `値の大きい区域 ${n} 件（${s}）`, place: "区域", count: "公表値",
    per: (u, s) => `${s}あたりの${u}`, negative: "負の値", zoomed: "平均", in: "拡大", out: "縮小", fit: "全体",
    is: "：", and: "、", then: "、", gap: "", map: "公表値の地図", grid: "公表値の格子", secret: "部外秘", unit: (u) => (u === "person" ? "人数" : u ? `${u} の数` : "件数"), more: (n) => `ほか ${n} 件`,
    cut: "区域の一部は対象範囲の外にあります", start: "セルを指すか矢印キーを使うと、値を読み取れます。",
  },
};
const RAMP = { // viridis, cividis and a diverging purple-orange: even steps of lightness, safe for colour-blind readers
  value: "481769 472a7a 433d84 3d4e8a 355e8d 2e6d8e 297b8e 23898e 1f978b 21a585 2eb37c 46c06f 65cb5e 89d548 b0dd2f d8e219 fde725",
  share: "1a386f 32436d 434e6c 535a6d 61656f 6f7073 7d7c78 8c8878 9b9476 aba072 bcae6c cdbb63 dec958 f0d846 fee838",
  error: "b59bff 9a86d8 7568a8 474061 232833 6b4a1c a86f1d e09a35 ffc873",
};
const GOOD = 10, POOR = 50; // relative error in per cent: below GOOD a number can be used as it is, above POOR not alone
const NEGATIVE = [226, 59, 46], GROUND = [14, 20, 32], SEA = [28, 38, 56];
const spaced = (level) => level.replace(/^(\d+)(k?m)$/, "$1 $2");
const $ = (id) => document.getElementById(id);
const told = (id) => JSON.parse($(id).textContent);
let language = "en";
const t = () => WORDS[language];
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

// ---- the rows ----

const PLANES = ["value", "above", "truth"]; // all lowest bytes, then all next ones; the other streams are varints
/** What `pack.py` made, undone: index of each row along every axis, whole-number columns. */
async function unpack(about, text) {
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  const data = new Uint8Array(await new Response(stream).arrayBuffer());
  const out = { n: about.rows, index: [], columns: {} };
  let at = 0;
  for (const [name, length] of about.streams) {
    const axis = name.startsWith("axis"), gaps = name === "axis0", numbers = new Float64Array(about.rows);
    const planes = PLANES.includes(name);
    if (planes) for (const end = at + length; at < end; ) { const place = 256 ** ((at - end + length) / about.rows); for (let i = 0; i < about.rows; i++) numbers[i] += data[at++] * place; }
    let before = 0;
    for (let i = 0; i < about.rows; i++) {
      let number = numbers[i], factor = 1, byte;
      if (!planes) do { byte = data[at++]; number += (byte & 127) * factor; factor *= 128; } while (byte > 127);
      if (gaps) numbers[i] = before += number;
      else numbers[i] = axis ? number : number % 2 ? -(number + 1) / 2 : number / 2;
    }
    if (axis) out.index.push(numbers); else out.columns[name] = numbers;
  }
  const { value, above, width } = out.columns; // an interval from 0 on has width 0, any other its own and 1
  if (width) out.columns.below = width.map((w, i) => (above[i] < 0 ? -1 : w === 0 ? value[i] : w - 1 - above[i]));
  return out;
}

/** Entries (row, col, value) in any order -> rows of a sparse table, sorted; entries of one cell are added up.
 *  `num` adds up their `count` and `ref` names the entry where there is only one. */
function gather(n, rowOf, colOf, value, count, ref, rows, cols) {
  const start = new Uint32Array(rows + 1);
  for (let i = 0; i < n; i++) start[rowOf(i) + 1]++;
  for (let r = 0; r < rows; r++) start[r + 1] += start[r];
  const order = new Uint32Array(n), next = start.slice();
  for (let i = 0; i < n; i++) order[next[rowOf(i)]++] = i;
  const sum = new Float64Array(cols), many = new Uint32Array(cols), parts = new Uint32Array(cols), last = new Float64Array(cols);
  const first = new Uint32Array(rows + 1), col = new Uint32Array(n), val = new Float64Array(n), num = new Uint32Array(n), refs = new Float64Array(n);
  let k = 0;
  for (let r = 0; r < rows; r++) {
    const touched = [];
    for (let j = start[r]; j < start[r + 1]; j++) {
      const i = order[j], c = colOf(i);
      if (!many[c]) touched.push(c);
      many[c] += 1; parts[c] += count(i); sum[c] += value(i); last[c] = ref(i);
    }
    touched.sort((a, b) => a - b);
    for (const c of touched) {
      col[k] = c; val[k] = sum[c]; num[k] = parts[c]; refs[k] = many[c] === 1 ? last[c] : -1; k++;
      sum[c] = many[c] = parts[c] = 0;
    }
    first[r + 1] = k;
  }
  return { rows, cols, first, col: col.slice(0, k), val: val.slice(0, k), num: num.slice(0, k), ref: refs.slice(0, k), n: k };
}

/** A sparse table summed to squares of `side` cells, of which the first lacks `offset` cells. */
function coarsen(from, side, offset) {
  const rowOf = new Uint32Array(from.n);
  for (let r = 0; r < from.rows; r++) rowOf.fill(Math.floor((r + offset[0]) / side), from.first[r], from.first[r + 1]);
  const size = [0, 1].map((d) => Math.floor(((d ? from.cols : from.rows) - 1 + offset[d]) / side) + 1);
  return gather(from.n, (i) => rowOf[i], (i) => Math.floor((from.col[i] + offset[1]) / side),
    (i) => from.val[i], (i) => from.num[i], (i) => from.ref[i], ...size);
}

/** Place of (row, col) in a sparse table, or -1. */
function find(table, row, col) {
  if (row < 0 || row >= table.rows) return -1;
  let low = table.first[row], high = table.first[row + 1];
  while (low < high) { const mid = (low + high) >> 1; if (table.col[mid] < col) low = mid + 1; else high = mid; }
  return low < table.first[row + 1] && table.col[low] === col ? low : -1;
}

// ---- mesh codes (JIS X 0410) ----

const GRID = { // level: [cells per 80 km, the level above, form]
  "80km": [1], "10km": [8, "80km", "digits"], "5km": [16, "10km", "quadrant"], "2km": [40, "10km", "even"], "1km": [80, "10km", "digits"],
  "500m": [160, "1km", "quadrant"], "250m": [320, "500m", "quadrant"], "125m": [640, "250m", "quadrant"],
};
function encode(level, row, col) {
  const [per, above, form] = GRID[level];
  if (!above) return String(row).padStart(2, "0") + String(col).padStart(2, "0");
  const k = per / GRID[above][0], r = row % k, c = col % k;
  const digits = form === "digits" ? `${r}${c}` : form === "even" ? `${2 * r}${2 * c}5` : String(1 + 2 * r + c);
  return encode(above, (row - r) / k, (col - c) / k) + digits;
}
/** A code of this level -> [row, col], or null. */
function decode(level, code) {
  const [per, above, form] = GRID[level];
  if (!above) return /^\d{4}$/.test(code) ? [Number(code.slice(0, 2)), Number(code.slice(2))] : null;
  const tail = { digits: 2, quadrant: 1, even: 3 }[form], k = per / GRID[above][0];
  const up = decode(above, code.slice(0, -tail)), own = code.slice(-tail);
  if (!up || !/^\d+$/.test(own)) return null;
  const [r, c] = form === "quadrant" ? [(own - 1) >> 1, (own - 1) & 1] : form === "even" ? [own[0] / 2, own[1] / 2] : [Number(own[0]), Number(own[1])];
  if (!(r >= 0 && r < k && c >= 0 && c < k) || r % 1 || c % 1 || encode(level, up[0] * k + r, up[1] * k + c) !== code) return null;
  return [up[0] * k + r, up[1] * k + c];
}

// ---- numbers and colours ----

function number(x, unit = 1) {
  const digits = unit === 1 || Number.isInteger(x) ? 0 : 2;
  return x.toLocaleString(language === "ja" ? "ja-JP" : "en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}
function ramp(name) {
  const stops = RAMP[name].split(" ").map((hex) => [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16))), out = [];
  for (let i = 0; i < 256; i++) {
    const at = (i / 255) * (stops.length - 1), k = Math.min(Math.floor(at), stops.length - 2);
    out.push(stops[k].map((v, j) => Math.round(v + (stops[k + 1][j] - v) * (at - k))));
  }
  return out;
}
const word = ([r, g, b]) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0; // little-endian RGBA
/** 1, 2, 5, 10, ... that lie from low to high, at most about six. */
function ticks(low, high, log) {
  if (!log) { const step = 10 ** Math.floor(Math.log10(high || 1)), k = high / step < 2.5 ? 0.5 : high / step < 5 ? 1 : 2; const out = []; for (let v = 0; v <= high * 1.0001; v += step * k) out.push(v); return out; }
  const out = [];
  for (let v = 10 ** Math.floor(Math.log10(low)); v <= high; v *= 10) if (v >= low) out.push(v);
  return out.length > 1 ? out : [low, high];
}

function element(tag, more = {}, ...inside) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(more)) name in made ? (made[name] = value) : made.setAttribute(name, value);
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
  shown.push(fill);
  box.addEventListener("change", () => change(box.value));
  return box;
}
const MANY = 400; // labels from which a box to write in replaces a list
/** A box for one axis: one of its labels (or mesh codes), or all. */
function choose(tools, axis, change) {
  if (axis.labels && axis.labels.length <= MANY)
    return select(tools, `axis-${axis.name}`, () => axis.name, () => [["-1", t().sum], ...axis.labels.map((label, i) => [String(i), label])], (v) => change(Number(v)));
  const box = element("input", { id: `axis-${axis.name}`, size: 12, autocomplete: "off" }), words = element("span");
  tools.append(element("label", {}, words, box));
  const say = () => { words.textContent = `${axis.name} (${t().all}: ${axis.labels ? axis.labels[0] : axis.level ? t().cells(axis.level) : "0"} …)`; };
  say();
  shown.push(say);
  box.addEventListener("change", () => {
    const text = box.value.trim();
    let at = -1;
    if (text && axis.labels) at = axis.labels.indexOf(text);
    else if (text && axis.level) { const rc = decode(axis.level, text); at = rc ? (rc[0] - axis.origin[0]) * axis.cols + rc[1] - axis.origin[1] : NaN; }
    else if (text) at = Number(text);
    const good = !text || (Number.isInteger(at) && at >= 0 && at < axis.size);
    box.setAttribute("aria-invalid", String(!good));
    if (good) change(at);
  });
  return box;
}

// ---- the map ----

function showMap(view, data) {
  const meshes = view.axes.flatMap((axis, i) => (axis.kind === "mesh" ? [i] : []));
  const columns = data.columns, unit = view.data.unit, has = "above" in columns, internal = "truth" in columns;
  const state = { mesh: meshes[0], pick: view.axes.map(() => -1), level: 0, layer: "value", log: true, cursor: null, drawn: null };
  const canvas = $("canvas"), pen = canvas.getContext("2d");
  let axis, tables, mips, top, box = { x: 0, y: 0, s: 1 }, fitted = 1, aspect = 1, sea = null;

  const amount = { value: (i) => columns.value[i], truth: (i) => columns.truth[i], error: (i) => columns.value[i] - columns.truth[i],
    share: (i) => share(data, i) };
  /** Half the width of an interval in per cent of its value; 0 where there is none. */
  function share({ columns: c }, i) { return c.above[i] < 0 ? 0 : (unit * Math.min(999, (50 * (c.above[i] + c.below[i])) / Math.abs(c.value[i]))) || 0; }
  /** The areas of this level whose relative error is known, as a table. */
  function shares(k) {
    const { side, offset } = axis.levels[k], rows = data.ranges[k], [high, wide] = [0, 1].map((d) => Math.floor(((d ? axis.cols : axis.rows) - 1 + offset[d]) / side) + 1);
    return gather(rows.n, (i) => Math.floor(rows.index[0][i] / wide), (i) => rows.index[0][i] % wide, (i) => share(rows, i), () => 1, (i) => i, high, wide);
  }
  /** The interval of an area of this level, or null: what the table has of one cell, or the page of a coarser area. */
  function range(R, C, ref) {
    let rows = data, i = ref;
    if (state.level) {
      rows = data.ranges[state.level];
      if (!rows) return null;
      rows.at ??= new Map(Array.from(rows.index[0], (key, k) => [key, k]));
      i = rows.at.get(R * table().cols + C) ?? -1;
    }
    const c = rows.columns;
    return i < 0 || !c.above || c.above[i] < 0 ? null : [c.value[i] - c.below[i], c.value[i] + c.above[i], share(rows, i)];
  }

  function mask() {
    const found = view.mask.find((m) => m.axes.length === 1 && m.axes[0] === axis.name);
    if (!found) return null;
    const out = new Uint8Array(axis.rows * axis.cols);
    let at = 0, on = found.first;
    for (const run of found.runs) { if (on) out.fill(1, at, at + run); at += run; on = !on; }
    return out;
  }
  /** The rows that the boxes pick, as a table of the mesh, and its sums. */
  function build() {
    axis = view.axes[state.mesh];
    sea = mask();
    const place = data.index[state.mesh], value = amount[state.layer];
    const picked = state.pick.map((p, i) => [p, i]).filter(([p, i]) => p >= 0 && i !== state.mesh);
    let n = data.n, row = (k) => k;
    if (picked.length) {
      const keep = [];
      for (let i = 0; i < data.n; i++) if (picked.every(([p, a]) => data.index[a][i] === p)) keep.push(i);
      n = keep.length; row = (k) => keep[k];
    }
    tables = [gather(n, (k) => Math.floor(place[row(k)] / axis.cols), (k) => place[row(k)] % axis.cols, (k) => value(row(k)), () => 1, row, axis.rows, axis.cols)];
    aspect = axis.level ? 1.5 * Math.cos((((axis.origin[0] + axis.rows / 2) / GRID[axis.level][0]) * 2 / 3) * Math.PI / 180) : 1;
    cut();
  }
  const level = () => axis.levels[state.level];
  const table = () => (tables[state.level] ??= state.layer === "share" ? shares(state.level) : coarsen(tables[0], level().side, level().offset));
  function cut() {
    mips = [table()];
    top = { high: 0, low: 0 };
    for (const v of mips[0].val) { if (v > top.high) top.high = v; if (v < top.low) top.low = v; }
  }
  /** The table to draw: pairs of cells are joined until they are a pixel wide. */
  function fine() {
    let k = 0;
    while (box.s * level().side * 2 ** k * devicePixelRatio < 0.75 && 2 ** k < 4096) k++;
    for (let i = mips.length; i <= k; i++) mips.push(coarsen(mips[i - 1], 2, [0, 0]));
    return [mips[k], 2 ** k];
  }
  function fit() {
    const w = canvas.clientWidth, h = canvas.clientHeight;
    box.s = fitted = Math.min((w - 16) / (axis.cols * aspect), (h - 16) / axis.rows);
    box.x = axis.cols / 2 - w / 2 / (box.s * aspect);
    box.y = axis.rows / 2 - h / 2 / box.s;
  }
  // window coordinates: x east and y south, in own cells from the north-west corner
  const toX = (col) => (col - box.x) * box.s * aspect, toY = (y) => (y - box.y) * box.s;
  const toCell = (px, py) => [Math.floor(axis.rows - (py / box.s + box.y)), Math.floor(px / (box.s * aspect) + box.x)];

  const colours = { value: ramp("value"), share: ramp("share").reverse(), truth: ramp("value"), error: ramp("error") };
  function colour() {
    const lut = colours[state.layer].map(word), red = word(NEGATIVE);
    if (state.layer === "error") {
      const most = Math.max(top.high, -top.low) || 1, bend = state.log ? (v) => Math.log1p(v) / Math.log1p(most) : (v) => v / most;
      return (v) => lut[Math.round(127.5 + 127.5 * Math.sign(v) * Math.min(1, bend(Math.abs(v))))];
    }
    if (state.layer === "share") return (v) => lut[Math.min(255, Math.round((255 * v) / (100 * unit)))];
    const high = Math.max(top.high, unit), low = unit, span = Math.log(high / low) || 1;
    if (state.log) return (v) => (v < 0 ? red : lut[Math.max(0, Math.min(255, Math.round((255 * Math.log(v / low)) / span)))]);
    return (v) => (v < 0 ? red : lut[Math.min(255, Math.round((255 * v) / high))]);
  }

  function draw() {
    const ratio = devicePixelRatio, w = Math.round(canvas.clientWidth * ratio), h = Math.round(canvas.clientHeight * ratio);
    if (canvas.width !== w || canvas.height !== h) { canvas.width = w; canvas.height = h; }
    const image = pen.createImageData(w, h), pixels = new Uint32Array(image.data.buffer), of = colour();
    const edge = (f, v) => Math.round(f(v) * ratio);
    const left = Math.max(0, edge(toX, 0)), right = Math.min(w, edge(toX, axis.cols)), head = Math.max(0, edge(toY, 0)), foot = Math.min(h, edge(toY, axis.rows));
    pixels.fill(word([9, 13, 22]));
    for (let y = head; y < foot; y++) pixels.fill(word(GROUND), y * w + left, y * w + Math.max(left, right));
    if (sea) for (let y = head; y < foot; y++) {
      const row = axis.rows - 1 - Math.floor(y / ratio / box.s + box.y);
      if (row >= 0 && row < axis.rows) for (let x = left; x < right; x++) { const c = Math.floor(x / ratio / (box.s * aspect) + box.x); if (sea[row * axis.cols + c]) pixels[y * w + x] = word(SEA); }
    }
    const [drawn, join] = fine(), side = level().side * join, [or, oc] = level().offset;
    const lone = state.layer === "share" ? null : join * join, dark = word([9, 13, 22]);
    for (let r = 0; r < drawn.rows; r++) {
      const y0 = Math.max(head, edge(toY, axis.rows - ((r + 1) * side - or))), y1 = Math.min(foot, Math.max(edge(toY, axis.rows - (r * side - or)), y0 + 1));
      if (y1 <= head || y0 >= foot) continue;
      for (let j = drawn.first[r]; j < drawn.first[r + 1]; j++) {
        const x0 = Math.max(left, edge(toX, drawn.col[j] * side - oc)), x1 = Math.min(right, Math.max(edge(toX, (drawn.col[j] + 1) * side - oc), x0 + 1));
        if (x1 <= left || x0 >= right || drawn.val[j] === 0) continue;
        pixels.fill(of(drawn.val[j] / (lone ?? drawn.num[j])), y0 * w + x0, y0 * w + x1);
        for (let y = y0 + 1; y < y1; y++) pixels.copyWithin(y * w + x0, y0 * w + x0, y0 * w + x1);
        if (lone === null && drawn.val[j] / drawn.num[j] > POOR * unit) for (let y = y0; y < y1; y++) for (let x = x0; x < x1; x++) if ((x + y) % 5 < 2) pixels[y * w + x] = dark;
      }
    }
    pen.putImageData(image, 0, 0);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    overlay(join);
    state.drawn = { cells: drawn.n, join };
  }
  /** Words on the map that are read on any colour: light, with a dark edge. */
  function label(text, x, y) {
    pen.lineJoin = "round"; pen.lineWidth = 3; pen.strokeStyle = "#0b101be6"; pen.strokeText(text, x, y);
    pen.fillStyle = "#fff"; pen.fillText(text, x, y);
  }
  function overlay(join) {
    const w = canvas.clientWidth, h = canvas.clientHeight, font = getComputedStyle(document.body).fontFamily;
    if (axis.level) { // lines of the 80 km (zoomed in: 10 km) mesh, with their codes
      const own = GRID[axis.level][0], name = box.s * own / 8 > 90 && own >= 8 ? "10km" : "80km", step = own / GRID[name][0];
      pen.strokeStyle = box.s * step > 46 ? "#ffffff30" : "#ffffff12"; pen.fillStyle = "#ffffff9a"; pen.lineWidth = 1; pen.font = `11px ${font}`; pen.textAlign = "left";
      const from = [0, 1].map((d) => Math.ceil(axis.origin[d] / step)), past = [0, 1].map((d) => Math.floor((axis.origin[d] + [axis.rows, axis.cols][d]) / step));
      pen.beginPath();
      for (let k = from[1]; k <= past[1]; k++) { const x = Math.round(toX(k * step - axis.origin[1])) + .5; pen.moveTo(x, toY(0)); pen.lineTo(x, toY(axis.rows)); }
      for (let k = from[0]; k <= past[0]; k++) { const y = Math.round(toY(axis.rows - (k * step - axis.origin[0]))) + .5; pen.moveTo(toX(0), y); pen.lineTo(toX(axis.cols), y); }
      pen.stroke();
      if (box.s * step > 46) for (let r = from[0] - 1; r <= past[0]; r++) for (let c = from[1] - 1; c <= past[1]; c++) {
        const x0 = Math.max(0, toX(0), toX(c * step - axis.origin[1])), y0 = Math.max(0, toY(0), toY(axis.rows - ((r + 1) * step - axis.origin[0])));
        const x1 = Math.min(w, toX(axis.cols), toX((c + 1) * step - axis.origin[1])), y1 = Math.min(h, toY(axis.rows), toY(axis.rows - (r * step - axis.origin[0])));
        if (x1 - x0 > 50 && y1 - y0 > 18) label(encode(name, r, c), x0 + 4, y0 + 13);
      }
    }
    if (state.cursor) {
      const s = level().side, [or, oc] = level().offset, R = Math.floor((state.cursor[0] + or) / s), C = Math.floor((state.cursor[1] + oc) / s);
      const x = toX(C * s - oc), y = toY(axis.rows - ((R + 1) * s - or)), a = s * box.s * aspect, b = s * box.s;
      const grow = Math.max(0, (9 - Math.min(a, b)) / 2);
      pen.lineWidth = 2; pen.strokeStyle = "#000"; pen.strokeRect(x - grow - 1.5, y - grow - 1.5, a + 2 * grow + 3, b + 2 * grow + 3);
      pen.strokeStyle = "#fff"; pen.strokeRect(x - grow, y - grow, a + 2 * grow, b + 2 * grow);
    }
    legend(w, h, font, join);
    if (view.secret) {
      pen.save(); pen.translate(w / 2, h / 2); pen.rotate(-0.35); pen.textAlign = "center"; pen.fillStyle = "#ff5a4f70"; pen.font = `700 ${Math.max(26, w / 17)}px ${font}`;
      pen.fillText("CONFIDENTIAL 部外秘", 0, 0); pen.restore();
    }
  }
  function legend(w, h, font, join) {
    const below = state.layer !== "error" && state.layer !== "share" && top.low < 0, room = below ? 106 : 30;
    const wide = Math.min(260, w - 12 - room), x = 14, y = h - 40, lut = colours[state.layer], name = areaName();
    pen.fillStyle = "#0b101bdd"; pen.fillRect(x - 8, y - 28, wide + room, 62);
    for (let i = 0; i < wide; i++) { pen.fillStyle = `rgb(${lut[Math.round((255 * i) / (wide - 1))]})`; pen.fillRect(x + i, y - 4, 1, 11); }
    pen.fillStyle = "#fff"; pen.font = `12px ${font}`; pen.textAlign = "left";
    const what = { value: t().unit(view.unit), truth: `${t().true_}${t().is}${t().unit(view.unit)}`, error: t().off }[state.layer];
    pen.fillText((state.layer === "share" ? t().per_cent(view.confidence) : t().per(what, name)) + (join > 1 ? ` (${t().zoomed})` : ""), x, y - 12, wide + 14);
    pen.font = `11px ${font}`; pen.textAlign = "center";
    const error = state.layer === "error", high = Math.max(top.high, unit) / unit;
    if (error) {
      const most = Math.max(top.high, -top.low) / unit || 1;
      for (const v of [-most, 0, most]) pen.fillText(number(v, unit), Math.max(x + 20, Math.min(x + wide - 10, x + wide * (0.5 + v / most / 2))), y + 20);
    } else if (state.layer === "share") {
      for (const v of [0, 25, 50, 75, 100]) pen.fillText(`${v}`, x + Math.max(4, (wide * v) / 100 - 4), y + 20);
      pen.textAlign = "left"; label(t().hatched(POOR), x - 8, y - 34);
    } else for (const v of ticks(1, high, state.log)) {
      const at = x + wide * (state.log ? Math.log(v) / (Math.log(high) || 1) : v / high);
      if (at <= x + wide + 4) pen.fillText(v >= 1e4 ? Intl.NumberFormat(language, { notation: "compact" }).format(v) : number(v, unit), Math.max(at, x + 6), y + 20);
    }
    if (below) { pen.fillStyle = `rgb(${NEGATIVE})`; pen.fillRect(x + wide + 30, y - 4, 11, 11); pen.fillStyle = "#fff"; pen.textAlign = "left"; pen.fillText(t().negative, x + wide + 46, y + 6); }
    canvas.setAttribute("aria-label", `${axis.level ? t().map : t().grid}. ${t().per(t().unit(view.unit), name)}: ${number(top.low / unit, unit)} ${t().to} ${number(top.high / unit, unit)}`);
  }
  const areaName = () => (axis.level ? t().cells(level().name) : t().side(level().side));

  function read() {
    const out = $("readout");
    $("advice").textContent = "";
    if (!state.cursor) { out.textContent = t().start; return; }
    const [row, col] = state.cursor, s = level().side, [or, oc] = level().offset;
    if (row < 0 || col < 0 || row >= axis.rows || col >= axis.cols) { out.textContent = t().outside; return; }
    const R = Math.floor((row + or) / s), C = Math.floor((col + oc) / s), at = find(table(), R, C), ref = at < 0 ? -1 : table().ref[at];
    const code = axis.level ? encode(level().name, Math.floor((row + axis.origin[0]) / s), Math.floor((col + axis.origin[1]) / s)) : "";
    const where = [areaName() + (code ? ` ${code}` : ""), `${t().row} ${row}${t().and}${t().col} ${col}`];
    if (axis.level) { const per = GRID[axis.level][0]; where.push(`${(((row + .5 + axis.origin[0]) * 2) / 3 / per).toFixed(4)}° N ${((col + .5 + axis.origin[1]) / per + 100).toFixed(4)}° E`); }
    if ((R * s - or < 0 || C * s - oc < 0 || (R + 1) * s - or > axis.rows || (C + 1) * s - oc > axis.cols) && s > 1) where.push(t().cut);
    const items = []; // each an element and whether it is a remark on the one before
    const put = (name, id, text) => items.push([element("span", { className: "item" }, name + t().is, element("b", { id, textContent: text })), false]);
    const say = (text) => items.push([element("span", { className: "item", textContent: text }), text.startsWith("(")]);
    const alone = s === 1 && at >= 0 && ref >= 0, known = alone || (s > 1 && at >= 0 && (state.layer === "value" || state.layer === "share")) ? range(R, C, ref) : null;
    if (known) {
      const off = known[2] / unit, verdict = off <= GOOD ? "good" : off <= POOR ? "care" : "poor";
      $("advice").textContent = t().advice(number(known[0] / unit, unit), number(known[1] / unit, unit), t().unit(view.unit), view.confidence) + t()[verdict](number(Math.ceil(off)));
    }
    const released = state.layer === "value" ? (at < 0 ? 0 : table().val[at]) : alone ? columns.value[ref] : null;
    if (state.layer !== "value" && !alone) put(t()[state.layer], "read-layer", number((at < 0 ? 0 : table().val[at]) / unit, unit));
    if (released !== null) put(t().released, "read-value", number(released / unit, unit));
    if (sea && s === 1 && sea[row * axis.cols + col]) say(t().sea);
    else if (at < 0) say(`(${t().none})`);
    else if (known) put(t().interval(view.confidence), "read-interval", `${number(known[0] / unit, unit)} ${t().to} ${number(known[1] / unit, unit)}`);
    else if (has) say(`(${t().no_interval})`);
    if (alone && internal) { put(t().true_, "read-truth", number(columns.truth[ref] / unit, unit)); put(t().off, "read-error", number((columns.value[ref] - columns.truth[ref]) / unit, unit)); }
    // copied and read aloud as text: a mark after each item, so that "121" and "95 % interval" are never one number
    items.forEach(([item], i) => { if (i + 1 < items.length && !items[i + 1][1]) item.append(t().then); });
    const place = element("span", { className: "where", id: "read-where", textContent: where.join(" · ") + t().is.trim() });
    out.replaceChildren(place, ...items.flatMap(([item]) => [t().gap, item]));
  }
  function largest() {
    const from = table(), order = []; // [value, row, col], largest first
    for (let r = 0; r < from.rows; r++) for (let j = from.first[r]; j < from.first[r + 1]; j++) {
      if (order.length === 20 && from.val[j] <= order[19][0]) continue;
      const place = order.findIndex((item) => item[0] < from.val[j]);
      order.splice(place < 0 ? order.length : place, 0, [from.val[j], r, from.col[j]]);
      order.length = Math.min(order.length, 20);
    }
    $("largest-title").textContent = t().largest(order.length, areaName());
    const s = level().side, [or, oc] = level().offset;
    $("largest").replaceChildren(
      element("thead", {}, element("tr", {}, element("th", { scope: "col", textContent: t().place }), element("th", { scope: "col", className: "n", textContent: t()[state.layer] }))),
      element("tbody", {}, ...order.map(([value, R, C]) => {
        const row = Math.max(0, R * s - or), col = Math.max(0, C * s - oc);
        const name = axis.level ? encode(level().name, Math.floor((row + axis.origin[0]) / s), Math.floor((col + axis.origin[1]) / s)) : `${t().row} ${row}, ${t().col} ${col}`;
        const link = element("button", { type: "button", className: "link", textContent: name });
        link.addEventListener("click", () => { jump(row, col); canvas.scrollIntoView({ block: "nearest" }); canvas.focus(); });
        return element("tr", {}, element("td", {}, link), element("td", { className: "n", textContent: number(value / unit, unit) }));
      })));
  }
  let waiting = false;
  const soon = () => { if (!waiting) { waiting = true; requestAnimationFrame(() => { waiting = false; draw(); }); } };
  const renew = () => { soon(); read(); largest(); };
  function zoom(factor, px = canvas.clientWidth / 2, py = canvas.clientHeight / 2) {
    const x = px / (box.s * aspect) + box.x, y = py / box.s + box.y;
    box.s = Math.min(Math.max(box.s * factor, fitted * 0.8), 120);
    box.x = x - px / (box.s * aspect); box.y = y - py / box.s;
    soon();
  }
  function jump(row, col) {
    state.cursor = [row, col];
    if (box.s < 6) box.s = 6;
    box.x = col + .5 - canvas.clientWidth / 2 / (box.s * aspect); box.y = axis.rows - row - .5 - canvas.clientHeight / 2 / box.s;
    soon(); read();
  }
  function point(px, py) { const [row, col] = toCell(px, py); state.cursor = [row, col]; soon(); read(); }
  function reveal() { // keep the cursor in sight
    const x = toX(state.cursor[1] + .5), y = toY(axis.rows - state.cursor[0] - .5), w = canvas.clientWidth, h = canvas.clientHeight;
    if (x < 20) box.x -= (20 - x) / (box.s * aspect); else if (x > w - 20) box.x += (x - w + 20) / (box.s * aspect);
    if (y < 20) box.y -= (20 - y) / box.s; else if (y > h - 20) box.y += (y - h + 20) / box.s;
  }

  // fingers and mouse: one moves, two zoom, a short touch reads
  const down = new Map();
  let moved = 0;
  const at = (event) => { const r = canvas.getBoundingClientRect(); return [event.clientX - r.left, event.clientY - r.top]; };
  canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); down.set(event.pointerId, at(event)); moved = down.size > 1 ? 99 : 0; });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = at(event), before = down.get(event.pointerId);
    if (!before) { point(x, y); return; }
    if (down.size === 1) { box.x -= (x - before[0]) / (box.s * aspect); box.y -= (y - before[1]) / box.s; }
    else {
      const [other] = [...down].filter(([id]) => id !== event.pointerId).map(([, p]) => p);
      const far = (p) => Math.hypot(p[0] - other[0], p[1] - other[1]) || 1;
      zoom(far([x, y]) / far(before), other[0], other[1]);
    }
    moved += Math.hypot(x - before[0], y - before[1]);
    down.set(event.pointerId, [x, y]);
    soon();
  });
  const up = (event) => { if (down.delete(event.pointerId) && moved < 6 && event.type === "pointerup") point(...at(event)); };
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointercancel", up);
  // a wheel over the map scrolls the page, until Ctrl is held or the map was clicked
  canvas.addEventListener("wheel", (event) => { if (!event.ctrlKey && document.activeElement !== canvas) return; event.preventDefault(); zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0016)), ...at(event)); }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const step = level().side * (event.shiftKey ? 10 : 1);
    const moves = { ArrowUp: [step, 0], ArrowDown: [-step, 0], ArrowLeft: [0, -step], ArrowRight: [0, step] };
    if (moves[event.key]) {
      const [row, col] = state.cursor ?? [Math.floor(axis.rows / 2), Math.floor(axis.cols / 2)];
      state.cursor = [Math.min(Math.max(row + moves[event.key][0], 0), axis.rows - 1), Math.min(Math.max(col + moves[event.key][1], 0), axis.cols - 1)];
      reveal(); soon(); read();
    } else if (event.key === "+" || event.key === "=" || event.key === "-") {
      const [px, py] = state.cursor ? [toX(state.cursor[1] + .5), toY(axis.rows - state.cursor[0] - .5)] : [undefined, undefined];
      zoom(event.key === "-" ? 1 / 1.5 : 1.5, px, py);
    } else if (event.key === "0" || event.key === "Home") { fit(); soon(); }
    else if (event.key === "Escape") canvas.blur();
    else if (event.key === "PageUp" || event.key === "PageDown") {
      setLevel(Math.min(Math.max(state.level + (event.key === "PageUp" ? 1 : -1), 0), axis.levels.length - 1));
    } else return;
    event.preventDefault();
  });
  $("in").addEventListener("click", () => zoom(1.6));
  $("out").addEventListener("click", () => zoom(1 / 1.6));
  $("all").addEventListener("click", () => { fit(); soon(); });
  shown.push(() => { for (const [id, name] of [["in", "in"], ["out", "out"], ["all", "fit"]]) { $(id).setAttribute("aria-label", t()[name]); $(id).title = t()[name]; } });

  // the boxes above the map
  const tools = $("tools");
  axis = view.axes[state.mesh];
  if (meshes.length > 1) select(tools, "mesh", () => t().map, () => meshes.map((i) => [String(i), view.axes[i].name]), (v) => { state.mesh = Number(v); state.level = 0; state.cursor = null; build(); fit(); speak(language); });
  function setLevel(k) { if (state.layer === "share" && !data.ranges[k]) k = 0; state.level = k; levelBox.value = String(k); cut(); renew(); }
  const levelBox = select(tools, "level", () => t().level, () => axis.levels.map((l, i) => [String(i), axis.level ? t().cells(l.name) : t().side(l.side)]), (v) => setLevel(Number(v)));
  const layers = ["value", ...(has ? ["share"] : []), ...(internal ? ["error", "truth"] : [])];
  if (layers.length > 1) select(tools, "layer", () => t().show, () => layers.map((name) => [name, t()[name]]), (v) => { state.layer = v; if (v === "share" && !data.ranges[state.level]) { state.level = 0; levelBox.value = "0"; } build(); renew(); });
  select(tools, "scale", () => t().scale, () => [["log", t().log], ["linear", t().linear]], (v) => { state.log = v === "log"; soon(); });
  view.axes.forEach((other, i) => {
    if (i !== meshes[0] || meshes.length > 1) choose(tools, other, (v) => { state.pick[i] = v; build(); renew(); });
  });
  if (axis.level) {
    const goBox = element("input", { id: "go", size: 13, inputMode: "numeric", autocomplete: "off" }), words = element("span");
    tools.append(element("label", {}, words, goBox));
    shown.push(() => { words.textContent = t().go; });
    goBox.addEventListener("change", () => {
      const code = goBox.value.replace(/[-\s]/g, "");
      const hit = axis.levels.map((l, k) => [decode(l.name, code), l, k]).find(([rc]) => rc);
      const row = hit && hit[0][0] * hit[1].side - axis.origin[0], col = hit && hit[0][1] * hit[1].side - axis.origin[1];
      const good = hit && row > -hit[1].side && col > -hit[1].side && row < axis.rows && col < axis.cols;
      goBox.setAttribute("aria-invalid", String(!good));
      if (!good) { $("readout").textContent = t().find; return; }
      setLevel(hit[2]);
      jump(Math.max(0, row), Math.max(0, col));
    });
  }
  build();
  fit();
  shown.push(renew);
  new ResizeObserver(() => { const whole = Math.abs(box.s - fitted) < 1e-9; if (whole) fit(); soon(); }).observe(canvas);
  canvas.viewer = { state, box, toX, toY, get axis() { return axis; }, get top() { return top; } }; // for the tests, and the curious
}

// ---- bars ----

function showBars(view, data) {
  const tools = $("tools"), columns = data.columns, unit = view.data.unit, state = { along: 0, pick: view.axes.map(() => -1) }, MOST = 500;
  const name = (axis, i) => (axis.labels ? axis.labels[i] : String(i));
  function draw() {
    const axis = view.axes[state.along], place = data.index[state.along], sums = new Float64Array(axis.size), many = new Uint32Array(axis.size), ref = new Float64Array(axis.size).fill(-1);
    for (let i = 0; i < data.n; i++) {
      if (state.pick.some((p, a) => a !== state.along && p >= 0 && data.index[a][i] !== p)) continue;
      sums[place[i]] += columns.value[i]; many[place[i]] += 1; ref[place[i]] = i;
    }
    const most = sums.reduce((a, v) => Math.max(a, Math.abs(v)), unit), shownRows = Math.min(axis.size, MOST), rows = [];
    const ends = (i) => (many[i] === 1 && "above" in columns && columns.above[ref[i]] >= 0 ? [sums[i] - columns.below[ref[i]], sums[i] + columns.above[ref[i]]] : null);
    const reach = Math.max(most, ...Array.from({ length: shownRows }, (_, i) => ends(i)?.[1] ?? 0));
    for (let i = 0; i < shownRows; i++) {
      const bar = element("div", { className: sums[i] < 0 ? "neg" : "" }), limits = ends(i);
      bar.style.width = `${(100 * Math.abs(sums[i])) / reach}%`;
      const cell = element("td", { className: "bar-cell" }, bar);
      if (limits) {
        const line = element("span"), own = Math.abs(sums[i]) || 1;
        line.style.left = `${(100 * limits[0]) / own}%`; line.style.width = `${(100 * (limits[1] - limits[0])) / own}%`;
        if (sums[i] > 0) bar.append(line);
      }
      const row = element("tr", {}, element("th", { scope: "row", textContent: name(axis, i) }), cell, element("td", { className: "n value", textContent: number(sums[i] / unit, unit) }));
      if ("above" in columns) row.append(element("td", { className: "n", textContent: limits ? `${number(limits[0] / unit, unit)} ${t().to} ${number(limits[1] / unit, unit)}` : "–" }));
      rows.push(row);
    }
    const head = element("tr", {}, element("th", { scope: "col", textContent: axis.name }), element("th", { scope: "col", textContent: t().unit(view.unit) }), element("th", { scope: "col", className: "n", textContent: t().count }));
    if ("above" in columns) head.append(element("th", { scope: "col", className: "n", textContent: t().interval(view.confidence) }));
    const scroll = element("div", { className: "scroll", tabIndex: 0, role: "group" }, element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows)));
    scroll.setAttribute("aria-label", axis.name);
    $("bars").replaceChildren(scroll, ...(axis.size > MOST ? [element("p", { textContent: t().more(number(axis.size - MOST)) })] : []));
  }
  if (view.axes.length > 1) {
    select(tools, "along", () => t().along, () => view.axes.map((axis, i) => [String(i), axis.name]), (v) => { state.along = Number(v); speak(language); });
    const boxes = view.axes.map((axis, i) => choose(tools, axis, (v) => { state.pick[i] = v; draw(); }));
    shown.push(() => boxes.forEach((box, i) => { box.parentElement.hidden = i === state.along; }));
  }
  $("largest-box").remove();
  shown.push(draw);
}

for (const button of document.querySelectorAll("[data-language]")) button.addEventListener("click", () => speak(button.dataset.language));
const opens = document.body.dataset.opens; // the language of its publisher, for readers of neither
const wanted = location.hash === "#ja" ? "ja" : location.hash === "#en" ? "en" : [(navigator.language ?? "").slice(0, 2), opens].find((name) => name in WORDS) ?? "en";
if ($("view")) {
  const view = told("view");
  if (view.estimate) for (const [words, name] of [[WORDS.en, "estimate"], [WORDS.ja, "推定値"]]) words.value = words.count = words.released = name;
  const texts = $("rows").textContent.split("."), ranges = view.ranges ?? []; // the table, then coarser levels with their intervals
  Promise.all([view.data, ...ranges.map(([, about]) => about)].map((about, i) => unpack(about, texts[i]))).then(([data, ...more]) => {
    data.ranges = Object.fromEntries(more.map((rows, i) => [ranges[i][0], rows]));
    (view.axes.some((axis) => axis.kind === "mesh") ? showMap : showBars)(view, data);
    speak(wanted);
    document.body.dataset.ready = "yes";
  });
} else {
  speak(wanted);
  document.body.dataset.ready = "yes";
}
