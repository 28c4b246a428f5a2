// Keeps what the server sends, and draws it. All names are foreign: they go in as text.

const $ = (id) => document.getElementById(id);
const me = Array.from(crypto.getRandomValues(new Uint8Array(8)), (n) => n.toString(16).padStart(2, "0")).join("");
const SPARKS = 40, RECENT_ROWS = 20, LEAST_REFUSED = 3, LEAST_VERDICT = 60, MOST_ITEMS = 2000, TABLE_ROWS = 50, MOST_ALARMS = 200;
const MEANINGS = {
  "value": "a value that the forecast did not expect",
  "level shift": "the values went to another level and stay there",
  "stuck": "equal values for longer than usual",
  "gap": "rows were missing for longer than usual",
  "absent": "a jump that comes each day has not come",
  "drift": "the values leave their level step by step",
  "rhythm": "a value says less about the next one than it did",
  "quiet": "the values move far less than they usually do",
  "noisy": "the values move far more than they usually do",
};
const KINDS = { "unreadable": "cannot be read", "refused": "does not follow the rows before", "no slot": "a sensor more than --streams", "pace": "comes at another pace" };

let run = null, hello = null, status = null, lastId = "", offset = 0, link = "wait", linkText = "Connecting";
let sensors = new Map(), byName = new Map(), order = [], chosen = null, wished = readHash();
let detail = newDetail(), alarms = [], notes = [], refused = null;
let filter = "all", whose = "one", isShown = new Set(), dirty = new Set(), isAsked = false, restartText = "";
const chart = new Chart($("chart"), showPoint);

