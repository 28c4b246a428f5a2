// The engine of sensors in WebAssembly: one general model forecasts each sensor from its first row.
//
//     const sensors = await Sensors.open(bytes);
//     const forecast = sensors.step(time, value, "roof");

import { SINCE_S, UNTIL_S } from "../tables/dates.js";

/** The levels of the quantiles q05 to q95. */
export const LEVELS = [0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95];
const ROW = ["known", "mean", "q05", "q10", "q25", "q50", "q75", "q90", "q95", "logDensity", "pValue", "nMissing", "season",
  "alarm", "event", "since", "size"];
const N_KNOWN = ROW.indexOf("nMissing");
/** The longest path that is asked for: the longest season of the model. */
const MOST_AHEAD = 1440;
const PAGE_BYTES = 65536;
const MARK = "edgefold-sensors-1";

/** Why the engine refuses a row, by the number that it returns. @type {Readonly<Record<number, string>>} */
const REFUSALS = {
  1: "the time is not finite; drop the row.",
  2: "the value is beyond 1e+30; drop the row.",
  3: "its time is that of the newest row; drop the row.",
  4: "its time is before the newest row's; if the next rows follow it, the clock goes on there.",
  5: "its time is far after the newest row's; if the next rows follow it, the clock goes on there.",
};

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

/** @typedef {{place: number, kind: "dates" | "numbers" | "rows", nRows: number, season: number}} Sensor */

/** Serves sensors with the opened model; the names of sensors are any texts. */
export class Sensors {
  /** @param {WebAssembly.Instance} instance @param {number} falseAlarms */
  constructor(instance, falseAlarms) {
    const engine = /** @type {any} */ (instance.exports);
    this.engine = engine;
    this.falseAlarms = falseAlarms;
    /** @type {Map<string, Sensor>} */
    this.sensors = new Map();
    engine._initialize?.();
    this.top = engine.__heap_base.value;
    this.scratch = this.reserve(8 * MOST_AHEAD * (1 + LEVELS.length));
    /** Places of sensors that are no longer used. @type {number[]} */
    this.free = [];
    /** The names of events by their numbers. @type {readonly string[]} */
    this.events = Array.from({ length: engine.sensor_n_events() }, (_, i) => this.text(engine.sensor_event(i)));
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
    const module = wasm instanceof WebAssembly.Module ? wasm : await WebAssembly.compile(wasm);
    return new Sensors(await WebAssembly.instantiate(module, {}), falseAlarms);
  }

  /** The names of all sensors that have sent a row. */
  get names() { return [...this.sensors.keys()]; }

  /** Return the address of some bytes, aligned to 16. @param {number} n */
  reserve(n) {
    const place = Math.ceil(this.top / 16) * 16, end = place + n, { memory } = this.engine;
    const missing = end - memory.buffer.byteLength;
    if (missing > 0) memory.grow(Math.ceil(missing / PAGE_BYTES));
    this.top = end;
    return place;
  }

  newPlace() { return this.free.pop() ?? this.reserve(this.engine.sensor_bytes()); }

  /** @param {number} place */
  text(place) {
    const bytes = new Uint8Array(this.engine.memory.buffer, place);
    return new TextDecoder().decode(bytes.subarray(0, bytes.indexOf(0)));
  }

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
    const refused = this.engine.sensor_push(place, seconds, number, Number(kind === "dates"));
    if (refused) {
      if (!known) this.free.push(place); // the name stays unknown
      throw new RowRefused(REFUSALS[refused] ?? `the engine refused the row with the number ${refused}.`);
    }
    const forecast = this.forecast(place, seconds, number);
    this.sensors.set(name, { place, kind, nRows: (known?.nRows ?? 0) + 1, season: forecast.season });
    return forecast;
  }

  /** @param {number} place @param {number} time @param {number} value @returns {Forecast} */
  forecast(place, time, value) {
    const numbers = new Float64Array(this.engine.memory.buffer, this.engine.sensor_row(place), ROW.length);
    const isKnown = numbers[0] !== 0, [, mean, q05, q10, q25, q50, q75, q90, q95, logDensity, pValue] =
      isKnown ? numbers : UNKNOWN;
    const [nMissing, season, alarm, event, since, size] = numbers.subarray(N_KNOWN);
    return {
      time, value, known: isKnown, mean, q05, q10, q25, q50, q75, q90, q95, logDensity, pValue, nMissing, season,
      alarm: alarm !== 0, event: this.events[event], since, size,
    };
  }

  /**
   * Forecast the next slots of a sensor; its state does not change.
   * @param {number} horizon how many slots, from 1 to 1440
   * @param {string} name
   * @returns {Path}
   */
  path(horizon, name = "") {
    if (!(Number.isInteger(horizon) && horizon >= 1 && horizon <= MOST_AHEAD)) {
      throw new RangeError(`horizon is ${horizon}; give a whole number of slots from 1 to ${MOST_AHEAD}.`);
    }
    const { place } = this.known(name), n = LEVELS.length;
    this.engine.sensor_path(place, horizon, this.scratch, this.scratch + 8 * horizon);
    const numbers = new Float64Array(this.engine.memory.buffer, this.scratch, horizon * (1 + n));
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

  /** Return the states of all sensors, for `restore`. @returns {Uint8Array} */
  save() {
    const buffer = this.newPlace();
    const all = [...this.sensors].map(([name, sensor]) => {
      const n = this.engine.sensor_keep(sensor.place, buffer);
      const bytes = new Uint8Array(this.engine.memory.buffer, buffer, n).slice();
      return { entry: [name, sensor.kind, sensor.nRows, sensor.season, n], bytes };
    });
    this.free.push(buffer);
    const head = new TextEncoder().encode(JSON.stringify([MARK, ...all.map(({ entry }) => entry)]));
    const parts = [new Uint8Array(Uint32Array.of(head.length).buffer), head, ...all.map(({ bytes }) => bytes)];
    const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
    parts.reduce((at, part) => (whole.set(part, at), at + part.length), 0);
    return whole;
  }

  /** Go on from what `save` returned; after an error, all sensors are as before. @param {Uint8Array} bytes */
  restore(bytes) {
    /** @type {Map<string, Sensor>} */
    const sensors = new Map();
    const buffer = this.newPlace();
    let unused = sensors;
    try {
      const n = new DataView(bytes.buffer, bytes.byteOffset, bytes.length).getUint32(0, true);
      const [mark, ...entries] = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + n)));
      if (mark !== MARK) throw new RangeError("another version");
      let at = 4 + n;
      for (const [name, kind, nRows, season, nBytes] of entries) {
        const part = bytes.subarray(at, at + nBytes), place = this.newPlace();
        sensors.set(name, { place, kind, nRows, season });
        if (nBytes > this.engine.sensor_bytes() || part.length !== nBytes) throw new RangeError("another length");
        new Uint8Array(this.engine.memory.buffer, buffer, nBytes).set(part);
        this.engine.sensor_start(place, this.falseAlarms);
        if (this.engine.sensor_take(place, buffer, nBytes) !== 0) throw new RangeError("damaged");
        at += nBytes;
      }
      unused = this.sensors;
      this.sensors = sensors;
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      throw new RangeError(`the bytes are not what \`save\` of this version returned (${why}); start without them.`);
    } finally {
      for (const { place } of unused.values()) this.free.push(place);
      this.free.push(buffer);
    }
  }
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
