// Judge what the cells of each column hold by the first lines, as runtime/rows/detect/cells.py does.

import { compactFormat, dateForms, isDate, parseDate } from "./dates.js";
import { NUMBER, isMissing, ungrouped, withPoint } from "./fields.js";
import { TableError, WrittenNumber, strip } from "./text.js";

/** @typedef {import("./text.js").Cell} Cell */
/** @typedef {import("./fields.js").Sign} Sign */
/** @typedef {import("./fields.js").RowFormat} RowFormat */

/** The share of a column's cells that must be dates, or times of the day, for the column to be so. */
const MOST = 0.9;
const TIME_OF_DAY = /^\d{1,2}:[0-5]\d(?::[0-5]\d(?:\.\d{1,9})?)?$/;
const FRACTION = {
  ".": /^[+-]?(?:\d*|\d{1,3}(?:,\d{3})+)\.\d+$/,
  ",": /^[+-]?(?:\d*|\d{1,3}(?:\.\d{3})+),\d+$/,
};
const GROUPS = { ".": /^[+-]?\d{1,3}(?:,\d{3}){2,}$/, ",": /^[+-]?\d{1,3}(?:\.\d{3}){2,}$/ };
const GROUPED = { ".": /^[+-]?[1-9]\d{0,2}\.\d{3}$/, ",": /^[+-]?[1-9]\d{0,2},\d{3}$/ };
const WHOLE = /^[+-]?\d+$/;

/** Holds the cells of one column and what they were judged to hold. */
export class Column {
  /**
   * @param {string} name
   * @param {"date" | "time of day" | "number" | "text" | "empty"} kind
   * @param {readonly number[]} times dates in seconds since 1970, or numbers; empty for other kinds
   * @param {readonly string[]} texts all cells, without spaces around them
   * @param {readonly (string | null)[]} forms time formats that read the dates, the likeliest first
   */
  constructor(name, kind, times, texts, forms = []) {
    this.name = name;
    this.kind = kind;
    this.times = times;
    this.texts = texts;
    this.forms = forms;
    const n = Math.max(times.length - 1, 0);
    let nRises = 0, nFalls = 0;
    for (let i = 0; i < n; i++) {
      nRises += Number(times[i + 1] > times[i]);
      nFalls += Number(times[i + 1] < times[i]);
    }
    /** The share of lines whose time is later than in the line before; 1 with only one line. */
    this.rises = n ? nRises / n : 1;
    /** The share of lines whose time is earlier than in the line before. */
    this.falls = n ? nFalls / n : 0;
    /** The text of the first cell that is not empty. */
    this.example = texts.find((text) => text) ?? "";
  }

  /** The most frequent difference between one line's time and the next, and its share. @returns {[number, number]} */
  get usualStep() {
    /** @type {Map<number, number>} */
    const counts = new Map();
    for (let i = 1; i < this.times.length; i++) {
      const step = Number((this.times[i] - this.times[i - 1]).toPrecision(6));
      counts.set(step, (counts.get(step) ?? 0) + 1);
    }
    if (!counts.size) return [0, 0];
    const step = mostCommon(counts);
    return [step, /** @type {number} */ (counts.get(step)) / (this.times.length - 1)];
  }
}

/** Return the key with the largest count, the first one of several. @template K @param {Map<K, number>} counts @returns {K} */
export function mostCommon(counts) {
  let best = /** @type {K} */ (undefined), most = -1;
  for (const [key, n] of counts) if (n > most) [best, most] = [key, n];
  return best;
}

/** Count equal elements. @template K @param {Iterable<K>} elements */
export function counted(elements) {
  /** @type {Map<K, number>} */
  const counts = new Map();
  for (const element of elements) counts.set(element, (counts.get(element) ?? 0) + 1);
  return counts;
}

/**
 * Judge what a column holds by its cells.
 * @param {string} name
 * @param {readonly Cell[]} cells
 * @param {RowFormat} format
 */
export function lookAt(name, cells, format) {
  const texts = cells.map((cell) => strip(String(cell)));
  const filled = texts.map((_, i) => i).filter((i) => !isMissing(texts[i], format));
  if (!filled.length) return new Column(name, "empty", [], texts);
  if (!filled.some((i) => cells[i] instanceof WrittenNumber)) {
    const words = filled.map((i) => texts[i]), forms = formsOf(words, format.timeFormat);
    if (forms.length) return new Column(name, "date", datesOf(words, forms[0]), texts, forms);
    if (share(words, (text) => TIME_OF_DAY.test(text)) >= MOST) return new Column(name, "time of day", [], texts);
  }
  const numbers = [];
  for (const i of filled) {
    const sign = cells[i] instanceof WrittenNumber ? "." : format.decimal;
    const point = withPoint(ungrouped(texts[i], sign), sign);
    if (NUMBER.test(point)) numbers.push(Number(point));
  }
  if (numbers.length >= filled.length / 2) return new Column(name, "number", numbers, texts);
  return new Column(name, "text", [], texts);
}

