// The device's side of kasuri.local in one ES module: no dependency, no request of its own, no floating-point chance.
// Random words come from crypto.getRandomValues only, many at a time. A report is a function of the round description,
// the true category or number and the words, the same as in Python (kasuri.local.randomizer, kasuri.local.grid), byte
// for byte.

export const VERSION = 1;
const HEX = /^[0-9a-f]*$/;

export function fromHex(text) {
  if (typeof text !== "string" || text.length % 2 || !HEX.test(text)) throw new Error("hexadecimal digits expected");
  return Uint8Array.from({ length: text.length / 2 }, (_, i) => parseInt(text.slice(2 * i, 2 * i + 2), 16));
}

export const toHex = (bytes) => Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");

/** A source of random words of `bits` bits, fetched from the browser 4 KiB at a time and wiped as they are used. */
export function randomWords(bits) {
  const pool = new Uint32Array(1024);
  let at = pool.length;
  return () => {
    if (at === pool.length) {
      crypto.getRandomValues(pool);
      at = 0;
    }
    const word = pool[at] >>> (32 - bits);
    pool[at++] = 0;
    return word;
  };
}

/** Cells of one axis: the one source of its size and of its labels. */
const cellsOf = (axis) => (axis.shape ? axis.shape[0] * axis.shape[1] : (labelsOf(axis)?.length ?? axis.size));

/** Names of the cells of one axis, null where they have none; of regions, the places that have none below them. */
function labelsOf(axis) {
  if (axis.kind !== "regions") return axis.labels ?? null;
  const above = new Set(axis.parents);
  return axis.codes.filter((code) => !above.has(code));
}

/** Number of categories, "elsewhere" (the last) included. */
export function size(randomizer) {
  return randomizer.domain.axes.reduce((n, axis) => n * cellsOf(axis), 1) + (randomizer.elsewhere ? 1 : 0);
}

/** Names of the categories: labels where there are any, else cell numbers. */
export function labels(randomizer) {
  const { axes } = randomizer.domain;
  const d = size(randomizer) - (randomizer.elsewhere ? 1 : 0);
  const own = (axes.length === 1 && labelsOf(axes[0])) || Array.from({ length: d }, (_, i) => String(i));
  return randomizer.elsewhere ? [...own, "elsewhere"] : own;
}

const isNumeral = (label) => label.trim() !== "" && Number.isFinite(Number(label));

/**
 * The category of a label, a number, or null (elsewhere); a value outside the domain is refused. Where a label is a
 * numeral, a number is looked up as a label; elsewhere it is the number of a category.
 */
export function categoryOf(randomizer, value) {
  const d = size(randomizer);
  const named = labels(randomizer);
  let found = -1;
  if (value === null) found = randomizer.elsewhere ? d - 1 : -1;
  else if (typeof value === "string") found = named.indexOf(value);
  else if (Number.isInteger(value)) {
    const own = randomizer.domain.axes.length === 1 ? labelsOf(randomizer.domain.axes[0]) : null;
    found = own?.some(isNumeral) ? named.indexOf(String(value)) : value;
  }
  if (!(found >= 0 && found < d)) {
    throw new Error(`the value is not one of the ${d} categories; a place outside the domain is "elsewhere"`);
  }
  return found;
}

const bytesFor = (count) => (count <= 1 << 8 ? 1 : count <= 1 << 16 ? 2 : 4);

function little(number, width) {
  const out = new Uint8Array(width);
  for (let i = 0; i < width; i++, number = Math.floor(number / 256)) out[i] = number % 256;
  return out;
}

function mix(x) {
  x ^= x >>> 16;
  x = Math.imul(x, 0x85ebca6b);
  x ^= x >>> 13;
  x = Math.imul(x, 0xc2b2ae35);
  return (x ^ (x >>> 16)) >>> 0;
}

/** Hash number `seed` of a category, 0 .. buckets - 1. */
export function bucket(seed, category, buckets) {
  const scattered = mix((Math.imul(category, 0x9e3779b9) + 1) >>> 0);
  return Number((BigInt(mix((seed ^ scattered) >>> 0)) * BigInt(buckets)) >> 32n);
}

/** k-ary response by one word: the first `keep` words stay, `other` words go to each further category. */
function respond(category, u, keep, other) {
  if (u < keep) return category;
  const y = Math.floor((u - keep) / other);
  return y + (y >= category ? 1 : 0);
}

