// ---- places far away from the others: small maps in free corners of the first view ----

/** Groups of places (numbers of `boxes`) that lie close together, those of many places first. */
function groupsOf(boxes, numbers, gap) {
  const out = [];
  for (let left = numbers; left.length; ) {
    const box = [...boxes[left[0]]], ids = [];
    for (let more = -1; more !== left.length; ) {
      more = left.length;
      left = left.filter((i) => {
        const [a, b, c, d] = boxes[i], near = a <= box[2] + gap && c >= box[0] - gap && b <= box[3] + gap && d >= box[1] - gap;
        if (near) { ids.push(i); box[0] = Math.min(box[0], a); box[1] = Math.min(box[1], b); box[2] = Math.max(box[2], c); box[3] = Math.max(box[3], d); }
        return !near;
      });
    }
    out.push({ box, ids });
  }
  return out.sort((one, two) => two.ids.length - one.ids.length);
}

/** For each group a rectangle of the screen that touches nothing of `taken`, as large as there is room, and how it maps. */
function corners(groups, w, h, taken) {
  const out = [], full = taken.slice(), free = (x, y, wide, high) => !full.some(([a, b, c, d]) => x - 6 < c && x + wide + 6 > a && y - 6 < d && y + high + 6 > b);
  for (const group of groups) {
    const [a, b, c, d] = group.box, shape = (c - a) / (d - b || 1);
    for (const size of [132, 108, 88, 70]) {
      const wide = shape >= 1 ? size : size * Math.max(shape, 0.6), high = shape >= 1 ? size / Math.min(shape, 1.8) : size, spots = [];
      for (let y = 8; y <= h - high - 8; y += 8) spots.push([8, y], [w - wide - 8, y]);
      for (let x = 8; x <= w - wide - 8; x += 8) spots.push([x, 8], [x, h - high - 8]);
      const at = spots.find(([x, y]) => free(x, y, wide, high));
      if (!at) continue;
      const s = 0.9 * Math.min(wide / (c - a), high / (d - b)), view = { x: (a + c) / 2 - wide / 2 / s, y: (b + d) / 2 - high / 2 / s, s };
      out.push({ ...group, x: at[0], y: at[1], wide, high, view, toX: (x) => at[0] + (x - view.x) * s, toY: (y) => at[1] + (y - view.y) * s, toPage: (px, py) => [(px - at[0]) / s + view.x, (py - at[1]) / s + view.y] });
      full.push([at[0], at[1], at[0] + wide, at[1] + high]);
      break;
    }
  }
  return out;
}

function paintInset(pen, one, on, { ratio, of, hatch }) {
  const own = new OffscreenCanvas(Math.round(one.wide * ratio), Math.round(one.high * ratio)), ink = own.getContext("2d");
  ink.fillStyle = "#141c2c"; ink.fillRect(0, 0, own.width, own.height);
  on.paint(ink, { box: one.view, ratio, w: own.width, h: own.height, toX: (x) => (x - one.view.x) * one.view.s, toY: (y) => (y - one.view.y) * one.view.s, of, hatch });
  pen.drawImage(own, one.x, one.y, one.wide, one.high);
  pen.lineWidth = 1; pen.strokeStyle = "#ffffff70"; pen.strokeRect(one.x + .5, one.y + .5, one.wide - 1, one.high - 1);
}
