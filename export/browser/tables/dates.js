// Read one field as a date, as runtime/rows/dates.py does; times are seconds since 1970 in UTC.

import { NUMBER, isNumber, parseNumber } from "./fields.js";
import { BadField, TableError, quoted, shown, strip } from "./text.js";

const DATE = new RegExp(
  "^(?:(?<Y>\\d{4})-(?<m>\\d\\d)"
  + "|(?:(?<Y1>\\d{4})-(?<m1>\\d\\d)-(?<d1>\\d\\d)|(?<Y2>\\d{4})/(?<m2>\\d\\d)/(?<d2>\\d\\d)"
  + "|(?<d3>\\d\\d)\\.(?<m3>\\d\\d)\\.(?<Y3>\\d{4}))"
  + "(?:[Tt ](?<H>\\d\\d):(?<M>\\d\\d)(?::(?<S>\\d\\d)(?:\\.(?<f>\\d{1,9}))?)?"
  + "(?:[Zz]|(?<sign>[+-])(?<oH>\\d\\d)(?::?(?<oM>[0-5]\\d))?)?)?)$",
);
const OTHER = new RegExp(
  "^(?:(?<compact>\\d{8})|(?<a>\\d{1,4})(?<s>[-/.])(?<b>\\d{1,2})\\k<s>(?<c>\\d{1,4}))"
  + "(?:(?<between>[Tt ]|, )(?<H>\\d{1,2}):\\d\\d(?<S>:\\d\\d(?<f>\\.\\d{1,6})?)?"
  + "(?<half> ?[AaPp][Mm])?(?<zone> ?(?:[+-]\\d\\d:?\\d\\d|Z))?)?$",
);
/** Counts since 1970 and the length of their unit in seconds. @type {Readonly<Record<string, number>>} */
const UNIX = { "unix": 1, "unix-ms": 1e-3 };
const FIRST_S = -62_135_596_800, END_S = 253_402_300_800;
const MONTHS = "january february march april may june july august september october november december".split(" ");
const DAYS = "monday tuesday wednesday thursday friday saturday sunday".split(" ");

/** The years 1985 to 2128, in seconds since 1970: numbers between these limits are taken as times. */
export const SINCE_S = 5e8, UNTIL_S = 5e9;

/**
 * Read a date and return it as seconds since 1970; a date without an offset is in UTC.
 * @param {string} text
 * @param {string | null} timeFormat as for strptime, or "unix" or "unix-ms"; null reads the default forms
 * @throws {BadField}
 */
export function parseDate(text, timeFormat = null) {
  const stripped = strip(text);
  if (!stripped) throw new BadField("is empty");
  if (!/^[\x20-\x7e]*$/.test(stripped)) {
    throw new BadField(`is ${shown(text)}, not a date of plain letters and digits`);
  }
  let seconds;
  if (timeFormat !== null && timeFormat in UNIX) seconds = parseNumber(stripped) * UNIX[timeFormat];
  else if (timeFormat === null) seconds = defaultDate(stripped);
  else seconds = strptime(stripped, timeFormat);
  if (!(seconds >= FIRST_S && seconds < END_S)) {
    const inMs = seconds * 1e-3, isMs = timeFormat === "unix" && inMs >= FIRST_S && inMs < END_S;
    throw new BadField(`is ${shown(text)}, beyond the years 1 to 9999${isMs ? "; --time-format unix-ms reads it" : ""}`);
  }
  return seconds;
}

/**
 * Return seconds since 1970, or NaN for a day or time that does not exist.
 * @param {number} year @param {number} month @param {number} day
 * @param {number} hour @param {number} minute @param {number} second
 * @param {number} microsecond @param {number} offset seconds east of UTC
 */
function secondsOf(year, month, day, hour, minute, second, microsecond, offset) {
  const isLeap = year % 4 === 0 && (year % 100 !== 0 || year % 400 === 0);
  const last = month === 2 ? (isLeap ? 29 : 28) : [4, 6, 9, 11].includes(month) ? 30 : 31;
  const isDay = year >= 1 && year <= 9999 && month >= 1 && month <= 12 && day >= 1 && day <= last;
  if (!isDay || hour > 23 || minute > 59 || second > 59 || !(Math.abs(offset) < 86400)) return NaN;
  // Years begin in March, so that the leap day is the last one.
  const y = month > 2 ? year : year - 1, m = (month + 9) % 12;
  const days = 365 * y + Math.floor(y / 4) - Math.floor(y / 100) + Math.floor(y / 400)
    + Math.floor((153 * m + 2) / 5) + day - 719_469;
  const seconds = days * 86400 + hour * 3600 + minute * 60 + second - offset;
  if (microsecond === 0) return seconds;
  // One rounding only, where the microseconds are a whole number without one.
  return Math.abs(seconds) < 9e9 ? (seconds * 1e6 + microsecond) / 1e6 : seconds + microsecond / 1e6;
}

