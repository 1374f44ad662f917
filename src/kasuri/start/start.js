// The page of `kasuri start`. Its state is the job file: every choice is saved, and every section is drawn from it.
"use strict";
const STEPS = ["data", "columns", "who", "budget", "exact", "release"];
const STOPS = ["0.01", "0.02", "0.05", "0.1", "0.2", "0.3", "0.5", "0.7", "1", "1.5", "2", "3", "4", "5", "7", "10"];
const RECIPES = ["best", "woven_tree", "bayes_tree", "refined_tree", "haar_topdown", "geometric"];
const $ = (id) => document.getElementById(id);
let language = "en", session = "", state = null, lists = null, look = null, lookFault = null, windows = {}, checked = null;
let sketch = null, errors = null, trying = false, example = "1", sizes = [0, 100, 1000, 5000, 50000], report = null, verdict = null, picked = {};

// ---- words, elements, requests

function w(key, fill = {}) {
  const text = (WORDS[key] || [key, key])[language === "ja" ? 1 : 0];
  return text.replace(/\{(\w+)\}/g, (_, name) => fill[name]);
}

function h(tag, given = {}, ...inside) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "checked" || name === "disabled" || name === "open" || name === "value" || name === "selected") made[name] = value;
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value);
  }
  made.append(...inside.flat().filter((part) => part !== null && part !== undefined && part !== false));
  return made;
}

function svg(...shapes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  made.setAttribute("viewBox", "0 0 120 60");
  made.setAttribute("aria-hidden", "true");
  for (const [tag, given] of shapes) {
    const shape = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(given)) shape.setAttribute(name, value);
    made.append(shape);
  }
  return made;
}

async function ask(name, told = {}) {
  let answer;
  try {
    answer = await fetch(`/api/${name}`, { method: "POST", headers: { "content-type": "application/json", "kasuri-session": session }, body: JSON.stringify(told) });
  } catch {
    say(w("gone"), "fault");
    throw new Error("gone");
  }
  const found = await answer.json();
  if (answer.status === 401) say(w("nosession"), "fault");
  if (!answer.ok) throw Object.assign(new Error(found.error), { faults: found.faults || [found.error], status: answer.status });
  return found;
}

function say(text, kind = "good") {
  $("note").replaceChildren(text ? h("div", { class: kind }, text) : "");
  if (kind === "good") setTimeout(() => $("note").textContent === text && $("note").replaceChildren(), 1500);
}

// ---- the job: changed here, saved there, one after the other

let queue = Promise.resolve();
function change(edit) {
  const content = structuredClone(state.content);
  edit(content);
  state.content = content;
  checked = null;
  draw();
  queue = queue.then(async () => {
    try {
      state = await ask("save", { content: state.content, mark: state.mark });
    } catch (error) {
      if (error.message === "gone") return;
      const fresh = await ask("state");
      state = fresh;
      say((error.faults || [error.message]).join(" "), "fault");
    }
    draw();
    simulate();
  });
  return queue;
}

const part = (content, name) => (content[name] = content[name] || {});
const axes = () => state.content.axes || [];
const data = () => state.content.data || {};
const names = () => (look ? look.names : []);

function roleOf(column) {
  for (const [axis, place] of Object.entries(data().columns || {})) {
    const own = axes().find((item) => item.name === axis);
    if (place === column) return own ? own.kind : "none";
    if (place && place.lat === column) return "lat";
    if (place && place.lon === column) return "lon";
  }
  if (data().weight === column) return "count";
  return (state.content.unit || {}).id === column ? "id" : "none";
}

function setRole(column, role) {
  change((content) => {
    const own = part(content, "data"), places = (own.columns = own.columns || {}), before = roleOf(column);
    content.axes = content.axes || [];
    for (const [axis, place] of Object.entries(places)) {
      if (place === column || (place && (place.lat === column || place.lon === column))) {
        if (typeof place === "object" && (role === "lat" || role === "lon")) continue;
        delete places[axis];
        content.axes = content.axes.filter((item) => item.name !== axis);
      }
    }
    if (own.weight === column) delete own.weight;
    if (before === "id") delete content.unit;
    const add = (axis, kind, place) => {
      places[axis] = place;
      content.axes = content.axes.filter((item) => item.name !== axis);
      const made = { kind, name: axis };
      if (kind === "mesh") content.axes.unshift(made); else content.axes.push(made);
    };
    if (role === "mesh") add("grid", "mesh", column);
    if (role === "time") add("time", "time", column);
    if (role === "nominal" || role === "ordered") add(column, role, column);
    if (role === "lat" || role === "lon") {
      const place = typeof places.grid === "object" ? places.grid : {};
      place[role] = column;
      add("grid", "mesh", place);
    }
    if (role === "count") own.weight = column;
    if (role === "id") { part(content, "unit").id = column; }
  });
}

// ---- what is still open

function axisOpen(axis) {
  if (axis.kind === "mesh") return !axis.level || !(axis.window || axis.shape);
  if (axis.kind === "time") return !(axis.start && axis.seconds && axis.size);
  if (axis.kind === "nominal" || axis.kind === "ordered") return !(axis.labels || axis.labels_file || axis.size || axis.tree);
  return false;
}