function newDetail() { return { rows: [], restarts: new Set(), scores: null, alarms: [], restart: false }; }
function readHash() { try { return location.hash ? decodeURIComponent(location.hash.slice(1)) : null; } catch { return null; } }
function now() { return Date.now() / 1000 + offset; }
function text(node, value) { if (node.textContent !== value) node.textContent = value; }
function make(tag, name, ...children) {
  const node = document.createElement(tag);
  if (name) node.className = name;
  node.append(...children);
  return node;
}
function many(n, one, more = one + "s") { return `${n.toLocaleString()} ${n === 1 ? one : more}`; }
function bytes(n) {
  if (n === null || n === undefined) return "–";
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) if (n >= size) return `${(n / size).toPrecision(3)} ${unit}`;
  return `${Math.round(n)} B`;
}
function latency(s) { return s < 1e-3 ? `${(s * 1e6).toPrecision(3)} µs` : s < 1 ? `${(s * 1e3).toPrecision(3)} ms` : `${s.toPrecision(3)} s`; }
function isDated() { return status && status.loop ? status.loop.is_dated : true; }
function when(time, words, step = 1) { return time !== null && time !== undefined && isDated() && time > 0 ? moment(time, step) : words || (time === null || time === undefined ? "" : format(time)); }
function whoIsAway() { return hello && hello.input.includes("://") ? "The broker" : "The device"; }
function place(line) { return `${status && status.loop ? status.loop.unit : "line"} ${line.toLocaleString()}`; }
function titleOf(sensor) { return sensor.name || (hello ? hello.input.replace(/^.*\//, "") : "the sensor"); }
function ask(...parts) {
  parts.forEach((part) => dirty.add(part));
  if (isAsked) return;
  isAsked = true;
  requestAnimationFrame(() => { isAsked = false; const all = dirty; dirty = new Set(); render(all); });
}

// The connection -----------------------------------------------------------------------------------

let source = null;
function connect() {
  source = new EventSource(`/events?browser=${me}&last=${encodeURIComponent(lastId)}`);
  source.addEventListener("hello", (event) => receive(event, onHello));
  source.addEventListener("changes", (event) => receive(event, onChanges));
  source.addEventListener("status", (event) => receive(event, onStatus));
  source.addEventListener("end", () => setLink("lost", "The loop has ended"));
  source.onerror = () => {
    if (linkText !== "The loop has ended") setLink("lost", run ? "Connection lost, trying again" : "No connection, trying again");
    if (source.readyState === 2) { source.close(); retry(); }
  };
}
function receive(event, handle) { if (event.lastEventId) lastId = event.lastEventId; handle(JSON.parse(event.data)); }
async function retry() {
  try {
    const answer = await fetch("/", { cache: "no-store" });
    if (answer.status === 403) setLink("lost", "Access has ended: open the address that the loop printed at its start");
    else setLink("lost", "Too many browsers look at this loop, trying again");
  } catch { /* the loop is away */ }
  setTimeout(connect, 2000);
}
function setLink(state, words) { link = state; linkText = words; ask("link"); }

function onHello(data) {
  const isNew = run !== null && run !== data.run, chosenBefore = chosen;
  hello = data;
  offset = data.now - Date.now() / 1000;
  if (isNew || run === null) {
    const name = chosen === null ? null : sensors.get(chosen).name;
    sensors = new Map(); byName = new Map(); order = []; chosen = null; notes = []; refused = null; status = null;
    isShown.clear();
    $("list").replaceChildren();
    if (isNew) {
      restartText = `The loop was started again at ${moment(data.started)}. Counts of this run begin there.`;
      const events = eventsOf(chosenBefore);
      for (const row of detail.rows) if (row[ROW.alarm]) row.event = eventOf(row, events);
      wished = name !== null ? name : wished;
      alarms = alarms.map((alarm) => ({ ...alarm, before: true }));
      detail.restart = true;
      detail.scores = null;
      detail.alarms = [];
      announce(restartText);
    }
  }
  run = data.run;
  setLink("live", "Connected");
  ask("all");
  look();
}

function onChanges(data) {
  for (const [id, name] of data.names || []) addSensor(id, name);
  for (const summary of data.list || []) update(summary);
  if (data.alarms) addAlarms(data.alarms, true);
  if (data.notes) { notes = [...notes, ...data.notes].slice(-50); ask("learned"); }
  if (data.refused) { refused = data.refused; ask("refused"); }
  if (data.detail && data.detail.id === chosen) onDetail(data.detail);
}

function onDetail(data) {
  const before = detail.rows;
  if (data.after === 0 && detail.restart) {
    // Rows of the run before stay, with a mark, if the new ones come after them.
    const last = before.at(-1), first = data.rows[0];
    const follows = last && first && first[ROW.time] !== null && first[ROW.time] > last[ROW.time];
    if (!first) detail.rows = before;
    else {
      detail.rows = follows ? [...before, ...data.rows] : data.rows;
      if (follows) detail.restarts.add(first);
      detail.restart = false;
    }
  } else detail.rows = data.after === 0 ? data.rows : [...before, ...data.rows];
  detail.rows = detail.rows.slice(-hello.kept);
  detail.scores = data.scores;
  if (data.alarms) { detail.alarms = data.alarms; addAlarms(data.alarms, false); }
  ask("detail");
}

function onStatus(data) {
  status = data;
  offset = data.now - Date.now() / 1000;
  const { alive_s: alive, waits_s: waits } = data;
  const away = data.loop && data.loop.away_since;
  if (away) setLink("away", `${whoIsAway()} is away since ${moment(away)}, for ${duration(Math.max(0, data.now - away))}`);
  else if (waits !== null && waits > 2) setLink("idle", `Waiting for rows since ${duration(waits)}`);
  else if (alive > 15) setLink("idle", `No step of the loop for ${duration(alive)}`);
  else setLink("live", data.rows || data.rate ? `Receiving, ${rate(data.rate)}` : "Connected");
  ask("status", "list", "link");
}
function rate(perSecond) {
  if (perSecond >= 10) return `${Math.round(perSecond).toLocaleString()} rows/s`;
  if (perSecond >= 0.2) return `${perSecond.toFixed(1)} rows/s`;
  return perSecond * 60 >= 0.2 ? `${(perSecond * 60).toFixed(1)} rows/min` : "few rows";
}

function addSensor(id, name) {
  if (sensors.has(id)) return;
  const sensor = { id, name, sparks: [], summary: null, item: null };
  sensors.set(id, sensor);
  byName.set(name, sensor);
  order = [...sensors.values()].sort((a, b) => COLLATOR.compare(a.name, b.name));
  if (chosen === null && (wished === name || (wished === null && sensors.size === 1))) choose(id, false);
  ask("names");
}
const COLLATOR = new Intl.Collator(undefined, { numeric: true });

function update(summary) {
  const sensor = sensors.get(summary.id);
  if (!sensor) return;
  if (summary.sparks) sensor.sparks = (summary.anew ? summary.sparks : [...sensor.sparks, ...summary.sparks]).slice(-SPARKS);
  sensor.summary = summary;
  sensor.isDirty = true;
  ask("list");
  if (summary.id === chosen) ask("detail");
}

function addAlarms(added, isNews) {
  const known = new Set(alarms.map((alarm) => (alarm.before ? null : alarm.number)));
  const fresh = added.filter((alarm) => !known.has(alarm.number));
  for (const alarm of fresh) alarm.name = sensors.get(alarm.sensor).name;
  alarms = [...alarms, ...fresh].sort((a, b) => a.at - b.at || a.number - b.number).slice(-MOST_ALARMS);
  const news = isNews ? fresh.filter((alarm) => now() - alarm.at < 30) : [];
  if (news.length > 2) announce(`${news.length} alarms, the last one ${news.at(-1).event} of ${titleOf(news.at(-1))}`);
  else for (const alarm of news) announce(`Alarm: ${alarm.event} of ${titleOf(alarm)} at ${when(alarm.time, alarm.text)}`);
  ask("alarms", "detail");
}
function announce(words) { text($("say"), words); }

// What the browser looks at ------------------------------------------------------------------------

function choose(id, isByUser) {
  if (id === chosen && !isByUser) return;
  if (chosen !== id) {
    const keeps = detail.restart && isSame(id);
    if (!keeps) detail = newDetail();
    detail.name = sensors.get(id).name;
  }
  chosen = id;
  if (isByUser) {
    wished = sensors.get(id).name;
    history.pushState(null, "", `#${encodeURIComponent(wished)}`);
    $("frame").dataset.pane = "detail";
    scrollTo(0, 0);
    $("detail").focus({ preventScroll: true });
  }
  look();
  ask("all");
}
function isSame(id) { return detail.name === sensors.get(id).name; }

let lookTimer = null, isLooking = false;
function look() {
  clearTimeout(lookTimer);
  lookTimer = setTimeout(send, 60);
}
async function send() {
  if (run === null || isLooking) return isLooking ? look() : undefined;
  isLooking = true;
  const last = detail.rows.at(-1), seen = last && !detail.restart ? last[ROW.n] : 0;
  const body = { browser: me, run, chosen, seen, visible: [...isShown] };
  try { await fetch("/view", { method: "POST", body: JSON.stringify(body) }); } catch { /* hello asks again */ }
  isLooking = false;
}
const watcher = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    const id = Number(entry.target.dataset.id);
    if (entry.isIntersecting && entry.target.isConnected) isShown.add(id); else isShown.delete(id);
  }
  look();
  ask("list");
}, { rootMargin: "120px" });