/** @param {string} text */
function defaultDate(text) {
  const found = DATE.exec(text)?.groups;
  if (!found) throw new BadField(`is ${shown(text)}, ${adviceFor(text)}`);
  const year = found.Y ?? found.Y1 ?? found.Y2 ?? found.Y3;
  const month = found.m ?? found.m1 ?? found.m2 ?? found.m3;
  const day = found.d1 ?? found.d2 ?? found.d3 ?? "1";
  let offset = 0;
  if (found.sign) offset = (Number(found.oH) * 3600 + Number(found.oM ?? 0) * 60) * (found.sign === "+" ? 1 : -1);
  const seconds = secondsOf(
    Number(year), Number(month), Number(day), Number(found.H ?? 0), Number(found.M ?? 0), Number(found.S ?? 0),
    Number((found.f ?? "").padEnd(6, "0").slice(0, 6)), offset,
  );
  if (Number.isNaN(seconds)) throw new BadField(`is ${shown(text)}, and there is no such day or time`);
  return seconds;
}

/** Patterns of strptime by directive, as Python has them. @type {Readonly<Record<string, string>>} */
const DIRECTIVES = {
  d: "(?<d>3[0-1]|[1-2]\\d|0[1-9]|[1-9]| [1-9])",
  f: "(?<f>[0-9]{1,6})",
  H: "(?<H>2[0-3]|[0-1]\\d|\\d)",
  I: "(?<I>1[0-2]|0[1-9]|[1-9])",
  m: "(?<m>1[0-2]|0[1-9]|[1-9])",
  M: "(?<M>[0-5]\\d|\\d)",
  p: "(?<p>am|pm)",
  S: "(?<S>6[0-1]|[0-5]\\d|\\d)",
  y: "(?<y>\\d\\d)",
  Y: "(?<Y>\\d\\d\\d\\d)",
  z: "(?<z>[+-]\\d\\d:?[0-5]\\d(?::?[0-5]\\d(?:\\.\\d{1,6})?)?|Z)",
  b: `(?<b>${MONTHS.map((name) => name.slice(0, 3)).join("|")})`,
  B: `(?<B>${MONTHS.join("|")})`,
  a: `(?:${DAYS.map((name) => name.slice(0, 3)).join("|")})`,
  A: `(?:${DAYS.join("|")})`,
  "%": "%",
};
/** @type {Map<string, RegExp>} */
const COMPILED = new Map();

/** Return the pattern of a time format. @param {string} timeFormat @throws {TableError} */
function compiled(timeFormat) {
  const known = COMPILED.get(timeFormat);
  if (known) return known;
  const source = timeFormat
    .replace(/[\\.^$*+?(){}[\]|]/g, "\\$&")
    .replace(/\s+/g, "\\s+")
    .replace(/%([\s\S]?)/g, (_, letter) => {
      if (!(letter in DIRECTIVES)) throw new TableError(`the time format '${timeFormat}' has %${letter}, which is not read.`);
      return DIRECTIVES[letter];
    });
  let pattern;
  try {
    pattern = new RegExp(`^${source}`, "i");
  } catch {
    throw new TableError(`the time format '${timeFormat}' has one part twice.`);
  }
  COMPILED.set(timeFormat, pattern);
  return pattern;
}

/** @param {string} text @param {string} timeFormat */
function strptime(text, timeFormat) {
  const match = compiled(timeFormat).exec(text), found = match?.groups ?? {};
  let seconds = NaN;
  if (match && match[0].length === text.length) {
    let year = Number(found.Y ?? 1900);
    if (found.y !== undefined) year = Number(found.y) + (Number(found.y) <= 68 ? 2000 : 1900);
    const named = (found.b ?? found.B)?.toLowerCase();
    const month = named === undefined ? Number(found.m ?? 1) : MONTHS.findIndex((name) => name.startsWith(named)) + 1;
    let hour = Number(found.H ?? 0);
    if (found.I !== undefined) hour = (Number(found.I) % 12) + (found.p?.toLowerCase() === "pm" ? 12 : 0);
    seconds = secondsOf(
      year, month, Number(found.d ?? 1), hour, Number(found.M ?? 0), Number(found.S ?? 0),
      Number((found.f ?? "").padEnd(6, "0")), offsetOf(found.z),
    );
  }
  if (Number.isNaN(seconds)) throw new BadField(`is ${shown(text)}, not a time as ${quoted(timeFormat)} writes it`);
  return seconds;
}