const hasId = () => names().includes((state.content.unit || {}).id);
const hasData = () => (data().files || []).length > 0 || (data().database && (data().table || data().query));
const epsilon = () => (state.content.budget || {}).epsilon;
const opens = {
  data: () => [!hasData() && w("choosefile"), hasData() && !data().name && w("dataname")],
  columns: () => [hasData() && !axes().length && w("noaxis"), look && axes().length > 0 && !data().weight && !hasId() && w("nocount"), ...axes().map((axis) => axisOpen(axis) && (axis.kind === "mesh" ? `${w("level")}, ${w("window")}` : axis.name))],
  who: () => { const unit = state.content.unit || {}; return [!(unit.id && unit.change && unit.max_cells) && w("who")]; },
  budget: () => { const own = state.content.budget || {}; return [!(own.ledger || own.unmetered) && w("payer"), !own.epsilon && w("epsilon")]; },
  exact: () => [],
  release: () => [!(state.content.output || {}).folder && w("folder")],
};
const open = (step) => opens[step]().filter(Boolean);
const PLACE = { data: "data", axes: "columns", masks: "columns", unit: "who", budget: "budget", recipe: "exact", output: "release", about: "release" };
const faultsOf = (step) => (state.done ? [] : state.faults.filter((fault) => (PLACE[fault.at[0]] || "release") === step && !/missing; it has no default|give (size, )?labels|say who pays|give files/.test(fault.words)));
const ready = () => STEPS.every((step) => open(step).length === 0);

// ---- sections

function section(step, ...inside) {
  const at = STEPS.indexOf(step), left = open(step), faults = faultsOf(step);
  const ok = !left.length && !faults.length;
  const mark = step === "exact" ? w("optional") : step === "release" ? (state.done ? w("ok") : "") : ok ? w("ok") : w("open");
  const box = $(step), kind = step === "exact" ? "" : ok ? "ok" : "open";
  box.replaceChildren(
    h("h2", { id: `${step}-h` }, at >= 0 && h("span", { class: "number" }, `${at + 1}`), w(step), h("span", { class: `state ${kind}` }, mark)),
    ...inside.flat().filter(Boolean),
    faults.length && step !== "release" ? h("div", { class: "fault" }, h("ul", {}, faults.map((fault) => h("li", {}, fault.words)))) : "",
  );
}

function chips(legend, name, choices, chosen, pick) {
  return h("fieldset", {}, h("legend", {}, legend), h("div", { class: "chips" }, choices.map(({ value, text }) =>
    h("span", { class: "chip" }, h("input", { type: "radio", name, id: `${name}-${value}`, "aria-label": text, checked: value === chosen, onchange: () => pick(value) }), h("span", { "aria-hidden": "true" }, text)))));
}

function field(id, label, value, save, given = {}) {
  return h("label", {}, label, h("input", { id, value: value ?? "", onchange: (event) => save(event.target.value.trim()), ...given }));
}

function drawData() {
  const found = state.files, own = data(), chosen = (own.files || [])[0];
  const drop = h("div", { class: "drop", ondragover: (event) => { event.preventDefault(); drop.classList.add("over"); }, ondragleave: () => drop.classList.remove("over"), ondrop: (event) => { event.preventDefault(); drop.classList.remove("over"); upload(event.dataTransfer.files[0]); } },
    w("drop"), " ", h("button", { type: "button", class: "button", onclick: () => chooser.click() }, w("browse")), h("p", { class: "hint" }, w("dropped")));
  const chooser = h("input", { type: "file", hidden: "", accept: ".csv,.xlsx,.parquet,.duckdb,.sqlite,.sqlite3,.db", "aria-label": w("browse"), onchange: () => upload(chooser.files[0]) });
  const csv = chosen && chosen.toLowerCase().endsWith(".csv"), book = chosen && chosen.toLowerCase().endsWith(".xlsx");
  section("data",
    found.tables.length ? chips(w("choosefile"), "table", found.tables.map((value) => ({ value, text: value })), chosen, begin) : h("p", {}, w("nofile")),
    drop, chooser,
    h("details", { open: Boolean(own.database) }, h("summary", {}, w("database")), h("div", { class: "row" },
      h("label", {}, w("dbfile"), h("input", { id: "dbfile", value: own.database || found.databases[0] || "" })), h("label", {}, w("dbtable"), h("input", { id: "dbtable", value: own.table || "" })),
      h("button", { type: "button", class: "button", id: "dbuse", onclick: useDatabase }, w("use")))),
    hasData() && h("div", { class: "row" }, field("dataname", w("dataname"), own.name, (text) => change((content) => { part(content, "data").name = text; })),
      csv && h("label", {}, w("encoding"), h("select", { id: "encoding", onchange: (event) => reread((content) => { content.data.encoding = event.target.value || null; }) },
        ["", "utf-8", "cp932", "utf-16", "cp1252"].map((value) => h("option", { value, selected: (own.encoding || "") === value }, value || w("automatic"))))),
      book && field("sheet", w("sheet"), own.sheet, (text) => reread((content) => { content.data.sheet = text || null; }))),
    lookFault && h("div", { class: "fault" }, h("ul", {}, lookFault.map((fault) => h("li", {}, fault)))),
    look && h("p", { class: "secret" }, w("firstrows")),
    look && h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": w("firstrows") }, h("table", {}, h("thead", {}, h("tr", {}, look.names.map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, look.rows.map((row) => h("tr", {}, row.map((value) => h("td", { class: "cell" }, value))))))),
  );
}

async function begin(file) {
  await queue;
  try {
    state = await ask("begin", { file });
    await peek();
  } catch (error) { look = null; lookFault = error.faults || [error.message]; }
  draw();
}

