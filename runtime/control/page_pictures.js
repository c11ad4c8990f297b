/* page_pictures.js - the live page: words for numbers, and what a queue carries as map, waterfall and spectrum. */
"use strict";
const $ = id => document.getElementById(id);
const percent = x => x === undefined || x === null ? "" : Math.round(100 * x) + " %";
const three = x => x === null || x === undefined ? "missing" : String(Number(x.toPrecision(3)));
const utc = ns => new Date(ns / 1e6).toISOString().replace("T", " ").slice(0, 23) + " UTC";

function put(element, text) { if (element.textContent !== text) element.textContent = text; }

function brief(n) {
  const units = ["", "k", "M", "G", "T", "P"];
  let u = 0;
  while (Math.abs(n) >= 1000 && u + 1 < units.length) { n /= 1000; u++; }
  return (Math.abs(n) >= 100 || Number.isInteger(n) ? n.toFixed(0) : n.toPrecision(3)) + (units[u] ? " " + units[u] : "");
}

function duration(s) {
  const m = Math.floor(s / 60), h = Math.floor(m / 60);
  return s < 60 ? `${Math.round(s)} s` : m < 60 ? `${m} min` : h < 48 ? `${h} h ${m % 60} min` : `${Math.floor(h / 24)} days`;
}

/* --- colours and axes --- */

const SPAN_S = 20; /* of the waterfall */
const LEFT = 70, RIGHT = 74, TOP = 20, BOTTOM = 40, BAR = 12;

/* Dark blue over green to yellow. */
function colour(x) {
  const stops = [[13, 22, 66], [41, 82, 143], [33, 145, 140], [98, 200, 98], [250, 231, 66]];
  const at = Math.min(Math.max(x, 0), 1) * (stops.length - 1), i = Math.min(Math.floor(at), stops.length - 2);
  return `rgb(${stops[i].map((c, k) => Math.round(c + (at - i) * (stops[i + 1][k] - c))).join(" ")})`;
}

/* A scale from the value that `cut` of all are below to the one that as many are above; it counts those beyond. */
function scale(values, cut) {
  const good = values.filter(v => v !== null && v !== undefined).sort((a, b) => a - b), last = good.length - 1;
  if (!good.length) return { low: 0, high: 0, beyond: 0, of: () => 0 };
  const low = good[Math.floor(cut * last)], high = good[Math.ceil((1 - cut) * last)];
  return { low, high, beyond: good.filter(v => v < low || v > high).length / good.length,
    of: v => high > low ? (v - low) / (high - low) : 0.5 };
}

const endsOf = s => `bar from ${three(s.low)} to ${three(s.high)}, ` +
  (s.beyond ? `${(100 * s.beyond).toPrecision(2)} % are beyond its ends` : "nothing is beyond its ends");

/* A canvas with room for axes around the plot, which is p.w by p.h at p.x, p.y. */
function paper(canvas) {
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
  canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio);
  const c = canvas.getContext("2d"), style = getComputedStyle(canvas);
  c.scale(ratio, ratio);
  c.font = `12px ${style.fontFamily}`;
  c.fillStyle = c.strokeStyle = style.color;
  return { c, ink: style.color, x: LEFT, y: TOP, w: Math.max(40, width - LEFT - RIGHT), h: Math.max(30, height - TOP - BOTTOM) };
}

function ticks(low, high, most) {
  const raw = (high - low) / most, ten = 10 ** Math.floor(Math.log10(raw)), list = [];
  if (!(raw > 0)) return [low];
  const step = [1, 2, 5, 10].map(m => m * ten).find(s => s >= raw);
  for (let t = Math.ceil(low / step - 1e-9) * step; t <= high + 1e-9 * step; t += step) list.push(Number(t.toPrecision(6)));
  return list;
}

function text(p, words, x, y, align, turned) {
  p.c.save();
  p.c.fillStyle = p.ink;
  p.c.textAlign = align;
  p.c.textBaseline = "middle";
  p.c.translate(x, y);
  if (turned) p.c.rotate(-Math.PI / 2);
  p.c.fillText(words, 0, 0);
  p.c.restore();
}