/**
 * Return the decimal sign that most numbers of a table have, and whether any number shows it.
 * @param {readonly (readonly Cell[])[]} columns
 * @param {string | null} delimiter
 * @param {string} source
 * @returns {[Sign, boolean]}
 * @throws {TableError} numbers have one sign before three digits, and nothing shows what it separates
 */
export function decimalSign(columns, delimiter, source) {
  const certain = { ".": 0, ",": 0 };
  /** @type {Map<Sign, string>} */
  const unsure = new Map();
  let isMixed = false;
  for (const cells of columns) {
    const texts = cells.filter((cell) => typeof cell === "string").map((cell) => strip(String(cell)));
    const hasWhole = texts.some((text) => WHOLE.test(text));
    for (const text of texts) {
      for (const sign of /** @type {const} */ ([".", ","])) {
        if (GROUPS[sign].test(text)) return [sign, true];
        if (GROUPED[sign].test(text)) {
          if (!unsure.has(sign)) unsure.set(sign, text);
          isMixed ||= hasWhole;
        } else if (FRACTION[sign].test(text)) certain[sign]++;
      }
    }
  }
  if (certain["."] + certain[","]) return [certain[","] > certain["."] ? "," : ".", true];
  if (!unsure.size) return [".", false];
  const [[sign, text], ...others] = unsure;
  if (!others.length && (sign === "," ? delimiter === ";" : !isMixed)) return [sign, true];
  const other = sign === "." ? "," : ".";
  throw new TableError(
    `${source} holds numbers such as ${text}, which can be read in two ways: give --decimal ${other} if it is `
    + `${text.replaceAll(sign, "")}, or --decimal ${sign} if it is ${text.replaceAll(sign, ".")} with three digits `
    + "behind the decimal sign.",
  );
}

/** Join a date and a time of the day into one text. @param {string} date @param {string} clock */
export function joined(date, clock) {
  const text = strip(clock);
  return `${strip(date)} ${text.indexOf(":") === 1 ? "0" : ""}${text}`;
}

/**
 * @param {readonly string[]} texts
 * @param {string | null} given
 * @returns {(string | null)[]}
 */
function formsOf(texts, given) {
  if (given !== null) return share(texts, (text) => isDate(text, given)) >= MOST ? [given] : [];
  if (share(texts, (text) => isDate(text)) >= MOST) return [null];
  if (share(texts, (text) => compactFormat(text) !== null) >= MOST) return ["%Y%m%d"];
  if (!/[-/.]/.test(texts[0])) return [];
  const counts = counted(texts.flatMap(dateForms));
  return [...counts.keys()]
    .filter((form) => /** @type {number} */ (counts.get(form)) >= MOST * texts.length)
    .map((form) => ({ form, rank: [nBackward(texts, form), unevenness(texts, form), Number(isLessUsual(texts, form))] }))
    .sort((a, b) => a.rank[0] - b.rank[0] || a.rank[1] - b.rank[1] || a.rank[2] - b.rank[2])
    .map(({ form }) => form);
}

/** @param {readonly string[]} texts @param {string | null} form */
function datesOf(texts, form) { return texts.filter((text) => isDate(text, form)).map((text) => parseDate(text, form)); }

/** Return how many dates go against the direction of most others. @param {readonly string[]} texts @param {string} form */
function nBackward(texts, form) {
  const times = datesOf(texts, form);
  let nRises = 0, nFalls = 0;
  for (let i = 1; i < times.length; i++) {
    nRises += Number(times[i] > times[i - 1]);
    nFalls += Number(times[i] < times[i - 1]);
  }
  return Math.min(nRises, nFalls);
}

/** Return the longest time step divided by the median one. @param {readonly string[]} texts @param {string} form */
function unevenness(texts, form) {
  const times = datesOf(texts, form);
  const steps = times.slice(1).map((time, i) => Math.abs(time - times[i])).sort((a, b) => a - b);
  return steps.length ? steps[steps.length - 1] / Math.max(steps[Math.floor(steps.length / 2)], 1e-9) : 0;
}

/** Return whether a format is the less usual one of two: the month first, but with AM or PM the day. @param {readonly string[]} texts @param {string} form */
function isLessUsual(texts, form) { return form.startsWith("%d") === /[AaPp][Mm]/.test(texts[0]); }

/** @param {readonly string[]} texts @param {(text: string) => boolean} isSo */
function share(texts, isSo) { return texts.filter(isSo).length / texts.length; }
