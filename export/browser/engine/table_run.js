// Stream a table through the engine of sensors, as `edgefold forecast` does: count, and write CSV.
//
//     rows ──> Sensors.step ──> a line of CSV, counts, and what `listener` is told

import { LEVELS, RowRefused } from "./sensors.js";
import { csvLine, general } from "../tables/text.js";

/** @typedef {import("./sensors.js").Forecast} Forecast */
/** @typedef {import("./sensors.js").Sensors} Sensors */
/** @typedef {import("../tables/table.js").Table} Table */

const BAND = /** @type {const} */ (["mean", "q05", "q10", "q25", "q50", "q75", "q90", "q95"]);
const ROW_NAMES = ["time", "value", ...BAND, "log_density", "p_value", "alarm", "event"];
const QUANTILES = /** @type {const} */ (["q05", "q10", "q25", "q50", "q75", "q90", "q95"]);
/** Slots that are forecast after the last row of a sensor without a season. */
const FAN_SLOTS = 48;
const MOST_SENSORS = 10_000, MOST_REASONS = 8;
const NUMBERS = /[\d.,:+-]+/g;
/** Milliseconds of work between two moments at which messages are read. */
const TURN_MS = 60;
const TEXT_LENGTH = 1 << 20;

/** Counts refused rows by their reasons without numbers: the first line, its reason, and how many. */
export class Refusals {
  constructor() {
    this.n = 0;
    /** @type {Map<string, {line: number, reason: string, n: number}>} */
    this.reasons = new Map();
  }

  /** @param {number} line @param {string} reason */
  add(line, reason) {
    this.n++;
    const kind = reason.replace(NUMBERS, ""), known = this.reasons.get(kind);
    if (known) known.n++;
    else if (this.reasons.size < MOST_REASONS) this.reasons.set(kind, { line, reason, n: 1 });
  }
}

/** Counts the rows, forecasts and alarms of one sensor. */
export class Track {
  /** @param {string} name */
  constructor(name) {
    this.name = name;
    this.nRows = 0;
    this.nEmpty = 0;
    this.nForecast = 0;
    this.nWithin90 = 0;
    /** Sum of the distances between the values and the forecast medians. */
    this.error = 0;
    /** Sum of the distances between the values and those before them. */
    this.change = 0;
    this.nAlarms = 0;
    this.nGaps = 0;
    this.nMissing = 0;
    /** Number of values below the quantile of each level; an equal one counts half. */
    this.nBelow = LEVELS.map(() => 0);
    /** Number of alarms by the name of their event. @type {Record<string, number>} */
    this.alarmed = {};
    this.refused = new Refusals();
    this.newest = NaN;
    this.season = 0;
    this.pace = NaN;
    this.lastTime = NaN;
    this.lastText = "";
  }

  /** @param {string} text the row's time as written @param {Forecast} forecast */
  take(text, forecast) {
    this.nRows++;
    this.lastText = text;
    this.lastTime = forecast.time;
    this.season = forecast.season;
    const isValue = !Number.isNaN(forecast.value);
    this.nEmpty += Number(!isValue);
    if (forecast.known && isValue) {
      const value = Math.fround(forecast.value); // as the model has seen it
      this.nForecast++;
      this.nWithin90 += Number(forecast.q05 <= value && value <= forecast.q95);
      this.error += Math.abs(value - forecast.q50);
      this.change += Math.abs(value - this.newest);
      QUANTILES.forEach((name, i) => {
        this.nBelow[i] += Number(value < forecast[name]) + 0.5 * Number(value === forecast[name]);
      });
    }
    if (isValue) {
      this.newest = forecast.value;
      this.nAlarms += Number(forecast.alarm);
      if (forecast.nMissing) {
        this.nGaps++;
        this.nMissing += forecast.nMissing;
      }
    }
    if (forecast.alarm) this.alarmed[forecast.event] = (this.alarmed[forecast.event] ?? 0) + 1;
  }
}

/** Collects texts as a file. */
class TextFile {
  constructor() {
    /** @type {Blob[]} */
    this.parts = [];
    /** @type {string[]} */
    this.lines = [];
    this.length = 0;
  }

  /** @param {readonly string[]} fields */
  write(fields) {
    const line = `${csvLine(fields)}\n`;
    this.lines.push(line);
    this.length += line.length;
    if (this.length < TEXT_LENGTH) return;
    this.parts.push(new Blob([this.lines.join("")]));
    this.lines = [];
    this.length = 0;
  }

  blob() { return new Blob([...this.parts, ...this.lines], { type: "text/csv" }); }
}

