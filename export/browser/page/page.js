// Opens a file in a worker, keeps what it sends, and shows it. All names are foreign: they go in as text.

import { Chart } from "./chart.js";
import { sampleTable } from "./sample.js";
import { Series } from "./series.js";
import { MEANINGS, bytes, dateText, duration, inPage, many, number, percent, sentence, whole } from "./words.js";

const $ = (id) => document.getElementById(id);
const LEVELS = [5, 10, 25, 50, 75, 90, 95];
const MOST_ITEMS = 2000, MOST_LISTED = 300, TABLE_ROWS = 200;
const LEAST_VERDICT = 60;

let file = null, worker = null, wasm = null, table = null, isDone = false, began = 0;
let sensors = [], tracks = [], byName = new Map(), alarms = [], chosen = null, whose = "one";
let urls = [], query = "", dirty = new Set(), isAsked = false, progress = { readBytes: 0, nLines: 0 }, bad = { n: 0, reasons: [] };
const chart = new Chart($("chart"), $("overview"), { onPoint: showPoint, onView: () => ask("view") });

function make(tag, name, ...children) {
  const node = document.createElement(tag);
  if (name) node.className = name;
  node.append(...children);
  return node;
}
function shape(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}
function text(node, value) { if (node.textContent !== value) node.textContent = value; }
function pair(term, value) { return make("div", "", make("dt", "", term), make("dd", "", value)); }
function announce(words) { text($("say"), words); }
function timeText(seconds) { return table.isDated ? dateText(seconds, chart.series?.ahead?.pace >= 86400 ? 86400 : seconds % 60 ? 1 : 60) : number(seconds); }
function ask(...parts) {
  parts.forEach((part) => dirty.add(part));
  if (isAsked) return;
  isAsked = true;
  requestAnimationFrame(() => {
    isAsked = false;
    const all = dirty;
    dirty = new Set();
    render(all);
  });
}

// A file --------------------------------------------------------------------------------------------

function wasmBytes() {
  wasm ??= Uint8Array.from(atob($("wasm").textContent.trim()), (sign) => sign.charCodeAt(0));
  return wasm;
}

function open(next, options = {}) {
  close();
  file = next;
  began = performance.now();
  document.body.dataset.state = "reading";
  $("start").hidden = true;
  $("problem").hidden = true;
  $("filebar").hidden = false;
  $("cancel").hidden = false;
  text($("file-name"), file.name);
  text($("file-facts"), bytes(file.size));
  const source = URL.createObjectURL(new Blob([$("worker").textContent], { type: "text/javascript" }));
  worker = new Worker(source);
  URL.revokeObjectURL(source);
  worker.onmessage = ({ data }) => receive(data);
  worker.onerror = (event) => fail(event.message || "the worker did not start", "Error");
  worker.postMessage({ kind: "open", file, wasm: wasmBytes(), falseAlarms: Number($("set-rate").value), options });
  ask("progress");
}

function close() {
  worker?.terminate();
  worker = null;
  urls.forEach((url) => URL.revokeObjectURL(url));
  urls = [];
  sensors = []; tracks = []; byName = new Map(); alarms = []; chosen = null; table = null; isDone = false;
  progress = { readBytes: 0, nLines: 0 };
  bad = { n: 0, reasons: [] };
  chart.series = null;
  $("list").replaceChildren();
  $("frame").hidden = true;
  for (const id of ["save-rows", "save-next"]) $(id).hidden = true;
  $("no-files").hidden = false;
}

function receive(data) {
  if (data.kind === "table") onTable(data);
  if (data.kind === "sensor") onSensor(data);
  if (data.kind === "rows") {
    sensors[data.id].append(data);
    ask(data.id === chosen ? "chart" : "", "list");
  }
  if (data.kind === "alarms") onAlarms(data.alarms);
  if (data.kind === "progress") {
    progress = data;
    tracks = data.tracks;
    byName = new Map(tracks.map((track) => [track.name, track]));
    bad = data.bad;
    ask("progress", "counts", "list");
  }
  if (data.kind === "error") fail(data.message, data.name);
  if (data.kind === "end") onEnd(data);
}

function onTable(data) {
  table = data;
  fillSettings();
  $("settings").hidden = false;
  ask("reading");
}

function onSensor({ id, name }) {
  sensors[id] = new Series(id, name);
  sensors[id].alarmRows = [];
  if (id === 0) {
    $("frame").hidden = false;
    choose(0);
  }
  $("frame").dataset.many = sensors.length > 1 ? "yes" : "no";
  ask("list");
}

