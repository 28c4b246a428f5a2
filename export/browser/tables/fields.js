// Read one field of a line as a finite number, as runtime/rows/csv_fields.py does.

import { BadField, shown, strip } from "./text.js";

/** @typedef {"." | ","} Sign */

/** Numbers beyond this size are no measurements. */
const MAX_NUMBER = 1e100;
export const NUMBER = /^[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?$/;
const GROUPED_BY = {
  ".": /^[+-]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?$/,
  ",": /^[+-]?[1-9]\d{0,2}(?:\.\d{3})+(?:,\d*)?$/,
};
const MISSING = new Set(["", "na", "n/a", "#n/a", "null", "none", "nan", "-nan", "-", "?"]);

/**
 * Return the finite number of a text, with one decimal sign.
 * @param {string} text
 * @param {Sign} decimal
 * @throws {BadField}
 */
export function parseNumber(text, decimal = ".") {
  const stripped = strip(text);
  if (!stripped) throw new BadField("is empty");
  const point = withPoint(stripped, decimal);
  if (!NUMBER.test(point)) throw new BadField(`is ${shown(text)}, ${objection(stripped, decimal)}`);
  const number = Number(point);
  if (Math.abs(number) > MAX_NUMBER) throw new BadField(`is ${shown(text)}, beyond 1e+100`);
  return number;
}

/**
 * Return a number's text with a point as its decimal sign; commas and points change places.
 * @param {string} text
 * @param {Sign} decimal
 */
export function withPoint(text, decimal) {
  if (decimal === ".") return text;
  return text.replace(/[.,]/g, (sign) => (sign === "," ? "." : ","));
}

/**
 * Return a number's text without the signs between its thousands; any other text as it is.
 * @param {string} text
 * @param {Sign} decimal
 */
export function ungrouped(text, decimal) {
  const other = decimal === "." ? "," : ".";
  return text.includes(other) && GROUPED_BY[decimal].test(text) ? text.replaceAll(other, "") : text;
}

/** Return whether a field is written as a number, with either decimal sign. @param {string} text */
export function isNumber(text) { return NUMBER.test(strip(text).replaceAll(",", ".")); }

/** @param {string} text @param {Sign} decimal */
function objection(text, decimal) {
  const other = decimal === "." ? "," : ".";
  if (NUMBER.test(withPoint(text, other))) {
    return `not a number; --decimal ${other} reads it as ${withPoint(text, other)}`;
  }
  if (text.includes("_") && NUMBER.test(text.replaceAll("_", ""))) return "not a number; write it without _";
  if (isPythonFloat(text)) return "not a number of the digits 0 to 9";
  return /^[+-]?(?:inf|infinity|nan)$/i.test(text) ? "not a finite number" : "not a number";
}

/** Return whether a text is a number once digits of other scripts are written as 0 to 9. @param {string} text */
function isPythonFloat(text) {
  if (!/\p{Nd}/u.test(text)) return false;
  return NUMBER.test(text.replace(/\p{Nd}/gu, "0").replace(/(?<=\d)_(?=\d)/g, ""));
}

/**
 * Describes how the fields of a table are written.
 * @typedef {object} RowFormat
 * @property {string | null} delimiter
 * @property {Sign} decimal
 * @property {string | null} timeFormat
 * @property {readonly string[]} missing
 */

/**
 * Return whether a cell, without spaces around its text, holds no value.
 * @param {string} text
 * @param {RowFormat} format
 */
export function isMissing(text, format) {
  if (text.length <= 4 && MISSING.has(text.toLowerCase())) return true;
  const words = format.missing;
  if (!words.length) return false;
  if (words.includes(text)) return true;
  const point = withPoint(text, format.decimal);
  return NUMBER.test(point) && words.some((word) => NUMBER.test(word) && Number(word) === Number(point));
}
