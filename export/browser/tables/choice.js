// Choose which columns of a table are its clock and which are sensors, as
// runtime/rows/detect/choice.py does.

import { joined, lookAt } from "./cells.js";
import { SINCE_S, UNTIL_S } from "./dates.js";
import { NUMBERING, SENSOR_WORDS, STEADY, naming } from "./naming.js";
import { TableError, general, listed, plain, quoted, shown } from "./text.js";

/** @typedef {import("./cells.js").Column} Column */

const BEFORE = "[^\\p{L}\\p{N}]";
const TIME_NAMES = new RegExp(
  `^(?:.*${BEFORE})?(?:time|times|timestamps?|datetime|date|dates|day|ts|ds|epoch|unix|unixtime|utc`
  + "|datum|zeit|zeitpunkt|zeitstempel|uhrzeit|fecha|hora|tiempo|data|ora|tempo|heure|temps|when"
  + `|seconds|sec|secs|month|year|t)(?:${BEFORE}.*)?$`, "iu",
);
const OFFSET = /:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d(?::?\d\d)?)$/;
const UNITS = [1, 1e-3, 1e-6, 1e-9];
/** @type {import("./fields.js").RowFormat} */
const DEFAULT = { delimiter: null, decimal: ".", timeFormat: null, missing: [] };

/**
 * Describes the times of the rows: one column or two, or none if rows are counted.
 * @typedef {object} ClockColumns
 * @property {readonly string[]} time
 * @property {"dates" | "unix time" | "numbers" | "rows"} clock
 * @property {number} unitS the length of one unit of unix time in seconds
 * @property {string | null} timeFormat
 * @property {readonly (string | null)[]} forms all formats that read the dates
 * @property {readonly string[]} notes
 * @property {boolean} isBackward
 */

/** Describes which columns of a table are read, and how. */
export class Choice {
  /**
   * @param {ClockColumns} clock
   * @param {readonly string[]} values
   * @param {string} series
   * @param {readonly string[]} left notes on columns that are left out
   */
  constructor(clock, values, series, left) {
    this.time = clock.time;
    this.clock = clock.clock;
    this.unitS = clock.unitS;
    this.timeFormat = clock.timeFormat;
    this.forms = clock.forms;
    this.isBackward = clock.isBackward;
    this.notes = [...clock.notes, ...left];
    this.values = values;
    this.series = series;
  }

  /** All columns that are read: times, values, and the sensor's name. */
  get columns() { return [...this.time, ...this.values, ...(this.series ? [this.series] : [])]; }

  /** Whether the table may hold several sensors, so that each of them needs a name. */
  get isNamed() { return this.values.length > 1 || this.series !== ""; }

  /** Whether the times, once they are read, are seconds since 1970. */
  get isDated() { return this.clock === "dates" || this.clock === "unix time"; }

  /**
   * Return the text of a time that is not in the table, written as the table writes times.
   * @param {number} time
   * @param {string} like the text of another time of the table
   */
  written(time, like = "") {
    if (!Number.isFinite(time)) return "";
    if (this.clock === "unix time" && like) {
      return this.unitS < 1 ? (time / this.unitS).toFixed(0) : general(time, 12);
    }
    if (!this.isDated) return general(time, 12);
    const date = new Date(Math.round(time * 1000));
    const year = date.getUTCFullYear();
    if (!(year >= 1 && year <= 9999)) return "";
    const text = date.toISOString(), exactly = date.getUTCMilliseconds() ? 23 : 19;
    return text.slice(0, exactly) + (OFFSET.test(like) || this.clock === "unix time" ? "Z" : "");
  }
}

/**
 * Choose the clock, the columns of values and the column that names the sensors.
 * @param {readonly Column[]} columns
 * @param {string} source
 * @param {{time?: string | null, values?: readonly string[] | null, series?: string | null}} named
 * @throws {TableError}
 */
export function choose(columns, source, { time = null, values = null, series = null }) {
  for (const name of [time, series, ...(values ?? [])]) {
    if (!name || columns.some((column) => column.name === name)) continue;
    throw new TableError(`${source} has no column ${quoted(name)}; its columns are ${listed(columns.map((c) => c.name))}.`);
  }
  const free = columns.filter((column) => !values?.includes(column.name));
  const clock = time
    ? namedClock(/** @type {Column} */ (columns.find((column) => column.name === time)), free, source)
    : foundClock(free, Boolean(values?.length));
  if (series === null) {
    const candidates = free.filter((column) => !clock.time.includes(column.name));
    series = naming(columns, clock.time, candidates, source, values !== null);
  }
  const used = series ? [...clock.time, series] : clock.time;
  const others = columns.filter((column) => !used.includes(column.name));
  const [taken, left] = sensorsOf(others, values);
  if (!taken.length) {
    const held = columns.map((column) => `${plain(column.name)} holds ${heldBy(column)}`).join("; ");
    throw new TableError(
      `${source} has no column of numbers beside its times (${[...held].slice(0, 300).join("")}). Name the columns with `
      + "--time and --columns, or say with --decimal how numbers are written.",
    );
  }
  return new Choice(clock, taken, series, left);
}

/** @param {Column} column @param {readonly Column[]} columns @param {string} source */
function namedClock(column, columns, source) {
  if (column.kind === "date") return dateClock(column, columns);
  if (column.kind === "number") return numberClock(column);
  throw new TableError(
    `${source}: the column ${plain(column.name)} holds ${heldBy(column)}, not times; --time-format tells how times are written.`,
  );
}

