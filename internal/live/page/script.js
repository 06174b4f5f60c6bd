"use strict";
// The page draws the newest frame at the browser's own pace, and changes only the parts
// that differ.

const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";

// text and mark touch the document only when there is a change.
function text(element, value) {
  if (element.textContent !== value) element.textContent = value;
}
function mark(element, name, value) {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

// children gives list exactly n elements, made by make.
function children(list, n, make) {
  while (list.children.length > n) list.lastElementChild.remove();
  while (list.children.length < n) list.append(make());
  return list.children;
}
function element(tag, name) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  return made;
}
function withParts(tag, name, parts) {
  const made = element(tag, name);
  for (const [kind, part] of parts) made.append(element(kind, part));
  return made;
}

const count = new Intl.NumberFormat("en");
function rate(value) {
  return value >= 10 || value === 0 ? count.format(Math.round(value)) : value.toFixed(1);
}
function age(ms) {
  if (ms < 0) return "–";
  if (ms < 9.95) return ms.toFixed(1) + " ms";
  return ms < 1000 ? Math.round(ms) + " ms" : (ms / 1000).toFixed(1) + " s";
}

function drawFlow(stages) {
  const items = children($("flow"), stages.length, () =>
    withParts("li", "stage", [["div", "name"], ["div", "rate"], ["div", "notes"]]));
  stages.forEach((stage, i) => {
    const [name, number, notes] = items[i].children;
    mark(items[i], "data-moves", String(stage.rate > 0));
    mark(items[i], "data-stage", stage.name);
    text(name, stage.name);
    if (!number.firstChild) number.append("", element("small"));
    if (number.firstChild.data !== rate(stage.rate)) number.firstChild.data = rate(stage.rate);
    text(number.lastChild, " /s");
    const all = [{ name: "in all", value: stage.total, alert: false }, ...(stage.notes || [])];
    const lines = children(notes, all.length, () => withParts("div", "note", [["span"], ["span"]]));
    all.forEach((note, k) => {
      text(lines[k].firstChild, note.name);
      text(lines[k].lastChild, count.format(note.value));
      mark(lines[k], "data-alert", String(note.alert));
      mark(lines[k], "data-note", note.name);
    });
  });
}

// The plot is logarithmic, from 1 ms to 10 s.
const plot = { left: 44, right: 474, top: 10, bottom: 140 };
const high = (ms) => plot.bottom - (Math.log10(Math.min(Math.max(ms, 1), 10000)) / 4) * (plot.bottom - plot.top);

function drawGrid() {
  const grid = $("lag").querySelector(".grid");
  for (const [ms, name] of [[1, "1 ms"], [10, "10 ms"], [100, "0.1 s"], [1000, "1 s"], [10000, "10 s"]]) {
    const line = document.createElementNS(SVG, "line");
    const label = document.createElementNS(SVG, "text");
    for (const [key, value] of Object.entries({ x1: plot.left, x2: plot.right, y1: high(ms), y2: high(ms) })) line.setAttribute(key, value);
    label.setAttribute("x", 6);
    label.setAttribute("y", high(ms) + 4);
    label.textContent = name;
    grid.append(line, label);
  }
}

function path(points, of, width) {
  let drawn = "";
  points.forEach((point, i) => {
    if (of(point) < 0) return;
    const x = plot.right - (points.length - 1 - i) * width;
    const from = drawn === "" || of(points[i - 1]) < 0 ? "M" : "L";
    drawn += `${from}${x.toFixed(1)} ${high(of(point)).toFixed(1)}`;
    if (from === "M") drawn += "h.1";
  });
  return drawn;
}

function drawLag(points) {
  const width = (plot.right - plot.left) / 239;
  mark($("lag").querySelector(".median"), "d", path(points, (p) => p.p50, width));
  mark($("lag").querySelector(".high"), "d", path(points, (p) => p.p99, width));
  const last = points.findLast((p) => p.p50 >= 0);
  text($("p50"), last ? age(last.p50) : "–");
  text($("p99"), last ? age(last.p99) : "–");
}

function drawParts(parts) {
  const items = children($("parts"), parts.length, () => withParts("li", "", [["b"], ["span"], ["span", "detail"]]));
  parts.forEach((part, i) => {
    const [name, state, detail] = items[i].children;
    mark(items[i], "data-state", part.state);
    mark(items[i], "data-part", part.name);
    text(name, part.name);
    text(state, part.state);
    text(detail, part.detail);
  });
}

// maxChips is how many of an aggregate's newest events are shown.
const maxChips = 6;

