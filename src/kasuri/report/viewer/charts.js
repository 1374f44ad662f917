// ---- charts of one place: a line over time, a pyramid, bars ----

function svg(tag, more = {}, ...inside) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(more)) made.setAttribute(name, value);
  made.append(...inside);
  return made;
}

/** Sums by the labels of one axis (or of two), over the rows that `keep` says. */
function sumsBy(data, keep, axis, size, other = null, many = 1) {
  const out = Array.from({ length: many }, () => new Float64Array(size));
  const at = data.index[axis], by = other === null ? null : data.index[other], value = data.columns.value;
  for (let i = 0; i < data.n; i++) if (keep(i)) out[by ? by[i] : 0][at[i]] += value[i];
  return other === null ? out[0] : out;
}
const WIDE = 300;
/** A line with its intervals; `pick` is called with the step that was clicked. */
function lineChart(axis, values, limits, unit, chosen, pick, gaps = [], WIDE = 300) {
  const high = WIDE > 300 ? 150 : 120, left = 44, foot = 20, top = 8, most = Math.max(unit, ...values, ...limits.map((l) => l?.[1] ?? 0)), x = (i) => left + ((WIDE - left - 8) * i) / Math.max(values.length - 1, 1), y = (v) => high - foot - ((high - foot - top) * Math.max(v, 0)) / most;
  const parts = [];
  for (const v of ticks(0, most / unit, false)) parts.push(svg("line", { class: "grid", x1: left, x2: WIDE - 8, y1: y(v * unit), y2: y(v * unit) }), svg("text", { x: left - 4, y: y(v * unit) + 4, "text-anchor": "end" }, brief(v, 1)));
  const known = limits.map((l, i) => [l, i]).filter(([l]) => l);
  if (known.length > 1) parts.push(svg("polygon", { class: "band", points: [...known.map(([l, i]) => `${x(i)},${y(l[1])}`), ...known.reverse().map(([l, i]) => `${x(i)},${y(l[0])}`)].join(" ") }));
  const runs = [[]]; // a line for every run of steps without a gap
  values.forEach((v, i) => { if (!gaps.includes(i)) runs.at(-1).push(`${x(i)},${y(v)}`); else if (runs.at(-1).length) runs.push([]); });
  for (const run of runs) if (run.length === 1) { const [a, b] = run[0].split(","); parts.push(svg("circle", { class: "dot", cx: a, cy: b, r: 2 })); } else if (run.length) parts.push(svg("polyline", { class: "curve", points: run.join(" ") }));
  const step = Math.ceil(values.length / (WIDE > 400 ? 8 : 4));
  for (let i = 0; i < values.length; i += step) parts.push(svg("text", { x: x(i), y: high - 5, "text-anchor": i ? "middle" : "start" }, axis.labels[i].replace(/^(\d{4}-\d\d-\d\d) (\d\d:\d\d)$/, axis.labels[0].slice(0, 10) === axis.labels.at(-1).slice(0, 10) ? "$2" : "$1")));
  if (chosen >= 0) parts.push(svg("line", { class: "mark-line", x1: x(chosen), x2: x(chosen), y1: top, y2: high - foot }), svg("circle", { class: "dot", cx: x(chosen), cy: y(values[chosen]), r: 4 }));
  const made = svg("svg", { viewBox: `0 0 ${WIDE} ${high}`, role: "img", "aria-label": `${called(axis.name)}${t().is}${number(Math.min(...values) / unit, unit)} ${t().to} ${number(Math.max(...values) / unit, unit)}` }, ...parts);
  made.style.maxWidth = `${Math.max(WIDE, 352)}px`; // its letters stay as large as the page's
  made.addEventListener("click", (event) => { const r = made.getBoundingClientRect(), i = Math.round((((event.clientX - r.left) / r.width) * WIDE - left) / ((WIDE - left - 8) / Math.max(values.length - 1, 1))); pick(Math.min(Math.max(i, 0), values.length - 1)); });
  return made;
}
/** Two sides of a population pyramid, the first label of the shorter axis on the left. */
function pyramid(rows, sides, sums, unit) {
  const step = Math.max(12, Math.min(20, 240 / rows.length)), high = rows.length * step + 38, most = Math.max(unit, ...sums.flatMap((s) => Array.from(s))), mid = WIDE / 2, reach = mid - 34, parts = [];
  sides.forEach((name, s) => parts.push(svg("text", { x: s ? WIDE - 2 : 2, y: 13, "text-anchor": s ? "end" : "start", class: "strong" }, `${name} ${number(sums[s].reduce((a, v) => a + v, 0) / unit, unit)}`)));
  rows.forEach((name, i) => {
    const y = 20 + (rows.length - 1 - i) * step;
    parts.push(svg("text", { x: mid, y: y + step / 2 + 4, "text-anchor": "middle" }, name));
    sums.forEach((of, s) => { const long = (reach * Math.max(of[i], 0)) / most; parts.push(svg("rect", { class: s ? "right" : "left", x: s ? mid + 32 : mid - 32 - long, y: y + 1, width: long, height: step - 2 }, svg("title", {}, `${sides[s]} ${name}: ${number(of[i] / unit, unit)}`))); });
  });
  for (const s of [0, 1]) for (const v of ticks(0, most / unit, false).filter((v, i, all) => !i || i === all.length - 1)) // from 0 in the middle outwards
    parts.push(svg("text", { x: s ? mid + 32 + (reach * v * unit) / most : mid - 32 - (reach * v * unit) / most, y: high - 4, "text-anchor": "middle", class: "axis" }, brief(v, 1)));
  return svg("svg", { viewBox: `0 0 ${WIDE} ${high}`, role: "img", "aria-label": `${sides.join(" / ")}: ${rows.map((name, i) => `${name} ${sums.map((s) => number(s[i] / unit, unit)).join(" / ")}`).join("; ")}` }, ...parts);
}
function barChart(labels, sums, unit, chosen) {
  const step = Math.max(13, Math.min(22, 260 / labels.length)), most = Math.max(unit, ...sums), room = 12 + 7 * number(Math.round(most / unit)).length, left = Math.min(118, 10 + Math.max(...labels.map((l) => Array.from(l.slice(0, 15)).reduce((a, c) => a + (c > "\u2e7f" ? 11.5 : /[mw%&@A-Z]/i.test(c) && !/[a-lnovx-z]/.test(c) ? 10 : 6.8), 0)))), parts = labels.flatMap((name, i) => {
    const y = i * step, long = ((WIDE - left - room) * Math.max(sums[i], 0)) / most;
    return [svg("text", { x: left - 5, y: y + step / 2 + 4, "text-anchor": "end", class: i === chosen ? "strong" : "" }, name.length > 15 ? name.slice(0, 14) + "…" : name), svg("rect", { class: i === chosen ? "right" : "left", x: left, y: y + 1, width: long, height: step - 3 }), svg("text", { x: left + long + 4, y: y + step / 2 + 4 }, number(Math.round(sums[i] / unit)))];
  });
  return svg("svg", { viewBox: `0 0 ${WIDE} ${labels.length * step + 4}`, role: "img", "aria-label": labels.map((l, i) => `${l} ${number(sums[i] / unit, unit)}`).join("; ") }, ...parts);
}
/** The charts of what `keep(i, without)` leaves, `without` the axes that a chart is along. */
function drawCharts(view, data, { skip, keep, range, pick, choose: chosen }) {
  const unit = view.data.unit, out = [], FEW = 40, left = view.axes.map((_, i) => i).filter((i) => !skip.includes(i) && view.axes[i].labels && view.axes[i].size > 1);
  const figure = (heading, drawing, own = "") => { if (view.secret) drawing.append(svg("text", { class: "mark", x: WIDE / 2, y: 40, "text-anchor": "middle", "font-size": 20 }, "CONFIDENTIAL 部外秘")); out.push(element("figure", { className: own }, element("figcaption", { textContent: heading }), drawing)); };
  const two = left.find((i) => view.axes[i].size === 2), ages = left.find((i) => i !== two && view.axes[i].kind !== "time" && view.axes[i].size > 2 && view.axes[i].size <= FEW);
  if (two !== undefined && ages !== undefined && pick[two] < 0)
    figure(`${called(view.axes[ages].name)} × ${called(view.axes[two].name)}`, pyramid(view.axes[ages].labels, view.axes[two].labels.map(called), sumsBy(data, (i) => keep(i, [two, ages]), ages, view.axes[ages].size, two, 2), unit));
  for (const i of left) {
    const axis = view.axes[i];
    if (axis.kind === "time") {
      const sums = sumsBy(data, (k) => keep(k, [i]), i, axis.size);
      figure(called(axis.name), lineChart(axis, sums, Array.from(sums, (_, k) => range(i, k)), unit, pick[i], (k) => chosen(i, k), i === 0 ? view.gaps : [], left.length > 1 ? WIDE : Math.min(Math.max($("charts").parentElement.clientWidth - 30, WIDE), 640)), left.length > 1 ? "" : "alone-here");
    } else if (axis.size <= FEW && !(two !== undefined && ages !== undefined && pick[two] < 0 && (i === two || i === ages)))
      figure(called(axis.name), barChart(axis.labels.map(called), sumsBy(data, (k) => keep(k, [i]), i, axis.size), unit, pick[i]));
  }
  return out;
}

