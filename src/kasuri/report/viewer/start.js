// ---- start ----

for (const button of document.querySelectorAll("[data-language]")) button.addEventListener("click", () => speak(button.dataset.language));
const opens = document.body.dataset.opens; // the language of its publisher, for readers of neither
const asked = location.hash.slice(1).split("&")[0];
const wanted = asked in WORDS ? asked : [(navigator.language ?? "").slice(0, 2), opens].find((name) => name in WORDS) ?? "en";
const ready = () => { speak(wanted); document.body.dataset.ready = "yes"; };
async function start(view) {
  called.ja = view.names;
  if (view.estimate) for (const [words, name] of [[WORDS.en, "estimate"], [WORDS.ja, "推定値"]]) words.value = words.count = words.released = name;
  const texts = $("rows").textContent.split("."), parts = view.parts ?? []; // the table, then what else there is to show
  for (const axis of view.axes) for (const level of axis.levels ?? []) if (level.spans) { level.of = new Uint32Array(axis.size); level.spans.forEach(([low, past], i) => level.of.fill(i, low, past)); }
  const data = await unpack(view.data, texts[0]), known = (part) => (part.about.streams.some(([name]) => name === "value") ? null : addUp(view.axes, data, part.key));
  const made = await Promise.all(parts.map((part, i) => (part.what === "range" ? unpack(part.about, texts[i + 1], known(part)) : part.what === "ground" ? unpackGround(part.about, texts[i + 1], [view.axes[part.axis].cols, view.axes[part.axis].rows]) : unpackShapes(part.about, texts[i + 1]))));
  data.ranges = []; data.ground = {};
  parts.forEach((part, i) => {
    if (part.what === "range") data.ranges.push({ key: part.key, rows: made[i] });
    else if (part.what === "ground") data.ground[part.axis] = made[i];
    else view.axes[part.axis].levels[0].rings = made[i];
  });
  (view.axes.some((axis) => axis.kind === "mesh" || axis.kind === "shapes") ? showMap : showBars)(view, data);
  ready();
}
// on paper, what is folded on the screen is told too
const folds = [];
addEventListener("beforeprint", () => { for (const fold of document.querySelectorAll("details.printed:not([open])")) { fold.open = true; folds.push(fold); } });
addEventListener("afterprint", () => { for (const fold of folds.splice(0)) fold.open = false; });
if ($("view")) start(told("view")); else ready();