/**
 * Is told what comes while a table is forecast; each function may be missing.
 * @typedef {object} Listener
 * @property {(track: Track, forecast: Forecast, text: string, line: number) => void} [row]
 * @property {(readBytes: number, nLines: number) => void} [turn] called some times a second
 */

/** Reads each row of a table once, forecasts it, and keeps the forecasts as CSV. */
export class TableRun {
  /** @param {Table} table @param {Sensors} sensors which have seen no row yet @param {Listener} listener */
  constructor(table, sensors, listener = {}) {
    this.table = table;
    this.sensors = sensors;
    this.listener = listener;
    /** @type {Map<string, Track>} */
    this.tracks = new Map();
    /** Lines that could not be read, which belong to no sensor. */
    this.bad = new Refusals();
    this.nLines = 0;
    this.file = new TextFile();
    this.file.write(this.named("series", ROW_NAMES));
  }

  /** Put a sensor's name before fields if the table has several. @param {string} name @param {readonly string[]} fields */
  named(name, fields) { return this.table.choice.isNamed ? [name, ...fields] : fields; }

  /**
   * Read the table to its end.
   * @param {AbortSignal} [signal] ends the run early; what was forecast is kept
   */
  async run(signal) {
    let began = performance.now(), before = 0;
    for await (const { rows, readBytes } of this.table.pieces()) {
      for (const [i, row] of rows.entries()) {
        this.take(row);
        if ((i & 15) || performance.now() - began < TURN_MS) continue;
        this.listener.turn?.(before + (readBytes - before) * i / rows.length, this.nLines);
        await turn();
        if (signal?.aborted) return;
        began = performance.now();
      }
      before = readBytes;
    }
  }

  /** @param {import("../tables/table.js").TableRow} row */
  take({ line, parts, reason }) {
    this.nLines++;
    if (reason !== undefined) this.bad.add(line, reason);
    for (const part of parts) {
      let track = this.tracks.get(part.sensor);
      if (!track) {
        if (this.tracks.size === MOST_SENSORS) {
          this.bad.add(line, "there are 10,000 series already");
          continue;
        }
        this.tracks.set(part.sensor, track = new Track(part.sensor));
      }
      if (part.reason !== undefined) track.refused.add(line, part.reason);
      else this.step(track, part, line);
    }
  }

  /** @param {Track} track @param {import("../tables/table.js").Part} part @param {number} line */
  step(track, { time, value, timeText, valueText }, line) {
    let forecast;
    try {
      forecast = this.sensors.step(time, value, track.name, this.table.choice.isDated);
    } catch (error) {
      if (!(error instanceof RowRefused)) throw error;
      track.refused.add(line, error.message);
      return;
    }
    track.take(timeText, forecast);
    this.file.write(this.named(track.name, [timeText, valueText, ...fieldsOfRow(forecast)]));
    this.listener.row?.(track, forecast, timeText, line);
  }

  /** The forecast of each row, as `edgefold forecast` writes it. */
  get csv() { return this.file.blob(); }

  /** Return the forecasts after a sensor's last row: of a season, at least 48. @param {Track} track */
  path(track) {
    const { pace, season } = this.sensors.feed(track.name);
    track.pace = pace;
    return this.sensors.path(season || FAN_SLOTS, track.name);
  }

  /** The forecasts after the last row of each sensor, as `edgefold forecast --ahead` writes them. */
  get next() {
    const file = new TextFile();
    file.write(this.named("series", ["slots_ahead", "time", ...BAND]));
    for (const track of this.tracks.values()) {
      if (!track.nRows) continue;
      const { mean, quantiles } = this.path(track);
      mean.forEach((number, i) => {
        const at = this.table.choice.written(track.lastTime + (i + 1) * track.pace, track.lastText);
        const numbers = [number, ...quantiles.map((level) => level[i])].map((n) => (Number.isNaN(n) ? "" : general(n, 9)));
        file.write(this.named(track.name, [String(i + 1), at, ...numbers]));
      });
    }
    return file.blob();
  }
}

/** Return the forecast of a row as the fields after its time and value. @param {Forecast} forecast */
function fieldsOfRow(forecast) {
  const band = forecast.known ? BAND.map((name) => general(forecast[name], 9)) : BAND.map(() => "");
  const isScored = forecast.known && !Number.isNaN(forecast.value);
  const scores = isScored ? [general(forecast.logDensity, 9), general(forecast.pValue, 9)] : ["", ""];
  return [...band, ...scores, forecast.alarm ? "1" : "0", forecast.event];
}

/** Let messages be read. @returns {Promise<void>} */
function turn() {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(null);
  });
}