function unaryBits(d, truth, r, word) {
  const out = new Uint8Array(Math.ceil(d / 8));
  for (let x = 0; x < d; x++) if (word() < (x === truth ? r.p : r.q)) out[x >> 3] |= 1 << (x & 7);
  return out;
}

function concat(...parts) {
  const out = new Uint8Array(parts.reduce((n, part) => n + part.length, 0));
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}

const parity = (x) => {
  let ones = 0;
  for (; x; x &= x - 1) ones ^= 1;
  return ones;
};

/** A freshly disturbed copy of a permanent report: every bit by a word of its own. */
function instant(d, permanent, r, word) {
  const out = new Uint8Array(permanent.length);
  for (let x = 0; x < d; x++) {
    const one = (permanent[x >> 3] >> (x & 7)) & 1;
    if (word() < (one ? r.instant_p : r.instant_q)) out[x >> 3] |= 1 << (x & 7);
  }
  return out;
}

/** Whether a randomizer is one of numbers. */
export const isNumeric = (r) => Object.hasOwn(NUMBERS, r.kind);

/** Outputs of a randomizer of numbers. */
function outputs(r) {
  if (r.kind === "two_point") return 2;
  return r.kind === "hybrid" ? outputs(r.wide) + 2 : r.steps * r.shift + r.window;
}

/** A double as the rational that it is. */
function exactly(x) {
  if (typeof x !== "number" || !Number.isFinite(x)) throw new Error("the value is not a number");
  let below = 1n;
  for (; !Number.isInteger(x); x *= 2) below *= 2n;
  return [BigInt(x), below];
}

/** Where a number lies on the grid: a rational from 0 to steps; a number outside the bounds is refused. */
export function gridPlace(r, x) {
  const [[a, b], [l, m], [h, k]] = [exactly(x), rational(r.low, "low"), rational(r.high, "high")];
  const above = (a * m - l * b) * k * BigInt(r.steps); // (x - low) steps / (high - low), over b m k
  const below = (h * m - l * k) * b;
  if (above < 0n || above > below * BigInt(r.steps)) throw new Error("the number lies outside the bounds: clip it on the device");
  return [above, below];
}

/** Row g of the matrix of whole numbers, drawn from by one word: the number of its running sums up to the word. */
function choose(r, g, word) {
  const N = 2 ** r.bits;
  if (r.kind === "hybrid") return word() < r.mix ? choose(r.wide, g, word) : outputs(r.wide) + choose(r.narrow, g, word);
  if (r.kind === "two_point") return word() >= N / 2 - (2 * g - r.steps) * r.slope ? 1 : 0;
  const total = outputs(r);
  const first = g * r.shift;
  const spare = N - r.window * r.inside - (total - r.window) * r.outside;
  const u = word();
  let sum = 0;
  for (let y = 0; ; y++) {
    sum += y >= first && y < first + r.window ? r.inside : r.outside;
    if (y === Math.floor(total / 2)) sum += spare;
    if (u < sum) return y;
  }
}

/** One report of a number: a word rounds it to the grid, further ones choose the output. */
function numberReport(r, x, word) {
  const [above, below] = gridPlace(r, x);
  const floor = above / below;
  const part = ((above - floor * below) * BigInt(2 ** r.bits)) / below;
  const g = Number(floor) + (word() < Number(part) ? 1 : 0);
  return little(choose(r, g, word), bytesFor(outputs(r)));
}

/** One report of a category, or of a number, from random words: the bytes a device may send. */
export function report(randomizer, category, word) {
  const r = randomizer;
  if (isNumeric(r)) return numberReport(r, category, word);
  const d = size(r);
  if (!(Number.isInteger(category) && category >= 0 && category < d)) throw new Error("no such category");
  switch (r.kind) {
    case "unary":
    case "oue":
      return unaryBits(d, category, r, word);
    case "grr":
      return little(respond(category, word(), r.p, r.q), bytesFor(d));
    case "olh": {
      const seed = word();
      const sent = respond(bucket(seed, category, r.buckets), word(), r.p, r.q);
      return concat(little(seed, 4), little(sent, bytesFor(r.buckets)));
    }
    case "hadamard": {
      const order = 32 - Math.clz32(d);
      const j = Math.floor(word() / 2 ** (r.bits - order));
      const sign = parity(j & (category + 1)) ^ (word() >= r.p ? 1 : 0);
      return little(2 * j + sign, bytesFor(2 * 2 ** order));
    }
    case "count_mean_sketch": {
      const j = Math.floor((word() * r.hashes) / 2 ** r.bits);
      return concat(little(j, 2), unaryBits(r.buckets, bucket(j, category, r.buckets), r, word));
    }
    case "memoised":
      return instant(d, unaryBits(d, category, r, word), r, word);
    default:
      throw new Error("this client does not know the randomizer");
  }
}