function onAlarms(found) {
  alarms.push(...found);
  for (const alarm of found) sensors[alarm.id].alarmRows.push(alarm.row);
  ask("alarms", "list", "chart");
}

function onEnd({ paths, unread, isCancelled, csv, next }) {
  isDone = true;
  for (const { id, ...ahead } of paths) sensors[id].ahead = { ...ahead, season: byName.get(sensors[id].name)?.season ?? 0 };
  table.notes.push(...unread);
  const stem = file.name.replace(/\.[^.]*$/, "");
  for (const [id, blob, name] of [["save-rows", csv, `${stem}-forecast.csv`], ["save-next", next, `${stem}-forecast-next.csv`]]) {
    const url = URL.createObjectURL(blob);
    urls.push(url);
    Object.assign($(id), { href: url, download: name, hidden: false });
  }
  $("no-files").hidden = true;
  $("cancel").hidden = true;
  worker.terminate();
  worker = null;
  const n = alarms.length, lasted = (performance.now() - began) / 1000;
  table.lasted = lasted;
  table.isCancelled = isCancelled;
  announce(`${isCancelled ? "Stopped" : "Done"}: ${many(progress.nLines, "line")}, ${many(sensors.length, "sensor")}, ${many(n, "alarm")}.`);
  render(new Set(["all"]));
  document.body.dataset.state = "done";
}

function fail(message, name) {
  worker?.terminate();
  worker = null;
  const isTable = name === "TableError" || message.startsWith(file.name);
  text($("problem-title"), isTable ? "This file was not read" : "Something went wrong");
  text($("problem-text"), message.startsWith(file.name) ? inPage(message) : sentence(inPage(message)));
  $("problem").hidden = false;
  $("filebar").hidden = false;
  $("cancel").hidden = true;
  if (!sensors.some((series) => series.n)) $("frame").hidden = true;
  $("settings").hidden = false;
  $("settings").open = /“|setting|encoding/.test($("problem-text").textContent);
  if (!table) fillSettings();
  renderProgress();
  document.body.dataset.state = "failed";
}

function choose(id) {
  chosen = id;
  chart.show(sensors[id], table.isDated, table.events);
  ask("all");
}

// Settings ------------------------------------------------------------------------------------------

function option(value, words, isChosen) {
  const node = make("option", "", words);
  node.value = value;
  node.selected = Boolean(isChosen);
  return node;
}

function fillSettings() {
  const columns = table?.columns ?? [], time = table?.time ?? [];
  $("set-time").replaceChildren(option("", time.length ? `found: ${time.join(" and ")}` : "found: rows are counted"),
    ...columns.filter(({ kind }) => kind === "date" || kind === "number").map(({ name }) => option(name, name)));
  $("set-series").replaceChildren(option("found", table?.series ? `found: ${table.series}` : "found: none"), option("", "none"),
    ...columns.map(({ name }) => option(`=${name}`, name)));
  $("formats").replaceChildren(...(table?.forms ?? []).filter(Boolean).map((form) => option(form, form)));
  $("checks").replaceChildren(...columns.filter(({ name }) => !time.includes(name) && name !== table.series).map(({ name }) => {
    const box = make("input");
    Object.assign(box, { type: "checkbox", value: name, checked: table.values.includes(name) });
    return make("label", "", box, name || "(without a name)");
  }));
  $("set-values").hidden = !columns.length;
}

function options() {
  const boxes = [...$("checks").querySelectorAll("input")], values = boxes.filter((box) => box.checked).map((box) => box.value);
  const areFound = !table || (values.length === table.values.length && table.values.every((name) => values.includes(name)));
  const series = $("set-series").value;
  return {
    time: $("set-time").value || null,
    series: series === "found" || !table ? null : series.replace(/^=/, ""),
    values: areFound || !values.length ? null : values,
    decimal: $("set-decimal").value || null,
    timeFormat: $("set-format").value.trim() || null,
    encoding: $("set-encoding").value || null,
  };
}

function clearSettings() {
  $("set-decimal").value = $("set-format").value = $("set-encoding").value = "";
  table = null;
  fillSettings();
  $("settings").open = false;
}

// Drawing -------------------------------------------------------------------------------------------

function render(parts) {
  const isAll = parts.has("all");
  if (isAll || parts.has("progress")) renderProgress();
  if (!table || chosen === null) return;
  if (isAll || parts.has("list")) renderList();
  if (isAll || parts.has("chart")) chart.ask();
  if (isAll || parts.has("view") || parts.has("chart")) renderView();
  if (isAll || parts.has("counts")) renderCounts();
  if (isAll || parts.has("alarms")) renderAlarms();
  if (isAll) renderAhead();
  if (isAll || parts.has("reading")) renderReading();
}

