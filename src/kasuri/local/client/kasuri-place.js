// From a position (navigator.geolocation) to a public place, on the device: no request, no storage, the same place as
// Python's kasuri.local.place_of, also on borders. What this page cannot place exactly as Python does (a grid in another
// reference system than degrees) is refused; the place is then chosen by hand.
import { labels } from "./kasuri-local.js";

const DEGREES = "EPSG:4326";
const PER_FIRST = { "80km": 1, "10km": 8, "5km": 16, "2km": 40, "1km": 80, "500m": 160, "250m": 320, "125m": 640 };
const GUARD = 1e-7; // in cells: the double nearest to a corner's decimal is the corner

/** Row and column of a JIS X 0410 mesh, counted from its window. */
function meshCell(axis, lat, lon) {
  const per = PER_FIRST[axis.level];
  if (per === undefined) throw new Error("this mesh has no place on the earth: choose a place by hand");
  const row = Math.floor(lat * 1.5 * per + GUARD) - axis.origin[0];
  return [row, Math.floor((lon - 100) * per + GUARD) - axis.origin[1]];
}

const gcd = (a, b) => (b ? gcd(b, a % b) : a);

function fraction(text) {
  const [, minus, above, below = "1"] = /^(-?)(\d{1,30})(?:\/(\d{1,30}))?$/.exec(text) ?? [];
  if (above === undefined || BigInt(below) === 0n) throw new Error("grid: steps and anchors are exact numbers");
  return [BigInt(minus + above), BigInt(below)];
}

/** Parallel lines from `first`, `step` apart: line k is the double nearest to its exact place. */
function linesOf(first, step) {
  const [[a, b], [c, d]] = [fraction(first), fraction(step)];
  const per = (b * d) / gcd(b, d);
  return { first: Number((a * per) / b), step: Number((c * per) / d), per: Number(per) };
}

/** The cell in which a coordinate is, by the lines themselves and not by a rounded quotient. */
function cellAt({ first, step, per }, place) {
  const at = (k) => (first + step * k) / per;
  let k = Math.floor((place * per - first) / step);
  if (at(k) > place) k -= 1;
  if (at(k + 1) <= place) k += 1;
  return k;
}

function gridCell(axis, lat, lon) {
  if (axis.scheme === "geohash" && axis.points === DEGREES) {
    const letters = Number(axis.level);
    const [down, across] = [2 ** Math.floor((5 * letters) / 2), 2 ** Math.floor((5 * letters + 1) / 2)];
    const row = lat === 90 ? down - 1 : cellAt({ first: -90 * down, step: 180, per: down }, lat);
    const col = lon === 180 ? across - 1 : cellAt({ first: -180 * across, step: 360, per: across }, lon);
    return [row - axis.origin[0], col - axis.origin[1]];
  }
  if (axis.scheme !== undefined || axis.crs !== DEGREES || axis.points !== DEGREES) {
    throw new Error("the cells of this grid are not in degrees, which this page cannot compute: choose a place by hand");
  }
  const [rows, cols] = [0, 1].map((k) => linesOf(axis.anchor[k], axis.step[k]));
  const edge = (k) => (cols.first + cols.step * (axis.origin[1] + k)) / cols.per;
  const east = lon < edge(0) && edge(axis.shape[1]) > 180 ? lon + 360 : lon; // a window across the 180th meridian
  return [cellAt(rows, lat) - axis.origin[0], cellAt(cols, east) - axis.origin[1]];
}

/** A double as a whole number over 2^shift, for the few signs that doubles cannot tell. */
function whole(x, shift) {
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, x);
  const bits = view.getBigUint64(0);
  const power = Number((bits >> 52n) & 2047n);
  const digits = (bits & ((1n << 52n) - 1n)) | (power ? 1n << 52n : 0n);
  const value = digits << BigInt(Math.max(power, 1) - 1075 + shift);
  return bits >> 63n ? -value : value;
}

/** The sign of the turn a -> b -> p: above 0 where p is to the left. Exact. */
function turn(ax, ay, bx, by, px, py) {
  const [l, r] = [(bx - ax) * (py - ay), (by - ay) * (px - ax)];
  if (Math.abs(l - r) > 1e-15 * (Math.abs(l) + Math.abs(r))) return l > r ? 1 : -1;
  const [A, B, C, D, P, Q] = [ax, ay, bx, by, px, py].map((x) => whole(x, 1074));
  const exact = (C - A) * (Q - B) - (D - B) * (P - A);
  return exact > 0n ? 1 : exact < 0n ? -1 : 0;
}

