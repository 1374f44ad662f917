// The device's side of kasuri.local in one ES module: no dependency, no request of its own, no floating-point chance.
// Random words come from crypto.getRandomValues only, many at a time. A report is a function of the round description,
// the true category and the words, the same as in Python (kasuri.local.randomizer), byte for byte.

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
const cellsOf = (axis) => (axis.kind === "mesh" ? axis.shape[0] * axis.shape[1] : (axis.labels?.length ?? axis.size));

/** Number of categories, "elsewhere" (the last) included. */
export function size(randomizer) {
  return randomizer.domain.axes.reduce((n, axis) => n * cellsOf(axis), 1) + (randomizer.elsewhere ? 1 : 0);
}

/** Names of the categories: labels where there are any, else cell numbers. */
export function labels(randomizer) {
  const { axes } = randomizer.domain;
  const d = size(randomizer) - (randomizer.elsewhere ? 1 : 0);
  const own = axes.length === 1 && axes[0].labels ? axes[0].labels : Array.from({ length: d }, (_, i) => String(i));
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
    const own = randomizer.domain.axes.length === 1 ? randomizer.domain.axes[0].labels : null;
    found = own?.some(isNumeral) ? named.indexOf(String(value)) : value;
  }
  if (!(found >= 0 && found < d)) {
    throw new Error(`the value is none of the ${d} categories; a place outside the domain is "elsewhere"`);
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

/** One report of a category, from random words: the bytes a device may send. */
export function report(randomizer, category, word) {
  const r = randomizer;
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
    default:
      throw new Error("this client does not know the randomizer");
  }
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

/** A positive rational [numerator, denominator] from its exact text, as Python writes it. */
function rational(text) {
  const parts = /^(\d{1,150})(?:\.(\d{1,150})|\/(\d{1,150}))?$/.exec(typeof text === "string" ? text : "");
  if (!parts) throw new Error("field epsilon: an exact decimal");
  const [, whole, decimals = "", below] = parts;
  const found = [BigInt(whole + decimals), below === undefined ? 10n ** BigInt(decimals.length) : BigInt(below)];
  if (found[0] <= 0n || found[1] <= 0n) throw new Error("field epsilon: greater than 0");
  return found;
}

const isWhole = (n, least, most) => Number.isInteger(n) && n >= least && n <= most;
const MAX_CATEGORIES = 2 ** 20;
const MAX_REPORTS = 10_000;
const AXES = {
  mesh: ["kind", "name", "level", "origin", "shape", "crs"],
  ordered: ["kind", "name", "size", "labels"],
  nominal: ["kind", "name", "labels", "tree"],
  time: ["kind", "name", "start", "seconds", "size"],
};
const MORE = { unary: [], oue: [], grr: [], olh: ["buckets"], hadamard: [], count_mean_sketch: ["buckets", "hashes"] };

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

function checkAxis(axis) {
  const names = Object.hasOwn(AXES, axis?.kind) ? AXES[axis.kind] : ["?"];
  fields(axis, names, "axis");
  const { shape, labels: named } = axis;
  let good = !names.includes("size") || isWhole(axis.size, 1, MAX_CATEGORIES);
  if (axis.kind === "mesh") {
    good = Array.isArray(shape) && shape.length === 2 && shape.every((n) => isWhole(n, 1, MAX_CATEGORIES));
  } else if (axis.kind === "nominal" || (axis.kind === "ordered" && named !== null)) {
    const strings = Array.isArray(named) && named.every((label) => typeof label === "string" && label !== "" && shown(label));
    good &&= strings && named.length > 0 && new Set(named).size === named.length;
    good &&= axis.kind === "nominal" || named.length === axis.size;
  }
  if (!good) throw new Error("axis: sizes are whole numbers, labels are texts, each once");
}

/** Check a randomizer's description field by field, as Python does; gives epsilon as a rational. */
export function checkRandomizer(r) {
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
  if (r.elsewhere && axes.some((axis) => axis.labels?.includes("elsewhere"))) throw new Error("two labels elsewhere");
  const d = size(r);
  if (!isWhole(d, 2, MAX_CATEGORIES)) throw new Error(`2 to ${MAX_CATEGORIES} categories`);
  if (more.includes("buckets") && !isWhole(r.buckets, 2, 2 ** 16)) throw new Error("field buckets");
  if (more.includes("hashes") && !(isWhole(r.hashes, 1, 2 ** 16) && Number.isInteger(Math.log2(r.hashes)))) {
    throw new Error("field hashes: a power of two");
  }
  const epsilon = rational(r.epsilon);
  const stated = Number(epsilon[0]) / Number(epsilon[1]);
  if (!(Number.isFinite(stated) && stated > 0)) throw new Error("field epsilon: out of range");
  if (!(loss(r) <= stated * (1 + 1e-9))) throw new Error("its probabilities lose more than it states");
  if (r.kind === "hadamard" && 32 - Math.clz32(d) > r.bits) throw new Error("field bits: too few for its categories");
  if (r.kind === "count_mean_sketch" && r.hashes > 2 ** r.bits) throw new Error("field bits: too few for its hashes");
  return { epsilon, stated };
}

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
  const [a, b] = rational(claim.epsilon);
  const same = a * epsilon[1] === epsilon[0] * BigInt(reports) * b;
  const local = claim.model === "local" && claim.delta === "0" && claim.unit.change === "replace";
  if (!same || !local || claim.unit.max_cells !== reports) throw new Error("field guarantee: not what the round gives");
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
  round.epsilon = round.each * round.reports_per_device;
  round.fingerprint = new Uint8Array(await crypto.subtle.digest("SHA-256", text)).slice(0, 16);
  return round;
}