// ---- intervals: what the page was packed with, by the level of every axis (-1: all of it) ----

function ranges(view, data) {
  const by = new Map(data.ranges.map((found) => [found.key.join(), found]));
  const own = view.axes.map(() => 0).join();
  /** The place of a row in a table of intervals: the numbers of its areas along the axes that it has. */
  function at(rows, ids) {
    if (!rows.at) {
      rows.most = rows.index.map((column) => column.reduce((a, v) => Math.max(a, v), 0) + 1);
      rows.at = new Map();
      for (let i = 0; i < rows.n; i++) rows.at.set(rows.index.reduce((a, column, d) => a * rows.most[d] + column[i], 0), i);
    }
    return ids.some((id, d) => id >= rows.most[d]) ? -1 : rows.at.get(ids.reduce((a, id, d) => a * rows.most[d] + id, 0)) ?? -1;
  }
  const table = (key) => (key.join() === own ? ("above" in data.columns ? data : null) : by.get(key.join())?.rows ?? null);
  return {
    table,
    /** [lower, upper, half the width in per cent, value] of the areas `ids` at the levels `key`, or null. */
    of(key, ids) {
      const rows = table(key);
      if (!rows) return null;
      const i = at(rows, ids.filter((_, d) => key[d] >= 0)), c = rows.columns;
      return i < 0 || c.above[i] < 0 ? null : [c.value[i] - c.below[i], c.value[i] + c.above[i], share(rows, i), c.value[i]];
    },
  };
}
/** Half the width of an interval in per cent of its value; 0 where there is none. */
function share({ columns: c }, i) { return c.above[i] < 0 ? 0 : Math.min(999, (50 * (c.above[i] + c.below[i])) / Math.abs(c.value[i])) || 0; }