/** For each category whether a report agrees with it: all that the report says. */
export function supports(randomizer, sent) {
  const r = randomizer;
  const bit = (i, from = 0) => Boolean((sent[from + (i >> 3)] >> (i & 7)) & 1);
  const number = (from, width) => sent.slice(from, from + width).reduceRight((n, b) => 256 * n + b, 0);
  const agrees = {
    unary: (x) => bit(x),
    oue: (x) => bit(x),
    memoised: (x) => bit(x),
    grr: (x) => number(0, sent.length) === x,
    olh: (x) => bucket(number(0, 4), x, r.buckets) === number(4, sent.length - 4),
    hadamard: (x) => (parity((number(0, sent.length) >>> 1) & (x + 1)) ^ (number(0, 1) & 1)) === 0,
    count_mean_sketch: (x) => bit(bucket(number(0, 2), x, r.buckets), 2),
  }[r.kind];
  return Array.from({ length: size(r) }, (_, x) => agrees(x));
}

/** ln of the worst ratio of the probabilities in the description: what one report really loses. */
export function loss(r) {
  const N = 2 ** r.bits;
  const d = size(r);
  const valid =
    [r.p, r.q, r.bits].every(Number.isInteger) && 0 < r.q && r.q <= r.p && r.p < N && r.bits >= 1 && r.bits <= 32;
  const others = { grr: d - 1, olh: (r.buckets ?? 0) - 1, hadamard: 1 }[r.kind];
  if (!valid || (others !== undefined && r.p + others * r.q !== N)) throw new Error("not a randomizer's probabilities");
  if (others !== undefined) return Math.log(r.p / r.q);
  return Math.log((r.p / r.q) * ((N - r.q) / (N - r.p)));
}

/** A rational [numerator, denominator] from its exact text, as Python writes it. */
function rational(text, field) {
  const parts = /^(-?)(\d{1,150})(?:\.(\d{1,150})|\/(\d{1,150}))?$/.exec(typeof text === "string" ? text : "");
  if (!parts) throw new Error(`field ${field}: an exact decimal`);
  const [, minus, whole, decimals = "", below] = parts;
  const found = [BigInt(minus + whole + decimals), below === undefined ? 10n ** BigInt(decimals.length) : BigInt(below)];
  if (found[1] <= 0n) throw new Error(`field ${field}: an exact decimal`);
  return found;
}

/** An epsilon as a rational and as a number: greater than 0. */
function epsilonOf(text) {
  const epsilon = rational(text, "epsilon");
  const stated = Number(epsilon[0]) / Number(epsilon[1]);
  if (!(Number.isFinite(stated) && stated > 0)) throw new Error("field epsilon: out of range");
  return { epsilon, stated };
}

const isWhole = (n, least, most) => Number.isInteger(n) && n >= least && n <= most;
const MAX_CATEGORIES = 2 ** 20;
const MAX_REPORTS = 10_000;
const AXES = {
  mesh: ["kind", "name", "level", "origin", "shape", "crs"],
  ordered: ["kind", "name", "size", "labels"],
  nominal: ["kind", "name", "labels", "tree"],
  time: ["kind", "name", "start", "seconds", "size"],
  regions: ["kind", "name", "codes", "parents", "titles", "levels", "shapes", "crs", "points"],
};
const PLAIN_GRID = ["kind", "name", "origin", "shape", "points", "splits", "crs", "step", "anchor"];
const SCHEME_GRID = ["kind", "name", "origin", "shape", "points", "splits", "scheme", "level"];
const MORE = {
  unary: [],
  oue: [],
  grr: [],
  olh: ["buckets"],
  hadamard: [],
  count_mean_sketch: ["buckets", "hashes"],
  memoised: ["instant_p", "instant_q", "v_max"],
};
const NUMBERS = {
  two_point: ["slope"],
  piecewise: ["shift", "window", "inside", "outside"],
  square_wave: ["shift", "window", "inside", "outside"],
  hybrid: ["mix", "wide", "narrow"],
};