/* Numbers and a title along one side; at(value) is where a value stands in pixels. */
function axisX(p, values, at, title, says = String) {
  for (const v of values) {
    text(p, says(v), at(v), p.y + p.h + 12, "center");
    p.c.fillRect(at(v) - 0.5, p.y + p.h, 1, 4);
  }
  text(p, title, p.x + p.w / 2, p.y + p.h + 29, "center");
}
function axisY(p, values, at, title, says = String) {
  for (const v of values) {
    text(p, says(v), p.x - 7, at(v), "right");
    p.c.fillRect(p.x - 4, at(v) - 0.5, 4, 1);
  }
  text(p, title, 8, p.y + p.h / 2, "center", true);
}

function bar(p, s) {
  const x = p.x + p.w + 10;
  for (let i = 0; i < p.h; i++) {
    p.c.fillStyle = colour(1 - i / (p.h - 1));
    p.c.fillRect(x, p.y + i, BAR, 1.5);
  }
  text(p, three(s.high), x + BAR + 4, p.y + 5, "left");
  text(p, three((s.low + s.high) / 2), x + BAR + 4, p.y + p.h / 2, "left");
  text(p, three(s.low), x + BAR + 4, p.y + p.h - 5, "left");
  text(p, "power", x, p.y - 10, "left");
}

/* --- the map: items where they are on the sky, or in the array; else in rows of the last axis --- */

let shown = null, places = [];

/* "beam 12, 0.5 deg east, -0.25 deg north" or "pol 1, dish 37, ..." */
function nameOf(p, k) {
  const item = k * p.item_step, words = [];
  let left = item;
  for (const [name, n] of [...p.axes].reverse()) { words.unshift(`${name} ${left % n}`); left = Math.floor(left / n); }
  if (p.positions) {
    const [east, north] = p.positions[k % p.positions.length];
    words.push(`${three(east)} ${p.unit} east`, `${three(north)} ${p.unit} north`);
  }
  return words.join(", ") || "the only item";
}

/* Panels from left to right, each with its own items at [x, y]. */
function panelsOf(p) {
  const n = p.mean.length;
  if (p.positions) {
    const per = p.positions.length, count = Math.max(1, Math.round(n / per)), long = p.unit === "deg" ? "degrees" : "metres";
    const names = count > 1 && p.axes.length === 2 ? [...Array(count).keys()].map(i => `${p.axes[0][0]} ${i}`) : [];
    return { count, per, names, at: k => p.positions[k % per], x: `${long} east`, y: `${long} north`, whole: false };
  }
  const axes = p.axes.filter(([, length]) => length > 1), [name, length] = axes[axes.length - 1] || ["item", 1];
  const columns = p.item_step === 1 && axes.length > 1 ? length : n <= 64 ? n : Math.ceil(Math.sqrt(n));
  const y = axes.length > 1 && p.item_step === 1 ? axes.slice(0, -1).map(a => a[0]).join(", ") : n > columns ? `row of ${columns}` : "";
  return { count: 1, per: n, names: [], at: k => [k % columns, -Math.floor(k / columns)], x: name, y, whole: true };
}