async function upload(file) {
  if (!file) return;
  if (file.size > 4 * 2 ** 30) { say(w("toolarge", { file: file.name }), "fault"); return; }
  say(w("copying", { file: file.name }), "why");
  let told;
  try {
    const answer = await fetch(`/api/drop?name=${encodeURIComponent(file.name)}`, { method: "POST", headers: { "kasuri-session": session, "content-type": "application/octet-stream" }, body: file });
    told = await answer.json();
    if (!answer.ok) { say(answer.status === 401 ? w("nosession") : told.error, "fault"); return; }
  } catch { say(w("notcopied", { file: file.name }), "fault"); return; }  // a server that refuses closes in the middle
  say("");
  state = await ask("state");
  if (/\.(csv|xlsx|parquet)$/i.test(told.file)) await begin(told.file); else draw();
}

function useDatabase() {
  const database = $("dbfile").value.trim(), table = $("dbtable").value.trim();
  reread((content) => {
    const own = part(content, "data");
    delete own.files; delete own.encoding; delete own.sheet;
    Object.assign(own, { database, table, columns: {}, name: own.name || table });
    content.axes = []; content.output = content.output || { folder: "release" };
  });
}

async function reread(edit) { await change(edit); await peek(); draw(); }

async function peek() {
  lookFault = null;
  if (!hasData()) { look = null; return; }
  try { look = await ask("preview"); } catch (error) { look = null; lookFault = error.faults || [error.message]; }
}

function drawColumns() {
  const roles = ["none", "mesh", "lat", "lon", "time", "nominal", "ordered", "count", "id"];
  section("columns",
    look ? [h("p", {}, w("roles")), h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": w("columns") }, h("table", { class: "roles" }, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, w("column")), h("th", { scope: "col" }, w("role")))),
      h("tbody", {}, look.names.map((name, at) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, h("select", { id: `role-${at}`, "aria-label": `${name}: ${w("role")}`, onchange: (event) => setRole(name, event.target.value) },
        roles.map((role) => h("option", { value: role, selected: roleOf(name) === role }, w(`r_${role}`))))))))))] : h("p", { class: "hint" }, w("choosefile")),
    hasData() && h("h3", {}, w("frame")), hasData() && h("p", { class: "why" }, w("framewhy")),
    axes().map(drawAxis),
    look && axes().length > 0 && !data().weight && !hasId() && h("p", { class: "fault" }, w("nocount")),
    look && data().weight && !hasId() && h("label", { class: "line" }, h("input", { type: "checkbox", id: "sum", checked: Boolean(data().sum), onchange: (event) => change((content) => { content.data.sum = event.target.checked || null; }) }), w("addrows")),
  );
}

function setAxis(name, edit) { change((content) => edit(content.axes.find((axis) => axis.name === name))); }

function drawAxis(axis, at) {
  const kind = axis.kind === "mesh" ? drawMesh : axis.kind === "time" ? drawTime : axis.kind === "nominal" || axis.kind === "ordered" ? drawLabels : null;
  return h("div", { class: `card${axisOpen(axis) ? " todo" : ""}` }, h("h3", {}, axis.name === "grid" ? w("r_mesh") : axis.name), kind ? kind(axis, at) : h("p", {}, axis.kind));
}

function drawMesh(axis, at) {
  const levels = lists.levels.filter((own) => ["10km", "5km", "1km", "500m", "250m", "125m"].includes(own.level));
  const known = windows[axis.level] || [];
  if (axis.level && !windows[axis.level]) ask("windows", { level: axis.level }).then((told) => { windows[axis.level] = told.windows; draw(); });
  const same = (own) => (axis.window ? axis.window === own.window : axis.shape && String(axis.origin) === String(own.origin) && String(axis.shape) === String(own.shape));
  const chosen = known.find(same), shape = chosen ? chosen.shape : axis.shape;
  return [
    chips(w("level"), `level-${at}`, levels.map((own) => ({ value: own.level, text: `${own.level} (${w("digits", { n: own.digits })})` })), axis.level, (level) => setAxis(axis.name, (own) => { own.level = level; delete own.window; delete own.origin; delete own.shape; })),
    axis.level && chips(w("window"), `window-${at}`, known.map((own) => ({ value: own.window, text: language === "ja" ? own.ja : own.en })), chosen && chosen.window, (name) => setAxis(axis.name, (own) => {
      const found = known.find((item) => item.window === name);
      delete own.window; delete own.origin; delete own.shape;
      if (own.level === "500m") own.window = name; else Object.assign(own, { origin: found.origin, shape: found.shape });
    })),
    axis.level && h("div", { class: "row" }, field(`first-${at}`, w("firstorder"), axis.window && /^\d{4}$/.test(axis.window) ? axis.window : "", async (text) => {
      try {
        const found = await ask("around", { codes: text.split(/[\s,、]+/).filter(Boolean), level: axis.level });
        setAxis(axis.name, (own) => { delete own.window; Object.assign(own, found); });
      } catch (error) { say(error.message, "fault"); }
    }, { inputmode: "numeric" }), shape && h("span", { class: "hint" }, w("cells", { rows: shape[0].toLocaleString("en"), cols: shape[1].toLocaleString("en") }))),
  ];
}

function drawTime(axis, at) {
  const steps = [[900, "minutes15"], [3600, "hour"], [86400, "day"], [604800, "week"]];
  return [
    h("div", { class: "row" }, field(`start-${at}`, w("tstart"), axis.start, (text) => setAxis(axis.name, (own) => { own.start = text; }), { type: "datetime-local" }),
      field(`size-${at}`, w("tsize"), axis.size, (text) => setAxis(axis.name, (own) => { own.size = Number(text) || null; }), { type: "number", min: "1" })),
    chips(w("tstep"), `step-${at}`, steps.map(([value, text]) => ({ value: String(value), text: w(text) })), String(axis.seconds || ""), (value) => setAxis(axis.name, (own) => { own.seconds = Number(value); })),
  ];
}