// The list -----------------------------------------------------------------------------------------

function stateOf(sensor) {
  const s = sensor.summary;
  if (!s || (s.arrived === null && !s.refused)) return ["learning", "… no row yet"];
  if (s.refused >= LEAST_REFUSED) return ["refused", `✕ ${s.refused.toLocaleString()} refused`];
  const silent = s.arrived === null ? 0 : now() - s.arrived;
  const isLive = link !== "lost" && status && status.loop && status.loop.is_live;
  const usual = Math.max(s.interval, isDated() ? s.step : 0); // rows of a backlog arrive faster than they were made
  if (isLive && s.interval !== null && silent > Math.max(15, 6 * usual)) return ["silent", `◷ silent ${duration(silent)}`];
  if (s.alarms && s.since <= RECENT_ROWS) return ["alarm", `▲ ${s.event}`];
  if (s.learning) return ["learning", "… learning"];
  return ["well", s.alarms ? `✓ well, ${many(s.alarms, "alarm")}` : "✓ well"];
}

function makeItem(sensor) {
  const name = make("span", "item-name"), value = make("span", "item-value"), state = make("span", "badge");
  const spark = shape("svg", { class: "spark", viewBox: "0 0 76 20", "aria-hidden": "true" });
  const button = make("button", "item", name, value, state, spark);
  button.type = "button";
  button.addEventListener("click", () => choose(sensor.id, true));
  text(name, titleOf(sensor));
  button.title = titleOf(sensor);
  const item = make("li", "", button);
  item.dataset.id = sensor.id;
  Object.assign(sensor, { item, button, valueNode: value, stateNode: state, spark, isDirty: true });
  watcher.observe(item);
  return item;
}

