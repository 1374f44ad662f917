// ---- the map ----

function showMap(view, data) {
  const maps = view.axes.flatMap((axis, i) => (axis.kind === "mesh" || axis.kind === "shapes" ? [i] : []));
  const columns = data.columns, unit = view.data.unit, internal = "truth" in columns, known = ranges(view, data);
  const has = "above" in columns || data.ranges.length > 0;
  const state = { map: maps[0], pick: view.axes.map(() => -1), held: view.axes.map(() => null), layer: "value", log: true, cursor: null, drawn: null, beside: -1 };
  const LEGEND = [252, 76]; // pixels that it takes on the left, below
  const canvas = $("canvas"), pen = canvas.getContext("2d"), surfaces = view.axes.map((axis) => (axis.kind === "mesh" ? meshSurface(axis, mask(axis)) : axis.kind === "shapes" ? shapesSurface(axis) : null));
  let on, axis, earth, ground, top, box = { x: 0, y: 0, s: 1 }, fitted = 1, rest = box, insets = [];
  const amount = { value: (i) => columns.value[i], truth: (i) => columns.truth[i], error: (i) => columns.value[i] - columns.truth[i], share: (i) => columns.value[i] };

  function mask(of) {
    const found = view.mask.find((m) => m.axes.length === 1 && m.axes[0] === of.name);
    if (!found || of.kind !== "mesh") return null;
    const out = new Uint8Array(of.rows * of.cols);
    let at = 0, full = found.first;
    for (const run of found.runs) { if (full) out.fill(1, at, at + run); at += run; full = !full; }
    return out;
  }
  function turnTo(i) {
    state.map = i; on = surfaces[i]; axis = view.axes[i]; earth = globe(axis.globe, on.wide, on.high); ground = data.ground[i] ?? null;
    state.cursor = null;
  }
  /** Whether a row is among those that the boxes pick, but for some axes. */
  const kept = (i, without) => state.pick.every((p, a) => without.includes(a) || (state.held[a] ? areaOf(view.axes[a], data.index[a][i], state.held[a].k) === state.held[a].id : p < 0 || data.index[a][i] === p));
  /** The levels of all axes, and the areas along them, of an area of the map. */
  const keyOf = (k) => view.axes.map((_, a) => (a === state.map ? k : state.held[a] ? state.held[a].k : state.pick[a] < 0 ? -1 : 0));
  const idsOf = (id) => view.axes.map((_, a) => (a === state.map ? id : state.held[a] ? state.held[a].id : state.pick[a]));
  /** The rows that the boxes pick, on the surface, and its sums. */
  function build(k = on.level) {
    const place = data.index[state.map], value = amount[state.layer];
    let n = data.n, row = (j) => j;
    if (state.pick.some((p, a) => a !== state.map && (p >= 0 || state.held[a]))) {
      const keep = [];
      for (let i = 0; i < data.n; i++) if (kept(i, [state.map])) keep.push(i);
      n = keep.length; row = (j) => keep[j];
    }
    on.load(n, (j) => place[row(j)], (j) => value(row(j)), row);
    cut(k);
  }
  function cut(k) {
    let special = null;
    if (state.layer === "share") {
      const key = keyOf(k), rows = known.table(key);
      if (!rows) { state.layer = "value"; layerBox.value = "value"; }
      else {
        const ids = idsOf(-1), axes = key.map((l, a) => a).filter((a) => key[a] >= 0), own = axes.indexOf(state.map), keep = [];
        for (let i = 0; i < rows.n; i++) if (axes.every((a, d) => a === state.map || rows.index[d][i] === ids[a])) keep.push(i);
        special = { n: keep.length, area: (j) => rows.index[own][keep[j]], value: (j) => unit * share(rows, keep[j]) };
      }
    }
    on.use(k, special);
    top = { high: 0, low: 0 };
    on.each((_, v) => { if (v > top.high) top.high = v; if (v < top.low) top.low = v; });
  }
  function setLevel(k) { if (state.layer === "share" && !known.table(keyOf(k))) k = 0; build(k); levelBox.value = String(k); renew(); }
  /** A part of the page, clear of the buttons, and of the legend where there is room below or beside it. */
  function show(x0, y0, x1, y1) {
    const w = canvas.clientWidth, h = canvas.clientHeight, buttons = $("in").parentElement, row = buttons.offsetWidth > buttons.offsetHeight, [side, head] = row ? [0, buttons.offsetHeight] : [buttons.offsetWidth, 0];
    const [across, down] = [(x1 - x0) * on.aspect, y1 - y0], beside = (w - side - LEGEND[0] - 32) / across, under = (h - head - LEGEND[1] - 16) / down;
    box.s = Math.min(Math.max(1, w - 16 - side) / across, Math.max(1, h - 16 - head) / down);
    if (Math.max(beside, under) >= 0.8 * box.s) box.s = Math.min(box.s, Math.max(beside, under)); // a little smaller, and nothing is hidden
    const wide = box.s * across, high = box.s * down, low = box.s <= under;
    const cx = Math.min(Math.max(w / 2, !low && box.s <= beside ? LEGEND[0] + 16 + wide / 2 : 0), w - (side ? 16 : 8) - side - wide / 2), cy = low ? head + (h - head - LEGEND[1]) / 2 : Math.max(h / 2, head + 8 + high / 2);
    box.x = (x0 + x1) / 2 - cx / (box.s * on.aspect); box.y = (y0 + y1) / 2 - cy / box.s;
  }
  function fit(home = true) {
    show(0, 0, on.wide, on.high);
    fitted = box.s;
    if (home && on.home) show(...on.home);
    rest = { ...box };
    insets = [];
    if (!home || !on.home) return;
    const w = canvas.clientWidth, h = canvas.clientHeight, buttons = $("in").parentElement;
    const places = on.axis.levels[0].boxes.map(([a, b, c, d]) => [toX(a), toY(b), toX(c), toY(d)]);
    insets = corners(on.afar, w, h, [...places, [0, h - LEGEND[1] - 10, LEGEND[0], h], [w - buttons.offsetWidth - 10, 0, w, buttons.offsetHeight + 16]]);
  }
  /** The first view, with small maps of what lies far away; they go when it moves. */
  const resting = () => ["x", "y", "s"].every((k) => Math.abs(box[k] - rest[k]) < 1e-9);
  const framed = () => (resting() ? insets : []);
  const toX = (x) => (x - box.x) * box.s * on.aspect, toY = (y) => (y - box.y) * box.s;
  const toPage = (px, py) => [px / (box.s * on.aspect) + box.x, py / box.s + box.y];

  const colours = { value: ramp("value"), share: ramp("share").reverse(), truth: ramp("value"), error: ramp("error") };
  function colour({ high: most, low: least }) {
    const lut = colours[state.layer].map(word), red = word(NEGATIVE);
    if (state.layer === "error") {
      const far = Math.max(most, -least) || 1, bend = state.log ? (v) => Math.log1p(v) / Math.log1p(far) : (v) => v / far;
      return (v) => lut[Math.round(127.5 + 127.5 * Math.sign(v) * Math.min(1, bend(Math.abs(v))))];
    }
    if (state.layer === "share") return (v) => lut[Math.min(255, Math.round((255 * v) / (100 * unit)))];
    const high = Math.max(most, unit), low = axis.kind === "mesh" ? unit : Math.max(unit, smallest(high)), span = Math.log(high / low) || 1;
    if (state.log) return (v) => (v < 0 ? red : lut[Math.max(0, Math.min(255, Math.round((255 * Math.log(v / low)) / span)))]);
    return (v) => (v < 0 ? red : lut[Math.min(255, Math.round((255 * v) / high))]);
  }
  /** Where the colours of places start: not below a ten-thousandth of the largest. */
  const smallest = (high) => { let least = high; on.each((_, v) => { if (v > 0 && v < least) least = v; }); return Math.max(least, high / 1e4); };

  function draw() {
    const ratio = devicePixelRatio, w = Math.round(canvas.clientWidth * ratio), h = Math.round(canvas.clientHeight * ratio);
    if (!w || !h) return;
    if (canvas.width !== w || canvas.height !== h) { canvas.width = w; canvas.height = h; }
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.fillStyle = css(word(DARK)); pen.fillRect(0, 0, w, h);
    pen.fillStyle = GROUND; on.labels ? pen.fillRect(0, 0, w, h) : pen.fillRect(toX(0), toY(0), toX(on.wide) - toX(0), toY(on.high) - toY(0)); // places have no window
    const flat = () => pen.setTransform(box.s * on.aspect * ratio, 0, 0, box.s * ratio, -box.x * box.s * on.aspect * ratio, -box.y * box.s * ratio);
    if (ground) { flat(); pen.fillStyle = LAND; pen.fill(ground.paths[0], "evenodd"); }
    const of = colour(top), hatch = state.layer === "share" ? POOR * unit : 0;
    pen.save();
    if (framed().length) { const [a, b, c, d] = on.home; pen.setTransform(ratio, 0, 0, ratio, 0, 0); pen.beginPath(); pen.rect(toX(a) - 1, toY(b) - 1, toX(c) - toX(a) + 2, toY(d) - toY(b) + 2); pen.clip(); }
    state.drawn = on.paint(pen, { box, ratio, w, h, toX, toY, of, hatch });
    pen.restore();
    if (ground) borders(ratio);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    overlay(state.drawn.join);
    for (const one of framed()) {
      paintInset(pen, one, on, { ratio, of, hatch });
      pen.font = `500 11px ${font()}`; pen.textAlign = "left";
      if (pen.measureText(one.title()).width < one.wide - 8) label(one.title(), one.x + 5, one.y + 14);
      if (one.ids.includes(state.cursor)) mark(one.toX, one.toY);
    }
  }
  /** Coasts and boundaries over the cells: light, with a dark edge, finer ones only where there is room. */
  function borders(ratio) {
    pen.save();
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.beginPath(); pen.rect(toX(0), toY(0), toX(on.wide) - toX(0), toY(on.high) - toY(0)); pen.clip();
    const near = degree() > 560, all = new DOMMatrix([box.s * on.aspect, 0, 0, box.s, -box.x * box.s * on.aspect, -box.y * box.s]);
    for (const [kind, wide, light] of [[3, 0.7, "#ffffff80"], [2, near ? 1.6 : 1, "#ffffffb3"], [1, 1.4, "#ffffffcc"], [0, near ? 1.4 : 0.9, "#b9cdf0e0"]]) {
      if (kind === 3 && degree() < 260) continue;
      const path = new Path2D();
      path.addPath(kind ? ground.paths[kind] : ground.coast, all);
      pen.lineJoin = "round"; pen.lineWidth = wide + 1.6; pen.strokeStyle = kind === 3 ? "#0b101b40" : "#0b101b66"; pen.stroke(path);
      pen.lineWidth = wide; pen.strokeStyle = light; pen.stroke(path);
    }
    pen.restore();
  }
  /** Degrees of longitude across the window. */
  const span = () => (axis.globe ? Math.abs(axis.globe.lon[axis.globe.patches] - axis.globe.lon[0]) || 1 : 1);
  /** Pixels of a degree of longitude. */
  const degree = () => (box.s * on.aspect * on.wide) / span();
  const font = () => getComputedStyle(document.body).fontFamily;
  /** Words on the map that are read on any colour: light, with a dark edge. */
  function label(text, x, y, strength = "#fff") {
    pen.lineJoin = "round"; pen.lineWidth = 3.5; pen.strokeStyle = "#0b101be6"; pen.strokeText(text, x, y);
    pen.fillStyle = strength; pen.fillText(text, x, y);
  }
  const inSight = (x, y) => toX(x) > 0 && toY(y) > 0 && toX(x) < canvas.clientWidth && toY(y) < canvas.clientHeight;
  /** Names, the largest places first, as many as do not touch. */
  function names(taken) {
    const w = canvas.clientWidth, h = canvas.clientHeight, [wide, high] = [[toX(on.wide), toX(0), w], [toY(on.high), toY(0), h]].map(([past, first, end]) => Math.max(0, Math.min(past, end) - Math.max(first, 0))), most = Math.min(60, (wide * high) / 9000), far = degree() < 1000;
    const own = !on.labels && axis.scheme === "jis";
    const list = on.labels ? on.labels().map((l) => ({ text: l.text, at: l.at, size: 12, room: l.room * box.s })) : (ground?.names ?? []).filter((p) => p.code.length !== 2 && !(far && /市.+区$/.test(p.own))).map((p) => ({ text: language === "ja" ? p.own : p.latin, at: p.at, size: own && !p.code ? 11 : p.people > 20 ? 14 : 12, dot: true, far: own && !p.code }));
    if (own) list.sort((a, b) => a.far - b.far); // with a country's own list of places, those abroad come last
    let count = 0, abroad = 0;
    const write = (item) => { pen.font = `${item.size > 12 ? 600 : 500} ${item.size}px ${font()}`; return pen.measureText(item.text).width; };
    const near = on.above ? list.filter((item) => inSight(...item.at)) : [], fits = near.slice(0, 200).filter((item) => item.room >= 0.8 * write(item)).length;
    const above = on.above && fits < Math.max(4, near.length / 4) ? on.above().map((l) => ({ text: l.text, at: l.at, size: 14, room: l.room * box.s })) : []; // no room yet for their own
    for (const item of above.length ? above : list) {
      if (count >= most) break;
      const x = toX(item.at[0]), y = toY(item.at[1]);
      if (x < 4 || y < 8 || x > w - 4 || y > h - 4) continue;
      if (item.far && ++abroad > 10) break;
      const wide = write(item);
      if (item.room !== undefined && item.room < wide * 0.8) continue;
      const box = (left) => [left - 3, y - item.size, left + wide + 3, y + 5], free = ([x0, y0, x1, y1]) => x0 >= 0 && x1 <= w && !taken.some(([a, b, c, d]) => x0 < c && x1 > a && y0 < d && y1 > b);
      const left = (!item.dot ? [x - wide / 2] : item.size > 12 ? [x + 5, x - 5 - wide] : [x + 5]).find((at) => free(box(at))); // the largest also on the left of their dot
      if (left === undefined) continue;
      taken.push(box(left), [x - 4, y - 4, x + 4, y + 4]);
      if (item.dot) { pen.beginPath(); pen.arc(x, y, 2.4, 0, 7); pen.fillStyle = "#fff"; pen.fill(); pen.lineWidth = 1; pen.strokeStyle = "#0b101b"; pen.stroke(); }
      pen.textAlign = "left";
      label(item.text, left, y + 4, item.far ? "#aeb8ca" : "#fff");
      count++;
    }
    state.names = count;
  }
  function overlay(join) {
    const w = canvas.clientWidth, h = canvas.clientHeight, buttons = $("in").parentElement, taken = [[0, h - 86, Math.min(LEGEND[0] + 8, w), h], [w - buttons.offsetWidth - 16, 0, w, buttons.offsetHeight + 16]];
    if (axis.scheme === "jis") { // lines of the 80 km (zoomed in: 10 km) mesh, with their codes
      const own = GRID[axis.level][0], name = box.s * own / 8 > 110 && own >= 8 ? "10km" : "80km", step = own / GRID[name][0];
      pen.strokeStyle = box.s * step > 46 ? "#ffffff24" : "#ffffff10"; pen.lineWidth = 1; pen.font = `11px ${font()}`; pen.textAlign = "left";
      const from = [0, 1].map((d) => Math.ceil(axis.origin[d] / step)), past = [0, 1].map((d) => Math.floor((axis.origin[d] + [axis.rows, axis.cols][d]) / step));
      pen.beginPath();
      for (let k = from[1]; k <= past[1]; k++) { const x = Math.round(toX(k * step - axis.origin[1])) + .5; pen.moveTo(x, toY(0)); pen.lineTo(x, toY(axis.rows)); }
      for (let k = from[0]; k <= past[0]; k++) { const y = Math.round(toY(axis.rows - (k * step - axis.origin[0]))) + .5; pen.moveTo(toX(0), y); pen.lineTo(toX(axis.cols), y); }
      pen.stroke();
      if (box.s > 1.1 * rest.s && box.s * step > 150) for (let r = from[0] - 1; r <= past[0]; r++) for (let c = from[1] - 1; c <= past[1]; c++) {
        const x0 = Math.max(0, toX(0), toX(c * step - axis.origin[1])), y0 = Math.max(0, toY(0), toY(axis.rows - ((r + 1) * step - axis.origin[0])));
        const x1 = Math.min(w, toX(axis.cols), toX((c + 1) * step - axis.origin[1])), y1 = Math.min(h, toY(axis.rows), toY(axis.rows - (r * step - axis.origin[0])));
        if (x1 - x0 > 60 && y1 - y0 > 24) { label(encode(name, r, c), x0 + 4, y0 + 13, "#d5dcea"); taken.push([x0, y0, x0 + 52, y0 + 18]); }
      }
    }
    names(taken);
    if (state.cursor !== null && state.cursor >= 0) {
      mark(toX, toY);
    }
    legend(w, h, join);
    if (view.secret) {
      pen.save(); pen.translate(w / 2, h / 2); pen.rotate(-0.35); pen.textAlign = "center"; pen.fillStyle = "#ff5a4f70"; pen.font = `700 ${Math.max(26, w / 17)}px ${font()}`;
      pen.fillText("CONFIDENTIAL 部外秘", 0, 0); pen.restore();
    }
  }
  /** The edge of the chosen area. */
  function mark(toX, toY) {
    on.outline(pen, areaOf(axis, state.cursor, on.level), toX, toY);
    pen.lineWidth = 4; pen.strokeStyle = "#000"; pen.stroke();
    pen.lineWidth = 2; pen.strokeStyle = "#fff"; pen.stroke();
  }
  function legend(w, h, join) {
    const below = state.layer !== "error" && state.layer !== "share" && top.low < 0, room = below ? 106 : 30, name = on.title();
    const wide = Math.min(218, w - 12 - room), x = 14, y = h - 40, lut = colours[state.layer];
    pen.fillStyle = "#0b101bdd"; pen.fillRect(x - 8, y - 28, wide + room, 62);
    for (let i = 0; i < wide; i++) { pen.fillStyle = `rgb(${lut[Math.round((255 * i) / (wide - 1))]})`; pen.fillRect(x + i, y - 4, 1, 11); }
    pen.fillStyle = "#fff"; pen.font = `12px ${font()}`; pen.textAlign = "left";
    const what = { value: t().unit(view.unit), truth: `${t().true_}${t().is}${t().unit(view.unit)}`, error: t().off }[state.layer];
    pen.fillText((state.layer === "share" ? t().per_cent(view.confidence) : t().per(what, name)) + (join > 1 ? ` (${t().zoomed})` : ""), x, y - 12, wide + 14);
    pen.font = `11px ${font()}`; pen.textAlign = "center";
    const high = Math.max(top.high, unit) / unit, low = axis.kind === "mesh" ? 1 : Math.max(1, smallest(Math.max(top.high, unit)) / unit);
    const found = ticks(low, high, state.log), from = (v) => (wide * Math.log(v / low)) / (Math.log(high / low) || 1), ends = state.log && from(found[0]) > 44 ? [low, ...found] : found;
    if (state.layer === "error") {
      const most = Math.max(top.high, -top.low) / unit || 1;
      for (const v of [-most, 0, most]) pen.fillText(number(v, unit), Math.max(x + 20, Math.min(x + wide - 10, x + wide * (0.5 + v / most / 2))), y + 20);
    } else if (state.layer === "share") {
      for (const v of [0, 25, 50, 75, 100]) pen.fillText(`${v}`, x + Math.max(4, (wide * v) / 100 - 4), y + 20);
      pen.textAlign = "left"; label(t().hatched(POOR), x - 8, y - 34);
    } else for (const v of ends) {
      const at = x + (state.log ? from(v) : (wide * v) / high);
      if (at <= x + wide + 4) pen.fillText(brief(v, unit), Math.max(at, x + (v === low && v > 1 ? 12 : 6)), y + 20);
    }
    if (below) { pen.fillStyle = `rgb(${NEGATIVE})`; pen.fillRect(x + wide + 30, y - 4, 11, 11); pen.fillStyle = "#fff"; pen.textAlign = "left"; pen.fillText(t().negative, x + wide + 46, y + 6); }
    canvas.setAttribute("aria-label", `${axis.kind === "shapes" || axis.globe ? t().map : t().grid}. ${t().per(t().unit(view.unit), name)}: ${number(top.low / unit, unit)} ${t().to} ${number(top.high / unit, unit)}`);
  }

  const advice = (found) => { const off = found[2], verdict = off <= GOOD ? "good" : off <= POOR ? "care" : "poor"; return t().advice(number(found[0] / unit, unit), number(found[1] / unit, unit), t().unit(view.unit), view.confidence) + t()[verdict](number(Math.ceil(off))); };
  function read() {
    const out = $("readout");
    $("advice").textContent = "";
    follow.hidden = maps.length < 2 || state.cursor === null || state.cursor < 0;
    out.classList.toggle("unread", state.cursor === null); // nothing to print
    if (state.cursor === null) {
      const all = state.layer === "value" ? known.of(keyOf(-1), idsOf(-1)) : null; // of everything that the boxes pick
      out.textContent = top.high || top.low ? (matchMedia("(pointer: coarse)").matches ? t().touch : t().start) : t().nothing;
      const other = maps.length > 1 && !state.held.some(Boolean) ? t().ends(called(view.axes[maps[(maps.indexOf(state.map) + 1) % maps.length]].name)) : "";
      $("advice").append(all ? t().entire(view.unit, number(all[3] / unit, unit), number(all[0] / unit, unit), number(all[1] / unit, unit), view.confidence) : "");
      if (other) $("advice").append(element("span", { className: "hand", textContent: (all && language === "en" ? " " : "") + other })); // nothing for paper
      return;
    }
    if (state.cursor < 0) { out.textContent = t().outside; return; }
    const id = areaOf(axis, state.cursor, on.level), entry = on.get(id), s = on.level, where = on.where(state.cursor);
    if (earth) where.push(compass(earth.degrees(...on.centre(state.cursor))));
    if (on.cut(id)) where.push(t().cut);
    const items = []; // each an element and whether it is a remark on the one before
    const put = (name, ref, text) => items.push([element("span", { className: "item" }, name + t().is, element("b", { id: ref, textContent: text })), false]);
    const say = (text) => items.push([element("span", { className: "item", textContent: text }), text.startsWith("(")]);
    const alone = s === 0 && entry && entry.ref >= 0 && state.layer !== "share", errors = state.layer === "share";
    const found = entry && (state.layer === "value" || errors || alone) ? known.of(keyOf(s), idsOf(id)) : null;
    if (found) $("advice").textContent = advice(found);
    const of = entry ? entry.val / (errors ? entry.num : 1) : 0;
    const released = state.layer === "value" ? of : errors ? (found ? found[3] : null) : alone ? columns.value[entry.ref] : null;
    if (released === null) put(t()[state.layer], "read-layer", errors ? `± ${number(Math.ceil(of / unit))} %` : number(of / unit, unit));
    else put(t().released, "read-value", number(released / unit, unit));
    if (on.sea && s === 0 && on.sea[state.cursor]) say(t().sea);
    else if (!entry) say(`(${t().none})`);
    else if (found) put(t().interval(view.confidence), "read-interval", `${number(found[0] / unit, unit)} ${t().to} ${number(found[1] / unit, unit)}`);
    else if (has) say(`(${t().no_interval})`);
    if (alone && internal) { put(t().true_, "read-truth", number(columns.truth[entry.ref] / unit, unit)); put(t().off, "read-error", number((columns.value[entry.ref] - columns.truth[entry.ref]) / unit, unit)); }
    // copied and read aloud as text: a mark after each item, so that "121" and "95 % interval" are never one number
    items.forEach(([item], i) => { if (i + 1 < items.length && !items[i + 1][1]) item.append(t().then); });
    const place = element("span", { className: "where", id: "read-where", textContent: where.join(" · ") + t().is.trim() });
    out.replaceChildren(place, ...items.flatMap(([item]) => [t().gap, item]));
  }
  /** Whether any part of an area is on the screen. */
  function inView(id) {
    const [a, b, c, d] = on.box(id);
    return (toX(c) > 0 && toY(d) > 0 && toX(a) < canvas.clientWidth && toY(b) < canvas.clientHeight) || framed().some(({ box: [x0, y0, x1, y1] }) => c >= x0 && d >= y0 && a <= x1 && b <= y1);
  }
  function largest() {
    const order = []; // [value, area], largest first
    on.each((id, v) => {
      if ((order.length === 20 && v <= order[19][0]) || !inView(id)) return;
      const place = order.findIndex((item) => item[0] < v);
      order.splice(place < 0 ? order.length : place, 0, [v, id]);
      order.length = Math.min(order.length, 20);
    });
    $("largest-title").textContent = t().largest(order.length, on.title());
    const head = [t().place, t()[state.layer], ...(has && state.layer === "value" ? [t().interval(view.confidence)] : [])];
    $("largest").replaceChildren(
      element("thead", {}, element("tr", {}, ...head.map((text, i) => element("th", { scope: "col", className: i ? "n" : "", textContent: text })))),
      element("tbody", {}, ...order.map(([v, id]) => {
        const link = element("button", { type: "button", className: "link", textContent: on.name(id) }), found = head.length > 2 ? known.of(keyOf(on.level), idsOf(id)) : null;
        link.addEventListener("click", () => { jump(on.first(id)); canvas.scrollIntoView({ block: "nearest" }); canvas.focus(); });
        return element("tr", {}, element("td", {}, link), element("td", { className: "n", textContent: number(v / unit, unit) }), ...(head.length > 2 ? [element("td", { className: "n", textContent: found ? `${number(found[0] / unit, unit)} ${t().to} ${number(found[1] / unit, unit)}` : "–" })] : []));
      })));
  }
  /** Charts along the other axes, of the chosen area or of everything. */
  function charts() {
    if (view.axes.length < 2) return;
    const here = state.cursor !== null && state.cursor >= 0, id = here ? areaOf(axis, state.cursor, on.level) : -1;
    const keep = (i, without) => (!here || areaOf(axis, data.index[state.map][i], on.level) === id) && kept(i, [...without, state.map]);
    const range = (a, k) => { const key = keyOf(here ? on.level : -1), ids = idsOf(id); key[a] = 0; ids[a] = k; return known.of(key, ids); };
    const found = drawCharts(view, data, { skip: maps, keep, range, pick: state.pick, choose: (a, k) => set(a, k) });
    $("charts").replaceChildren(...(found.length ? [element("p", { className: "of", textContent: here ? on.name(id) : t().whole }), ...found] : []));
  }
  /** Small maps, one for every label of an axis, in the same colours. */
  function multiples() {
    const b = state.beside, place = $("multiples");
    if (b < 0) { place.replaceChildren(); return; }
    const other = view.axes[b], many = Math.min(other.size, 24), made = [], high = { high: 0, low: 0 };
    for (let k = 0; k < many; k++) {
      const small = axis.kind === "mesh" ? meshSurface(axis, on.sea) : shapesSurface(axis), keep = [];
      for (let i = 0; i < data.n; i++) if (data.index[b][i] === k && kept(i, [state.map, b])) keep.push(i);
      small.load(keep.length, (j) => data.index[state.map][keep[j]], (j) => columns.value[keep[j]], (j) => keep[j]);
      small.use(on.level);
      small.each((_, v) => { high.high = Math.max(high.high, v); high.low = Math.min(high.low, v); });
      made.push(small);
    }
    const layer = state.layer;
    state.layer = "value";
    const of = colour(high);
    state.layer = layer;
    const wide = 220, tall = Math.min(300, Math.max(80, (wide * on.high) / (on.wide * on.aspect)));
    place.replaceChildren(...made.map((small, k) => {
      const one = element("canvas", { width: wide * 2, height: Math.round(tall * 2), role: "img" }), ink = one.getContext("2d"), s = Math.min((2 * wide) / (on.wide * on.aspect), (2 * tall) / on.high), view_ = { x: on.wide / 2 - wide / (s * on.aspect), y: on.high / 2 - tall / s, s };
      ink.fillStyle = GROUND; ink.fillRect(0, 0, one.width, one.height);
      small.paint(ink, { box: view_, ratio: 1, w: one.width, h: one.height, toX: (x) => (x - view_.x) * s * on.aspect, toY: (y) => (y - view_.y) * s, of, hatch: 0 });
      one.setAttribute("aria-label", `${called(other.name)}: ${called(labelOf(other, k))}`);
      const button = element("button", { type: "button", className: "one" }, one, element("span", { textContent: called(labelOf(other, k)) }));
      button.addEventListener("click", () => set(b, k));
      return button;
    }));
  }

  let waiting = false, later = 0;
  const soon = () => { if (!waiting) { waiting = true; requestAnimationFrame(() => { waiting = false; draw(); }); } clearTimeout(later); later = setTimeout(() => { largest(); charts(); remember(); }, 150); };
  const renew = () => { soon(); read(); largest(); charts(); };
  function zoom(factor, px = canvas.clientWidth / 2, py = canvas.clientHeight / 2) {
    const [x, y] = toPage(px, py);
    box.s = Math.min(Math.max(box.s * factor, fitted * 0.8), axis.kind === "mesh" ? 120 : 60 * fitted);
    box.x = x - px / (box.s * on.aspect); box.y = y - py / box.s;
    soon();
  }
  function jump(leaf, least = axis.kind === "mesh" ? 6 : 0) {
    state.cursor = leaf;
    const [x, y] = on.centre(leaf);
    if (least && box.s < least) box.s = least;
    if (!least) { const [a, b, c, d] = on.box(areaOf(axis, leaf, on.level)); box.s = Math.max(box.s, Math.min(60 * fitted, canvas.clientWidth / (5 * (c - a + 1)), canvas.clientHeight / (5 * (d - b + 1)))); }
    box.x = x - canvas.clientWidth / 2 / (box.s * on.aspect); box.y = y - canvas.clientHeight / 2 / box.s;
    soon(); read();
  }
  function leafOn(px, py) {
    const one = framed().find(({ x, y, wide, high }) => px >= x && py >= y && px <= x + wide && py <= y + high);
    return on.leafAt(...(one ? one.toPage(px, py) : toPage(px, py)));
  }
  function point(px, py) { state.cursor = leafOn(px, py); soon(); read(); }
  function reveal() { // keep the cursor in sight
    const [cx, cy] = on.centre(state.cursor), x = toX(cx), y = toY(cy), w = canvas.clientWidth, h = canvas.clientHeight;
    if (x < 20) box.x -= (20 - x) / (box.s * on.aspect); else if (x > w - 20) box.x += (x - w + 20) / (box.s * on.aspect);
    if (y < 20) box.y -= (20 - y) / box.s; else if (y > h - 20) box.y += (y - h + 20) / box.s;
  }

  // fingers and mouse: one moves, two zoom, a short touch reads and holds
  const down = new Map();
  let moved = 0, held = false;
  const at = (event) => { const r = canvas.getBoundingClientRect(); return [event.clientX - r.left, event.clientY - r.top]; };
  canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); down.set(event.pointerId, at(event)); moved = down.size > 1 ? 99 : 0; });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = at(event), before = down.get(event.pointerId);
    if (!before) { if (!held) point(x, y); return; }
    if (down.size === 1) { box.x -= (x - before[0]) / (box.s * on.aspect); box.y -= (y - before[1]) / box.s; }
    else {
      const [other] = [...down].filter(([id]) => id !== event.pointerId).map(([, p]) => p);
      const far = (p) => Math.hypot(p[0] - other[0], p[1] - other[1]) || 1;
      zoom(far([x, y]) / far(before), other[0], other[1]);
    }
    moved += Math.hypot(x - before[0], y - before[1]);
    down.set(event.pointerId, [x, y]);
    soon();
  });
  const up = (event) => { if (down.delete(event.pointerId) && moved < 6 && event.type === "pointerup") { held = view.axes.length > 1 && !(held && leafOn(...at(event)) === state.cursor); point(...at(event)); } };
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointercancel", up);
  // a wheel over the map scrolls the page, until Ctrl is held or the map was clicked
  canvas.addEventListener("wheel", (event) => { if (!event.ctrlKey && document.activeElement !== canvas) return; event.preventDefault(); zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0016)), ...at(event)); }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const moves = { ArrowUp: [0, 1], ArrowDown: [0, -1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };
    if (moves[event.key]) {
      state.cursor = on.near(state.cursor === null || state.cursor < 0 ? on.middle() : state.cursor, ...moves[event.key], event.shiftKey);
      reveal(); soon(); read();
    } else if (event.key === "+" || event.key === "=" || event.key === "-") {
      const [x, y] = state.cursor !== null && state.cursor >= 0 ? on.centre(state.cursor) : [];
      zoom(event.key === "-" ? 1 / 1.5 : 1.5, ...(x === undefined ? [] : [toX(x), toY(y)]));
    } else if (event.key === "0" || event.key === "Home") { fit(false); soon(); }
    else if (event.key === "Escape") { held = false; canvas.blur(); }
    else if (event.key === "PageUp" || event.key === "PageDown") {
      setLevel(Math.min(Math.max(on.level + (event.key === "PageUp" ? 1 : -1), 0), axis.levels.length - 1));
    } else return;
    event.preventDefault();
  });
  $("in").addEventListener("click", () => zoom(1.6));
  $("out").addEventListener("click", () => zoom(1 / 1.6));
  $("all").addEventListener("click", () => { fit(false); soon(); });
  $("full").addEventListener("click", () => { document.fullscreenElement ? document.exitFullscreen() : $("stage").parentElement.requestFullscreen?.().catch(() => {}); });
  shown.push(() => { for (const [id, name] of [["in", "in"], ["out", "out"], ["all", "fit"], ["full", "full"]]) { $(id).setAttribute("aria-label", t()[name]); $(id).title = t()[name]; } });

  // the boxes beside the map
  const tools = $("tools"), boxes = view.axes.map(() => null);
  turnTo(maps[0]);
  const entries = () => [...on.places(), ...(ground?.names ?? []).map((p) => ({ words: [p.own, p.latin, p.code], page: p.at, label: [p.own, p.latin === p.own ? "" : p.latin, p.code].filter(Boolean).join(" ") }))];
  const search = element("input", { id: "go", type: "search", list: "found", autocomplete: "off" }), searchWords = element("span"), found = element("datalist", { id: "found" }), missed = element("span", { className: "missed", id: "missed", role: "status" });
  if (on.axis.scheme || ground || axis.kind === "shapes" || earth) tools.append(element("label", {}, searchWords, search, found, missed));
  shown.push(() => { searchWords.textContent = earth ? t().go : t().go_name; });
  let all = null;
  search.addEventListener("input", () => { all ??= entries(); found.replaceChildren(...matches(all, search.value).map((e) => element("option", { value: e.label }))); });
  function resolve(text) {
    const code = on.decode(text), degrees = latLon(text);
    if (code) return code;
    if (degrees) { const p = earth?.place(...degrees), leaf = p ? on.leafAt(...p) : -1; return leaf < 0 ? null : { level: on.level, leaf }; }
    all ??= entries();
    const best = all.find((e) => e.label === text) ?? matches(all, text, 1)[0];
    if (!best) return null;
    const leaf = best.page ? on.leafAt(...best.page) : best.leaf;
    return leaf < 0 ? null : { level: best.level ?? on.level, leaf, name: best.label };
  }
  search.addEventListener("change", () => {
    const text = search.value.trim(), hit = text ? resolve(text) : null;
    search.setAttribute("aria-invalid", String(Boolean(text) && !hit));
    missed.textContent = text && !hit ? t().find : "";
    if (!text || !hit) { if (text) $("readout").textContent = t().find; return; }
    if (hit.level !== on.level) setLevel(hit.level);
    jump(hit.leaf, axis.kind === "mesh" ? (hit.name ? Math.max(6, canvas.clientWidth / (70 * on.aspect)) : 6) : 0);
  });
  if (maps.length > 1) select(tools, "mesh", () => t().shows, () => maps.map((i) => [String(i), called(view.axes[i].name)]), (v) => { turnTo(Number(v)); all = null; build(0); fit(); speak(language); });
  const levelBox = select(tools, "level", () => t().level, () => on.levels(), (v) => setLevel(Number(v)));
  const scaleBox = select(tools, "scale", () => t().scale, () => [["log", t().log], ["linear", t().linear]], (v) => { state.log = v === "log"; soon(); multiples(); });
  const layers = ["value", ...(has ? ["share"] : []), ...(internal ? ["error", "truth"] : [])];
  const layerBox = layers.length > 1 ? select(tools, "layer", () => t().show, () => layers.map((name) => [name, t()[name === "share" ? "usable" : name]]), (v) => { state.layer = v; if (v === "share" && !known.table(keyOf(on.level))) { build(0); levelBox.value = "0"; } else build(); renew(); }) : { value: "value" };
  function pick(a, v) { state.pick[a] = v; state.held[a] = null; build(); renew(); multiples(); if (a !== state.map) hold(); }
  function set(a, v) { if (boxes[a].set) boxes[a].set(v); else boxes[a].value = v < 0 && boxes[a].tagName === "INPUT" ? "" : boxes[a].tagName === "INPUT" ? labelOf(view.axes[a], v) : String(v); pick(a, v); }
  view.axes.forEach((other, a) => { if (a !== maps[0] || maps.length > 1) boxes[a] = choose(tools, other, (v) => pick(a, v)); });
  shown.push(() => boxes.forEach((one, a) => { if (one) one.closest("label, .time").hidden = a === state.map; }));
  const small = view.axes.map((_, a) => a).filter((a) => !maps.includes(a) && view.axes[a].size > 1 && view.axes[a].size <= 24);
  if (small.length) select(tools, "beside", () => t().beside, () => [["-1", t().off_], ...small.map((a) => [String(a), t().by(called(view.axes[a].name))])], (v) => { state.beside = Number(v); multiples(); });
  // origin and destination: keep a place of this map and show the other end
  const use = $("use"), follow = press(use, "follow", () => t().follow(called(view.axes[maps.find((i) => i !== state.map) ?? 0].name)), () => {
    const other = maps[(maps.indexOf(state.map) + 1) % maps.length], id = areaOf(axis, state.cursor, on.level);
    state.held[state.map] = { k: on.level, id, words: `${called(axis.name)}${t().is}${on.name(id)}` };
    state.held[other] = null; state.pick[other] = -1;
    turnTo(other); all = null; $("mesh").value = String(other);
    build(0); fit(); hold(); speak(language);
  });
  const free = press(use, "free", () => [...state.held.filter(Boolean).map((h) => h.words), t().free].join(" · "), () => { state.held.fill(null); build(); hold(); renew(); });
  function hold() { free.hidden = !state.held.some(Boolean); free.textContent = [...state.held.filter(Boolean).map((h) => h.words), t().free].join(" · "); }
  follow.hidden = free.hidden = true;
  follow.classList.toggle("never", maps.length < 2);
  press(use, "png", () => t().png, savePicture);
  press(use, "csv", () => t().csv, () => keepCsv(listed(), "kasuri.csv"));
  const linker = press(use, "link", () => t().link, () => { remember.on = true; remember(); navigator.clipboard?.writeText(location.href).then(() => { linker.textContent = t().copied; }, () => {}); });
  /** What is on the screen, as lines of a table. */
  function listed() {
    const lines = [[t().code, t().name, state.layer === "share" ? "±%" : t()[state.layer], "lower", "upper"]];
    on.each((id, v) => { if (!inView(id)) return; const e = known.of(keyOf(on.level), idsOf(id)), code = on.code(id), name = on.name(id); lines.push([code, name === code ? "" : name, v / unit, e ? e[0] / unit : "", e ? e[1] / unit : ""]); });
    return lines;
  }
  /** The map with its title and its source, as a file. */
  function savePicture() {
    const ratio = devicePixelRatio, out = element("canvas", { width: canvas.width, height: canvas.height + Math.round(78 * ratio) }), ink = out.getContext("2d"), w = canvas.clientWidth;
    ink.scale(ratio, ratio);
    ink.fillStyle = "#fff"; ink.fillRect(0, 0, w, out.height);
    ink.fillStyle = "#16233b"; ink.font = `600 16px ${font()}`; ink.fillText(document.querySelector("h1").innerText, 10, 26, w - 20);
    ink.drawImage(canvas, 0, 42, w, canvas.clientHeight);
    ink.font = `11px ${font()}`; ink.fillText([...document.querySelectorAll(".credit")].map((p) => p.innerText).join(" · ") || "kasuri", 10, canvas.clientHeight + 62, w - 20);
    out.toBlob((blob) => keep(blob, "kasuri.png"));
  }

  // a link to what is shown: everything that was chosen, in the fragment
  function remember() {
    if (!remember.on) { remember.on = document.body.dataset.ready === "yes" && (state.cursor !== null || on.level > 0 || state.layer !== "value"); if (!remember.on) return; }
    const words = [language, `map=${state.map}`, `level=${on.level}`, `layer=${state.layer}`, `scale=${state.log ? "log" : "linear"}`, `box=${[box.x, box.y, box.s].map((v) => Number(v.toPrecision(7))).join(",")}`];
    state.pick.forEach((p, a) => { if (p >= 0) words.push(`pick${a}=${p}`); });
    if (state.cursor !== null && state.cursor >= 0) words.push(`at=${state.cursor}`);
    try { history.replaceState(null, "", `#${words.join("&")}`); } catch { /* a page in a frame may not */ }
  }
  function recall() {
    const said = Object.fromEntries(location.hash.slice(1).split("&").filter((w) => w.includes("=")).map((w) => w.split("="))), whole = (v, past) => (/^\d{1,15}$/.test(v ?? "") && Number(v) < past ? Number(v) : null);
    if (!said.box) return false;
    const map = whole(said.map, view.axes.length);
    if (map !== null && maps.includes(map)) { turnTo(map); if (maps.length > 1) $("mesh").value = said.map; levelBox.fill(); }
    view.axes.forEach((one, a) => { const p = whole(said[`pick${a}`], one.size); if (p !== null && boxes[a] && a !== state.map) { state.pick[a] = p; boxes[a].set ? boxes[a].set(p) : (boxes[a].value = boxes[a].tagName === "INPUT" ? labelOf(one, p) : String(p)); } });
    if (layers.includes(said.layer)) { state.layer = said.layer; layerBox.value = said.layer; }
    state.log = said.scale !== "linear"; scaleBox.value = state.log ? "log" : "linear";
    const k = whole(said.level, axis.levels.length) ?? 0;
    build(k); levelBox.value = String(on.level); fit();
    const [x, y, s] = said.box.split(",").map(Number);
    if ([x, y, s].every(Number.isFinite) && s > 0) Object.assign(box, { x, y, s: Math.min(Math.max(s, fitted * 0.8), axis.kind === "mesh" ? 120 : 60 * fitted) });
    state.cursor = whole(said.at, axis.size);
    return true;
  }
  build(0);
  fit();
  recall();
  shown.push(renew, hold);
  const refit = () => { if (resting()) fit(); }; // unless somebody zoomed
  new ResizeObserver(() => { refit(); soon(); }).observe(canvas);
  addEventListener("beforeprint", () => { refit(); draw(); });
  canvas.viewer = { state, box, toX, toY, listed, get axis() { return axis; }, get top() { return top; }, get insets() { return framed(); } }; // for the tests, and the curious
}