/** Refuse any object that has not exactly these fields, as its own. */
function fields(object, names, what) {
  const plain = object !== null && typeof object === "object" && !Array.isArray(object);
  const own = plain ? Object.keys(object) : [];
  if (!plain || own.length !== names.length || !names.every((name) => Object.hasOwn(object, name))) {
    throw new Error(`${what}: not the fields this version knows`);
  }
}

/** Whether text shows what it holds, as Python's `names.faults` has it: no control or format character, no line break. */
const shown = (text) =>
  !/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/u.test(text.replace(/(?<=[\p{L}\p{M}])[\u200c\u200d](?=[\p{L}\p{M}])/gu, ""));

const isText = (text) => typeof text === "string" && text !== "" && shown(text);
const isPair = (two, good) => Array.isArray(two) && two.length === 2 && two.every(good);

/** Codes, each once, and above each an earlier one or nothing; outlines, where there are any, one for each place below. */
function areRegions({ codes, parents, shapes }) {
  if (!(Array.isArray(codes) && codes.length && codes.every(isText) && Array.isArray(parents))) return false;
  const at = new Map(codes.map((code, i) => [code, i]));
  if (at.size !== codes.length || parents.length !== codes.length) return false;
  if (!parents.every((code, i) => code === "" || at.get(code) < i)) return false;
  const leaves = codes.length - new Set(parents.filter((code) => code !== "")).size;
  if (shapes === null) return true;
  fields(shapes, ["lengths", "wkb"], "shapes");
  const lengths = Array.isArray(shapes.lengths) && shapes.lengths.every((n) => isWhole(n, 9, 2 ** 26));
  return lengths && shapes.lengths.length === leaves && typeof shapes.wkb === "string";
}

function checkAxis(axis) {
  let names = Object.hasOwn(AXES, axis?.kind) ? AXES[axis.kind] : ["?"];
  if (axis?.kind === "grid") names = Object.hasOwn(axis, "scheme") ? SCHEME_GRID : PLAIN_GRID;
  fields(axis, names, "axis");
  const { shape, labels: named } = axis;
  let good = !names.includes("size") || isWhole(axis.size, 1, MAX_CATEGORIES);
  if (axis.kind === "mesh" || axis.kind === "grid") {
    good = isPair(shape, (n) => isWhole(n, 1, MAX_CATEGORIES)) && isPair(axis.origin, Number.isSafeInteger);
    if (names === PLAIN_GRID) good &&= isPair(axis.step, isText) && isPair(axis.anchor, isText);
  } else if (axis.kind === "regions") {
    good = areRegions(axis);
  } else if (axis.kind === "nominal" || (axis.kind === "ordered" && named !== null)) {
    const strings = Array.isArray(named) && named.every(isText);
    good &&= strings && named.length > 0 && new Set(named).size === named.length;
    good &&= axis.kind === "nominal" || named.length === axis.size;
  }
  if (!good) throw new Error("axis: sizes are whole numbers, labels are texts, each once");
}

/** ln of the worst ratio within a column of the matrix of a randomizer of numbers, its fields checked on the way. */
function numericLoss(r) {
  const N = 2 ** r.bits;
  if (r.kind === "two_point") {
    const reach = r.steps * r.slope;
    if (!isWhole(r.slope, 1, N) || reach >= N / 2) throw new Error("not a randomizer's probabilities");
    return Math.log((N / 2 + reach) / (N / 2 - reach));
  }
  if (r.kind === "hybrid") {
    const [wide, narrow] = [r.wide, r.narrow];
    if (!isWhole(r.mix, 1, N - 1) || wide?.kind !== "piecewise" || narrow?.kind !== "two_point") {
      throw new Error("hybrid: a mix of piecewise and two_point");
    }
    for (const part of [wide, narrow]) {
      checkRandomizer(part);
      if (["low", "high", "epsilon", "steps", "bits"].some((name) => part[name] !== r[name])) {
        throw new Error("hybrid: parts of the same bounds, epsilon, steps and bits");
      }
    }
    return Math.max(numericLoss(wide), numericLoss(narrow)); // the coin does not depend on the number
  }
  const good = isWhole(r.shift, 1, 2 ** 16) && isWhole(r.window, 1, 2 ** 16) && r.window % 2 === 1;
  const total = r.steps * r.shift + r.window;
  if (!good || total > 2 ** 16 || !isWhole(r.outside, 1, N) || !isWhole(r.inside, r.outside, N)) {
    throw new Error("not a randomizer's probabilities");
  }
  // the spare words of the middle output, the same for every number, only lower its ratio
  if (N - r.window * r.inside - (total - r.window) * r.outside < 0) throw new Error("not a randomizer's probabilities");
  return Math.log(r.inside / r.outside);
}