const CHIPS = [["all", "All"], ["alarm", "▲ Alarm"], ["silent", "◷ Silent"], ["refused", "✕ Refused"]];
function renderList(isWhole) {
  const hasMany = sensors.size > 1 || (sensors.size === 1 && order[0].name !== "");
  $("frame").dataset.many = hasMany ? "yes" : "no";
  if (!hasMany) return;
  const counts = { all: order.length, alarm: 0, silent: 0, refused: 0 }, query = $("search").value.trim().toLowerCase();
  const found = [];
  for (const sensor of order) {
    sensor.state = stateOf(sensor);
    counts[sensor.state[0]] = (counts[sensor.state[0]] || 0) + 1;
    if ((filter === "all" || sensor.state[0] === filter) && (!query || sensor.name.toLowerCase().includes(query))) found.push(sensor);
  }
  for (const [name, label] of CHIPS) {
    const chip = chips.get(name);
    text(chip, `${label} ${counts[name].toLocaleString()}`);
    chip.setAttribute("aria-pressed", String(filter === name));
    chip.hidden = name !== "all" && !counts[name] && filter !== name;
  }
  const shown = found.slice(0, MOST_ITEMS), key = shown.map((sensor) => sensor.id).join();
  if (isWhole || key !== renderList.key) {
    renderList.key = key;
    const focus = document.activeElement;
    $("list").replaceChildren(...shown.map((sensor) => sensor.item || makeItem(sensor)));
    if (focus && focus.classList.contains("item") && focus.isConnected) focus.focus({ preventScroll: true });
  }
  const hidden = found.length - shown.length;
  text($("list-note"), !found.length ? "No sensor matches." : hidden ? `${many(hidden, "more sensor")}: search by name.` : "");
  for (const sensor of shown) {
    sensor.button.setAttribute("aria-current", String(sensor.id === chosen));
    text(sensor.stateNode, sensor.state[1]);
    sensor.stateNode.dataset.state = sensor.state[0];
    if (!sensor.isDirty || !isShown.has(sensor.id)) continue;
    sensor.isDirty = false;
    if (sensor.summary) text(sensor.valueNode, format(sensor.summary.value, decimalsOf(sensor.sparks)));
    drawSpark(sensor.spark, sensor.sparks);
  }
}
const chips = new Map(CHIPS.map(([name]) => {
  const chip = make("button");
  chip.type = "button";
  chip.addEventListener("click", () => { filter = name; ask("list"); });
  $("chips").append(chip);
  return [name, chip];
}));

// The chosen sensor --------------------------------------------------------------------------------

function render(parts) {
  const has = (...names) => parts.has("all") || names.some((name) => parts.has(name));
  if (has("link")) renderLink();
  if (has("names", "list")) renderList(parts.has("names") || parts.has("all"));
  const sensor = chosen === null ? null : sensors.get(chosen);
  renderEmpty(sensor);
  if (!sensor) return;
  if (has("detail", "status")) renderDetail(sensor);
  if (has("alarms", "detail")) renderAlarms(sensor);
  if (has("detail", "status", "learned")) renderLearned(sensor);
  if (has("refused")) renderRefused();
  if (has("status")) renderLoop();
}

function renderLink() {
  $("link").dataset.state = link;
  text($("link-text"), linkText);
  text($("about"), hello ? `${hello.input} · ${status && status.loop ? status.loop.bundle : hello.bundle}` : "");
  const isLost = link === "lost" && run !== null;
  const words = isLost ? (linkText === "The loop has ended"
    ? "The loop has ended. What you see is its last state; this page goes on once the loop is started again."
    : "The connection is lost. What you see is the last state; this page goes on by itself.") : restartText && restartText + learnedText();
  $("banner").hidden = !words;
  $("banner").dataset.kind = isLost ? "lost" : "news";
  $("banner-close").hidden = isLost;
  text($("banner-text"), words);
}
function learnedText() {
  if (!status || !status.loop) return "";
  return status.loop.resumed ? " What was learned goes on from the snapshot." : " There was no snapshot, so it learns from the start.";
}
$("banner-close").addEventListener("click", () => { restartText = ""; ask("link"); });

