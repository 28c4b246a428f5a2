// The engine of sensors in WebAssembly: one general model forecasts each sensor from its first row.
//
//     const sensors = await Sensors.open(bytes);
//     const forecast = sensors.step(time, value, "roof");

import { ModuleMemory, started } from "./module_memory.js";
import { SINCE_S, UNTIL_S } from "../tables/dates.js";
import { general, grouped } from "../tables/text.js";

/** The levels of the quantiles q05 to q95. */
export const LEVELS = [0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95];
const ROW = ["known", "mean", "q05", "q10", "q25", "q50", "q75", "q90", "q95", "logDensity", "pValue", "nMissing", "season",
  "alarm", "event", "since", "size"];
const N_KNOWN = ROW.indexOf("nMissing");
/** Slots of a season ahead for a sensor without a season. */
const NO_SEASON = 64;
/** The largest value and the latest time that the engine takes. */
const LARGEST = 1e30, LATEST = 1e300;
const MARK = "edgefold-sensors-1";
const LENGTHS = /** @type {const} */ ([[2 * 365.2425 * 86400, "year"], [86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"], [1e-3, "millisecond"]]);
const YEAR_S = 365.2425 * 86400;

/** A row was refused and nothing changed; the message says why. */
export class RowRefused extends Error {
  /** @param {string} message */
  constructor(message) {
    super(message);
    this.name = "RowRefused";
  }
}

/**
 * A row with the forecast that was made before its value was seen; numbers are NaN if there was none.
 * @typedef {object} Forecast
 * @property {number} time @property {number} value @property {boolean} known
 * @property {number} mean
 * @property {number} q05 @property {number} q10 @property {number} q25 @property {number} q50
 * @property {number} q75 @property {number} q90 @property {number} q95
 * @property {number} logDensity @property {number} pValue
 * @property {number} nMissing slots without a row between this row and the one before
 * @property {number} season the season's length in slots; 0 for none
 * @property {boolean} alarm @property {string} event
 * @property {number} since how many rows before this one the event began
 * @property {number} size the size of an event that lasts
 */

/** @typedef {{mean: Float64Array, quantiles: Float64Array[]}} Path a list of n numbers for each level */

/** @typedef {{place: number, kind: "dates" | "numbers" | "rows", nRows: number, season: number, lastTime: number}} Sensor */

/** Serves sensors with the opened model; the names of sensors are any texts. */
export class Sensors {
  /** @param {WebAssembly.Instance} instance @param {number} falseAlarms */
  constructor(instance, falseAlarms) {
    const engine = /** @type {any} */ (instance.exports);
    this.engine = engine;
    this.falseAlarms = falseAlarms;
    /** @type {Map<string, Sensor>} */
    this.sensors = new Map();
    this.memory = new ModuleMemory(instance);
    /** The longest path that is given. */
    this.longest = Math.max(engine.sensor_longest_season(), NO_SEASON);
    this.row = this.memory.reserve(8 * ROW.length);
    this.ahead = this.memory.reserve(8 * this.longest * (1 + LEVELS.length));
    this.snapshot = this.memory.reserve(engine.sensor_snapshot_bytes());
    /** Places of sensors that are no longer used. @type {number[]} */
    this.free = [];
    /** Texts of events and refusals by their numbers; "" for nothing. */
    this.words = [""];
    for (let word = 1, text; (text = this.memory.text(engine.sensor_word(word))); word++) this.words.push(text);
  }

  /**
   * Open the model.
   * @param {BufferSource | WebAssembly.Module} wasm the file edgefold_sensors.wasm, or its module
   * @param {{falseAlarms?: number}} options the share of sound rows that may be alarms, 1e-4 by default
   */
  static async open(wasm, { falseAlarms = 1e-4 } = {}) {
    if (!(falseAlarms > 0 && falseAlarms <= 0.1)) {
      throw new RangeError(`falseAlarms is ${falseAlarms}; give a number above 0 and at most 0.1, such as 1e-4.`);
    }
    return new Sensors(await started(wasm), falseAlarms);
  }

  /** The names of all sensors that have sent a row. */
  get names() { return [...this.sensors.keys()]; }

  newPlace() { return this.free.pop() ?? this.memory.reserve(this.engine.sensor_bytes()); }

  /**
   * Score a row by the forecast made before it, learn it, and forecast the slots after it.
   * @param {number | Date | null} time seconds since 1970 or any other number, a Date, or null if rows come evenly
   * @param {number | null} value null or NaN if it is missing
   * @param {string} name the sensor's name
   * @param {boolean} [dated] whether a number is a date in seconds since 1970; found by the first one
   * @returns {Forecast}
   * @throws {RowRefused} nothing changed
   */
  step(time, value, name = "", dated) {
    const number = value ?? NaN;
    if (typeof number !== "number") throw new TypeError(`the value ${String(number)} is not a number; give null where none is.`);
    const known = this.sensors.get(name), kind = known?.kind ?? kindOf(time, dated);
    if ((time === null) !== (kind === "rows")) {
      throw new RowRefused("some rows have a time and others have none; give all or none.");
    }
    const seconds = time === null ? known?.nRows ?? 0 : time instanceof Date ? time.getTime() / 1000 : time;
    const place = known?.place ?? this.newPlace();
    if (!known) this.engine.sensor_start(place, this.falseAlarms);
    const refusal = this.engine.sensor_push(place, seconds, number, Number(kind === "dates"), this.row);
    if (refusal) {
      if (!known) this.free.push(place); // the name stays unknown
      throw new RowRefused(refusalText(this.words[refusal], seconds, number, Math.abs(seconds - (known?.lastTime ?? NaN)), kind));
    }
    const forecast = this.forecast(seconds, number);
    if (known) Object.assign(known, { nRows: known.nRows + 1, season: forecast.season, lastTime: seconds });
    else this.sensors.set(name, { place, kind, nRows: 1, season: forecast.season, lastTime: seconds });
    return forecast;
  }

  /** Return what the newest push has written. @param {number} time @param {number} value @returns {Forecast} */
  forecast(time, value) {
    const numbers = this.memory.numbers(this.row, ROW.length);
    const isKnown = numbers[0] !== 0, [, mean, q05, q10, q25, q50, q75, q90, q95, logDensity, pValue] =
      isKnown ? numbers : UNKNOWN;
    const [nMissing, season, alarm, event, since, size] = numbers.subarray(N_KNOWN);
    return {
      time, value, known: isKnown, mean, q05, q10, q25, q50, q75, q90, q95, logDensity, pValue, nMissing, season,
      alarm: alarm !== 0, event: this.words[event], since, size,
    };
  }

  /**
   * Forecast the next slots of a sensor; its state does not change.
   * @param {number} horizon how many slots, from 1 to the longest season of the model (1440 as shipped)
   * @param {string} name
   * @returns {Path} NaN while too few rows have come
   */
  path(horizon, name = "") {
    if (!(Number.isInteger(horizon) && horizon >= 1 && horizon <= this.longest)) {
      throw new RangeError(`horizon is ${horizon}; give a whole number of slots from 1 to ${this.longest}.`);
    }
    const { place } = this.known(name), n = LEVELS.length;
    const numbers = this.memory.numbers(this.ahead, horizon * (1 + n));
    if (this.engine.sensor_path(place, horizon, this.ahead, this.ahead + 8 * horizon)) numbers.fill(NaN);
    const quantiles = LEVELS.map((_, level) => Float64Array.from({ length: horizon }, (__, i) => numbers[horizon + i * n + level]));
    return { mean: numbers.slice(0, horizon), quantiles };
  }

  /** Return the time between two slots of a sensor (NaN before it is known), and its season in slots. @param {string} name */
  feed(name = "") {
    const { place, season } = this.known(name);
    return { pace: /** @type {number} */ (this.engine.sensor_pace(place)), season };
  }

  /** @param {string} name */
  known(name) {
    const sensor = this.sensors.get(name);
    if (!sensor) throw new RangeError(`no row of a sensor ${JSON.stringify(name)} has come.`);
    return sensor;
  }

  /** Forget a sensor; its next row starts it over, in memory that is used again. @param {string} name */
  forget(name) {
    const sensor = this.sensors.get(name);
    if (sensor && this.sensors.delete(name)) this.free.push(sensor.place);
  }

  /** Return the states of all sensors, for `restore`. @returns {Uint8Array} */
  save() {
    const snapshots = [...this.sensors].map(([name, { place, ...rest }]) => {
      const n = this.engine.sensor_save(place, this.snapshot);
      if (!n) throw new Error(`the sensor ${JSON.stringify(name)} could not be saved.`);
      return { entry: [name, rest, n], bytes: this.memory.bytes(this.snapshot, n).slice() };
    });
    const head = new TextEncoder().encode(JSON.stringify([MARK, ...snapshots.map(({ entry }) => entry)]));
    const parts = [head, ...snapshots.map(({ bytes }) => bytes)];
    const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 8));
    parts.reduce((at, part) => (whole.set(part, at), at + part.length), 8);
    new DataView(whole.buffer).setUint32(0, head.length, true);
    new DataView(whole.buffer).setUint32(4, checksum(whole), true);
    return whole;
  }

  /** Go on from what `save` returned; after an error, all sensors are as before. @param {Uint8Array} bytes */
  restore(bytes) {
    /** @type {Map<string, Sensor>} */
    const sensors = new Map();
    let unused = sensors;
    try {
      const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
      if (bytes.length < 8 || view.getUint32(4, true) !== checksum(bytes)) throw new RangeError("damaged");
      const nHead = view.getUint32(0, true);
      /** @type {[string, ...[string, Omit<Sensor, "place">, number][]]} */
      const [mark, ...entries] = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + nHead)));
      if (mark !== MARK) throw new RangeError("another version");
      let at = 8 + nHead;
      for (const [name, rest, n] of entries) {
        const part = bytes.subarray(at, at + n), place = this.newPlace();
        sensors.set(name, { ...rest, place });
        if (!(n > 0 && n <= this.engine.sensor_snapshot_bytes() && part.length === n)) throw new RangeError("another length");
        this.memory.bytes(this.snapshot, n).set(part);
        this.engine.sensor_start(place, this.falseAlarms);
        if (this.engine.sensor_load(place, this.snapshot, n) !== 0) throw new RangeError("damaged");
        at += n;
      }
      if (at !== bytes.length || sensors.size !== entries.length) throw new RangeError("another length");
      unused = this.sensors;
      this.sensors = sensors;
    } catch (error) {
      const why = error instanceof RangeError ? error.message : "damaged";
      throw new RangeError(`the bytes are not what \`save\` of this model returned (${why}); start without them.`);
    } finally {
      for (const { place } of unused.values()) this.free.push(place);
    }
  }
}