/** Return seconds east of UTC; NaN if colons are mixed. @param {string | undefined} zone */
function offsetOf(zone) {
  if (zone === undefined || zone === "Z" || zone === "z") return 0;
  const parts = /^([+-])(\d\d)(:?)(\d\d)(?:(:?)(\d\d)(?:\.(\d+))?)?$/.exec(zone);
  if (!parts || (parts[6] !== undefined && parts[3] !== parts[5])) return NaN;
  const size = Number(parts[2]) * 3600 + Number(parts[4]) * 60 + Number(parts[6] ?? 0);
  return parts[1] === "-" ? -size : size;
}

/** @param {string} text @param {string | null} timeFormat */
export function isDate(text, timeFormat = null) {
  if (timeFormat === null && !DATE.test(strip(text))) return false; // without an error, which takes long
  try {
    parseDate(text, timeFormat);
    return true;
  } catch (error) {
    if (error instanceof BadField) return false;
    throw error;
  }
}

/** Return whether a field is a number or a date, and so not a column's name. @param {string} text @param {string | null} timeFormat */
export function isData(text, timeFormat = null) { return isNumber(text) || isDate(text, timeFormat); }

/** Return the format of a number that looks like the date 20200105; null for others. @param {string} text */
export function compactFormat(text) {
  return /^(?:19|20)\d{6}$/.test(strip(text)) && isDate(text, "%Y%m%d") ? "%Y%m%d" : null;
}

/**
 * Refuse a time format that is not valid, or that does not give the year or the half of the day.
 * @param {string} timeFormat
 * @throws {TableError}
 */
export function requireTimeFormat(timeFormat) {
  if (timeFormat in UNIX) return;
  compiled(timeFormat);
  const isWhole = /%[Yy]/.test(timeFormat) && (!timeFormat.includes("%I") || timeFormat.includes("%p"));
  if (isWhole) return;
  throw new TableError(
    `the time format '${timeFormat}' does not tell the year, the day or the half of the day (%I needs %p); write it `
    + "as strftime does, such as '%d/%m/%Y %H:%M', or give unix or unix-ms.",
  );
}

/** @param {string} text */
function adviceFor(text) {
  if (NUMBER.test(text)) {
    const size = Math.abs(Number(text));
    const form = size > 1e8 && size < 1e11 ? "unix" : size > 1e11 && size < 1e14 ? "unix-ms" : "";
    if (form) return `a number where dates are expected; --time-format ${form} reads it`;
  }
  const forms = dateForms(text);
  if (!forms.length) return "not a date like 1958-03-29; --time-format tells how times are written";
  if (forms.length === 1) return `which --time-format '${forms[0]}' reads`;
  return (
    `which can be two dates: give --time-format '${forms[0]}' if the day comes first, `
    + `--time-format '${forms[1]}' if the month does`
  );
}

/**
 * Return the time formats that read a text: none, one or two, of which the first has the day first.
 * @param {string} text
 * @returns {string[]}
 */
export function dateForms(text) {
  const found = OTHER.exec(text)?.groups;
  if (!found) return [];
  let dates;
  if (found.compact) dates = ["%Y%m%d"];
  else if (found.a.length === 4) dates = [`%Y${found.s}%m${found.s}%d`];
  else {
    const year = found.c.length === 4 ? "%Y" : "%y";
    dates = [["%d", "%m"], ["%m", "%d"]].map(([a, b]) => `${a}${found.s}${b}${found.s}${year}`);
  }
  let clock = "";
  if (found.H) {
    const half = found.half ?? "", zone = found.zone ?? "";
    clock = `${found.between}${half ? "%I" : "%H"}:%M${found.S ? ":%S" : ""}${found.f ? ".%f" : ""}`;
    if (half) clock += `${half[0] === " " ? " " : ""}%p`;
    if (zone) clock += `${zone[0] === " " ? " " : ""}%z`;
  }
  return dates.map((date) => date + clock).filter((form) => isDate(text, form));
}
