// ---- the rows ----

const PLANES = ["value", "above", "truth"]; // all lowest bytes, then all next ones; the other streams are varints
const DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;,=>?@^_`{|}~";
const DIGIT = Uint8Array.from({ length: 128 }, (_, code) => Math.max(0, DIGITS.indexOf(String.fromCharCode(code))));
/** Bytes of base-85 text: five letters are four bytes, the first the highest. */
async function inflate(text) {
  const bytes = new Uint8Array(Math.floor((text.length * 4) / 5)), group = new DataView(new ArrayBuffer(4));
  for (let i = 0, at = 0; i < text.length; i += 5) {
    let v = 0;
    for (let k = i; k < i + 5; k++) v = v * 85 + (k < text.length ? DIGIT[text.charCodeAt(k)] : 84);
    group.setUint32(0, v);
    for (let k = 0; k < 4 && at < bytes.length; k++) bytes[at++] = group.getUint8(k);
  }
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
/** LEB128 varints of some streams, by name; signed ones are zigzagged. */
async function numbers(about, text, signed) {
  const data = await inflate(text), out = {};
  let at = 0;
  for (const [name, length] of about.streams) {
    const end = at + length, found = [];
    if (name === "names") { out[name] = new TextDecoder().decode(data.subarray(at, end)); at = end; continue; }
    while (at < end) {
      let v = 0, factor = 1, byte;
      do { byte = data[at++]; v += (byte & 127) * factor; factor *= 128; } while (byte > 127);
      found.push(signed.includes(name) ? (v % 2 ? -(v + 1) / 2 : v / 2) : v);
    }
    out[name] = found;
  }
  return out;
}
/** Indices in the order of values, in which intervals are kept: equal ones in their own order. */
function byValue(value) {
  let low = Infinity, high = -Infinity, order = Uint32Array.from(value, (_, i) => i);
  for (const v of value) { low = Math.min(low, v); high = Math.max(high, v); }
  for (let scale = 1; scale <= high - low; scale *= 65536) { // by two bytes at a time
    const digit = (i) => Math.floor((value[i] - low) / scale) % 65536, next = new Uint32Array(65537), out = new Uint32Array(order.length);
    for (const i of order) next[digit(i) + 1]++;
    for (let k = 1; k < 65537; k++) next[k] += next[k - 1];
    for (const i of order) out[next[digit(i)]++] = i;
    order = out;
  }
  return order;
}
/** What `pack.py` made, undone: index of each row along every axis, whole-number columns. `known` are index and values
 *  where they were left out. */
async function unpack(about, text, known = null) {
  const data = await inflate(text);
  const out = { n: about.rows, index: known ? known.index : [], columns: known ? { value: known.value } : {} };
  let at = 0, order = null;
  for (const [name, length] of about.streams) {
    const axis = name.startsWith("axis"), gaps = axis && !out.index.length, numbers = new Float64Array(about.rows);
    const planes = PLANES.includes(name), limits = name === "above" || name === "width";
    if (planes) for (const end = at + length; at < end; ) { const place = 256 ** ((at - end + length) / about.rows); for (let i = 0; i < about.rows; i++) numbers[i] += data[at++] * place; }
    let before = 0;
    for (let i = 0; i < about.rows; i++) {
      let number = numbers[i], factor = 1, byte;
      if (!planes) do { byte = data[at++]; number += (byte & 127) * factor; factor *= 128; } while (byte > 127);
      if (gaps) numbers[i] = before += number;
      else numbers[i] = axis ? number : number % 2 ? -(number + 1) / 2 : number / 2;
    }
    if (axis) { out.index.push(numbers); continue; }
    if (limits) { order ??= byValue(out.columns.value); const own = new Float64Array(about.rows); for (let i = 0; i < about.rows; i++) own[order[i]] = numbers[i]; out.columns[name] = own; }
    else out.columns[name] = name === "value" ? numbers.map((v) => v * about.grain) : numbers;
  }
  const { value, above, width } = out.columns, step = about.step; // an interval from 0 on has width 0, any other its own and 1
  if (width) {
    for (let i = 0; i < about.rows; i++) if (above[i] >= 0) above[i] = (above[i] + Math.floor(value[i] / step)) * step - value[i];
    out.columns.below = width.map((w, i) => (above[i] < 0 ? -1 : w === 0 ? value[i] : (w - 1) * step - above[i]));
  }
  return out;
}
/** The areas of one kind whose sums are not 0, and these sums, as `sums.py` has them. */
function addUp(axes, data, key) {
  const kept = axes.map((_, a) => a).filter((a) => key[a] >= 0), sizes = kept.map((a) => { const axis = axes[a], l = key[a] && axis.levels[key[a]]; return !l ? axis.size : axis.kind === "mesh" ? l.high * l.wide : l.spans.length; });
  const all = sizes.reduce((a, b) => a * b, 1), sums = all > 4e6 ? new Map() : new Float64Array(all);
  for (let i = 0; i < data.n; i++) {
    let at = 0;
    kept.forEach((a, d) => { at = at * sizes[d] + areaOf(axes[a], data.index[a][i], key[a]); });
    if (all > 4e6) sums.set(at, (sums.get(at) ?? 0) + data.columns.value[i]); else sums[at] += data.columns.value[i];
  }
  const found = (all > 4e6 ? [...sums.keys()].sort((a, b) => a - b).map((k) => [k, sums.get(k)]) : Array.from(sums, (v, k) => [k, v])).filter(([, v]) => v);
  const index = kept.map(() => new Float64Array(found.length));
  found.forEach(([at], i) => { for (let d = kept.length - 1; d >= 0; d--) { index[d][i] = at % sizes[d]; at = Math.floor(at / sizes[d]); } });
  return { index, value: Float64Array.from(found, ([, v]) => v) };
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