function renderProgress() {
  if (!file) return;
  const share = isDone ? 1 : file.size ? Math.min(1, progress.readBytes / file.size) : 0;
  $("progress").hidden = isDone || !worker;
  $("bar").style.width = `${100 * share}%`;
  $("progress").setAttribute("aria-valuenow", String(Math.round(100 * share)));
  const parts = [bytes(file.size)];
  if (progress.nLines) parts.push(many(progress.nLines, "line"));
  if (worker && progress.nLines) parts.push(`${whole(Math.round(progress.nLines / ((performance.now() - began) / 1000)))} lines/s`);
  if (isDone) parts.push(`${table.isCancelled ? "stopped after" : "read in"} ${table.lasted.toFixed(1)} s`);
  text($("file-facts"), parts.join(" · "));
}

function trackOf(series) { return byName.get(series.name); }

function badgeOf(series) {
  const n = trackOf(series)?.nAlarms ?? 0;
  return n ? [`▲ ${many(n, "alarm")}`, "alarm"] : ["✓ no alarm", "well"];
}

function renderList() {
  if (sensors.length < 2) return;
  const words = query.toLowerCase(), shown = sensors.filter((series) => series.name.toLowerCase().includes(words)).slice(0, MOST_ITEMS);
  const list = $("list"), nodes = new Map([...list.children].map((node) => [Number(node.dataset.id), node]));
  const items = shown.map((series) => {
    let node = nodes.get(series.id);
    if (!node) {
      const button = make("button", "item", make("span", "item-name", series.name), make("span", "item-value"), make("span", "badge"));
      button.type = "button";
      button.addEventListener("click", () => choose(series.id));
      node = make("li", "", button);
      node.dataset.id = String(series.id);
    }
    const [, value, badge] = node.firstChild.children, [label, state] = badgeOf(series);
    text(value, number(series.values.all[series.n - 1]));
    text(badge, label);
    badge.dataset.state = state;
    node.firstChild.setAttribute("aria-current", String(series.id === chosen));
    return node;
  });
  if (items.length !== list.children.length || items.some((item, i) => list.children[i] !== item)) list.replaceChildren(...items);
}

function renderView() {
  const { series } = chart;
  if (!series?.n) return;
  const [a, b] = chart.isFollowing ? chart.latest : chart.view;
  const first = series.rowAt(a), end = Math.min(series.n, series.rowAt(b) + 1), n = end - first;
  const span = n > 0 ? `${timeText(series.times.all[first])} to ${timeText(series.times.all[end - 1])}` : "only what comes";
  text($("shown"), `${n === series.n ? `All ${whole(n)} rows` : `${whole(Math.max(0, n))} of ${whole(series.n)} rows`}, ${span}`);
  $("chart").setAttribute("aria-label", `Chart of ${series.name}: ${$("shown").textContent}, ${many(trackOf(series)?.nAlarms ?? 0, "alarm")} in all`);
  if (chart.at === null) showPoint(null);
  if ($("rows-details").open) renderRows(first, end);
}

function renderRows(first, end) {
  const { series } = chart, from = Math.max(first, end - TABLE_ROWS);
  $("rows").replaceChildren(...Array.from({ length: Math.max(0, end - from) }, (_, i) => {
    const at = end - 1 - i, q = series.quantiles(at), event = table.events[series.event(at)];
    const cells = [timeText(series.times.all[at]), number(series.values.all[at]), ...[3, 0, 6].map((k) => number(q[k])), (series.isAlarm(at) ? "▲ " : "") + event];
    return make("tr", "", ...cells.map((cell) => make("td", "", cell)));
  }));
}

function showPoint(at) {
  const { series } = chart, line = $("readout");
  if (!series?.n) return text(line, "");
  const row = at ?? series.n - 1, q = series.quantiles(row), value = series.values.all[row];
  const parts = [at === null ? `Last row, ${timeText(series.times.all[row])}: ` : `${timeText(series.times.all[row])}: `,
    make("b", "", value === value ? number(value) : "no value")];
  if (q[3] === q[3]) parts.push(` · expected ${number(q[3])} · 80 % band ${number(q[1])} to ${number(q[5])} · 90 % band ${number(q[0])} to ${number(q[6])}`);
  const event = table.events[series.event(row)];
  if (event) parts.push(` · ${series.isAlarm(row) ? "▲ " : ""}${event}`);
  line.replaceChildren(...parts);
  if (at !== null && document.activeElement === $("chart")) announce(line.textContent);
}

