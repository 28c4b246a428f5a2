// Reads and forecasts a table beside the page, and sends what it finds.

import { openTable } from "../tables/table.js";
import { Sensors } from "../engine/sensors.js";
import { TableRun } from "../engine/table_run.js";

/** Slots ahead that are listed, besides a season. */
const HORIZONS = [1, 2, 4, 8, 16, 32, 48];
const MOST_ALARMS = 5000;
/** Rows that are sent at once, at most. */
const N_SENT = 16384;
/** Milliseconds between two reports of all rows and counts: some, and more for many sensors. */
const REPORT_MS = 100, SENSOR_MS = 1;

/** Collects the rows of one sensor until they are sent. */
class Waiting {
  constructor(id) {
    this.id = id;
    this.clear();
  }

  clear() {
    this.n = 0;
    this.room = 32;
    this.time = new Float64Array(this.room);
    this.value = new Float64Array(this.room);
    this.quantiles = new Float32Array(7 * this.room);
    this.state = new Uint8Array(this.room); // the event's number, and 128 for an alarm
    this.missing = new Uint32Array(this.room);
  }

  /** @param {import("../engine/sensors.js").Forecast} row @param {number} event */
  add(row, event) {
    if (this.n === this.room) this.grow();
    const { n } = this;
    this.time[n] = row.time;
    this.value[n] = row.value;
    this.quantiles.set([row.q05, row.q10, row.q25, row.q50, row.q75, row.q90, row.q95], 7 * n);
    this.state[n] = event + (row.alarm ? 128 : 0);
    this.missing[n] = row.nMissing;
    this.n++;
  }

  grow() {
    this.room *= 4;
    for (const name of ["time", "value", "quantiles", "state", "missing"]) {
      const before = this[name], more = new before.constructor(4 * before.length);
      more.set(before);
      this[name] = more;
    }
  }

  send() {
    if (!this.n) return;
    const { id, n } = this;
    const parts = {
      time: this.time.slice(0, n), value: this.value.slice(0, n), quantiles: this.quantiles.slice(0, 7 * n),
      state: this.state.slice(0, n), missing: this.missing.slice(0, n),
    };
    postMessage({ kind: "rows", id, n, ...parts }, Object.values(parts).map((part) => part.buffer));
    this.clear();
  }
}

const cancel = new AbortController();

/** @param {{file: File, wasm: Uint8Array, falseAlarms: number, options: object}} job */
async function work({ file, wasm, falseAlarms, options }) {
  const table = await openTable(file, { ...options, name: file.name });
  const { choice } = table;
  const sensors = await Sensors.open(wasm, { falseAlarms });
  postMessage({
    kind: "table", columns: table.columns, notes: table.notes, time: choice.time, clock: choice.clock, isDated: choice.isDated,
    values: choice.values, series: choice.series, forms: choice.forms, decimal: table.format.decimal, events: sensors.words,
  });
  const numbers = new Map(sensors.words.map((name, i) => [name, i]));
  /** @type {Map<string, Waiting>} */
  const waiting = new Map();
  let nAlarms = 0, alarms = [], reported = 0;
  const report = (readBytes, nLines) => {
    if (performance.now() - reported < REPORT_MS + SENSOR_MS * waiting.size) return;
    reported = performance.now();
    for (const rows of waiting.values()) rows.send();
    if (alarms.length) postMessage({ kind: "alarms", alarms });
    alarms = [];
    postMessage({ kind: "progress", readBytes, nLines, tracks: summaries(run), bad: refusalsOf(run.bad) });
  };
  const run = new TableRun(table, sensors, {
    row(track, forecast, text, line) {
      let rows = waiting.get(track.name);
      if (!rows) {
        waiting.set(track.name, rows = new Waiting(waiting.size));
        postMessage({ kind: "sensor", id: rows.id, name: track.name });
      }
      rows.add(forecast, numbers.get(forecast.event) ?? 0);
      if (rows.n >= N_SENT) rows.send();
      if (!forecast.alarm || nAlarms === MOST_ALARMS) return;
      nAlarms++;
      const { time, value, event, since, size, season } = forecast;
      alarms.push({ id: rows.id, row: track.nRows - 1, time, text, value, event, since, size, season, line });
    },
    turn: report,
  });
  await run.run(cancel.signal);
  reported = -Infinity;
  const paths = [...waiting].map(([name, { id }]) => ({ id, ...aheadOf(run, name) }));
  report(file.size, run.nLines);
  if (![...run.tracks.values()].some((track) => track.nRows)) throw new Error(whyNone(file.name, run));
  const unread = [...table.unread].map(([key, n]) => `the key ${key} comes in ${n} lines and in none of the first ones`);
  postMessage({ kind: "end", paths, unread, isCancelled: cancel.signal.aborted, csv: run.csv, next: run.next });
}

/** @param {TableRun} run */
function summaries(run) {
  return [...run.tracks.values()].map(({ refused, ...track }) => ({ ...track, refused: refusalsOf(refused) }));
}

/** @param {import("../engine/table_run.js").Refusals} refusals */
function refusalsOf(refusals) { return { n: refusals.n, reasons: [...refusals.reasons.values()] }; }

/** Return the forecasts after a sensor's last row, with the times as the table writes them. @param {TableRun} run @param {string} name */
function aheadOf(run, name) {
  const track = /** @type {import("../engine/table_run.js").Track} */ (run.tracks.get(name));
  const { mean, quantiles } = run.path(track), { choice } = run.table;
  const slots = [...new Set([...HORIZONS, track.season])].filter((slot) => slot >= 1 && slot <= mean.length).sort((a, b) => a - b);
  const like = choice.clock === "dates" ? track.lastText : "";
  const texts = slots.map((slot) => choice.written(track.lastTime + slot * track.pace, like));
  return { pace: track.pace, quantiles, slots, texts };
}

/** @param {string} name @param {TableRun} run */
function whyNone(name, run) {
  for (const refusals of [...[...run.tracks.values()].map((track) => track.refused), run.bad]) {
    for (const { line, reason } of refusals.reasons.values()) return `${name}: no row could be used. Line ${line}: ${reason}`;
  }
  return `${name}: no row could be used. It has a header and nothing else.`;
}

onmessage = ({ data }) => {
  if (data.kind === "cancel") cancel.abort();
  else work(data).catch((error) => postMessage({ kind: "error", name: error.name, message: error.message }));
};