function checkNumeric(r) {
  fields(r, ["kasuri", "version", "kind", "low", "high", "epsilon", "steps", "bits", ...NUMBERS[r.kind]], "randomizer");
  if (r.kasuri !== "local numeric" || r.version !== VERSION) throw new Error(`this client reads version ${VERSION}`);
  const [[l, m], [h, k]] = [rational(r.low, "low"), rational(r.high, "high")];
  if (!(l * k < h * m)) throw new Error("fields low, high: low < high");
  if (!isWhole(r.steps, 2, 1024) || r.steps % 2 || !isWhole(r.bits, 1, 32)) throw new Error("fields steps, bits");
  const found = epsilonOf(r.epsilon);
  if (!(numericLoss(r) <= found.stated * (1 + 1e-9))) throw new Error("its probabilities lose more than it states");
  return found;
}

/** Check a randomizer's description field by field, as Python does; gives epsilon as a rational. */
export function checkRandomizer(r) {
  if (Object.hasOwn(NUMBERS, r?.kind)) return checkNumeric(r);
  const more = Object.hasOwn(MORE, r?.kind) ? MORE[r.kind] : null;
  if (!more) throw new Error("this client does not know the randomizer");
  fields(r, ["kasuri", "version", "kind", "domain", "epsilon", "p", "q", "elsewhere", "bits", ...more], "randomizer");
  if (r.kasuri !== "local randomizer" || r.version !== VERSION) throw new Error(`this client reads version ${VERSION}`);
  fields(r.domain, ["axes", "mask"], "domain");
  const { axes, mask } = r.domain;
  if (!Array.isArray(axes) || !axes.length || !Array.isArray(mask) || mask.length) {
    throw new Error("domain: axes, and no mask");
  }
  axes.forEach(checkAxis);
  if (typeof r.elsewhere !== "boolean") throw new Error("field elsewhere: true or false");
  if (r.elsewhere && axes.some((axis) => labelsOf(axis)?.includes("elsewhere"))) throw new Error("two labels elsewhere");
  const d = size(r);
  if (!isWhole(d, 2, MAX_CATEGORIES)) throw new Error(`2 to ${MAX_CATEGORIES} categories`);
  if (more.includes("buckets") && !isWhole(r.buckets, 2, 2 ** 16)) throw new Error("field buckets");
  if (more.includes("hashes") && !(isWhole(r.hashes, 1, 2 ** 16) && Number.isInteger(Math.log2(r.hashes)))) {
    throw new Error("field hashes: a power of two");
  }
  const { epsilon, stated } = epsilonOf(r.epsilon);
  if (r.kind === "memoised") {
    const [p, q, N] = [r.instant_p, r.instant_q, 2 ** r.bits];
    const good = [p, q].every(Number.isInteger) && 0 < q && q < p && p < N && r.elsewhere && isWhole(r.v_max, 1, d);
    if (!good) throw new Error("memoised: 0 < instant_q < instant_p < 2^bits, elsewhere, v_max of 1 to its categories");
  }
  if (!(loss(r) <= stated * (1 + 1e-9))) throw new Error("its probabilities lose more than it states");
  if (r.kind === "hadamard" && 32 - Math.clz32(d) > r.bits) throw new Error("field bits: too few for its categories");
  if (r.kind === "count_mean_sketch" && r.hashes > 2 ** r.bits) throw new Error("field bits: too few for its hashes");
  return { epsilon, stated };
}

/** How often a round costs the epsilon of its randomizer: once a report, or once for each permanent report. */
const timesOf = (round) => (round.randomizer.kind === "memoised" ? round.randomizer.v_max : round.reports_per_device);