/** @param {readonly Column[]} columns @param {boolean} areValuesNamed @returns {ClockColumns} */
function foundClock(columns, areValuesNamed) {
  const isNamed = (/** @type {Column} */ column) => TIME_NAMES.test(column.name);
  const allDates = columns.filter((column) => column.kind === "date");
  const dates = allDates.filter((column) => new Set(column.times).size > 1);
  // Dates that rise with the rows are preferred to those that leap, then columns of a known name.
  const rank = (/** @type {Column} */ column) => 2 * Number(column.falls > 1 - STEADY) + Number(!isNamed(column));
  dates.sort((a, b) => rank(a) - rank(b));
  const first = dates[0] ?? allDates[0];
  if (first) return dateClock(first, columns);
  const numbers = columns.filter((column) => column.kind === "number");
  const isOneRow = columns.every((column) => column.texts.length === 1);
  const rising = numbers.filter(
    ({ falls, times }) => isOneRow || (falls <= 1 - STEADY && times[times.length - 1] > times[0]),
  );
  const nEmpty = columns.filter((column) => column.kind === "empty").length;
  if (areValuesNamed || numbers.length + nEmpty > 1) {
    const found = rising.find((column) => isNamed(column) && !NUMBERING.test(column.name))
      ?? numbers.find((column) => isBackward(column) && isNamed(column))
      ?? rising.find((column) => unitOf(column) !== null && column.rises >= STEADY);
    if (found) return numberClock(found);
    const leader = columns[0];
    if (leader && rising.includes(leader) && leader.rises >= STEADY) {
      if (leader.usualStep[1] >= 0.5 || (isOneRow && columns.length === 2)) return numberClock(leader);
    }
  }
  const notes = ["no column tells times: rows are taken as evenly spaced"];
  return { time: [], clock: "rows", unitS: 1, timeFormat: null, forms: [], notes, isBackward: false };
}

/** Make the clock from a column of dates, with a column of times of the day if they have none. @param {Column} column @param {readonly Column[]} columns @returns {ClockColumns} */
function dateClock(column, columns) {
  const { forms } = column, form = forms[0], notes = [];
  if (forms.length > 1) {
    const [first, second] = String(form).startsWith("%d") ? ["day", "month"] : ["month", "day"];
    notes.push(
      `dates such as ${shown(column.example)} are read with the ${first} first; `
      + `--time-format '${forms[1]}' reads the ${second} first`,
    );
  }
  const clock = columns.find((other) => other.kind === "time of day");
  if (clock && !column.example.includes(":")) {
    const whole = lookAt(column.name, column.texts.map((text, i) => joined(text, clock.texts[i])), DEFAULT);
    if (whole.kind === "date") {
      return {
        time: [column.name, clock.name], clock: "dates", unitS: 1, timeFormat: whole.forms[0], forms: whole.forms, notes,
        isBackward: isBackward(whole),
      };
    }
  }
  return { time: [column.name], clock: "dates", unitS: 1, timeFormat: form, forms, notes, isBackward: isBackward(column) };
}

/** @param {Column} column @returns {ClockColumns} */
function numberClock(column) {
  const unit = unitOf(column);
  return {
    time: [column.name], clock: unit === null ? "numbers" : "unix time", unitS: unit ?? 1, timeFormat: null, forms: [],
    notes: [], isBackward: isBackward(column),
  };
}

/** Return whether the newest time stands in the first line and the oldest in the last. @param {Column} column */
function isBackward({ times, rises }) { return times.length > 2 && times[times.length - 1] < times[0] && rises <= 1 - STEADY; }

/** Return the unit, in seconds, in which numbers count since 1970; null if they do not. @param {Column} column */
function unitOf({ times }) {
  const middle = [...times].sort((a, b) => a - b)[Math.floor(times.length / 2)];
  return UNITS.find((unit) => SINCE_S <= middle * unit && middle * unit <= UNTIL_S) ?? null;
}

/** @param {readonly Column[]} columns @param {readonly string[] | null} values @returns {[string[], string[]]} */
function sensorsOf(columns, values) {
  if (values?.length) return [[...values], []];
  /** @type {string[]} */
  const taken = [], left = [];
  for (const column of columns) {
    const name = plain(column.name);
    if (column.kind !== "number") left.push(`${name} left out: it holds ${heldBy(column)}`);
    else if (numbersRows(column)) left.push(`${name} left out: it numbers the rows`);
    else if (isAddress(column)) left.push(`${name} left out: it is ${column.example} in all first lines`);
    else if (isClock(column)) left.push(`${name} left out: it is another clock`);
    else taken.push(column.name);
  }
  return [taken, left];
}

/** @param {Column} column */
function numbersRows(column) {
  const [step, share] = column.usualStep;
  return NUMBERING.test(column.name) && step === 1 && share === 1;
}

/** @param {Column} column */
function isAddress(column) {
  return (SENSOR_WORDS.test(column.name) || NUMBERING.test(column.name)) && new Set(column.texts).size === 1;
}

/** @param {Column} column */
function isClock(column) { return TIME_NAMES.test(column.name) && column.rises >= STEADY && unitOf(column) !== null; }

/** Return words for a message that say what a column holds. @param {Column} column */
function heldBy(column) {
  if (column.kind === "text") return `text such as ${shown(column.example)}`;
  return {
    "date": "dates",
    "time of day": "times of the day",
    "number": "numbers",
    "empty": "nothing in the first lines",
  }[column.kind];
}
