// ---- coasts, boundaries, names: public, and the same for every release of a domain ----

/** What ground.py packed: lines as paths, names with their places in page units. */
async function unpackGround(about, text, page) {
  const found = await numbers(about, text, ["x", "y"]), lines = [], names = [];
  let x = 0, y = 0, k = 0;
  const next = () => { x += found.x[k]; y += found.y[k]; k++; return [x / about.scale, y / about.scale]; };
  for (let i = 0; i < about.lines; i++) lines.push({ kind: found.kind[i], points: Array.from({ length: found.size[i] }, next) });
  const rows = about.names ? found.names.split("\n") : [];
  for (let i = 0; i < about.names; i++) { const [own, latin, code] = rows[i].split("\t"); names.push({ own, latin: latin || own, code, at: next(), people: found.people[i] }); }
  const paths = [0, 1, 2, 3].map((kind) => { const path = new Path2D(); for (const line of lines) if (line.kind === kind) line.points.forEach(([a, b], i) => (i ? path.lineTo(a, b) : path.moveTo(a, b))); return path; });
  const coast = new Path2D(), rim = (p, q, d, end) => Math.abs(p[d] - end) < 0.01 && Math.abs(q[d] - end) < 0.01; // where land is cut by the window there is no coast
  for (const { kind, points } of lines) if (!kind) points.forEach((q, i) => { const p = points[i - 1]; p && ![0, 1].some((d) => rim(p, q, d, 0) || rim(p, q, d, page[d])) ? coast.lineTo(...q) : coast.moveTo(...q); });
  return { paths, coast, names };
}

/** Degrees on a page: straight lines between the corners of equal patches. */
function globe(told, wide, high) {
  if (!told) return null;
  const n = told.patches;
  const blend = (values, x, y) => {
    const u = Math.min(Math.max((x / wide) * n, 0), n), v = Math.min(Math.max((y / high) * n, 0), n), i = Math.min(Math.floor(u), n - 1), j = Math.min(Math.floor(v), n - 1), a = (x / wide) * n - i, b = (y / high) * n - j;
    const at = (r, c) => values[(j + r) * (n + 1) + i + c];
    return (at(0, 0) * (1 - a) + at(0, 1) * a) * (1 - b) + (at(1, 0) * (1 - a) + at(1, 1) * a) * b;
  };
  const degrees = (x, y) => [blend(told.lon, x, y), blend(told.lat, x, y)];
  /** Page coordinates of degrees, by Newton's steps; null outside. */
  function place(lat, lon) {
    let best = null;
    for (const turn of [0, 360, -360]) {
      let x = wide / 2, y = high / 2;
      for (let k = 0; k < 40; k++) {
        const [l, p] = degrees(x, y), e = 1e-3 * Math.max(wide, high), [lx, px] = degrees(x + e, y), [ly, py] = degrees(x, y + e);
        const a = (lx - l) / e, b = (ly - l) / e, c = (px - p) / e, d = (py - p) / e, det = a * d - b * c || 1e-12;
        x += (d * (lon + turn - l) - b * (lat - p)) / det; y += (a * (lat - p) - c * (lon + turn - l)) / det;
        x = Math.min(Math.max(x, -wide), 2 * wide); y = Math.min(Math.max(y, -high), 2 * high);
      }
      if (x >= 0 && y >= 0 && x < wide && y < high) best = [x, y];
    }
    return best;
  }
  return { degrees, place };
}
const compass = ([lon, lat]) => { const east = ((((lon + 180) % 360) + 360) % 360) - 180; return `${Math.abs(lat).toFixed(4)}° ${t().lat[lat < 0 ? 1 : 0]} ${Math.abs(east).toFixed(4)}° ${t().lon[east < 0 ? 1 : 0]}`; };