function drawLabels(axis, at) {
  const kind = look && look.kinds[data().columns[axis.name]];
  const fits = lists.labels.map((own, i) => ({ ...own, i })).filter((own) => own.about === kind);
  const offered = fits.length ? fits : lists.labels.map((own, i) => ({ ...own, i })).filter((own) => own.about !== "place");
  const now = axis.labels ? offered.find((own) => String(own.labels) === String(axis.labels)) : null;
  const own = picked[axis.name] === "own" || (axis.labels && !now), file = picked[axis.name] === "file" || Boolean(axis.labels_file);
  const choices = [...offered.map((item) => ({ value: String(item.i), text: language === "ja" ? item.ja : item.en })), { value: "own", text: w("own") }, ...(state.files.labels.length ? [{ value: "file", text: w("fromfile") }] : [])];
  return [
    chips(w("labels"), `labels-${at}`, choices, file ? "file" : own ? "own" : now ? String(now.i) : null, (value) => {
      picked[axis.name] = value;
      if (value === "own" || value === "file") { draw(); return; }
      setAxis(axis.name, (item) => { delete item.labels_file; item.kind = lists.labels[value].kind; item.labels = lists.labels[value].labels; });
    }),
    own && !file && h("label", { class: "field" }, w("ownhint"), h("textarea", { id: `own-${at}`, onchange: (event) => setAxis(axis.name, (item) => { delete item.labels_file; item.labels = event.target.value.split(/[\n,]+/).map((text) => text.trim()).filter(Boolean); }) }, (axis.labels || []).join("\n"))),
    file && h("label", { class: "field" }, w("fromfile"), h("select", { id: `file-${at}`, onchange: (event) => setAxis(axis.name, (item) => { delete item.labels; item.labels_file = event.target.value || null; }) },
      ["", ...state.files.labels.filter((name) => !(data().files || []).includes(name))].map((name) => h("option", { value: name, selected: axis.labels_file === name }, name)))),
    axis.labels && h("p", { class: "hint" }, w("nlabels", { n: axis.labels.length })),
  ];
}

function pictures() {
  const cell = (x, y, on) => ["rect", { x, y, width: 16, height: 16, class: on ? "pale" : "soft" }];
  const grid = (on) => [0, 1, 2].flatMap((row) => [0, 1, 2].map((col) => cell(66 + 16 * col, 6 + 16 * row, on.includes(3 * row + col))));
  const body = (x, y, s) => [["circle", { cx: x, cy: y, r: 5 * s, class: "fill" }], ["path", { d: `M${x - 8 * s} ${y + 22 * s}v${-6 * s}a${8 * s} ${8 * s} 0 0 1 ${16 * s} 0v${6 * s}z`, class: "fill" }]];
  return {
    person: svg(...body(26, 18, 1.2), ...grid([4])),
    household: svg(["path", { d: "M8 30L30 10L52 30M13 26V54H47V26", class: "ink" }], ...body(23, 34, 0.75), ...body(37, 37, 0.6), ...grid([4])),
    phone: svg(["rect", { x: 18, y: 6, width: 24, height: 46, rx: 4, class: "ink" }], ["circle", { cx: 30, cy: 46, r: 2, class: "fill" }], ["circle", { cx: 30, cy: 22, r: 8, class: "ink" }], ["path", { d: "M30 17v5h4", class: "ink" }], ...grid([0, 1, 4, 8])),
  };
}

function drawWho() {
  const unit = state.content.unit || {}, drawn = pictures(), id = hasId() ? unit.id : null;
  const kinds = { person: ["person", 1], household: ["household", 1], phone: ["phone-day", 24] };
  const now = unit.max_cells ? (id ? picked.unit : Object.keys(kinds).find((kind) => kinds[kind][0] === unit.id)) : null;
  const pick = (kind) => { picked.unit = kind; change((content) => { const old = part(content, "unit"); content.unit = { id: id || kinds[kind][0], change: old.change || "add-remove", max_cells: kinds[kind][1] }; }); };
  section("who",
    h("fieldset", {}, h("legend", {}, w("whowhy")), h("div", { class: "units" }, Object.keys(kinds).map((kind) => h("div", { class: "unit" }, h("input", { type: "radio", name: "unit", id: `unit-${kind}`, "aria-label": `${w(kind)}: ${w(`${kind}2`)}`, checked: now === kind, onchange: () => pick(kind) }),
      h("span", { "aria-hidden": "true" }, drawn[kind], h("b", {}, w(kind)), w(`${kind}2`)))))),
    unit.max_cells && h("div", { class: "row" }, field("bound", w("bound"), unit.max_cells, (text) => change((content) => { content.unit.max_cells = Number(text) || null; }), { type: "number", min: "1" })),
    unit.max_cells && h("p", { class: "hint" }, id ? w("boundid", { id }) : w("boundtable")),
    unit.max_cells && h("details", {}, h("summary", {}, w("change")), chips(w("change"), "change", [{ value: "add-remove", text: w("addremove") }, { value: "replace", text: w("replace") }], unit.change, (value) => change((content) => { content.unit.change = value; }))),
  );
}