function renderEmpty(sensor) {
  $("empty").hidden = sensor !== null;
  $("sensor").hidden = sensor === null;
  if (sensor) return;
  const isMany = sensors.size > 0;
  text($("empty-title"), isMany ? "Choose a sensor" : run === null ? "Connecting to the loop" : "Waiting for the first row");
  const words = refused ? ` ${many(Object.values(refused.kinds).reduce((a, b) => a + b, 0), "row was", "rows were")} refused so far; the last one: ${refused.rows.at(-1).reason}` : "";
  text($("empty-text"), isMany ? "The list shows all sensors of this loop." : run === null ? "This page goes on by itself."
    : status && status.loop && status.loop.away_since ? `${whoIsAway()} (${hello ? hello.input : "the input"}) is away since ${moment(status.loop.away_since)}; the loop tries again. This page goes on by itself.`
    : `The loop runs and has learned no row of ${hello ? hello.input : "its input"} yet. This page goes on by itself.${words}`);
}

function renderDetail(sensor) {
  const summary = sensor.summary, rows = chart.fitting(detail.rows), facts = factsOf(sensor);
  text($("name"), titleOf(sensor));
  const [state, words] = stateOf(sensor);
  text($("state"), words);
  $("state").dataset.state = state;
  const last = rows.at(-1);
  detail.decimals = decimalsOf(rows.map((row) => row[ROW.value]));
  text($("value"), last ? (last[ROW.value] === null ? "no value" : format(last[ROW.value], detail.decimals)) : "–");
  const ago = summary && summary.arrived !== null ? `${duration(Math.max(0, now() - summary.arrived))} ago` : "";
  const expected = last && last[ROW.mean] !== null ? `expected ${format(last[ROW.mean], detail.decimals)}` : "no forecast yet";
  text($("expected"), [last ? expected : "", ago].filter(Boolean).join(" · "));
  const recent = state === "alarm" ? 1 : 0;
  document.title = `${recent ? "▲ " : ""}${titleOf(sensor)} – Edgefold`;
  const events = eventsOf(chosen);
  chart.draw({ rows, restarts: detail.restarts, events, isDated: isDated(), pace: facts ? facts.pace : null, isIrregular: facts ? facts.is_irregular : false });
  detail.step = medianStep(rows) || 1;
  if (chart.at === null) showPoint(null, false);
  const isTimed = last && last[ROW.time] !== null && isDated();
  const zone = isTimed ? ` Times in ${Intl.DateTimeFormat().resolvedOptions().timeZone.replace("_", " ")}.` : "";
  const span = isTimed ? `, ${period(rows[0][ROW.time], last[ROW.time], detail.step)}` : "";
  text($("caption"), rows.length ? `The last ${many(rows.length, "row")}${rows.some((row) => detail.restarts.has(row)) ? ", of two runs" : " of this run"}${span}.${zone}` : "No rows in this run yet.");
  text($("chart-text"), describe(sensor, rows, events));
  if ($("rows-details").open) renderRows(detail.rows, events);
}

function eventsOf(id) {
  const own = alarms.filter((alarm) => !alarm.before && alarm.sensor === id);
  return new Map([...own, ...detail.alarms].map((alarm) => [alarm.number, alarm.event]));
}

function describe(sensor, rows, events) {
  const values = rows.map((row) => row[ROW.value]).filter((value) => value !== null);
  if (!values.length) return `Chart of ${titleOf(sensor)}: no values yet.`;
  const [least, most] = [Math.min(...values), Math.max(...values)], last = rows.at(-1), n = rows.filter((row) => row[ROW.alarm]).length;
  return `Chart of ${titleOf(sensor)}: ${many(rows.length, "row")} from ${format(least, detail.decimals)} to ${format(most, detail.decimals)}, ` +
    `the last one ${format(last[ROW.value], detail.decimals)}, with ${many(chart.gaps.length, "gap")} and ${many(n, "alarm")}. ` +
    "With the arrow keys you go through the rows; below is a table.";
}

