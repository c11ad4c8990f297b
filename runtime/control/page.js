/* page.js - the live page: the graph, the tables, messages and orders. page_pictures.js draws what queues carry. */
"use strict";

const share = x => !x ? "" : 100 * x >= 1 ? percent(x) : `${(100 * x).toPrecision(1)} %`;

function svg(name, attributes, parent) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const key in attributes) element.setAttribute(key, attributes[key]);
  if (parent) parent.append(element);
  return element;
}

/* --- the graph: stages and queues in rows, from the sources down --- */

const WIDE = 168, HIGH = 44, GAP_X = 20, GAP_Y = 22;
const KINDS = { limits: "limited", trouble: "in trouble", holds: "held up", no_data: "without data", failed: "failed", ended: "ended" };
let drawn = "", boxes = {}, wires = {};

/* Rows by the longest way from a source; in a row by where what feeds it stands. */
function layout(graph) {
  const row = {}, feeds = {};
  for (const s of graph.stages) row["s " + s.name] = 0;
  for (let pass = 0; pass < graph.stages.length; pass++)
    for (const q of graph.queues) {
      row["q " + q.name] = row["s " + q.from] + 1;
      for (const r of q.readers) row["s " + r.stage] = Math.max(row["s " + r.stage], row["q " + q.name] + 1);
    }
  for (const q of graph.queues) {
    (feeds["q " + q.name] ||= []).push("s " + q.from);
    for (const r of q.readers) (feeds["s " + r.stage] ||= []).push("q " + q.name);
  }
  const rows = [];
  for (const name in row) (rows[row[name]] ||= []).push(name);
  const x = {};
  let width = 0;
  for (const names of rows.map(r => r || [])) {
    const wanted = n => { const f = feeds[n] || []; return f.reduce((sum, m) => sum + (x[m] || 0), 0) / (f.length || 1); };
    names.sort((a, b) => wanted(a) - wanted(b));
    let next = 0;
    for (const name of names) {
      x[name] = Math.max(next, names.length === 1 ? wanted(name) : 0);
      next = x[name] + WIDE + GAP_X;
    }
    width = Math.max(width, next - GAP_X);
  }
  return { row, x, width, height: rows.length * (HIGH + GAP_Y) - GAP_Y };
}

function box(name, kind, place, parent) {
  const g = svg("g", { class: kind, tabindex: 0, role: "button", "data-name": name,
    transform: `translate(${place.x[kind[0] + " " + name] + 4} ${place.row[kind[0] + " " + name] * (HIGH + GAP_Y) + 4})` }, parent);
  svg("rect", { class: "box", width: WIDE, height: HIGH, rx: kind === "queue" ? HIGH / 2 : 5 }, g);
  svg("rect", { class: kind === "queue" ? "fill" : "busy", x: 8, y: HIGH - 9, width: 0, height: 5, rx: 2 }, g);
  svg("text", { x: WIDE / 2, y: 17, "text-anchor": "middle" }, g).textContent =
    name.length > 22 ? name.slice(0, 21) + "\u2026" : name;
  svg("text", { class: "small", x: WIDE / 2, y: 31, "text-anchor": "middle" }, g);
  svg("title", {}, g);
  const act = () => kind === "queue" ? choose(name) : $("row " + name)?.focus();
  g.addEventListener("click", act);
  g.addEventListener("keydown", e => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); act(); } });
  return g;
}

function draw(graph) {
  const place = layout(graph);
  const root = svg("svg", { viewBox: `0 0 ${place.width + 8} ${place.height + 8}`, width: place.width + 8, role: "group",
    "aria-label": "stages and the queues between them" });
  boxes = {}; wires = {};
  const wire = (from, to, queue) => {
    const x1 = place.x[from] + WIDE / 2 + 4, y1 = place.row[from] * (HIGH + GAP_Y) + HIGH + 4;
    const x2 = place.x[to] + WIDE / 2 + 4, y2 = place.row[to] * (HIGH + GAP_Y) + 4, m = (y1 + y2) / 2;
    (wires[queue] ||= []).push(svg("path", { class: "wire", d: `M${x1} ${y1}C${x1} ${m} ${x2} ${m} ${x2} ${y2}` }, root));
  };
  for (const q of graph.queues) {
    wire("s " + q.from, "q " + q.name, q.name);
    for (const r of q.readers) wire("q " + q.name, "s " + r.stage, q.name);
  }
  for (const s of graph.stages) boxes["s " + s.name] = box(s.name, "stage", place, root);
  for (const q of graph.queues) boxes["q " + q.name] = box(q.name, "queue", place, root);
  $("graph").replaceChildren(root);
  $("stages").replaceChildren(...graph.stages.map(s => {
    const tr = document.createElement("tr");
    tr.id = "row " + s.name;
    tr.tabIndex = -1;
    for (let i = 0; i < 11; i++) tr.append(document.createElement("td"));
    tr.lastChild.className = "text";
    return tr;
  }));
}

