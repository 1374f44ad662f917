// ---- what maps are made of: squares of a mesh, or places with outlines ----
// A surface knows its own places ("leaves") and, at every level, the areas they make up; x goes east and y south, in page
// units. `load` takes the rows that are shown; `paint` draws the areas.

/** The area, at level k of an axis, that an index lies in. */
function areaOf(axis, leaf, k) {
  if (k === 0) return leaf;
  if (axis.kind !== "mesh") return axis.levels[k].of[leaf];
  const { side, offset, wide } = axis.levels[k];
  return Math.floor((Math.floor(leaf / axis.cols) + offset[0]) / side) * wide + Math.floor(((leaf % axis.cols) + offset[1]) / side);
}

function meshSurface(axis, sea) {
  let tables, mips, level = 0;
  const { rows, cols } = axis, now = () => axis.levels[level];
  const table = () => (tables[level] ??= coarsen(tables[0], now().side, now().offset));
  const me = {
    wide: cols, high: rows, aspect: axis.aspect, axis, sea, get level() { return level; }, get table() { return table(); },
    load(n, place, value, row) { tables = [gather(n, (k) => Math.floor(place(k) / cols), (k) => place(k) % cols, value, () => 1, row, rows, cols)]; mips = null; },
    use(k, special) { level = k; if (special) tables[k] = gather(special.n, (i) => Math.floor(special.area(i) / now().wide), (i) => special.area(i) % now().wide, special.value, () => 1, (i) => i, now().high, now().wide); mips = [table()]; },
    get(id) { const from = table(), at = find(from, Math.floor(id / from.cols), id % from.cols); return at < 0 ? null : { val: from.val[at], num: from.num[at], ref: from.ref[at] }; },
    each(visit) { const from = table(); for (let r = 0; r < from.rows; r++) for (let j = from.first[r]; j < from.first[r + 1]; j++) visit(r * from.cols + from.col[j], from.val[j], from.num[j], from.ref[j]); },
    leafAt(x, y) { const row = Math.floor(rows - y), col = Math.floor(x); return row < 0 || col < 0 || row >= rows || col >= cols ? -1 : row * cols + col; },
    centre: (leaf) => [(leaf % cols) + .5, rows - Math.floor(leaf / cols) - .5],
    near: (leaf, dx, dy, many) => { const step = now().side * (many ? 10 : 1), row = Math.floor(leaf / cols) + dy * step, col = (leaf % cols) + dx * step; return Math.min(Math.max(row, 0), rows - 1) * cols + Math.min(Math.max(col, 0), cols - 1); },
    middle: () => Math.floor(rows / 2) * cols + Math.floor(cols / 2),
    first(id, k = level) { const { side, offset, wide } = axis.levels[k], R = Math.floor(id / wide), C = id % wide; return Math.max(0, R * side - offset[0]) * cols + Math.max(0, C * side - offset[1]); },
    box(id) { const { side, offset, wide } = now(), R = Math.floor(id / wide), C = id % wide; return [C * side - offset[1], rows - ((R + 1) * side - offset[0]), (C + 1) * side - offset[1], rows - (R * side - offset[0])]; },
    cut(id) { const [x0, y0, x1, y1] = me.box(id); return level > 0 && (x0 < 0 || y0 < 0 || x1 > cols || y1 > rows); },
    code(id) { const { side, name, wide } = now(), leaf = me.first(id); return axis.scheme ? codeOf(axis, name, Math.floor((Math.floor(leaf / cols) + axis.origin[0]) / side), Math.floor(((leaf % cols) + axis.origin[1]) / side)) : ""; },
    name: (id) => me.code(id) || `${t().row} ${Math.floor(me.first(id) / cols)}${t().and}${t().col} ${me.first(id) % cols}`,
    title: () => (axis.level && axis.scheme !== "quadkey" ? t().cells(now().name) : t().side(now().side)),
    where: (leaf) => [me.title() + (axis.scheme ? ` ${me.code(areaOf(axis, leaf, level))}` : ""), `${t().row} ${Math.floor(leaf / cols)}${t().and}${t().col} ${leaf % cols}`],
    levels: () => axis.levels.map((l, i) => [String(i), axis.level && axis.scheme !== "quadkey" ? t().cells(l.name) : t().side(l.side)]),
    /** {level, leaf} of a code of any level, or null. */
    decode(text) {
      if (!axis.scheme) return null;
      for (let k = 0; k < axis.levels.length; k++) {
        const l = axis.levels[k], rc = placeOf(axis, l.name, text.trim()), row = rc && rc[0] * l.side - axis.origin[0], col = rc && rc[1] * l.side - axis.origin[1];
        if (rc && row > -l.side && col > -l.side && row < rows && col < cols) return { level: k, leaf: Math.max(0, row) * cols + Math.max(0, col) };
      }
      return null;
    },
    places: () => [],
    /** Cells as pixels; pairs of cells are joined until they are a pixel wide. Returns how many were joined. */
    paint(pen, { box, ratio, w, h, toX, toY, of, hatch }) {
      let k = 0;
      while (box.s * now().side * 2 ** k * ratio < 0.75 && 2 ** k < 4096) k++;
      for (let i = mips.length; i <= k; i++) mips.push(coarsen(mips[i - 1], 2, [0, 0]));
      const drawn = mips[k], join = 2 ** k, image = new ImageData(w, h), pixels = new Uint32Array(image.data.buffer), edge = (f, v) => Math.round(f(v) * ratio), dark = word(DARK);
      const left = Math.max(0, edge(toX, 0)), right = Math.min(w, edge(toX, cols)), head = Math.max(0, edge(toY, 0)), foot = Math.min(h, edge(toY, rows)), side = now().side * join, [or, oc] = now().offset;
      if (sea) for (let y = head; y < foot; y++) {
        const row = rows - 1 - Math.floor(y / ratio / box.s + box.y);
        if (row >= 0 && row < rows) for (let x = left; x < right; x++) { const c = Math.floor(x / ratio / (box.s * me.aspect) + box.x); if (sea[row * cols + c]) pixels[y * w + x] = word(SEA); }
      }
      const lone = hatch ? null : join * join;
      for (let r = 0; r < drawn.rows; r++) {
        const y0 = Math.max(head, edge(toY, rows - ((r + 1) * side - or))), y1 = Math.min(foot, Math.max(edge(toY, rows - (r * side - or)), y0 + 1));
        if (y1 <= head || y0 >= foot) continue;
        for (let j = drawn.first[r]; j < drawn.first[r + 1]; j++) {
          const x0 = Math.max(left, edge(toX, drawn.col[j] * side - oc)), x1 = Math.min(right, Math.max(edge(toX, (drawn.col[j] + 1) * side - oc), x0 + 1));
          if (x1 <= left || x0 >= right || drawn.val[j] === 0) continue;
          pixels.fill(of(drawn.val[j] / (lone ?? drawn.num[j])), y0 * w + x0, y0 * w + x1);
          for (let y = y0 + 1; y < y1; y++) pixels.copyWithin(y * w + x0, y0 * w + x0, y0 * w + x1);
          if (lone === null && drawn.val[j] / drawn.num[j] > hatch) for (let y = y0; y < y1; y++) for (let x = x0; x < x1; x++) if ((x + y) % 5 < 2) pixels[y * w + x] = dark;
        }
      }
      const layer = new OffscreenCanvas(w, h);
      layer.getContext("2d").putImageData(image, 0, 0);
      pen.setTransform(1, 0, 0, 1, 0, 0);
      pen.drawImage(layer, 0, 0);
      return { cells: drawn.n, join };
    },
    outline(pen, id, toX, toY) {
      const [x0, y0, x1, y1] = me.box(id), a = toX(x1) - toX(x0), b = toY(y1) - toY(y0), grow = Math.max(0, (9 - Math.min(a, b)) / 2);
      pen.beginPath(); pen.rect(toX(x0) - grow, toY(y0) - grow, a + 2 * grow, b + 2 * grow);
    },
  };
  return me;
}