function paintMap(p) {
  const panels = panelsOf(p), c = paper($("map")), s = scale(p.mean, 0), gap = 34;
  const spots = [...Array(panels.per).keys()].map(panels.at), wide = (c.w - gap * (panels.count - 1)) / panels.count;
  const side = values => {
    const sorted = [...new Set(values.map(v => Number(v.toFixed(6))))].sort((a, b) => a - b);
    const steps = sorted.slice(1).map((v, i) => v - sorted[i]), step = Math.max(Math.min(...steps), (sorted[sorted.length - 1] - sorted[0]) / 64);
    const half = steps.length ? step / 2 : 0.5;
    return { low: sorted[0] - half, high: sorted[sorted.length - 1] + half, cell: 2 * half };
  };
  const X = side(spots.map(q => q[0])), Y = side(spots.map(q => q[1]));
  const y = v => c.y + c.h * (Y.high - v) / (Y.high - Y.low), w = wide * X.cell / (X.high - X.low), h = c.h * Y.cell / (Y.high - Y.low);
  const chosen = Number($("item").value);
  places = [];
  for (let i = 0; i < panels.count; i++) {
    const left = c.x + i * (wide + gap), x = v => left + wide * (v - X.low) / (X.high - X.low);
    for (let k = i * panels.per; k < Math.min(p.mean.length, (i + 1) * panels.per); k++) {
      const [a, b] = spots[k % panels.per];
      places.push([x(a), y(b)]);
      if (p.mean[k] === null) continue; /* missing: the paper */
      c.c.fillStyle = colour(s.of(p.mean[k]));
      c.c.fillRect(x(a) - w / 2, y(b) - h / 2, Math.max(w - (w > 5), 1), Math.max(h - (h > 5), 1));
    }
    c.c.fillStyle = c.ink;
    const sub = { ...c, x: left, w: wide }, most = Math.max(2, Math.floor(wide / 60));
    axisX(sub, ticks(X.low, X.high, most).filter(v => !panels.whole || Number.isInteger(v)), x, panels.x);
    if (panels.names[i]) text(c, panels.names[i], left + wide / 2, c.y - 10, "center");
  }
  axisY(c, ticks(Y.low, Y.high, Math.max(2, Math.floor(c.h / 40))).filter(v => !panels.whole || Number.isInteger(v)), y, panels.y,
    v => String(panels.whole ? Math.abs(v) : v));
  const mark = places[Math.round(chosen / p.item_step)];
  if (mark) {
    [["white", 5], ["black", 2]].forEach(([line, width]) => { /* seen on every colour */
      c.c.strokeStyle = line;
      c.c.lineWidth = width;
      c.c.strokeRect(mark[0] - w / 2 - 1, mark[1] - h / 2 - 1, Math.max(w, 4) + 1, Math.max(h, 4) + 1);
    });
  }
  bar(c, s);
  const names = p.axes.map(([name, n]) => `${n} ${name}`).join(" \u00d7 ") || "one item";
  put($("map-text"), `${names}${p.item_step > 1 ? `, every ${p.item_step}th` : ""}: means of ${brief(p.cells)} samples of each; ${endsOf(s)}`);
}

/* --- waterfall and spectrum of one item --- */

let columns = [], since = 0;

/* The columns of the last seconds, oldest first, as {x: seconds from now, wide, power}. */
function recent(now) {
  columns = columns.filter(column => now - column.at <= 1000 * SPAN_S);
  const steps = columns.slice(1).map((column, i) => column.at - columns[i].at).sort((a, b) => a - b);
  const usual = steps[Math.floor(steps.length / 2)] || 1000;
  return columns.map((column, i) => {
    const before = i ? column.at - columns[i - 1].at : usual;
    return { x: (column.at - now) / 1000, wide: Math.min(before, 3 * usual) / 1000, power: column.power };
  });
}

const middle = values => { const good = values.filter(v => v !== null).sort((a, b) => a - b); return good[good.length >> 1] ?? 0; };

