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

/** The code of an area of a mesh axis, of any scheme the page can write; "" where there is none. */
function codeOf(axis, name, row, col) {
  if (axis.scheme === "jis") return encode(name, row, col);
  if (axis.scheme === "eu") { const [, n, k] = /^(\d+)(k?)m$/.exec(name), metres = n * (k ? 1000 : 1), unit = metres / 10 ** /0*$/.exec(String(metres))[0].length; return `${name}N${row * unit}E${col * unit}`; }
  if (axis.scheme === "quadkey") { let out = ""; const high = 2 ** name; for (let d = 2 ** (name - 1); d >= 1; d /= 2) out += 2 * (Math.floor((high - 1 - row) / d) % 2) + (Math.floor(col / d) % 2); return out; }
  return "";
}
/** [row, col] of a code of the level called so, or null. */
function placeOf(axis, name, code) {
  if (axis.scheme === "jis") return decode(name, code.replace(/[-\s]/g, ""));
  if (axis.scheme === "eu") {
    const long = /^CRS3035RES(\d+)mN(\d+)E(\d+)$/.exec(code), short = /^(\d+k?m)N(\d+)E(\d+)$/.exec(code), metres = parseInt(name) * (name.includes("k") ? 1000 : 1), zeros = 10 ** /0*$/.exec(String(metres))[0].length;
    const found = long && Number(long[1]) === metres ? [long[2] / metres, long[3] / metres] : short && short[1] === name ? [(short[2] * zeros) / metres, (short[3] * zeros) / metres] : null;
    return found && found.every(Number.isInteger) ? found : null;
  }
  if (axis.scheme === "quadkey" && /^[0-3]+$/.test(code) && code.length === Number(name)) { let r = 0, c = 0; for (const q of code) { r = 2 * r + (q >> 1); c = 2 * c + (q & 1); } return [2 ** name - 1 - r, c]; }
  return null;
}