/** What page.py packed of outlines: per level and place, rings of whole page units. */
async function unpackShapes(about, text) {
  const found = await numbers(about, text, ["x", "y"]);
  let x = 0, y = 0, k = 0, ring = 0;
  const next = () => { x += found.x[k]; y += found.y[k]; k++; return [x, y]; };
  return found.rings.map((many) => Array.from({ length: many }, () => Array.from({ length: found.size[ring++] }, next)));
}

/** The edges of rings that no two of them share: the outline of places together. A corner that lies on another's edge
 *  cuts it in two. */
function border(rings, corners) {
  const left = new Map(), spot = (p) => p[0] * 8192 + p[1], add = (from, to) => {
    const a = spot(from), b = spot(to), key = Math.min(a, b) * 2 ** 26 + Math.max(a, b);
    if (left.has(key)) left.delete(key); else left.set(key, [from, to]);
  };
  for (const ring of rings) ring.forEach((from, i) => {
    const to = ring[(i + 1) % ring.length], [dx, dy] = [to[0] - from[0], to[1] - from[1]];
    let steps = Math.abs(dx), rest = Math.abs(dy), last = from;
    while (rest) [steps, rest] = [rest, steps % rest];
    for (let k = 1; k < steps; k++) { const p = [from[0] + (dx / steps) * k, from[1] + (dy / steps) * k]; if (corners.has(spot(p))) { add(last, p); last = p; } }
    add(last, to);
  });
  return [...left.values()];
}