function paintFall(p) {
  const c = paper($("fall")), list = recent(p.now_ms), rows = p.freq_mhz.length, up = p.freq_mhz[0] < p.freq_mhz[rows - 1];
  const less = p.freq_mhz.map((_, k) => $("flat").checked ? middle(list.map(column => column.power[k])) : 0);
  const value = (column, k) => column.power[k] === null ? null : column.power[k] - less[k];
  const s = scale(list.flatMap(column => less.map((_, k) => value(column, k))), 0.005);
  const x = t => c.x + c.w * (1 + t / SPAN_S), y = k => c.y + c.h * (up ? rows - k - 1 : k) / rows, high = c.h / rows;
  for (const column of list)
    for (let k = 0; k < rows; k++) {
      if (value(column, k) === null) continue;
      const right = x(column.x), left = Math.max(c.x, x(column.x - column.wide));
      c.c.fillStyle = colour(s.of(value(column, k)));
      c.c.fillRect(left, y(k), right - left + 0.5, high + 0.5);
    }
  c.c.fillStyle = c.ink;
  axisX(c, ticks(-SPAN_S, 0, Math.max(2, Math.floor(c.w / 60))), x, "seconds from now");
  const some = Math.min(rows, Math.max(2, Math.floor(c.h / 40)));
  const at = [...Array(some).keys()].map(i => Math.round(i * (rows - 1) / Math.max(1, some - 1)));
  axisY(c, at, k => y(k) + high / 2, "MHz",
    k => p.freq_mhz[k].toFixed(Math.abs(p.freq_mhz[rows - 1] - p.freq_mhz[0]) < 5 ? 2 : 1));
  bar(c, s);
  const seconds = list.length ? Math.min(SPAN_S, list[0].wide - list[0].x) : 0;
  put($("fall-text"), `${nameOf(p, Math.round(p.item / p.item_step))}: the last ${seconds.toFixed(0)} s; ${endsOf(s)}`);
  c.value = (px, py) => {
    const k = Math.floor((py - c.y) / c.h * rows), row = up ? rows - 1 - k : k, t = ((px - c.x) / c.w - 1) * SPAN_S;
    const column = list.find(one => t <= one.x && t > one.x - one.wide);
    return !column || k < 0 || k >= rows ? "" :
      `${(-t).toFixed(2)} s ago, ${p.freq_mhz[row].toFixed(2)} MHz: ${three(column.power[row])}`;
  };
  return c;
}

function paintSpectrum(p) {
  const c = paper($("spectrum")), n = p.freq_mhz.length;
  const power = p.freq_mhz.map((_, k) => {
    const good = columns.map(column => column.power[k]).filter(v => v !== null);
    return good.length ? good.reduce((a, b) => a + b, 0) / good.length : null;
  });
  const s = scale(power, 0), low = Math.min(...p.freq_mhz), high = Math.max(...p.freq_mhz);
  const spare = (s.high - s.low || Math.abs(s.high) || 1) * 0.05, f = high > low ? high - low : 1;
  const x = mhz => c.x + c.w * (mhz - low) / f, y = v => c.y + c.h * (s.high + spare - v) / (s.high - s.low + 2 * spare);
  c.c.strokeStyle = c.ink;
  c.c.beginPath();
  let pen = false;
  for (const k of [...Array(n).keys()].sort((a, b) => p.freq_mhz[a] - p.freq_mhz[b])) {
    if (power[k] === null) { pen = false; continue; }
    if (pen) c.c.lineTo(x(p.freq_mhz[k]), y(power[k])); else c.c.moveTo(x(p.freq_mhz[k]), y(power[k]));
    pen = true;
  }
  c.c.stroke();
  axisX(c, ticks(low, high, Math.max(2, Math.floor(c.w / 70))), x, "MHz");
  axisY(c, ticks(s.low, s.high, 3), y, "power", three);
  put($("spectrum-text"), `the mean spectrum of the same time: ${three(s.low)} to ${three(s.high)}`);
  c.value = px => {
    const mhz = low + (px - c.x) / c.w * f, d = p.freq_mhz.map(v => Math.abs(v - mhz)), k = d.indexOf(Math.min(...d));
    return px < c.x || px > c.x + c.w ? "" : `${p.freq_mhz[k].toFixed(2)} MHz: ${three(power[k])}`;
  };
  return c;
}

let fall = null, spectrum = null;
function paint() {
  if (!shown) return;
  $("map").parentNode.classList.toggle("hidden", shown.items < 2);
  $("spectrum").parentNode.classList.toggle("hidden", shown.freq_mhz.length < 2);
  if (shown.items > 1) paintMap(shown);
  fall = paintFall(shown);
  spectrum = shown.freq_mhz.length > 1 ? paintSpectrum(shown) : null;
  sayItem(Math.round(shown.item / shown.item_step));
}

/* --- values under the pointer, and choices --- */

const sayItem = k => put($("under"), shown && shown.mean[k] !== undefined ? `${nameOf(shown, k)}: ${three(shown.mean[k])}` : "");