/** Pack reports for a round under a fresh random key (or a given one). */
export function encodeBatch(round, reports, key = crypto.getRandomValues(new Uint8Array(16))) {
  const magic = concat(new TextEncoder().encode("kasuri"), little(VERSION, 2));
  return concat(magic, round.fingerprint, key, ...reports);
}

/** What a device has spent and sent, from its text; a text that is none of its own is refused, never begun afresh. */
function readState(text) {
  if (text === null) return { spent: 0, sent: new Map() };
  const state = JSON.parse(text);
  fields(state, ["spent", "sent"], "state");
  const sent = new Map(Object.entries(state.sent ?? {}));
  if (!(Number.isFinite(state.spent) && state.spent >= 0) || ![...sent.values()].every((n) => isWhole(n, 1, 1e9))) {
    throw new Error("the state of this device is damaged; it does not report");
  }
  return { spent: state.spent, sent };
}

/**
 * One person's client: pins a collector key, never spends more than maxEpsilon in all its rounds (a number; above 20 it
 * is written as text with a second word, "25 weak"). What it has spent and
 * how often it has reported (never a place) is kept in `storage`, by default the browser's localStorage, and is read,
 * checked and written under one of `locks` (the browser's navigator.locks), so that all tabs share one budget.
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

  /** A batch of one report of `value` (null: elsewhere), counted as sent before it is drawn. */
  async report(envelope, value) {
    const round = await verifyRound(envelope, this.publicKey);
    const category = categoryOf(round.randomizer, value);
    await this.locks.request(this.place, async () => this.#spend(round));
    const bytes = report(round.randomizer, category, randomWords(round.randomizer.bits));
    return { round, report: bytes, body: encodeBatch(round, [bytes]) };
  }

  #spend(round) {
    const state = readState(this.storage.getItem(this.place));
    const sent = state.sent.get(round.id) ?? 0;
    const left = round.reports_per_device - sent;
    if (!(this.now() < round.closes)) throw new Error("this round is closed");
    if (!(left >= 1)) throw new Error("this device has sent all its reports of this round");
    if (!(state.spent + left * round.each <= this.maxEpsilon * (1 + 1e-9))) {
      throw new Error("this round costs more epsilon than this device spends");
    }
    state.sent.set(round.id, sent + 1);
    const text = JSON.stringify({ spent: state.spent + round.each, sent: Object.fromEntries(state.sent) });
    this.storage.setItem(this.place, text);
    if (this.storage.getItem(this.place) !== text) throw new Error("the storage keeps nothing: this device cannot report");
  }
}