/** A text that is the same for the same description: fields in the order of their names. */
function ordered(value) {
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(ordered).join()}]`;
  return `{${Object.keys(value).sort().map((name) => `${JSON.stringify(name)}:${ordered(value[name])}`).join()}}`;
}

const digest = async (bytes) => new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));

function checkRound(round) {
  const names = ["kasuri", "version", "id", "closes", "reports_per_device", "tokens", "guarantee", "randomizer"];
  fields(round, names, "round");
  if (round.kasuri !== "local round" || round.version !== VERSION) {
    throw new Error(`this client reads rounds of version ${VERSION}`);
  }
  const reports = round.reports_per_device;
  if (typeof round.id !== "string" || !/^[0-9a-f]{32}$/.test(round.id)) throw new Error("field id: 32 hex digits");
  if (!isWhole(round.closes, 1, 2 ** 40 - 1)) throw new Error("field closes: a Unix time in whole seconds");
  if (!isWhole(reports, 1, MAX_REPORTS)) throw new Error(`field reports_per_device: 1 to ${MAX_REPORTS}`);
  if (typeof round.tokens !== "boolean") throw new Error("field tokens: true or false");
  const { epsilon, stated } = checkRandomizer(round.randomizer);
  const claim = round.guarantee;
  fields(claim, ["model", "epsilon", "delta", "unit", "public", "assumes", "basis"], "guarantee");
  fields(claim.unit, ["id", "change", "max_cells", "max_weight"], "unit");
  const [a, b] = rational(claim.epsilon, "epsilon");
  const times = timesOf(round);
  const same = a * epsilon[1] === epsilon[0] * BigInt(times) * b;
  const local = claim.model === "local" && claim.delta === "0" && claim.unit.change === "replace";
  if (!same || !local || claim.unit.max_cells !== times) throw new Error("field guarantee: not what the round gives");
  return stated;
}

/** Verify a round description against the pinned collector key; gives the round, or throws. */
export async function verifyRound(envelope, publicKey) {
  const text = new TextEncoder().encode(envelope.description);
  let good = false;
  try {
    const key = await crypto.subtle.importKey("raw", fromHex(publicKey), { name: "Ed25519" }, false, ["verify"]);
    good = await crypto.subtle.verify({ name: "Ed25519" }, key, fromHex(envelope.signature), text);
  } catch {
    good = false; // a key or signature of the wrong form, or a browser without Ed25519: nothing is trusted
  }
  if (!good) throw new Error("the round description is not signed by the collector this page trusts");
  const round = JSON.parse(envelope.description);
  round.each = checkRound(round);
  round.epsilon = round.each * timesOf(round);
  round.fingerprint = (await digest(text)).slice(0, 16);
  return round;
}

/** Pack reports for a round under a fresh random key (or a given one). */
export function encodeBatch(round, reports, key = crypto.getRandomValues(new Uint8Array(16))) {
  const magic = concat(new TextEncoder().encode("kasuri"), little(VERSION, 2));
  return concat(magic, round.fingerprint, key, ...reports);
}

/** What a device has spent and sent, from its text; a text that is not its own is refused, never begun afresh. */
function readState(text) {
  if (text === null) return { spent: 0, sent: new Map(), memories: new Map() };
  const state = { memories: {}, ...JSON.parse(text) }; // a state without memories is that of an earlier release
  fields(state, ["memories", "spent", "sent"], "state");
  const sent = new Map(Object.entries(state.sent ?? {}));
  const memories = new Map(Object.entries(state.memories ?? {}));
  if (!(Number.isFinite(state.spent) && state.spent >= 0) || ![...sent.values()].every((n) => isWhole(n, 1, 1e9))) {
    throw new Error(DAMAGED);
  }
  return { spent: state.spent, sent, memories };
}

const DAMAGED = "the state of this device is damaged; it does not report";

/** The permanent reports of a memory, bytes by category; one that holds anything else, or more than v_max, is refused. */
function readMemory(r, memory) {
  const d = size(r);
  const kept = new Map(Object.entries(memory ?? {}).map(([category, text]) => [Number(category), fromHex(text)]));
  const good = [...kept].every(
    ([category, bits]) => isWhole(category, 0, d - 1) && bits.length === Math.ceil(d / 8) && !(d % 8 && bits.at(-1) >> d % 8),
  );
  if (!good || [...kept.keys()].filter((category) => category !== d - 1).length > r.v_max - 1) throw new Error(DAMAGED);
  return kept;
}

/**
 * One person's client: pins a collector key, never spends more than maxEpsilon in all its rounds (a number; above 20 it
 * is written as text with a second word, "25 weak"). What it has spent and
 * how often it has reported is kept in `storage`, by default the browser's localStorage, and is read,
 * checked and written under one of `locks` (the browser's navigator.locks), so that all tabs share one budget. It never
 * holds a place or a number, but for memoised rounds: their permanent reports, kept by category, are as confidential as
 * the places. Rounds of one memoised randomizer share one memory and cost v_max times its epsilon together.
 */
export class Device {
  constructor(
    publicKey,
    { maxEpsilon, storage = globalThis.localStorage, locks = globalThis.navigator?.locks, now = () => Date.now() / 1000 },
  ) {
    const said = /^([0-9.]+) weak$/.exec(maxEpsilon);
    const most = Number(said ? said[1] : maxEpsilon);
    if (!(most > 0)) throw new Error("maxEpsilon is needed: the most this device spends in all");
    if (most > 20 && !said) throw new Error('maxEpsilon is above 20, which protects hardly anyone; "25 weak" says it is meant');
    if (!storage || !locks) throw new Error("a device needs storage and locks: without them it could spend twice");
    Object.assign(this, { publicKey, maxEpsilon: most, storage, locks, now, place: `kasuri-local ${publicKey}` });
  }

  /** A batch of one report of `value` (null: elsewhere; a number where the round asks for numbers), counted as sent
   * before it is drawn. */
  async report(envelope, value) {
    const round = await verifyRound(envelope, this.publicKey);
    const r = round.randomizer;
    if (isNumeric(r)) gridPlace(r, value);
    const truth = isNumeric(r) ? value : categoryOf(r, value); // what is refused is refused before anything is counted
    const word = randomWords(r.bits);
    let bytes;
    if (r.kind === "memoised") {
      const memory = toHex(await digest(new TextEncoder().encode(ordered(r))));
      bytes = await this.locks.request(this.place, async () => this.#copy(round, memory, truth, word));
    } else {
      await this.locks.request(this.place, async () => this.#spend(round));
      bytes = report(r, truth, word);
    }
    return { round, report: bytes, body: encodeBatch(round, [bytes]) };
  }

  /** A copy of the permanent report of a category, which is drawn once and kept before a copy of it can leave. */
  #copy(round, memory, category, word) {
    const r = round.randomizer;
    const d = size(r);
    const state = this.#spend(round, memory);
    const kept = readMemory(r, state.memories.get(memory));
    const places = [...kept.keys()].filter((one) => one !== d - 1).length;
    let at = category;
    if (!kept.has(at) && at !== d - 1 && places >= r.v_max - 1) at = d - 1; // one place too many is elsewhere
    if (!kept.has(at)) {
      kept.set(at, unaryBits(d, at, r, word));
      state.memories.set(memory, Object.fromEntries([...kept].map(([one, bits]) => [one, toHex(bits)])));
      this.#keep(state);
    }
    return instant(d, kept.get(at), r, word);
  }

  #keep({ spent, sent, memories }) {
    const text = JSON.stringify({ spent, sent: Object.fromEntries(sent), memories: Object.fromEntries(memories) });
    this.storage.setItem(this.place, text);
    if (this.storage.getItem(this.place) !== text) throw new Error("the storage keeps nothing: this device cannot report");
  }

  /** Count a report of a round; a memory, where the round has one, is paid for when it is begun. Gives the state. */
  #spend(round, memory = null) {
    const state = readState(this.storage.getItem(this.place));
    const sent = state.sent.get(round.id) ?? 0;
    const left = round.reports_per_device - sent;
    if (!(this.now() < round.closes)) throw new Error("this round is closed");
    if (!(left >= 1)) throw new Error("this device has sent all its reports of this round");
    const begun = memory !== null && state.memories.has(memory);
    const most = memory === null ? left * round.each : begun ? 0 : round.epsilon;
    if (!(state.spent + most <= this.maxEpsilon * (1 + 1e-9))) {
      throw new Error("this round costs more epsilon than this device spends");
    }
    state.sent.set(round.id, sent + 1);
    state.spent += memory === null ? round.each : most;
    if (memory !== null && !begun) state.memories.set(memory, {});
    this.#keep(state);
    return state;
  }
}