function shapesSurface(axis) {
  let level = 0, base, sums, num, ref;
  const [wide, high] = axis.page, corners = new Set(axis.levels[0].rings.flat(2).map((p) => p[0] * 8192 + p[1]));
  for (const l of axis.levels) {
    l.of ??= new Uint32Array(axis.size);
    if (l.spans) l.rings = l.spans.map(([low, past]) => axis.levels[0].rings.slice(low, past).flat());
    l.boxes = l.rings.map((rings) => { const out = [Infinity, Infinity, -Infinity, -Infinity]; for (const ring of rings) for (const [a, b] of ring) { out[0] = Math.min(out[0], a); out[1] = Math.min(out[1], b); out[2] = Math.max(out[2], a); out[3] = Math.max(out[3], b); } return rings.length ? out : [0, 0, 0, 0]; });
    l.paths = l.rings.map((rings) => { const path = new Path2D(); for (const ring of rings) { ring.forEach(([a, b], i) => (i ? path.lineTo(a, b) : path.moveTo(a, b))); path.closePath(); } return path; });
    l.edges = l.rings.map((rings) => (l.spans ? border(rings, corners) : rings));
    l.lines = l.spans ? l.edges.map((edges) => { const path = new Path2D(); for (const [[a, b], [c, d]] of edges) { path.moveTo(a, b); path.lineTo(c, d); } return path; }) : l.paths;
  }
  const own = axis.levels[0], now = () => axis.levels[level], inside = (rings, x, y) => { let odd = false; for (const ring of rings) for (let i = 0, j = ring.length - 1; i < ring.length; j = i++) { const [a, b] = ring[i], [c, d] = ring[j]; if (b > y !== d > y && x < ((c - a) * (y - b)) / (d - b) + a) odd = !odd; } return odd; };
  const title = (l, i) => { const names = l.names, ja = names.name_ja?.[i], en = names.name_en?.[i] ?? names.name_romaji?.[i]; return (language === "ja" ? ja : en) || Object.values(names)[0]?.[i] || ""; };
  const me = {
    wide, high, aspect: 1, axis, sea: null, get level() { return level; },
    load(n, place, value, row) {
      base = { val: new Float64Array(axis.size), num: new Uint32Array(axis.size), ref: new Float64Array(axis.size).fill(-1) };
      for (let k = 0; k < n; k++) { const i = place(k); base.ref[i] = base.num[i] ? -1 : row(k); base.val[i] += value(k); base.num[i]++; }
    },
    use(k, special) {
      level = k;
      const count = now().codes.length;
      sums = new Float64Array(count); num = new Uint32Array(count); ref = new Float64Array(count).fill(-1);
      if (special) for (let i = 0; i < special.n; i++) { sums[special.area(i)] += special.value(i); num[special.area(i)]++; ref[special.area(i)] = i; }
      else for (let i = 0; i < axis.size; i++) if (base.num[i]) { const a = areaOf(axis, i, level); ref[a] = num[a] ? -1 : base.ref[i]; sums[a] += base.val[i]; num[a] += base.num[i]; }
    },
    get: (id) => (num[id] ? { val: sums[id], num: num[id], ref: ref[id] } : null),
    each(visit) { for (let i = 0; i < sums.length; i++) if (num[i]) visit(i, sums[i], num[i], ref[i]); },
    leafAt(x, y) { for (let i = 0; i < own.rings.length; i++) { const [a, b, c, d] = own.boxes[i]; if (x >= a && x <= c && y >= b && y <= d && inside(own.rings[i], x, y)) return i; } return -1; },
    centre: (leaf) => { const [a, b, c, d] = own.boxes[leaf]; return [(a + c) / 2, (b + d) / 2]; },
    /** The place whose middle is next in a direction. */
    near(leaf, dx, dy) {
      const [x, y] = me.centre(leaf), here = areaOf(axis, leaf, level);
      let best = leaf, least = Infinity;
      own.boxes.forEach((_, i) => { if (areaOf(axis, i, level) === here) return; const [a, b] = me.centre(i), along = (a - x) * dx - (b - y) * dy, off = Math.abs((a - x) * dy) + Math.abs((b - y) * dx), far = along + 2 * off; if (along > 0 && off <= 2 * along && far < least) { least = far; best = i; } });
      return best;
    },
    middle: () => { const [x, y] = me.home ? [(me.home[0] + me.home[2]) / 2, (me.home[1] + me.home[3]) / 2] : [wide / 2, high / 2]; let best = 0, least = Infinity; own.boxes.forEach((_, i) => { const [a, b] = me.centre(i), far = (a - x) ** 2 + (b - y) ** 2; if (far < least) { least = far; best = i; } }); return best; },
    first: (id, k = level) => (k === 0 ? id : axis.levels[k].of.indexOf(id)),
    box: (id) => now().boxes[id],
    cut: () => false,
    code: (id) => now().codes[id],
    name: (id) => [title(now(), id), now().codes[id]].filter(Boolean).join(" "),
    title: () => levelName(now().name),
    where: (leaf) => [me.name(areaOf(axis, leaf, level)), me.title()],
    levels: () => axis.levels.map((l, i) => [String(i), levelName(l.name)]),
    decode(text) { for (let k = 0; k < axis.levels.length; k++) { const i = axis.levels[k].codes.indexOf(text.trim()); if (i >= 0) return { level: k, leaf: me.first(i, k) }; } return null; },
    /** Every place of every level, for search. */
    places: () => axis.levels.flatMap((l, k) => l.codes.map((code, i) => ({ words: [code, ...Object.values(l.names).map((n) => n[i])], level: k, leaf: me.first(i, k), label: [title(l, i), code].filter(Boolean).join(" ") }))),
    paint(pen, { box, ratio, w, h, toX, toY, of, hatch }) {
      const s = box.s * ratio, seen = ([a, b, c, d]) => toX(c) >= 0 && toY(d) >= 0 && toX(a) * ratio <= w && toY(b) * ratio <= h;
      pen.setTransform(s, 0, 0, s, -box.x * s, -box.y * s);
      let drawn = 0;
      now().paths.forEach((path, i) => {
        if (!seen(now().boxes[i])) return;
        drawn++;
        pen.fillStyle = sums[i] ? css(of(sums[i])) : LAND;
        pen.fill(path, "evenodd");
        if (hatch && sums[i] > hatch) { pen.fillStyle = me.hatch ??= stripes(pen); pen.save(); pen.clip(path, "evenodd"); pen.setTransform(1, 0, 0, 1, 0, 0); pen.fillRect(0, 0, w, h); pen.restore(); }
      });
      const wide = (own.boxes.reduce((a, b) => a + b[2] - b[0], 0) / own.boxes.length) * box.s, thin = level ? 1 : Math.min(1, wide / 14);
      pen.lineWidth = 0.8 * thin * ratio / s; pen.strokeStyle = "#0b101bb0";
      now().lines.forEach((path, i) => { if (seen(now().boxes[i])) pen.stroke(path); });
      if (level + 1 < axis.levels.length) { pen.lineWidth = 1.1 * ratio / s; pen.strokeStyle = "#ffffffc0"; axis.levels[level + 1].lines.forEach((path, i) => { if (seen(axis.levels[level + 1].boxes[i])) pen.stroke(path); }); }
      return { cells: drawn, join: 1 };
    },
    outline(pen, id, toX, toY) {
      pen.beginPath();
      for (const ring of now().edges[id]) { ring.forEach(([a, b], i) => (i ? pen.lineTo(toX(a), toY(b)) : pen.moveTo(toX(a), toY(b)))); if (!level) pen.closePath(); }
    },
    labels: (l = now()) => l.codes.map((_, i) => { const [a, , c] = l.boxes[i], [x, y] = (l.spots ??= l.rings.map(middleOf))[i]; return { text: title(l, i), at: [x, y], room: c - a }; }).filter((one) => one.text).sort((a, b) => b.room - a.room),
    /** Names of the areas of the next level. */
    above: () => (axis.levels[level + 1] ? me.labels(axis.levels[level + 1]) : []),
  };
  if (own.boxes.length > 20) { // most places and those that lie close to them are shown first, without islands far away
    const at = (d, q) => own.boxes.map((b) => (b[d] + b[d + 2]) / 2).sort((a, b) => a - b)[Math.floor(q * (own.boxes.length - 1))], [x0, x1, y0, y1] = [at(0, .03), at(0, .97), at(1, .03), at(1, .97)];
    const home = [Infinity, Infinity, -Infinity, -Infinity], take = ([a, b, c, d]) => { home[0] = Math.min(home[0], a); home[1] = Math.min(home[1], b); home[2] = Math.max(home[2], c); home[3] = Math.max(home[3], d); };
    let left = own.boxes.map((_, i) => i).filter((i) => { const one = own.boxes[i], x = (one[0] + one[2]) / 2, y = (one[1] + one[3]) / 2, inside = x >= x0 && x <= x1 && y >= y0 && y <= y1; if (inside) take(one); return !inside; });
    for (let more = -1; more !== left.length; ) {
      more = left.length;
      const far = 0.01 * Math.max(home[2] - home[0], home[3] - home[1]);
      left = left.filter((i) => { const one = own.boxes[i], near = one[0] <= home[2] + far && one[2] >= home[0] - far && one[1] <= home[3] + far && one[3] >= home[1] - far; if (near) take(one); return !near; });
    }
    if ((home[2] - home[0]) * (home[3] - home[1]) < 0.55 * wide * high) {
      me.home = home;
      me.afar = groupsOf(own.boxes, left, 0.03 * Math.max(wide, high)).filter((group) => group.ids.length > 1).slice(0, 3);
      const called = new Set();
      for (const group of me.afar) { // called by the area of the next level that has most of them, a second one also by its own widest place
        const above = group.ids.map((i) => areaOf(axis, i, Math.min(1, axis.levels.length - 1))), most = above.reduce((best, id) => (above.filter((one) => one === id).length > above.filter((one) => one === best).length ? id : best), above[0]);
        const widest = called.has(most) && group.ids.reduce((best, i) => (own.boxes[i][2] - own.boxes[i][0] > own.boxes[best][2] - own.boxes[best][0] ? i : best));
        group.title = () => (axis.levels.length > 1 ? title(axis.levels[1], most) + (widest === false ? "" : ` ${title(own, widest)}`) : "");
        called.add(most);
      }
    }
  }
  return me;
}
/** The middle of rings, large ones counting more. */
function middleOf(rings) {
  let all = 1e-9, x = 0, y = 0;
  for (const ring of rings) { const xs = ring.map((p) => p[0]), ys = ring.map((p) => p[1]), [a, b, c, d] = [Math.min(...xs), Math.min(...ys), Math.max(...xs), Math.max(...ys)], size = (c - a) * (d - b); all += size; x += size * (a + c) / 2; y += size * (b + d) / 2; }
  return [x / all, y / all];
}
const levelName = (name) => (/^\d+$/.test(name) ? `${t().tier} ${name}` : called(name));
function stripes(pen) {
  const tile = new OffscreenCanvas(6, 6), on = tile.getContext("2d");
  on.strokeStyle = css(word(DARK)); on.lineWidth = 2; on.beginPath();
  for (const k of [-6, 0, 6]) { on.moveTo(k, 6); on.lineTo(k + 6, 0); }
  on.stroke();
  return pen.createPattern(tile, "repeat");
}