// kana as it is romanised, two signs first
const KANA = {};
"a i u e o|ka ki ku ke ko|sa shi su se so|ta chi tsu te to|na ni nu ne no|ha hi fu he ho|ma mi mu me mo|ya - yu - yo|ra ri ru re ro|wa - - - o|ga gi gu ge go|za ji zu ze zo|da ji zu de do|ba bi bu be bo|pa pi pu pe po".split("|").forEach((row, i) => {
  const signs = ["あいうえお", "かきくけこ", "さしすせそ", "たちつてと", "なにぬねの", "はひふへほ", "まみむめも", "や-ゆ-よ", "らりるれろ", "わ---を", "がぎぐげご", "ざじずぜぞ", "だぢづでど", "ばびぶべぼ", "ぱぴぷぺぽ"][i];
  row.split(" ").forEach((sound, j) => { if (sound !== "-") KANA[signs[j]] = sound; });
  const second = signs[1], sound = row.split(" ")[1];
  if (sound.length > 1 && second !== "-") ["ゃ", "ゅ", "ょ"].forEach((small, j) => { KANA[second + small] = (/^(sh|ch|j)/.test(sound) ? sound.slice(0, -1) : sound.slice(0, -1) + "y") + "auo"[j]; });
});
KANA["ん"] = "n"; KANA["ー"] = "";
/** Text as it is compared: kana in Latin letters, no accents, no long vowels, no spaces or hyphens. */
function plain(text) {
  let s = text.normalize("NFKC").replace(/[ァ-ヶ]/g, (c) => String.fromCharCode(c.charCodeAt(0) - 96)), out = "";
  for (let i = 0; i < s.length; i++) {
    if (s[i] === "っ") { const next = KANA[s.slice(i + 1, i + 3)] ?? KANA[s[i + 1]]; out += next ? next[0] : ""; continue; }
    const two = KANA[s.slice(i, i + 2)];
    if (two !== undefined) { out += two; i++; } else out += KANA[s[i]] ?? s[i];
  }
  s = out.normalize("NFD").replace(/[\u0300-\u036f]/g, "").toLowerCase().replace(/[\s'’.,·-]/g, "");
  return s.replace(/m(?=[bmp])/g, "n").replace(/ou|oo/g, "o").replace(/uu/g, "u").replace(/tch/g, "cch");
}
/** The entries ({words: [...]}) that a text names, the best first: alike, then those that begin with it. */
function matches(entries, text, most = 8) {
  const wanted = plain(text), ranks = [[], [], []];
  if (!wanted) return [];
  for (const entry of entries) {
    entry.plain ??= entry.words.filter(Boolean).map(plain);
    let rank = 3;
    for (const word of entry.plain) rank = Math.min(rank, word === wanted || /^(shi|ku|machi|cho|mura|son|市|区|町|村|都|県|府)$/.test(word.startsWith(wanted) ? word.slice(wanted.length) : "") ? 0 : word.startsWith(wanted) ? 1 : wanted.length > 1 && word.includes(wanted) ? 2 : 3);
    if (rank < 3) ranks[rank].push(entry);
  }
  return ranks.flat().slice(0, most);
}
/** [lat, lon] of "35.68, 139.76", "35.68N 139.76E" or "北緯35.68 東経139.76", or null. */
function latLon(text) {
  const found = /^\s*(北緯|南緯)?\s*(-?\d{1,2}(?:\.\d+)?)\s*°?\s*([NS])?\s*[,、\s]\s*(東経|西経)?\s*(-?\d{1,3}(?:\.\d+)?)\s*°?\s*([EW])?\s*$/i.exec(text.normalize("NFKC"));
  if (!found) return null;
  const lat = found[2] * (found[1] === "南緯" || /s/i.test(found[3] ?? "") ? -1 : 1), lon = found[5] * (found[4] === "西経" || /w/i.test(found[6] ?? "") ? -1 : 1);
  return Math.abs(lat) <= 90 && Math.abs(lon) <= 360 ? [lat, lon] : null;
}