function band(row, low, high) { return row[low] === null ? "–" : `${format(row[low], detail.decimals)} to ${format(row[high], detail.decimals)}`; }
function showPoint(row, byKey) {
  const node = $("readout"), isLast = row === null;
  const shown = isLast ? detail.rows.at(-1) : row;
  node.setAttribute("aria-live", byKey ? "polite" : "off");
  if (!shown) return void node.replaceChildren();
  const value = make("b", "", shown[ROW.value] === null ? "no value" : format(shown[ROW.value], detail.decimals));
  const alarm = shown[ROW.alarm] ? " · ▲ alarm" : "";
  const forecast = shown[ROW.mean] === null ? " · no forecast" : ` · expected ${format(shown[ROW.mean], detail.decimals)} · 90 % band ${band(shown, ROW.low, ROW.high)}`;
  node.replaceChildren(`${isLast ? "Last row, " : ""}${when(shown[ROW.time], `row ${shown[ROW.n]}`, detail.step)}: `, value, forecast + alarm);
}

function renderRows(rows, events) {
  const lines = rows.slice(-TABLE_ROWS).reverse().map((row) => {
    const cells = [when(row[ROW.time], `row ${row[ROW.n]}`, detail.step), row[ROW.value] === null ? "no value" : format(row[ROW.value], detail.decimals), format(row[ROW.mean], detail.decimals),
      band(row, ROW.lower, ROW.upper), band(row, ROW.low, ROW.high), row[ROW.alarm] ? `▲ ${eventOf(row, events)}` : ""];
    return make("tr", "", ...cells.map((cell) => make("td", "", cell)));
  });
  $("rows").replaceChildren(...lines);
}
$("rows-details").addEventListener("toggle", () => ask("detail"));

function renderAlarms(sensor) {
  const isMany = sensors.size > 1, ofAll = isMany && whose === "all";
  const own = alarms.filter((alarm) => ofAll || alarm.name === sensor.name).slice(-50).reverse();
  const key = JSON.stringify([ofAll, chosen, run, isDated(), own.map((alarm) => [alarm.number, alarm.before])]);
  $("whose").hidden = !isMany;
  for (const [name, button] of switches) button.setAttribute("aria-pressed", String((whose === "all") === (name === "all")));
  if (key === renderAlarms.key) return;
  renderAlarms.key = key;
  const items = own.map((alarm) => {
    const facts = [MEANINGS[alarm.event] || ""];
    if (alarm.since) facts.push(`begun ${many(alarm.since, "row")} before`);
    facts.push(alarm.value === null ? "without a value" : `value ${format(alarm.value)}`);
    if (alarm.size) facts.push(`size ${format(alarm.size)}`);
    if (alarm.before) facts.push("in the run before");
    const mark = make("span", "mark-red", "▲");
    mark.setAttribute("aria-hidden", "true");
    const what = make("span", "what soft", facts.filter(Boolean).join(" · "));
    if (ofAll) {
      const link = make("button", "", titleOf(alarm));
      link.type = "button";
      link.addEventListener("click", () => { const other = byName.get(alarm.name); if (other) choose(other.id, true); });
      what.prepend(link, " · ");
    }
    return make("li", "", make("div", "alarm-row", mark, make("b", "", alarm.event), what, make("time", "", when(alarm.time, alarm.text))));
  });
  $("alarms").replaceChildren(...(items.length ? items : [make("li", "none", ofAll ? "No alarms in this run." : "No alarms of this sensor in this run.")]));
}
const switches = [["one", "this sensor"], ["all", "all sensors"]].map(([name, label]) => {
  const button = make("button", "", label);
  button.type = "button";
  button.addEventListener("click", () => { whose = name; ask("alarms"); });
  $("whose").append(button);
  return [name, button];
});