function renderCounts() {
  const series = sensors[chosen], track = trackOf(series);
  text($("name"), series.name);
  const [label, state] = badgeOf(series);
  text($("badge"), label);
  $("badge").dataset.state = state;
  if (!track) return;
  const parts = [many(track.nRows, "row")];
  if (track.nForecast) {
    const ratio = track.change ? `, ${(track.error / track.change).toFixed(2)} of persistence` : "";
    parts.push(`mean error ${number(track.error / track.nForecast)}${ratio}`, `90 % band holds ${percent(track.nWithin90 / track.nForecast)}`);
  }
  text($("scores"), parts.join(" · "));
  const season = track.season ? `${many(track.season, "row")}${table.isDated && track.pace > 0 ? `, ${duration(track.season * track.pace)}` : ""}` : "none";
  const pace = !(track.pace > 0) ? "–" : table.isDated ? duration(track.pace) : number(track.pace);
  const gaps = track.nGaps ? `${whole(track.nGaps)}, with ${many(track.nMissing, "row")} missing` : "none";
  $("counts").replaceChildren(pair("rows", whole(track.nRows)), pair("between rows", pace), pair("season", season), pair("gaps", gaps),
    pair("rows without a value", whole(track.nEmpty)), pair("refused rows", whole(track.refused.n + bad.n)));
  $("refused").replaceChildren(...[...track.refused.reasons, ...bad.reasons].map(({ line, reason, n }) => {
    const where = n > 1 ? `${whole(n)} rows, the first in line ${whole(line)}` : `line ${whole(line)}`;
    return make("li", "", make("span", "soft", `${where}: `), inPage(reason));
  }));
  renderHolds(track);
}

function renderHolds(track) {
  const n = track.nForecast;
  if (!n) return $("holds").replaceChildren(make("p", "none", "Forecasts begin after the first 11 rows."));
  const below = track.nBelow[0] / n, above = 1 - track.nBelow[6] / n, within = track.nWithin90 / n;
  const within80 = (track.nBelow[5] - track.nBelow[1]) / n, verdict = n < LEAST_VERDICT ? " of few rows" : "";
  const list = make("dl", "", pair("in the 90 % band", percent(within) + verdict), pair("in the 80 % band", percent(within80)),
    pair("below the 90 % band", percent(below)), pair("above it", percent(above)), pair("rows with a forecast", whole(n)),
    pair("mean error", number(track.error / n)), pair("error of “no change”", number(track.change / n)));
  const x = (share) => 30 + 1.3 * share, y = (share) => 138 - 1.3 * share;
  const points = LEVELS.map((level, i) => [x(level), y(100 * track.nBelow[i] / n)]);
  const words = `Share of the values below each level: ${LEVELS.map((level, i) => `${level} %: ${percent(track.nBelow[i] / n)}`).join(", ")}`;
  const plot = shape("svg", { viewBox: "0 0 172 168", role: "img", "aria-label": words },
    shape("rect", { class: "plot-frame", x: 30, y: 8, width: 130, height: 130 }),
    shape("line", { class: "plot-diagonal", x1: x(0), y1: y(0), x2: x(100), y2: y(100) }),
    shape("polyline", { class: "plot-line", points: points.map((point) => point.join(",")).join(" ") }),
    ...points.map(([cx, cy]) => shape("circle", { class: "plot-dot", cx, cy, r: 3.2 })),
    ...[0, 50, 100].flatMap((share) => [
      shape("text", { class: "plot-text", x: 24, y: y(share) + 4, "text-anchor": "end" }, String(share)),
      shape("text", { class: "plot-text", x: x(share), y: 152, "text-anchor": "middle" }, String(share)),
    ]),
    shape("text", { class: "plot-text", x: 95, y: 165, "text-anchor": "middle" }, "% of values below level"));
  $("holds").replaceChildren(make("div", "holds", list, plot));
}