function showStage(s, blamed) {
  const g = boxes["s " + s.name], cells = $("row " + s.name).children, lost = Object.entries(s.lost);
  const dumps = ["active", "done", "empty", "failed", "cancelled"].filter(k => s.dumps?.[k]).map(k => `${s.dumps[k]} ${k}`);
  const now = s.does + (s.waits_for ? " for " + s.waits_for : "") + (s.trouble ? "; " + s.trouble : "")
    + (dumps.length ? "; dumps: " + dumps.join(", ") : "");
  const load = s.gpu ?? s.busy;
  g.setAttribute("class", "stage" + (blamed ? " blamed" : ""));
  g.querySelector(".busy").setAttribute("width", (WIDE - 16) * Math.min(load, 1));
  put(g.querySelector(".small"), `${s.stage !== s.name ? s.stage + ", " : ""}${s.gpu !== undefined ? "GPU" : "busy"} ${percent(load)}`);
  const text = `stage ${s.name}, ${s.stage} on ${s.device}, busy ${percent(s.busy)}, ${now}`;
  g.setAttribute("aria-label", text);
  put(g.querySelector("title"), text);
  [s.name, s.device, percent(s.busy), percent(s.wait_in), percent(s.wait_out), share(s.wait_else), percent(s.gpu), share(s.clamped),
    lost.map(([why, n]) => `${brief(n)} ${why}`).join(", "),
    s.latency_s === undefined || Math.abs(s.latency_s) > 86400 ? "" : s.latency_s.toFixed(2) + " s", now]
    .forEach((text, i) => put(cells[i], text));
}

function showQueue(q, blamed) {
  const g = boxes["q " + q.name], dropped = q.readers.reduce((sum, r) => sum + r.dropped_samples, 0);
  g.setAttribute("class", "queue " + q.state + (blamed ? " at-fault" : "") + ($("queue").value === q.name ? " chosen" : ""));
  g.setAttribute("data-state", q.state);
  for (const w of wires[q.name]) w.setAttribute("class", "wire " + q.state);
  g.querySelector(".fill").setAttribute("width", (WIDE - 16) * q.fill / q.slots);
  put(g.querySelector(".small"), `${q.state} ${q.fill}/${q.slots}, ${brief(q.bytes_per_s)}B/s`);
  const text = `queue ${q.name}, ${q.state}, ${q.fill} of ${q.slots} frames, ${brief(q.samples_per_s)} samples/s, ` +
    `${brief(q.missing)} missing${dropped ? `, ${brief(dropped)} samples dropped` : ""}; Enter shows what it carries`;
  g.setAttribute("aria-label", text);
  put(g.querySelector("title"), text);
}

function show(status) {
  const graph = status.graph, shape = JSON.stringify([graph.stages.map(s => s.name),
    graph.queues.map(q => [q.name, q.from, q.readers.map(r => r.stage)])]);
  if (shape !== drawn) { draw(graph); drawn = shape; fresh = true; }
  const held = status.held_up, now = status.newest;
  put($("file"), `${status.version}  ${status.file}`);
  put($("state"), status.state + (held ? ", " + KINDS[held.kind] : ""));
  put($("words"), status.sentence);
  $("sentence").className = status.state === "failed" ? "failed" : held ? held.kind : "flows";
  const facts = [`${status.state} for ${duration(status.uptime_s)}`, `${status.real_time_factor.toPrecision(3)} times real time`,
    now && `sample ${now.sample}`, now && utc(now.unix_ns), `${status.restarts} restarts`,
    status.healthy ? "healthy" : "NOT healthy: " + status.unhealthy, status.ready ? "ready" : "not ready: " + status.not_ready];
  $("facts").replaceChildren(...facts.filter(f => f).flatMap((fact, i) => {
    const span = document.createElement("span");
    span.textContent = fact;
    return i ? [" \u00b7 ", span] : [span];
  }));
  document.title = `${held && held.kind !== "limits" ? "\u26a0 " : ""}${status.file} \u2013 beamring`;
  for (const s of graph.stages) showStage(s, held && held.stage === s.name);
  for (const q of graph.queues) showQueue(q, held && held.queue === q.name);
  hideEmpty($("stages"));
}

/* A column without a word in it goes. */
function hideEmpty(body) {
  const rows = [...body.children];
  [...body.parentNode.tHead.rows[0].cells].forEach((head, i) => {
    const empty = rows.every(row => row.children[i].textContent === "");
    for (const cell of [head, ...rows.map(row => row.children[i])]) cell.classList.toggle("hidden", empty);
  });
}

/* Rows of texts; one with a class goes as [class, text]. */
function fill(body, rows) {
  body.replaceChildren(...rows.map(cells => {
    const tr = document.createElement("tr");
    cells.forEach((cell, i) => {
      const td = document.createElement("td");
      [td.className, td.textContent] = Array.isArray(cell) ? cell : ["", cell];
      if (body.parentNode.tHead.rows[0].cells[i].className.includes("text")) td.className += " text";
      tr.append(td);
    });
    return tr;
  }));
  hideEmpty(body);
}