function drawEvents(events) {
  if (!$("list")) return;
  const rows = new Map();
  for (const event of events) rows.set(event.aggregate, [event, ...(rows.get(event.aggregate) || [])].slice(-maxChips));
  const items = children($("list"), rows.size, () => withParts("li", "", [["code"], ["span", "chips"]]));
  let i = 0;
  for (const [aggregate, versions] of rows) {
    const [name, chips] = items[i++].children;
    text(name, aggregate);
    const drawn = children(chips, versions.length, () => element("span", "chip"));
    versions.forEach((event, k) => {
      const when = event.applied_ms >= 0 ? age(event.applied_ms) : event.published_ms >= 0 ? "at the broker" : "in the outbox";
      const state = event.state === "applied" || event.state === "pending" || event.state === "published" ? when : event.state;
      const change = event.type.replace(/^(Video|Engagement)/, "").toLowerCase();
      text(drawn[k], `v${event.version} ${change} · ${state}`);
      mark(drawn[k], "data-state", event.state);
    });
  }
}

function drawOutcomes(frame) {
  for (const button of document.querySelectorAll("[data-press]")) mark(button, "aria-disabled", String(frame.running !== ""));
  for (const outcome of frame.outcomes || []) {
    const card = $("action-" + outcome.name);
    if (!card) continue;
    const before = card.dataset.result;
    mark(card, "data-result", outcome.result);
    const said = card.querySelector(".outcome");
    text(said, outcome.said);
    if (before === "running" && outcome.result !== "running") {
      text($("said"), `${card.querySelector("button").textContent}: ${outcome.said}`);
    }
  }
}

function drawPromises(seen) {
  const all = document.querySelectorAll("#promises li");
  if (all.length === 0) return;
  for (const promise of seen) {
    const item = $("promise-" + promise.id);
    if (!item) continue;
    mark(item, "data-seen", "true");
    text(item.querySelector(".mark"), "✓ seen at " + new Date(promise.at).toLocaleTimeString());
    text(item.querySelector(".evidence"), promise.said);
  }
  text($("count"), `· ${seen.length} of ${all.length} seen`);
}

function draw(frame) {
  drawFlow(frame.stages || []);
  drawLag(frame.lag || []);
  drawParts(frame.parts || []);
  drawEvents(frame.events || []);
  drawOutcomes(frame);
  drawPromises(frame.seen || []);
}

// forget removes results and marks. The next frame has those of the run that serves it, which may be another run.
function forget() {
  for (const card of document.querySelectorAll(".card")) {
    mark(card, "data-result", "");
    text(card.querySelector(".outcome"), "");
  }
  for (const promise of document.querySelectorAll("#promises li")) {
    mark(promise, "data-seen", "false");
    text(promise.querySelector(".mark"), "not seen yet");
    text(promise.querySelector(".evidence"), "");
  }
}

const retryTime = 3000; // ms

// stream has the frames while the page is looked at. A browser opens six connections to a server, and each stream
// keeps one: with a stream in six hidden tabs, no further tab would load, and no button would do anything.
let stream = null;

function leave() {
  if (stream) stream.close();
  stream = null;
}

function follow() {
  leave();
  if (document.hidden) return;
  let newest = null, another = true;
  const frames = stream = new EventSource("frames");
  frames.onmessage = (message) => {
    if (newest === null) {
      requestAnimationFrame(() => {
        const data = newest;
        newest = null;
        if (another) forget();
        another = false;
        draw(JSON.parse(data));
      });
    }
    newest = message.data;
  };
  const link = (state, said) => {
    mark($("link"), "data-state", state);
    text($("link"), said);
  };
  frames.onopen = () => {
    another = true;
    link("up", "live");
  };
  frames.onerror = () => {
    link("away", "no connection; it tries again");
    // A browser gives up after an answer with an error, such as 503 where too many browsers look.
    if (frames.readyState === EventSource.CLOSED) setTimeout(follow, retryTime * (1 + Math.random()));
  };
}

async function press(button) {
  if (button.getAttribute("aria-disabled") === "true") return;
  const said = button.parentElement.querySelector(".outcome");
  try {
    const answer = await fetch("press/" + button.dataset.press, { method: "POST", headers: { "Lockstep-Press": "1" } });
    if (!answer.ok) text(said, await answer.text());
  } catch {
    text(said, "The server does not answer.");
  }
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-press]");
  if (button) press(button);
});
document.addEventListener("visibilitychange", () => (document.hidden ? leave() : follow()));
drawGrid();
follow();