function under(event) {
  const r = event.target.getBoundingClientRect();
  return [event.clientX - r.left, event.clientY - r.top];
}

function nearest(event) {
  const [x, y] = under(event), d = places.map(([a, b]) => (a - x) ** 2 + (b - y) ** 2);
  return d.length ? d.indexOf(Math.min(...d)) : -1;
}

$("map").addEventListener("pointermove", e => sayItem(nearest(e)));
$("fall").addEventListener("pointermove", e => put($("under"), fall ? fall.value(...under(e)) : ""));
$("spectrum").addEventListener("pointermove", e => put($("under"), spectrum ? spectrum.value(...under(e)) : ""));
for (const id of ["map", "fall", "spectrum"])
  $(id).addEventListener("pointerleave", () => shown && sayItem(Math.round(shown.item / shown.item_step)));
$("map").addEventListener("click", e => {
  const k = nearest(e);
  if (k >= 0) { $("item").value = k * shown.item_step; lookNow(); }
});
$("flat").addEventListener("change", paint);
addEventListener("resize", paint);

let queues = []; /* as /v1/graph tells them */

/* The queue that says most: beams before they are quantized, then the field, then others. */
function telling(q) {
  const many = Number(/\[beam (\d+)\]/.exec(q.frame)?.[1] || 0), real = /^(float|f)(16|32)/.test(q.frame);
  return q.no_preview ? -1 : many > 1 && real ? 4 : /\[dish \d+\]/.test(q.frame) ? 3 : many ? 2 : 1;
}

function knowQueues(list) {
  const wanted = new URLSearchParams(location.hash.slice(1)), before = $("queue").value || wanted.get("queue");
  queues = list;
  $("queue").replaceChildren(new Option("none", ""), ...list.map(q => new Option(q.no_preview ? `${q.name} (no picture)` : q.name, q.name)));
  const best = [...list].sort((a, b) => telling(b) - telling(a))[0];
  $("queue").value = list.some(q => q.name === before) ? before : best && telling(best) >= 0 && before !== "" ? best.name : "";
  if (wanted.get("queue") === $("queue").value && wanted.has("item")) $("item").value = wanted.get("item");
  lookNow();
}

function choose(name) { $("queue").value = name; $("item").value = 0; lookNow(); }

let looking = 0;
async function look() {
  const name = $("queue").value, mine = looking, refused = queues.find(q => q.name === name)?.no_preview;
  if (refused) put($("look-text"), `There is no picture of '${name}': ${refused}.`);
  if (!name || document.hidden || refused) return;
  const answer = await fetch(`v1/preview?queue=${encodeURIComponent(name)}&item=${Math.max(0, $("item").value | 0)}&since=${since}`);
  const p = await answer.json();
  if (mine !== looking) return;
  if (p.error) put($("look-text"), p.error);
  if (p.error || p.pending) return;
  const w = p.waterfall;
  if (w.next < since) columns = []; /* another run */
  w.power.forEach((power, i) => columns.push({ at: w.at_ms[i], power }));
  since = w.next;
  shown = p;
  $("item").max = p.items - 1;
  put($("item-name"), p.axes.length === 1 ? p.axes[0][0] : "input");
  $("pictures").classList.remove("hidden");
  paint();
  put($("look-text"), `${p.dtype}, up to ${utc(p.unix_ns)}, ${p.age_s.toFixed(1)} s ago; adding a frame to it takes ${p.took_ms.toPrecision(2)} ms`);
}

/* Keeps the choice in the address, and looks at once. */
function lookNow() {
  const name = $("queue").value, item = Math.max(0, $("item").value | 0);
  looking++;
  $("pictures").classList.toggle("hidden", shown?.queue !== name);
  columns = []; since = 0; shown = null;
  history.replaceState(null, "", name ? `#${new URLSearchParams({ queue: name, item })}` : "#queue=");
  put($("look-text"), name ? "waiting for the next frame ..." : "Choose a queue. Nothing is read from it while nobody looks.");
  look().catch(() => 0);
}
$("queue").addEventListener("change", () => { $("item").value = 0; lookNow(); });
$("item").addEventListener("change", lookNow);