/** Return a number that changes if bytes other than its own are damaged (FNV-1a). @param {Uint8Array} bytes */
function checksum(bytes) {
  let sum = 0x811c9dc5;
  for (let i = 0; i < bytes.length; i++) if (i < 4 || i >= 8) sum = Math.imul(sum ^ bytes[i], 0x01000193);
  return sum >>> 0;
}

/**
 * Say why a row is refused, as runtime/sensors/clock/notes.py does.
 * @param {string} word @param {number} time @param {number} value
 * @param {number} distance how far the time is from the newest row's
 * @param {string} kind
 */
function refusalText(word, time, value, distance, kind) {
  switch (word) {
    case "value too large": return `the value ${general(value, 6)} is beyond ${general(LARGEST, 6)}; drop the row.`;
    case "time too large": return `the time ${general(time, 6)} is beyond ${general(LATEST, 6)}; drop the row.`;
    case "time not finite": return `the time ${general(time, 6)} is not finite; drop the row.`;
    case "repeated": return "its time is that of the newest row; drop the row.";
    case "": case undefined: return "the model's arithmetic failed; drop the row.";
    default: {
      const where = word === "late" ? "before" : "after", length = kind === "dates" ? duration(distance) : `${general(distance, 6)} in units of its times`;
      return `its time is ${length} ${where} the newest row's; if the next rows follow it, the clock goes on there.`;
    }
  }
}

/** Write a length of time in words with three digits, as runtime/series/durations.py does. @param {number} seconds */
function duration(seconds) {
  const [size, name] = LENGTHS.find(([unit]) => seconds >= 0.9995 * unit) ?? LENGTHS[LENGTHS.length - 1];
  const amount = seconds / (name === "year" ? YEAR_S : size);
  const digits = amount >= 100 ? grouped(Math.round(amount)) : general(amount, 3);
  return `${digits} ${name}${digits === "1" ? "" : "s"}`;
}

/** The numbers of a row before the first forecast. */
const UNKNOWN = [0, ...Array(1 + LEVELS.length).fill(NaN), 0, 1];

/** @param {number | Date | null} time @param {boolean} [dated] */
function kindOf(time, dated) {
  if (time === null) return "rows";
  if (time instanceof Date) return "dates";
  if (typeof time !== "number") throw new TypeError(`the time ${String(time)} is neither a number nor a Date; give one of them, or null.`);
  return dated ?? (SINCE_S <= time && time <= UNTIL_S) ? "dates" : "numbers";
}
