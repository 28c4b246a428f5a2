// Find the column that names the sensor of each row, as runtime/rows/detect/naming.py does.

import { counted } from "./cells.js";
import { TableError, plain, shown } from "./text.js";

/** @typedef {import("./cells.js").Column} Column */

/** The smallest share of lines in which times must rise, or pairs of time and name be new. */
export const STEADY = 0.95;
export const NUMBERING = /^(?:|#|no|nr|id|idx|index|row|rows|rowid|record|recno|line|unnamed: \p{Nd}+)$/iu;
const WORDS =
  "sensor|device|station|series|channel|tag|item|unique_id|location|room|site|machine|node|meter"
  + "|probe|entity|topic|metric|measurement|variable|parameter|gateway|asset|place|host|geraet|gerät"
  + "|raum|ort|kanal|messstelle";
/** Python's [\W_]: what is neither a letter nor a digit. */
const BETWEEN = "[^\\p{L}\\p{N}]";
export const SENSOR_WORDS = new RegExp(`^.*(?:${WORDS}).*$`, "iu");
const SENSOR_NAMES = new RegExp(
  `^(?:.*${BETWEEN})?(?:${WORDS})s?(?<end>${BETWEEN}?(?:id|name|no|nr|number|key|code|label|uuid|serial))?$`, "iu",
);
const STATE_NAMES = new RegExp(
  `^(?:.*${BETWEEN})?(?:state|status|quality|flag|mode|alarm|event|comment|note|valid|error|direction`
  + `|dir|day|weekday|month|season|weather|zustand|wochentag)s?(?:${BETWEEN}.*)?$`, "iu",
);
const STATES = new Set(["", ...`
on off ok true false yes no y n t f open closed opened shut up down good bad high low normal warn
warning alarm error fault auto manual idle run running stop stopped active inactive enabled disabled
day night weekday weekend an aus ja nein auf zu valid invalid
mon tue wed thu fri sat sun monday tuesday wednesday thursday friday saturday sunday
ne e se s sw w nw nne ene ese sse ssw wsw wnw nnw`.trim().split(/\s+/)]);
/** With fewer lines, a column with a known header is taken although it holds one name only. */
const FEW_LINES = 16;
/** A column with an unknown header may name sensors if each word comes so often on average. */
const MANY = 6;
/** Words take turns if neighbours differ in this share of the cases that chance would give. */
const TURNS = 0.5;
/** Values differ far more between words than within them if it is by this factor. */
const FAR = 3;

/**
 * Return the name of the column that names the sensor of each row; "" if there is none.
 * @param {readonly Column[]} columns
 * @param {readonly string[]} time the names of the columns of times
 * @param {readonly Column[]} candidates
 * @param {string} source
 * @param {boolean} hasValues whether the user named the columns of values
 * @throws {TableError} it cannot be decided
 */
export function naming(columns, time, candidates, source, hasValues) {
  const stamps = columns.filter((column) => time.includes(column.name)).map((column) => column.texts);
  const when = stamps.length ? stamps[0].map((_, i) => JSON.stringify(stamps.map((texts) => texts[i]))) : [];
  const possible = candidates.filter((column) => mayName(column, columns, time));
  const known = possible.filter((column) => SENSOR_NAMES.test(column.name));
  const others = possible.filter((column) => !known.includes(column));
  if (when.length && new Set(when).size < STEADY * when.length) {
    for (const column of [...known, ...others]) {
      if (new Set(column.texts).size > 1 && areNew(when, [column])) return column.name;
    }
    requireOne(when, known, source);
  }
  for (const column of known) {
    const n = new Set(column.texts).size, nLines = column.texts.length;
    if (n === 1 && nLines >= FEW_LINES) continue;
    if (2 * n <= nLines || nLines < FEW_LINES) return column.name;
    if (!hasValues) throw both(column, source, "holds another word in most rows");
  }
  for (const column of others) {
    if (STATE_NAMES.test(column.name) || !takeTurns(column)) continue;
    if (isFarApart(column, columns, candidates)) return column.name;
    if (!hasValues) throw both(column, source, `holds ${new Set(column.texts).size} words that take turns`);
  }
  return "";
}

/** @param {Column} column @param {readonly Column[]} columns @param {readonly string[]} time */
function mayName(column, columns, time) {
  if (column.kind === "text") return true;
  const known = SENSOR_NAMES.exec(column.name);
  if (column.kind !== "number" || !(known || NUMBERING.test(column.name))) return false;
  const others = columns.filter((c) => c.kind === "number" && !time.includes(c.name) && c.name !== column.name);
  const areWhole = column.texts.every((text) => !text || /^\p{Nd}+$/u.test(text));
  const n = new Set(column.texts).size, isSure = Boolean(known?.groups?.end);
  return others.length > 0 && areWhole && (isSure || (n > 1 && n <= column.texts.length / MANY));
}

/** Return whether hardly any row has the time and the words of another. @param {readonly string[]} when @param {readonly Column[]} columns */
function areNew(when, columns) {
  const rows = when.map((time, i) => JSON.stringify([time, ...columns.map((column) => column.texts[i])]));
  return new Set(rows).size >= STEADY * rows.length;
}

/** @param {readonly string[]} when @param {readonly Column[]} known @param {string} source */
function requireOne(when, known, source) {
  const several = known.filter((column) => new Set(column.texts).size > 1);
  several.forEach((one, i) => {
    for (const other of several.slice(i + 1)) {
      if (!areNew(when, [one, other])) continue;
      throw new TableError(
        `${source} names its sensors by two columns together, ${plain(one.name)} and ${plain(other.name)}; write both `
        + `as one column, such as ${shown(`${one.example} ${other.example}`)}.`,
      );
    }
  });
}

/** @param {Column} column @param {string} source @param {string} what */
function both(column, source, what) {
  const name = plain(column.name);
  return new TableError(
    `${source}: the column ${name} ${what}, such as ${shown(column.example)}. Give --series ${name} if it names the `
    + "sensor of each row; give --series '' if all rows are of one sensor.",
  );
}

/** Return whether a column has few words, each many times, that change from row to row. @param {Column} column */
function takeTurns({ texts }) {
  const counts = counted(texts), n = texts.length;
  if (counts.size <= 1 || counts.size > n / MANY) return false;
  if ([...counts.keys()].every((word) => STATES.has(word.toLowerCase()))) return false;
  let byChance = 1, nChanges = 0;
  for (const count of counts.values()) byChance -= (count / n) ** 2;
  for (let i = 1; i < n; i++) nChanges += Number(texts[i] !== texts[i - 1]);
  return nChanges >= TURNS * byChance * (n - 1);
}

/** Return whether a column's values differ far more between the words than within. @param {Column} column @param {readonly Column[]} columns @param {readonly Column[]} candidates */
function isFarApart(column, columns, candidates) {
  for (const other of columns) {
    if (other.kind !== "number" || !candidates.includes(other) || other === column) continue;
    if (other.times.length !== column.texts.length) continue; // some cells are empty
    /** @type {Map<string, number>} */
    const last = new Map();
    let within = 0, nWithin = 0, between = 0, nBetween = 0;
    column.texts.forEach((word, i) => {
      const value = other.times[i], before = last.get(word);
      if (before !== undefined) {
        within += Math.abs(value - before);
        nWithin++;
      }
      if (i && word !== column.texts[i - 1]) {
        between += Math.abs(value - other.times[i - 1]);
        nBetween++;
      }
      last.set(word, value);
    });
    if (nWithin && nBetween && between / nBetween > FAR * (within / nWithin)) return true;
  }
  return false;
}
