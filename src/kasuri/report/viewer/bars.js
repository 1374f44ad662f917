// ---- bars: tables whose places have no shape ----

function showBars(view, data) {
  const tools = $("tools"), columns = data.columns, unit = view.data.unit, has = "above" in columns, STEP = 100, FIRST = 25, known = ranges(view, data);
  const state = { along: 0, level: 0, pick: view.axes.map(() => -1), sort: "listed", text: "", most: FIRST, beside: -1 };
  const axis = () => view.axes[state.along], keep = (i, without) => state.pick.every((p, a) => without.includes(a) || p < 0 || data.index[a][i] === p);
  const names = () => (state.level ? axis().levels[state.level].labels : axis().labels), size = () => (state.level ? axis().levels[state.level].labels.length : axis().size), name = (i) => called(names()?.[i] ?? String(i));
  function sums(extra = -1) {
    const out = new Float64Array(size()), place = data.index[state.along], by = state.beside;
    for (let i = 0; i < data.n; i++) if (keep(i, [state.along, by]) && (extra < 0 ? by < 0 || state.pick[by] < 0 || data.index[by][i] === state.pick[by] : data.index[by][i] === extra)) out[areaOf(axis(), place[i], state.level)] += columns.value[i];
    return out;
  }
  function limits(i, extra = -1) {
    const key = state.pick.map((p, a) => (a === state.along ? state.level : a === state.beside && extra >= 0 ? 0 : p < 0 ? -1 : 0)), ids = state.pick.map((p, a) => (a === state.along ? i : a === state.beside && extra >= 0 ? extra : p));
    return known.of(key, ids);
  }
  function order(values) {
    let out = Array.from(values.keys());
    if (state.text) { const found = new Set(matches(out.map((i) => ({ words: name(i).split(" ").concat(name(i)), i })), state.text, 1e6).map((e) => e.i)); out = out.filter((i) => found.has(i)); }
    if (state.sort !== "listed") out.sort((a, b) => (state.sort === "most" ? values[b] - values[a] : values[a] - values[b]) || a - b);
    return out;
  }
  function lines(values, wanted, reach, extra = -1) {
    return wanted.map((i) => {
      const bar = element("div", { className: values[i] < 0 ? "neg" : "" }), ends = has ? limits(i, extra) : null, cell = element("td", { className: "bar-cell" }, bar);
      bar.style.width = `${(100 * Math.abs(values[i])) / reach}%`;
      if (ends && values[i] > 0) { const line = element("span"); line.style.left = `${(100 * ends[0]) / values[i]}%`; line.style.width = `${(100 * (ends[1] - ends[0])) / values[i]}%`; bar.append(line); }
      const row = element("tr", {}, element("th", { scope: "row" }, element("bdi", { textContent: name(i) })), cell, element("td", { className: "n value", textContent: number(values[i] / unit, unit) }));
      if (has && extra < 0) row.append(element("td", { className: "n", textContent: ends ? `${number(ends[0] / unit, unit)} ${t().to} ${number(ends[1] / unit, unit)}` : "–" }));
      return row;
    });
  }
  function table(heading, body) {
    const head = element("tr", {}, element("th", { scope: "col", textContent: heading }), element("th", { scope: "col", textContent: t().unit(view.unit) }), element("th", { scope: "col", className: "n", textContent: t().count }));
    return [head, element("div", { className: "scroll", tabIndex: 0, role: "group", "aria-label": heading }, element("table", {}, element("thead", {}, head), element("tbody", {}, ...body)))];
  }
  function draw() {
    const values = sums(), wanted = order(values), seen = wanted.slice(0, state.most), out = [];
    if (state.beside >= 0) {
      const other = view.axes[state.beside], all = Array.from({ length: Math.min(other.size, 24) }, (_, k) => sums(k)), reach = all.flatMap((v) => Array.from(v)).reduce((a, v) => Math.max(a, Math.abs(v)), unit);
      out.push(element("div", { className: "multiples" }, ...all.map((v, k) => element("figure", {}, element("figcaption", { textContent: `${called(other.name)}${t().is}${called(labelOf(other, k))}` }), table(called(axis().name), lines(v, seen.slice(0, 30), reach, k))[1]))));
    } else {
      const reach = seen.reduce((a, i) => Math.max(a, Math.abs(values[i]), has ? limits(i)?.[1] ?? 0 : 0), unit), [head, box] = table(called(axis().name), lines(values, seen, reach));
      if (has) head.append(element("th", { scope: "col", className: "n", textContent: t().interval(view.confidence) }));
      out.push(box);
      if (wanted.length > seen.length) { const more = element("button", { type: "button", className: "more", textContent: t().more(number(wanted.length - seen.length)) }); more.addEventListener("click", () => { state.most += STEP; draw(); }); out.push(more); }
      if (!wanted.length) out.push(element("p", { textContent: t().find }));
    }
    $("bars").replaceChildren(...out);
    $("charts").replaceChildren(...drawCharts(view, data, { skip: axis().kind === "time" ? [] : [state.along], keep, range: (a, k) => known.of(state.pick.map((p, j) => (j === a || p >= 0 ? 0 : -1)), state.pick.map((p, j) => (j === a ? k : p))), pick: state.pick, choose: () => {} }).filter((_, i, all) => view.axes.length > 1 || axis().kind === "time"));
  }
  if (view.axes.length > 1) {
    select(tools, "along", () => t().along, () => view.axes.map((one, i) => [String(i), called(one.name)]), (v) => { state.along = Number(v); state.level = 0; state.most = FIRST; state.pick[state.along] = -1; if (state.beside === state.along) state.beside = -1; speak(language); });
    select(tools, "beside", () => t().beside, () => [["-1", t().off_], ...view.axes.map((one, i) => [String(i), t().by(called(one.name))]).filter(([i]) => Number(i) !== state.along)], (v) => { state.beside = Number(v); draw(); });
    const boxes = view.axes.map((one, i) => choose(tools, one, (v) => { state.pick[i] = v; draw(); }));
    shown.push(() => boxes.forEach((box, i) => { box.closest("label, .time").hidden = i === state.along; }));
  }
  if (view.axes.some((one) => one.levels?.length > 1)) { const box = select(tools, "level", () => t().level, () => (axis().levels ?? [{ name: "–" }]).map((l, i) => [String(i), called(l.name)]), (v) => { state.level = Number(v); state.most = FIRST; draw(); }); shown.push(() => { box.value = String(state.level); box.parentElement.hidden = !(axis().levels?.length > 1); }); }
  const search = element("input", { id: "go", type: "search", autocomplete: "off" }), words = element("span");
  tools.append(element("label", {}, words, search));
  search.addEventListener("input", () => { state.text = search.value.trim(); draw(); });
  search.addEventListener("change", () => { state.text = search.value.trim(); draw(); });
  shown.push(() => { words.textContent = t().search; });
  select(tools, "sort", () => t().sort, () => ["listed", "most", "least"].map((k) => [k, t()[k]]), (v) => { state.sort = v; state.most = FIRST; draw(); });
  press($("use"), "csv", () => t().csv, () => { const values = sums(); keepCsv([[axis().name, t().count, "lower", "upper"], ...order(values).map((i) => { const e = has ? limits(i) : null; return [name(i), values[i] / unit, e ? e[0] / unit : "", e ? e[1] / unit : ""]; })], "kasuri.csv"); });
  $("largest-box").remove();
  shown.push(draw);
}