function renderAlarms() {
  const isAll = whose === "all", found = alarms.filter((alarm) => isAll || alarm.id === chosen), last = found.slice(-MOST_LISTED).reverse();
  $("alarms").replaceChildren(...last.map((alarm) => {
    const jump = make("button", "", alarm.event || "alarm");
    jump.type = "button";
    jump.addEventListener("click", () => {
      if (alarm.id !== chosen) choose(alarm.id);
      chart.goTo(alarm.row);
      $("chart").scrollIntoView({ block: "nearest" });
    });
    const meaning = [MEANINGS[alarm.event] ?? "", Number.isFinite(alarm.value) ? `value ${number(alarm.value)}` : "no value"];
    if (alarm.since) meaning.push(`begun ${many(alarm.since, "row")} before`);
    if (isAll) meaning.unshift(sensors[alarm.id].name);
    const mark = make("span", "mark-red", "▲");
    mark.setAttribute("aria-hidden", "true");
    return make("li", "", make("div", "alarm-row", mark, jump, make("span", "meaning soft", meaning.filter(Boolean).join(" · ")), make("time", "", alarm.text)));
  }));
  const more = found.length - last.length, rate = Number($("set-rate").value);
  const n = isAll ? tracks.reduce((sum, track) => sum + track.nRows, 0) : trackOf(sensors[chosen])?.nRows ?? 0;
  const chance = n ? `By chance ${number(rate * n)} would be alarms, at one in ${whole(Math.round(1 / rate))} rows.` : "";
  text($("no-alarms"), found.length ? `${more > 0 ? `${whole(more)} more are in the file of forecasts. ` : ""}${chance}` : `No row was an alarm. ${chance}`);
}

function renderAhead() {
  const { ahead } = sensors[chosen];
  const isKnown = ahead && Number.isFinite(ahead.quantiles[0][0]);
  $("ahead").replaceChildren(...(isKnown ? ahead.slots : []).map((slot, i) => {
    const cells = [whole(slot), ahead.texts[i].replace("T", " ").replace(/:00Z?$/, ""), ...[3, 0, 6].map((level) => number(ahead.quantiles[level][slot - 1]))];
    return make("tr", "", ...cells.map((cell) => make("td", "", cell)));
  }));
  $("ahead").closest(".scroll").hidden = !isKnown;
  text($("no-ahead"), isKnown ? "" : isDone ? "Too few values have come for a forecast." : "It is forecast once the table is read.");
}

function renderReading() {
  const clocks = { "unix time": "a count since 1970", "numbers": "numbers", "dates": "dates", "rows": "" };
  const times = table.time.length ? `${table.time.join(" and ")} (${clocks[table.clock]})` : "rows are counted";
  const values = table.values.slice(0, 20).join(", ") + (table.values.length > 20 ? ` and ${table.values.length - 20} more` : "");
  const nodes = [pair("times", times), pair("values", values)];
  if (table.series) nodes.push(pair("names of sensors", table.series));
  $("reading").replaceChildren(...nodes);
  $("notes").replaceChildren(...table.notes.map((note) => make("li", "", sentence(inPage(note)))));
}

// Events --------------------------------------------------------------------------------------------

function take(files) {
  if (!files?.length) return;
  clearSettings();
  open(files[0]);
}
$("choose").addEventListener("click", () => $("file").click());
$("another").addEventListener("click", () => $("file").click());
$("file").addEventListener("change", () => {
  take($("file").files);
  $("file").value = "";
});
$("sample").addEventListener("click", () => take([new File([sampleTable()], "sample.csv")]));
$("cancel").addEventListener("click", () => worker?.postMessage({ kind: "cancel" }));
$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  if (file) open(file, options());
  $("filebar").scrollIntoView({ block: "nearest" });
});
$("search").addEventListener("input", () => {
  query = $("search").value;
  ask("list");
});
$("whose").addEventListener("click", (event) => {
  const asked = event.target.dataset.whose;
  if (!asked) return;
  whose = asked;
  for (const button of $("whose").children) button.setAttribute("aria-pressed", String(button.dataset.whose === asked));
  ask("alarms");
});
$("rows-details").addEventListener("toggle", () => ask("view"));
const TOOLS = {
  earlier: () => chart.pan(-0.5), later: () => chart.pan(0.5), closer: () => chart.zoom(0.5), wider: () => chart.zoom(2),
  all: () => chart.showAll(), latest: () => chart.showLatest(),
  "alarm-before": () => chart.nextAlarm(chart.at ?? chart.series.n, -1), "alarm-after": () => chart.nextAlarm(chart.at ?? -1, 1),
};
for (const [id, action] of Object.entries(TOOLS)) $(id).addEventListener("click", () => chart.series?.n && action());
new ResizeObserver(() => chart.ask()).observe($("chart"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => chart.ask());

let nInside = 0;
function hasFiles(event) { return [...(event.dataTransfer?.types ?? [])].includes("Files"); }
addEventListener("dragenter", (event) => {
  if (!hasFiles(event)) return;
  event.preventDefault();
  nInside++;
  $("veil").hidden = false;
});
addEventListener("dragleave", () => {
  nInside = Math.max(0, nInside - 1);
  $("veil").hidden = nInside === 0;
});
addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", (event) => {
  event.preventDefault();
  nInside = 0;
  $("veil").hidden = true;
  take(event.dataTransfer?.files);
});