function sure(loss) {
  const p = 100 / (1 + Math.exp(-loss));
  return p > 99.9 ? "99.9 %+" : `${p < 60 || p > 99 ? p.toFixed(1) : p.toFixed(0)} %`;
}

function drawBudget() {
  const own = state.content.budget || {}, unit = state.content.unit || {}, now = own.ledger || (own.unmetered ? "none" : null);
  const fits = (book) => !book.fault && book.data === data().name && book.unit.id === unit.id && book.unit.change === unit.change && book.unit.max_cells === unit.max_cells;
  const books = state.ledgers, book = books.find((item) => item.file === own.ledger);
  const choices = [...books.map((item) => ({ value: item.file, text: `${item.file}: ${item.fault ? item.fault : fits(item) ? w("left", { left: item.balance.left, all: item.balance.allowance }) : w("notyours")}` })), { value: "none", text: w("nolledger") }];
  const shown = own.epsilon || example, at = STOPS.reduce((near, stop, i) => (Math.abs(Math.log(stop / Number(shown))) < Math.abs(Math.log(STOPS[near] / Number(shown))) ? i : near), 0);
  const loss = Number(shown), strength = loss <= 0.1 ? "s1" : loss <= 1 ? "s2" : loss <= 3 ? "s3" : loss <= 8 ? "s4" : "s5";
  const named = Boolean(data().name && unit.max_cells);
  const free = book && !book.fault ? Number(book.balance.left) : null, all = book && !book.fault ? Number(book.balance.allowance) : null;
  const openLedger = async () => {
    await queue;
    const number = state.ledgers.length ? `-${state.ledgers.length + 1}` : "";
    try { state = await ask("ledger", { file: `${data().name.replace(/[^\w.-]+/g, "-") || "budget"}${number}.ledger`, epsilon: $("allowance").value.trim() }); $("allowance").value = ""; say(""); } catch (error) { say(error.message, "fault"); }
    draw();
  };
  const choose = (value) => { example = value; change((content) => { part(content, "budget").epsilon = value; }); };
  const meter = all ? h("div", { class: "meter", role: "img", "aria-label": w("left", { left: book.balance.left, all: book.balance.allowance }) }, h("i", {}), h("b", {})) : null;
  if (meter) {
    const spent = Math.max(0, 1 - free / all), part2 = own.epsilon && !state.done ? Math.min(loss / all, 1 - spent) : 0;
    meter.children[0].style.width = `${100 * spent}%`;
    meter.children[1].style.left = `${100 * spent}%`;
    meter.children[1].style.width = `${100 * part2}%`;
  }
  section("budget",
    h("p", {}, w("ledger")),
    !named ? h("p", { class: "hint" }, w("first")) : [
      chips(w("budget"), "payer", choices, now, (value) => change((content) => {
        const mine = part(content, "budget");
        delete mine.ledger; delete mine.unmetered;
        if (value === "none") mine.unmetered = true; else mine.ledger = value;
      })),
      h("div", { class: "row" }, h("label", {}, `${w("newledger")}: ${w("allowance")}`, h("input", { id: "allowance", inputmode: "decimal", value: "", onkeydown: (event) => event.key === "Enter" && openLedger() })), h("button", { type: "button", class: "button", id: "openledger", onclick: openLedger }, w("openit")))],
    book && book.reserved > 0 && h("p", { class: "fault" }, w("reserved", { n: book.reserved })),
    h("h3", {}, w("epsilon")),
    h("p", { class: "big", id: "epsilon-shown" }, own.epsilon ? `ε = ${own.epsilon}` : w("notchosen")),
    h("input", { type: "range", id: "epsilon", min: "0", max: String(STOPS.length - 1), step: "1", value: String(at), "aria-label": w("epsilon"), "aria-valuetext": own.epsilon || w("notchosen"),
      oninput: (event) => { example = STOPS[event.target.value]; $("epsilon-shown").textContent = `ε = ${example}`; $("learn").textContent = learn(Number(example)); simulate(); },
      onchange: (event) => choose(STOPS[event.target.value]), onclick: (event) => { if (!epsilon()) choose(STOPS[event.target.value]); } }),
    h("div", { class: "ends" }, h("span", {}, w("safer")), h("span", {}, w("finer"))),
    h("p", { id: "learn" }, learn(loss)),
    meter, free !== null && own.epsilon && !state.done && h("p", { class: loss > free ? "fault" : "hint" }, loss > free ? w("toomuch", { left: book.balance.left }) : w("spends", { e: own.epsilon, left: book.balance.left })),
    h("div", { class: "row" }, field("exactly", w("exactly"), own.epsilon, (text) => choose(text), { inputmode: "decimal" })),
  );
  function learn(value) { const band = value <= 0.1 ? "s1" : value <= 1 ? "s2" : value <= 3 ? "s3" : value <= 8 ? "s4" : "s5"; return `${w(band)} ${w("learn", { p: sure(value) })}`; }
}

// ---- how exact: the public model, drawn again as the slider moves

let timer = null, running = false, again = false;
const declared = () => axes().length > 0 && !axes().some(axisOpen) && !open("who").length;
function simulate() {
  if (!declared()) { sketch = errors = null; return; }
  clearTimeout(timer);
  timer = setTimeout(runSimulation, 120);
}