function pairs(node, rows) {
  const key = JSON.stringify(rows);
  if (node.dataset.key === key) return;
  node.dataset.key = key;
  node.replaceChildren(...rows.filter(Boolean).map(([name, value, more]) => {
    return make("div", "", make("dt", "", name), make("dd", "", value), ...(more ? [make("dd", "more", more)] : []));
  }));
}
function percent(share, n = 1) { return share === null || share === undefined ? "–" : `${(share * 100).toFixed(n)} %`; }
function factsOf(sensor) { return status && status.sensor && status.sensor.name === sensor.name ? status.sensor : null; }

function meter(label, share, n) {
  // 5 % of the values belong outside on each side. Neighbouring rows are alike, so the doubt is wide.
  const doubt = 3 * Math.sqrt(0.05 * 0.95 / Math.max(n, 1)), most = 0.15;
  const verdict = n < LEAST_VERDICT ? "few rows yet" : share > 0.05 + doubt ? "more often than stated" : share < 0.05 - doubt ? "less often than stated" : "as stated";
  const x = (part) => `${Math.min(part, most) / most * 100}%`;
  const svg = shape("svg", { "aria-hidden": "true" },
    shape("rect", { class: "meter-rail", x: 0, y: 4, width: "100%", height: 6, rx: 3 }),
    shape("rect", { class: "meter-bar", x: 0, y: 4, width: x(share), height: 6, rx: 3 }),
    shape("line", { class: "meter-mark", x1: x(0.05), x2: x(0.05), y1: 0, y2: 14 }));
  return make("div", "meter", make("div", "meter-head", make("span", "soft", label), make("span", "", percent(share), make("span", "soft", ` ${verdict}`))), svg);
}

function renderLearned(sensor) {
  const scores = detail.scores, facts = factsOf(sensor);
  if (scores && scores.n) {
    const key = `${scores.n} ${scores.below} ${scores.above}`;
    if ($("meters").dataset.key !== key) {
      $("meters").dataset.key = key;
      $("meters").replaceChildren(meter("below the band", scores.below, scores.n), meter("above the band", scores.above, scores.n));
    }
  } else { delete $("meters").dataset.key; $("meters").replaceChildren(make("p", "none", "No forecast in this run yet; the first rows are only learned.")); }
  const ratio = scores && scores.change ? scores.error / scores.change : null;
  pairs($("scores"), [
    scores && scores.n ? ["rows with a band", scores.n.toLocaleString(), "in this run; 5 % belong below it and 5 % above"] : null,
    scores && scores.error !== null ? ["mean error, this run", format(scores.error), scores.change ? `persistence ${format(scores.change)}` : ""] : null,
    ratio !== null ? ["compared with persistence, this run", `${ratio.toFixed(2)} ×`, ratio < 1 ? "knows more than the last value does" : "knows no more than the last value does"] : null,
    scores && scores.log_score !== null ? ["mean log score, this run", `${scores.log_score.toFixed(3)} nats`] : null,
    facts && facts.coverage_90 !== null ? ["in the 90 % band, all rows", percent(facts.coverage_90), "90 % belong there"] : null,
    facts && facts.mean_error !== null ? ["mean error, all rows", format(facts.mean_error), `persistence ${format(facts.mean_change)}`] : null,
    facts && facts.rmse !== null ? ["RMSE, all rows", format(facts.rmse)] : null,
  ]);
  pairs($("learned"), [
    ["rows", facts ? facts.rows.toLocaleString() : "–", scores && facts && facts.rows > scores.rows ? `${scores.rows.toLocaleString()} of them in this run` : ""],
    facts ? ["pace", facts.pace_text ? `a row every ${facts.pace_text}` : "not known yet", facts.is_irregular ? "uneven: each row counts as one step" : ""] : null,
    facts && facts.season_text ? ["season", facts.season_text === "none" ? "none found" : facts.season_text] : null,
    facts && facts.n_gaps !== null ? ["gaps", facts.n_gaps.toLocaleString(), facts.n_gaps ? `${many(facts.n_gap_rows, "row is", "rows are")} missing` : ""] : null,
    facts && facts.missing ? ["rows without a value", facts.missing.toLocaleString()] : null,
    facts && facts.not_learned ? ["not learned", facts.not_learned.toLocaleString(), "the state is full"] : null,
  ]);
  const own = notes.filter((note) => note.sensor === sensor.name && (note.line || !sensor.name)).slice(-20).reverse();
  const key = JSON.stringify([chosen, own.map((note) => note.number)]);
  if ($("notes").dataset.key === key) return;
  $("notes").dataset.key = key;
  $("notes").replaceChildren(...own.map((note) => make("li", "", `${note.text} `, make("span", "", `${moment(note.at)}${note.line ? `, ${place(note.line)}` : ""}`))));
}