/* --- boards, updates and dumps: asked for while there are some --- */

const WORRY = { silent: "error", loses: "warning", "waited for": "warning", "not expected": "" };
let fresh = false, boards = 0, told = "";

async function readBoards() {
  if (!fresh && !boards) return;
  const list = (await (await fetch("v1/boards")).json()).boards || [];
  boards = list.length;
  $("boards-section").classList.toggle("hidden", !boards);
  const several = new Set(list.map(b => b.stage)).size > 1, worst = ["silent", "waited for", "loses"];
  const rank = b => (worst.indexOf(b.state) + worst.length + 1) % (worst.length + 1); /* good ones last */
  list.sort((a, b) => rank(a) - rank(b));
  fill($("boards"), list.map(b => [(several ? b.stage + ", " : "") + b.board, [WORRY[b.state] || "", b.state],
    b.last_seen_s === null ? "never" : b.last_seen_s < 1.5 ? "now" : duration(b.last_seen_s) + " ago",
    brief(b.packets_per_s), b.lost_per_s ? brief(b.lost_per_s) : "", b.lost ? brief(b.lost) : ""]));
  put($("boards-title"), `Boards: ${list.filter(b => b.state === "sends").length} of ${boards} send all they should`);
}

async function readOrders(status) {
  const dumping = status.graph.stages.filter(s => s.dumps), updates = Object.values(status.updates?.states || {});
  const now = JSON.stringify([updates, dumping.map(s => s.dumps)]), some = updates.some(n => n > 0);
  if (now === told && !dumping.some(s => s.dumps.active)) return;
  told = now;
  const rows = [];
  if (some)
    for (const u of (await (await fetch("v1/updates")).json()).updates || [])
      rows.push([`update ${u.id}`, [u.error ? "error" : "", u.state], String(u.held_from ?? u.sample), u.stages, u.error || ""]);
  if (dumping.length)
    for (const d of (await (await fetch("v1/dumps")).json()).dumps || [])
      rows.push([`dump ${d.id}`, [d.state === "failed" ? "error" : "", d.state], String(d.first_sample), d.stage,
        `${brief(d.bytes)}B in ${d.directory}${d.missing_samples ? `, ${brief(d.missing_samples)} samples missing` : ""}` +
        (d.reason ? `: ${d.reason}` : "")]);
  fill($("orders"), rows);
  $("orders-section").classList.toggle("hidden", !rows.length);
}

/* --- messages, orders, and asking again --- */

let next = 0;
async function readLog() {
  const log = await (await fetch(`v1/log?since=${next}`)).json(), list = $("log");
  const down = list.scrollTop + list.clientHeight >= list.scrollHeight - 4;
  for (const line of log.lines) {
    const li = document.createElement("li"), time = document.createElement("time");
    time.textContent = new Date(1e3 * line.unix_s).toISOString().slice(11, 23) + " ";
    li.className = line.level;
    li.append(time, `${line.stage ? line.stage + ": " : ""}${line.level !== "note" ? line.level + ": " : ""}${line.message}`);
    list.append(li);
    if (line.level === "note") continue;
    $("last").className = line.level;
    put($("last"), "last " + li.textContent);
  }
  while (list.children.length > 500) list.firstChild.remove();
  if (down) list.scrollTop = list.scrollHeight;
  next = log.next < next ? 0 : log.next;
}

async function order(path, question) {
  if (!confirm(question)) return;
  const answer = await fetch(path, { method: "POST" }), body = await answer.json();
  put($("answer"), body.error || body.state);
}
$("restart").addEventListener("click", () => order("v1/restart", "Drain the pipeline, read its file again and start it?"));
$("stop").addEventListener("click", () => order("v1/stop", "Drain and stop the pipeline?"));

/* A table that is wider than the screen says so. */
function hintAtMore() {
  for (const box of document.querySelectorAll(".scroll"))
    box.classList.toggle("more", box.scrollLeft + box.clientWidth < box.scrollWidth - 2);
}
for (const box of document.querySelectorAll(".scroll")) box.addEventListener("scroll", hintAtMore);

let silent = 0;
async function ask() {
  try {
    if (!document.hidden) {
      const status = await (await fetch("v1/status")).json();
      show(status);
      if (fresh) knowQueues((await (await fetch("v1/graph")).json()).queues || []);
      await readBoards();
      fresh = false;
      await readLog();
      await readOrders(status);
      await look();
      hintAtMore();
    }
    silent = 0;
  } catch (error) {
    if (!(error instanceof TypeError) || !String(error).includes("fetch")) console.error(error);
    silent ||= Date.now();
    put($("state"), "silent");
    put($("words"), `the node has not answered for ${Math.round((Date.now() - silent) / 1000)} s`);
    $("sentence").className = "silent";
  }
  setTimeout(ask, 1000);
}
ask();