async function runSimulation() {
  if (running) { again = true; return; }
  running = true;
  const loss = example, recipe = recipeName();
  const frame = JSON.stringify([axes(), state.content.unit]);
  try {
    await queue;
    if (!errors) { trying = true; drawErrors(); }
    sketch = { ...(await ask("simulate", { epsilon: loss, recipe })), epsilon: loss };
    drawMaps();
    const key = JSON.stringify([frame, loss, sizes]);
    if (!errors || errors.key !== key) {
      trying = true;
      drawErrors();
      errors = { ...(await ask("expected", { epsilon: loss, people: sizes, every: false })), key, epsilon: loss };
    }
  } catch (error) { if (error.faults) { sketch = errors = null; simFault = error.faults; } }
  trying = false;
  running = false;
  drawErrors();
  if (again) { again = false; simulate(); }
}
let simFault = null;

const recipeName = () => (state.content.recipe || {}).name || "best";

function colour(share) {
  const stops = [[14, 20, 32], [34, 58, 112], [90, 98, 160], [214, 120, 92], [252, 222, 140]];
  const x = Math.max(0, Math.min(1, share)) * (stops.length - 1), i = Math.min(stops.length - 2, Math.floor(x)), t = x - i;
  return stops[i].map((value, k) => value + t * (stops[i + 1][k] - value));
}

function paint(canvas, values, shape, top) {
  const [rows, cols] = shape.length === 2 ? shape : [1, shape[0]];
  canvas.width = cols;
  canvas.height = shape.length === 2 ? rows : cols;
  const pen = canvas.getContext("2d"), image = pen.createImageData(canvas.width, canvas.height);
  for (let y = 0; y < canvas.height; y++) for (let x = 0; x < cols; x++) {
    let shade;
    if (shape.length === 2) shade = colour(Math.log1p(Math.max(0, values[(rows - 1 - y) * cols + x])) / top);
    else shade = (1 - y / canvas.height) * top <= Math.max(0, values[x]) ? [90, 98, 160] : [238, 241, 247];
    image.data.set([...shade, 255], 4 * (y * cols + x));
  }
  pen.putImageData(image, 0, 0);
}

function drawMaps() {
  const box = $("maps");
  if (!box || !sketch) return;
  const top = sketch.shape.length === 2 ? Math.log1p(Math.max(...sketch.before)) : 1.15 * Math.max(...sketch.before);
  const before = h("canvas", { role: "img", "aria-label": w("before") }), after = h("canvas", { role: "img", "aria-label": w("after", { e: sketch.epsilon }) });
  paint(before, sketch.before, sketch.shape, top);
  paint(after, sketch.after, sketch.shape, top);
  box.replaceChildren(h("figure", {}, before, h("figcaption", {}, w("before"))), h("figure", {}, after, h("figcaption", {}, w("after", { e: sketch.epsilon }))));
  $("modelwords").textContent = modelWords();
}

function modelWords() {
  const map = sketch.shape.length === 2;
  return [w(map ? "modelmap" : "modelflat", { rows: sketch.shape[0], cols: sketch.shape[1] }), map && sketch.model.further ? w("modelfurther") : "", sketch.model.whole ? "" : w("modellarger"), w("modelnot")].filter(Boolean).join(" ");
}

function share(row) {
  if (row.off === null) return "–";
  if (!row.people) return w("personsoff", { n: row.off >= 9.5 ? Math.round(row.off).toLocaleString("en") : row.off.toFixed(1) });
  return row.percent >= 0.095 ? `${Math.round(100 * row.percent)} %` : row.percent >= 0.0005 ? `${(100 * row.percent).toFixed(1)} %` : "< 0.1 %";
}

function drawErrors() {
  const box = $("errors");
  if (!box) return;
  const focus = document.activeElement && document.activeElement.id;
  if (!errors) { box.replaceChildren(h("p", { class: "hint" }, trying ? w("trying") : (simFault || []).join(" "))); return; }
  const columns = [...new Set(errors.rows.map((row) => row.people))].sort((a, b) => a - b), recipes = [...new Set(errors.rows.map((row) => row.recipe))];
  const now = recipeName(), town = errors.rows.filter((row) => row.recipe === now && row.percent !== null).sort((a, b) => Math.abs(Math.log(a.people / 5000)) - Math.abs(Math.log(b.people / 5000)))[0];
  box.replaceChildren(
    town ? h("p", { class: "big" }, w("town", { n: town.people.toLocaleString("en"), p: town.percent >= 0.0005 ? w("about", { p: share(town) }) : w("less") })) : "",
    h("p", { class: "hint" }, w("usual")),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": w("usual") }, h("table", { class: trying ? "waiting errors" : "errors" }, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, w("recipe")), columns.map((people) => h("th", { scope: "col", class: "n" }, people ? w("people", { n: people.toLocaleString("en") }) : w("empty"))))),
      h("tbody", {}, recipes.map((name) => h("tr", { class: name === now ? "picked" : "" }, h("th", { scope: "row", class: "name" }, h("label", { class: "line" }, h("input", { type: "radio", name: "recipe", id: `recipe-${name}`, checked: name === now, onchange: () => change((content) => { content.recipe = { name }; }) }),
        h("span", {}, name === "best" && errors.best.chosen ? `best (${errors.best.chosen})` : name, errors.recommended.recipe === name ? h("span", { class: "tag" }, w("recommended")) : WORDS[`b_${name}`] ? h("span", { class: "hint below" }, w(`b_${name}`)) : ""))),
        columns.map((people) => h("td", { class: "n" }, share(errors.rows.find((row) => row.recipe === name && row.people === people))))))))),
    h("button", { type: "button", class: "button", id: "every", disabled: trying, onclick: tryEvery }, trying ? w("trying") : w("every")),
  );
  if (focus && $(focus) && box.contains($(focus))) $(focus).focus();
}