/** 1 inside a ring, 0 outside, null on it. */
function inRing(ring, x, y) {
  let inside = 0;
  for (let i = 0; i + 3 < ring.length; i += 2) {
    const [ax, ay, bx, by] = [ring[i], ring[i + 1], ring[i + 2], ring[i + 3]];
    if (Math.max(ay, by) < y || Math.min(ay, by) > y || Math.max(ax, bx) < x) continue;
    const side = turn(ax, ay, bx, by, x, y);
    if (side === 0 && Math.min(ax, bx) <= x) return null;
    if (ay > y !== by > y && (by > ay ? side > 0 : side < 0)) inside ^= 1;
  }
  return inside;
}

/** Inside the polygons of one place, or on their border. */
function inPlace(polygons, x, y) {
  return polygons.some((rings) => {
    let inside = 0;
    for (const ring of rings) {
      const found = inRing(ring, x, y);
      if (found === null) return true;
      inside ^= found;
    }
    return inside === 1;
  });
}

/** The polygons of one place: WKB, little-endian, a polygon or several. */
function polygonsOf(view) {
  let at = 0;
  const number = () => view.getUint32((at += 4) - 4, true);
  const head = (kinds) => {
    if (view.getUint8(at++) !== 1) throw new Error("regions: little-endian shapes expected");
    const kind = number();
    if (!kinds.includes(kind)) throw new Error("regions: polygons expected");
    return kind;
  };
  const polygon = () =>
    Array.from({ length: number() }, () => Float64Array.from({ length: 2 * number() }, () => view.getFloat64((at += 8) - 8, true)));
  if (head([3, 6]) === 3) return [polygon()];
  return Array.from({ length: number() }, () => (head([3]), polygon()));
}

const MAX_SHAPES = 2 ** 26;

/** The shapes of the places that records hold, one list of polygons each; null where the axis has none. */
export async function shapesOf(axis) {
  if (axis.kind !== "regions" || axis.shapes === null) return null;
  const { lengths, wkb } = axis.shapes;
  const most = lengths.reduce((sum, n) => sum + n, 0);
  if (!(most <= MAX_SHAPES)) throw new Error("regions: shapes are too large");
  const packed = Uint8Array.from(atob(wkb), (c) => c.charCodeAt(0));
  const data = new Uint8Array(most);
  let got = 0;
  for await (const part of new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"))) {
    if (got + part.length > most) throw new Error("regions: its shapes have another length than they say");
    data.set(part, got);
    got += part.length;
  }
  if (got !== most) throw new Error("regions: its shapes have another length than they say");
  let end = 0;
  return lengths.map((n) => polygonsOf(new DataView(data.buffer, (end += n) - n, n)));
}

/**
 * The category of a position {latitude, longitude} in degrees on WGS 84, as a label, or null (elsewhere). A position
 * outside a domain that has no "elsewhere" is refused.
 */
export async function placeOf(randomizer, { latitude: lat, longitude: lon }) {
  if (!(Math.abs(lat) <= 90 && Math.abs(lon) <= 180)) throw new Error("a position is a latitude and a longitude in degrees");
  const { axes } = randomizer.domain;
  const [axis] = axes;
  let found = -1;
  if (axes.length === 1 && (axis.kind === "mesh" || axis.kind === "grid")) {
    const [row, col] = (axis.kind === "mesh" ? meshCell : gridCell)(axis, lat, lon);
    if (row >= 0 && col >= 0 && row < axis.shape[0] && col < axis.shape[1]) found = row * axis.shape[1] + col;
  } else if (axes.length === 1 && axis.kind === "regions" && axis.shapes !== null) {
    if (axis.crs !== DEGREES || axis.points !== DEGREES) {
      throw new Error("the outlines of these places are not in degrees on WGS 84: choose a place by hand");
    }
    found = (await shapesOf(axis)).findIndex((polygons) => inPlace(polygons, lon, lat));
  } else {
    throw new Error("these places have no position on the earth: choose a place by hand");
  }
  if (found >= 0) return labels(randomizer)[found];
  if (!randomizer.elsewhere) throw new Error("the position is outside the places of this round");
  return null;
}
