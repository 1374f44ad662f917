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

/** Number of categories, "elsewhere" (the last) included. */
export function size(randomizer) {
  let cells = 1;
  for (const axis of randomizer.domain.axes) {
    for (const n of axis.kind === "mesh" ? axis.shape : [axis.size ?? axis.labels.length]) cells *= n;
  }
  return cells + (randomizer.elsewhere ? 1 : 0);
}

/** Names of the categories: labels where there are any, else cell numbers. */
export function labels(randomizer) {
  const { axes } = randomizer.domain;
  const d = size(randomizer) - (randomizer.elsewhere ? 1 : 0);
  const own = axes.length === 1 && axes[0].labels ? axes[0].labels : Array.from({ length: d }, (_, i) => String(i));
  return randomizer.elsewhere ? [...own, "elsewhere"] : own;
}

/** The category of a label, a number, or null (elsewhere); a value outside the domain is refused. */
export function categoryOf(randomizer, value) {
  const d = size(randomizer);
  let found = -1;
  if (value === null) found = randomizer.elsewhere ? d - 1 : -1;
  else if (Number.isInteger(value)) found = value >= 0 && value < d ? value : -1;
  else if (typeof value === "string") found = labels(randomizer).indexOf(value);
  if (found < 0) throw new Error(`the value is none of the ${d} categories; a place outside the domain is "elsewhere"`);
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

function epsilonOf(text) {
  const [a, b] = String(text).split("/").map(Number);
  return b === undefined ? a : a / b;
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
  if (round.kasuri !== "local round" || round.version !== VERSION || round.randomizer.version !== VERSION) {
    throw new Error(`this client reads rounds of version ${VERSION}`);
  }
  const stated = epsilonOf(round.randomizer.epsilon);
  if (!(loss(round.randomizer) <= stated * (1 + 1e-9))) throw new Error("its probabilities lose more than it states");
  round.epsilon = stated * round.reports_per_device;
  round.fingerprint = new Uint8Array(await crypto.subtle.digest("SHA-256", text)).slice(0, 16);
  return round;
}

/** Pack reports for a round under a fresh random key (or a given one). */
export function encodeBatch(round, reports, key = crypto.getRandomValues(new Uint8Array(16))) {
  const magic = concat(new TextEncoder().encode("kasuri"), little(VERSION, 2));
  return concat(magic, round.fingerprint, key, ...reports);
}

/**
 * One person's client: pins a collector key, never spends more than maxEpsilon in all its rounds. What it has spent and
 * how often it has reported (never a place) is kept in `storage`, by default the browser's localStorage.
 */
export class Device {
  constructor(publicKey, { maxEpsilon, storage = globalThis.localStorage, now = () => Date.now() / 1000 }) {
    if (!(maxEpsilon > 0)) throw new Error("maxEpsilon is needed: the most this device spends in all");
    Object.assign(this, { publicKey, maxEpsilon, storage, now, place: `kasuri-local ${publicKey}` });
    this.state = JSON.parse(storage?.getItem(this.place) ?? '{"spent":0,"sent":{}}');
  }

  /** A batch of one report of `value` (null: elsewhere), counted as sent before it is drawn. */
  async report(envelope, value) {
    const round = await verifyRound(envelope, this.publicKey);
    const { state } = this;
    const sent = state.sent[round.id] ?? 0;
    const each = round.epsilon / round.reports_per_device;
    if (this.now() >= round.closes) throw new Error("this round is closed");
    if (sent >= round.reports_per_device) throw new Error("this device has sent all its reports of this round");
    if (state.spent + (round.reports_per_device - sent) * each > this.maxEpsilon * (1 + 1e-9)) {
      throw new Error("this round costs more epsilon than this device spends");
    }
    const category = categoryOf(round.randomizer, value);
    state.sent[round.id] = sent + 1;
    state.spent += each;
    this.storage?.setItem(this.place, JSON.stringify(state));
    const bytes = report(round.randomizer, category, randomWords(round.randomizer.bits));
    return { round, report: bytes, body: encodeBatch(round, [bytes]) };
  }
}