async function tryEvery() {
  trying = true;
  drawErrors();
  try { errors = { ...(await ask("expected", { epsilon: example, people: sizes, every: true })), key: errors.key, epsilon: example }; } catch (error) { say(error.message, "fault"); }
  trying = false;
  drawErrors();
}

function drawExact() {
  section("exact", !declared() ? h("p", { class: "hint" }, w("simfirst")) : [
    h("div", { class: "maps", id: "maps" }), h("p", { class: "hint", id: "modelwords" }),
    h("div", { class: "row wide" }, field("sizes", w("sizes"), sizes.filter(Boolean).map((size) => size.toLocaleString("en")).join("; "), (text) => {
      const found = text.split(/[;、\s]+/).map((own) => Number(own.replace(/[,，]/g, ""))).filter((own) => Number.isInteger(own) && own > 0).slice(0, 7);
      sizes = [0, ...new Set(found.length ? found : [100, 1000, 5000, 50000])];
      simulate();
      draw();
    }, { inputmode: "numeric" })),
    h("div", { id: "errors" }),
  ]);
  drawMaps();
  drawErrors();
}

// ---- check, release, and after

function drawRelease() {
  const output = state.content.output || {}, told = state.content.about || {}, missing = STEPS.flatMap(open), faults = state.faults, work = state.progress;
  const formats = ["csv", "xlsx", "gpkg"].filter((kind) => kind !== "gpkg" || axes().some((axis) => axis.kind === "mesh"));
  const busy = ["reading", "writing", "verifying"].includes(work.phase);
  const name = (kind) => `${output.folder || "release"}.${kind}`;
  const parts = [];
  if (state.done) parts.push(...drawDone());
  else if (busy) parts.push(h("p", { class: "big" }, `${w(work.phase)} …`), h("progress", work.phase === "reading" ? { max: "1", value: work.share, "aria-label": w(work.phase) } : { "aria-label": w(work.phase) }), h("p", { class: "hint" }, w("safe")));
  else {
    parts.push(
      h("div", { class: "row" }, field("folder", w("folder"), output.folder, (text) => change((content) => { part(content, "output").folder = text; }))),
      h("fieldset", {}, h("legend", {}, w("exports")), h("div", { class: "chips" }, formats.map((kind) => h("span", { class: "chip" }, h("input", { type: "checkbox", id: `export-${kind}`, "aria-label": kind, checked: (output.exports || []).includes(name(kind)), onchange: (event) => change((content) => {
        const own = part(content, "output"), others = (own.exports || []).filter((file) => file !== name(kind));
        own.exports = event.target.checked ? [...others, name(kind)] : others;
        if (!own.exports.length) delete own.exports;
      }) }), h("span", { "aria-hidden": "true" }, kind))))),
      h("details", { open: Object.keys(told).length > 0 }, h("summary", {}, w("aboutit")), h("div", { class: "row" }, ["title", "publisher", "contact", "source", "licence", "published"].map((key) => field(`about-${key}`, w(`a_${key}`), told[key], (text) => change((content) => {
        const own = part(content, "about");
        if (text) own[key] = text; else delete own[key];
        if (!Object.keys(own).length) delete content.about;
      }), key === "published" ? { type: "date" } : {})))),
    );
    if (missing.length) parts.push(h("div", { class: "why" }, w("missing"), h("ul", {}, STEPS.filter((step) => open(step).length).map((step) => h("li", {}, h("a", { href: `#${step}` }, w(step)), `: ${open(step).join("; ")}`)))));
    else if (faults.length) parts.push(h("div", { class: "fault" }, w("stop"), h("ul", {}, faults.map((fault) => h("li", {}, fault.words)))));
    if (work.phase === "failed") parts.push(h("div", { class: "fault", role: "alert" }, h("b", {}, w(work.charged ? "failedpaid" : "failed")), h("p", {}, w("faults")), h("ul", {}, work.faults.map((fault) => h("li", {}, fault)))));
    if (checked) parts.push(checked.length ? h("div", { class: "fault" }, w("faults"), h("ul", {}, checked.map((fault) => h("li", {}, fault)))) : h("p", { class: "good" }, w("checked")));
    const can = ready() && !faults.length;
    parts.push(h("div", { class: "row" }, h("button", { type: "button", class: "button", id: "check", disabled: !can, onclick: check }, w("check")), h("button", { type: "button", class: "button main", id: "go", disabled: !can, onclick: go }, epsilon() ? w("go", { e: epsilon() }) : w("gone2"))), h("p", { class: "hint" }, w("once")));
  }
  section("release", parts);
}

function drawDone() {
  const found = state.done;
  if (!verdict) ask("verify").then((told) => { verdict = told; draw(); }, () => {});
  const words = verdict ? (verdict.ok ? h("p", { class: "good", id: "verified" }, h("b", {}, w("done"))) : h("div", { class: "fault" }, w("notok"), h("ul", {}, verdict.faults.map((fault) => h("li", {}, fault))))) : h("p", {}, `${w("isdone")} ${w("verifying")} …`);
  return [words, h("p", {}, w("at", { path: found.path })), found.exports.length ? h("p", {}, w("alsoin", { files: found.exports.join(", ") })) : "",
    h("div", { class: "row" }, h("button", { type: "button", class: "button", id: "opentab", onclick: async () => { const tab = window.open("about:blank"); const told = await ask("look"); if (tab) tab.location = `${told.address}#${language}`; } }, w("opentab")), h("button", { type: "button", class: "button", id: "next", onclick: next }, w("next")), h("span", { class: "hint" }, w("nexthint")))];
}