function renderRefused() {
  if (!refused) {
    pairs($("kinds"), []);
    $("refused").replaceChildren(make("li", "none", "None in this run."));
    return;
  }
  pairs($("kinds"), Object.entries(refused.kinds).map(([kind, n]) => [KINDS[kind] || kind, n.toLocaleString()]));
  $("refused").replaceChildren(...[...refused.rows].reverse().map((row) =>
    make("li", "", row.sensor ? `${row.sensor}: ` : "", row.reason.replace(`stream ${row.sensor}: `, "").replace(`${row.sensor}: `, "").replace(/^the row was refused: /, ""), " ", make("span", "", `${place(row.line)}, ${moment(row.at)}`))));
}

function renderLoop() {
  if (!status) return pairs($("loop"), [["state", linkText]]);
  const s = status, loop = s.loop, perDay = loop && loop.is_live ? s.a_day_bytes : null;
  const sourceState = loop && loop.away_since ? `${whoIsAway().toLowerCase()} is away since ${moment(loop.away_since)}` : s.waits_s !== null && s.waits_s > 2 ? `waiting for rows since ${duration(s.waits_s)}` : s.alive_s > 15 ? `no step for ${duration(s.alive_s)}` : "receiving";
  const told = notes.filter((note) => !note.line && !note.sensor).at(-1);
  pairs($("loop"), [
    ["source", sourceState, [loop && loop.progress ? `${loop.progress} read` : "", loop && loop.n_connections > 1 ? many(loop.n_connections, "connection") : "", told ? `${told.text} (${moment(told.at)})` : ""].filter(Boolean).join(" · ")],
    ["rows", rate(s.rate), loop ? `${many(loop.rows, "row")} since the first start` : ""],
    s.latency ? ["latency of a row", latency(s.latency.p50_s), `99 %: ${latency(s.latency.p99_s)}, largest ${latency(s.latency.max_s)}, of the last ${s.latency.n}`] : null,
    loop && loop.are_named ? ["sensors", `${loop.n_sensors.toLocaleString()} of ${loop.most_sensors.toLocaleString()}`] : null,
    ["memory", bytes(s.resident_bytes)],
    ["written to storage", s.written_bytes === null ? "not counted by this system" : bytes(s.written_bytes), perDay === null ? "since the start" : `since the start; ${bytes(perDay)} a day at this rate`],
    ["snapshot", !hello.has_snapshot ? "none is kept" : s.snapshot_s === null ? "none yet in this run" : `${duration(s.snapshot_s)} old`, hello.has_snapshot ? "" : "a restart begins from nothing (--snapshot)"],
    ["running since", moment(hello.started), `${duration(s.uptime_s)}${loop && loop.resumed ? ", resumed from the snapshot" : ""}`],
    s.dropped ? ["not shown here", many(s.dropped, "row"), "they came too fast for this page, and were learned"] : null,
    loop && loop.notes.length ? ["remarks", "", loop.notes.map(([label, words]) => `${label}: ${words}`).join(" · ")] : null,
    hello.version ? ["version", `edgefold ${hello.version}`] : null,
  ]);
}

// The user -----------------------------------------------------------------------------------------

$("search").addEventListener("input", () => ask("list"));
$("back").addEventListener("click", () => { $("frame").dataset.pane = "list"; ask("list"); $("search").focus({ preventScroll: true }); });
addEventListener("popstate", () => {
  wished = readHash();
  const other = wished !== null && byName.get(wished);
  if (other) choose(other.id, false);
  else if (sensors.size > 1) { $("frame").dataset.pane = "list"; ask("list"); }
});
new ResizeObserver(() => ask("detail")).observe($("chart"));
setInterval(() => ask("list", "status"), 1000);
if (!location.hash && matchMedia("(max-width: 860px)").matches) $("frame").dataset.pane = "list";
connect();
ask("all");