function drawReport() {  // its frame stays where it is: moved, it would load again, and its address works once
  const box = $("report"), folder = state.done && state.done.folder;
  if (report !== folder) box.replaceChildren();
  report = folder;
  if (!folder) return;
  if (!box.children.length) {
    const frame = h("iframe", { sandbox: "allow-scripts" });
    box.append(h("h2", { id: "report-h" }), frame);
    ask("look").then((told) => frame.setAttribute("src", `${told.address}#${language}`), () => {});
  }
  $("report-h").textContent = w("report");
  box.querySelector("iframe").title = w("report");
}

async function check() {
  await queue;
  $("check").disabled = true;
  $("check").textContent = w("checking");
  try { checked = (await ask("check")).faults; } catch (error) { checked = error.faults || [error.message]; }
  draw();
}

async function go() {
  await queue;
  try { Object.assign(state, await ask("release", { mark: state.mark })); } catch (error) { say((error.faults || [error.message]).join(" "), "fault"); state = await ask("state"); draw(); return; }
  draw();
  follow();
}

async function follow() {
  for (;;) {
    await new Promise((done) => setTimeout(done, 300));
    let told;
    try { told = await ask("progress"); } catch { return; }
    const moved = JSON.stringify(told.progress) !== JSON.stringify(state.progress);
    state.progress = told.progress;
    if (["done", "failed", "idle"].includes(told.progress.phase)) break;
    if (moved) draw();
  }
  state = await ask("state");
  if (state.progress.phase === "done") verdict = { ok: state.progress.ok, faults: state.progress.faults };
  draw();
  $("release").scrollIntoView();
}

async function next() {
  try { state = await ask("next"); verdict = checked = null; await peek(); draw(); $("budget").scrollIntoView(); } catch (error) { say(error.message, "fault"); }
}

function drawFiles() {
  const box = $("files");
  if (!state.toml) { box.replaceChildren(); return; }
  box.replaceChildren(h("h2", { id: "files-h" }, w("files")), h("details", {}, h("summary", {}, state.file), h("pre", { tabindex: "0" }, state.toml)),
    h("details", {}, h("summary", {}, w("command")), h("pre", { tabindex: "0" }, `kasuri check ${state.file}\nkasuri release ${state.file}`)),
    h("details", {}, h("summary", {}, w("python")), state.python ? h("pre", { tabindex: "0" }, state.python) : h("p", { class: "hint" }, w("later"))));
}

function drawSteps() {
  $("steps").setAttribute("aria-label", w("steps"));
  $("steps").replaceChildren(h("ol", {}, STEPS.map((step, at) => {
    const ok = step === "release" ? Boolean(state.done) : step === "exact" ? Boolean(errors) : !open(step).length;
    const first = STEPS.find((own) => open(own).length) || "release";
    return h("li", { class: `${ok || step === "exact" ? "" : "todo"}${step === first ? " now" : ""}` }, h("a", { href: `#${step}` }, h("span", { class: "tick", "aria-hidden": "true" }, ok ? "✓" : `${at + 1}`), w(step)));
  })));
}

function draw() {
  const focus = document.activeElement && document.activeElement.id, opened = [...document.querySelectorAll("details[open] > summary")].map((own) => own.textContent);
  const typed = ["allowance", "dbfile", "dbtable"].map((id) => [id, $(id) && $(id).value]);
  document.documentElement.lang = language;
  for (const own of document.querySelectorAll("[data-w]")) own.textContent = w(own.dataset.w);
  for (const own of document.querySelectorAll("[data-language]")) own.setAttribute("aria-pressed", String(own.dataset.language === language));
  document.title = `kasuri: ${w("title")}`;
  if (!state) return;
  $("where").textContent = w("where", { file: state.file, folder: state.folder });
  for (const one of [drawSteps, drawData, drawColumns, drawWho, drawBudget, drawExact, drawRelease, drawReport, drawFiles]) one();
  for (const own of document.querySelectorAll("details > summary")) if (opened.includes(own.textContent)) own.parentElement.open = true;
  for (const [id, text] of typed) if (text && $(id)) $(id).value = text;
  const busy = ["reading", "writing", "verifying"].includes(state.progress.phase);
  if (state.done || busy) for (const step of STEPS.slice(0, 5)) for (const own of $(step).querySelectorAll("input, select, textarea, button")) own.disabled = true;
  if (focus && $(focus)) $(focus).focus({ preventScroll: true });
}

async function start() {
  language = localStorage.getItem("kasuri-language") || (navigator.language.startsWith("ja") ? "ja" : "en");
  for (const own of document.querySelectorAll("[data-language]")) own.addEventListener("click", () => { language = own.dataset.language; localStorage.setItem("kasuri-language", language); draw(); });
  draw();
  const token = location.hash.slice(1);
  if (token.length > 30) {
    history.replaceState(null, "", "/");
    const answer = await fetch("/session", { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ token }) });
    if (answer.ok) sessionStorage.setItem("kasuri-session", (await answer.json()).session);
  }
  session = sessionStorage.getItem("kasuri-session") || "";
  if (!session) { say(w("nosession"), "fault"); document.body.dataset.ready = "no"; return; }
  lists = await ask("lists");
  state = await ask("state");
  example = epsilon() || example;
  await peek();
  draw();
  simulate();
  if (["reading", "writing", "verifying"].includes(state.progress.phase)) follow();
  document.body.dataset.ready = "yes";
}
start();
