// Split the first lines of a table into cells, and find its delimiter, its header and its columns, as
// runtime/rows/detect/head.py does.

import { counted, mostCommon } from "./cells.js";
import { csvRows, splitLine } from "./csv_lines.js";
import { dateForms, isData } from "./dates.js";
import { isMissing } from "./fields.js";
import { isJson, parseObject } from "./json_lines.js";
import { MAX_LINE_BYTES, olderText, utf8Text, withoutMark } from "./lines.js";
import { BadLine, TableError, WrittenNumber, grouped, plain, quoted, shown, strip, stripStart } from "./text.js";

/** @typedef {import("./fields.js").RowFormat} RowFormat */
/** @typedef {import("./text.js").Cell} Cell */
/** @typedef {{number: number, text: string}} NumberedLine the number counts from 0 */

const DELIMITERS = [";", "\t", "|", ",", " "];
const TO_UTF8 = " as UTF-8 text; convert it, for instance: iconv -f WINDOWS-1252 -t UTF-8.";
const SEP = /^"?sep=([^\n])"?$/iu;
/** The largest number of lines by which two delimiters are compared. */
const MOST_COMPARED = 20;
/** The smallest share of lines that a delimiter must split into the same number of fields. */
const STEADY_LINES = 0.8;
const NUL = 0;
/** First bytes of files that hold no lines of text, what they are, and advice. @type {[string, string][]} */
const PACKED = [
  ["\x1f\x8b", "compressed with gzip; unpack it: gunzip -k"],
  ["BZh", "compressed with bzip2; unpack it: bunzip2 -k"],
  ["\xfd7zXZ\0", "compressed with xz; unpack it: unxz -k"],
  ["\x28\xb5\x2f\xfd", "compressed with zstd; unpack it: unzstd"],
  ["\x04\x22\x4d\x18", "compressed with lz4; unpack it: unlz4"],
  ["7z\xbc\xaf\x27\x1c", "compressed with 7-Zip; unpack it: 7z x"],
  ["SQLite format 3\0", "an SQLite database; write a table of it as CSV: sqlite3 -csv -header"],
  ["ARROW1", "an Arrow file; convert it to CSV"],
  ["\x89HDF", "an HDF5 file; convert it to CSV"],
  ["PK\x03\x04", "a workbook or another zip file; save its table as CSV"],
  ["\xd0\xcf\x11\xe0", "an old workbook; save its table as CSV"],
  ["PAR1", "a Parquet file; convert it to CSV"],
];
/** Encodings whose texts have NUL bytes, by their marks and by their first bytes without one. */
const WIDE = [
  [/^(?:\xff\xfe\0\0|\0\0\xfe\xff)/, "UTF-32"],
  [/^(?:\xff\xfe|\xfe\xff)/, "UTF-16"],
  [/^(?:[^\0]\0\0\0){2}/, "UTF-32LE"],
  [/^(?:\0\0\0[^\0]){2}/, "UTF-32BE"],
  [/^(?:[^\0]\0){2}/, "UTF-16LE"],
  [/^(?:\0[^\0]){2}/, "UTF-16BE"],
];

/**
 * Holds the columns of a table's first lines, and where they stand.
 * @typedef {object} Head
 * @property {string[]} names
 * @property {Cell[][]} cells a list for each column
 * @property {RowFormat} format with the delimiter that was found; null for JSON lines
 * @property {number} nBefore the number of lines before the first row
 * @property {string[]} notes
 * @property {string[]} keys for JSON lines, the keys in the order of the names
 */

/**
 * Split the first lines of a table into cells.
 * @param {readonly Uint8Array[]} raw the first lines with their ends
 * @param {string} source
 * @param {RowFormat} format
 * @returns {Head}
 * @throws {TableError}
 */
export function readHead(raw, source, format) {
  if (!raw.length) throw new TableError(`${source} is empty; give a table with a column of numbers.`);
  requireEncoding(raw[0], source);
  raw = [withoutMark(raw[0]), ...raw.slice(1)];
  const texts = raw.map(utf8Text);
  let lines = numbered(texts);
  if (!lines.length) throw new TableError(`${source} ${unreadable(raw)}`);
  lines = [...numbered(raw.slice(0, lines[0].number).map(olderLine)), ...lines];
  const first = stripStart(lines[0].text);
  if (first.startsWith("[")) {
    throw new TableError(`${source} is one JSON list; write an object a line: jq -c '.[]' ${source}`);
  }
  if (isJson(first)) return headOfJson(lines, format);
  const head = headOfCsv(lines, texts, format, source);
  if (!head.cells.some((cells) => cells.length)) {
    const others = raw.filter((line, i) => i >= head.nBefore && !isBlank(line) && texts[i] === null);
    const advice = others.length ? `, and ${unreadable(others)}` : "; give a table with some.";
    throw new TableError(`${source} has a header and no rows${advice}`);
  }
  return head;
}

/** Number the lines that have a text. @param {readonly (string | null)[]} texts @returns {NumberedLine[]} */
function numbered(texts) {
  return texts.flatMap((text, number) => (text === null ? [] : [{ number, text }]));
}

/** Return a text with one character for each byte. @param {Uint8Array} line */
function bytesAsText(line) { return String.fromCharCode(...line.subarray(0, 64)); }

/** @param {Uint8Array} line the first line, with its end @param {string} source @throws {TableError} */
function requireEncoding(line, source) {
  const start = bytesAsText(line);
  for (const [sign, what] of PACKED) if (start.startsWith(sign)) throw new TableError(`${source} is ${what}.`);
  for (const [pattern, name] of WIDE) {
    if (!(/** @type {RegExp} */ (pattern).test(start))) continue;
    throw new TableError(`${source} is encoded as ${String(name).slice(0, 6)}; convert it: iconv -f ${name} -t UTF-8.`);
  }
  let end = line.length;
  while (end && line[end - 1] === 13) end--;
  const hasEnd = line[line.length - 1] === 10, inside = line.subarray(0, end);
  if (!hasEnd && inside.includes(13) && !line.includes(NUL) && !line.includes(34)) {
    throw new TableError(`${source} ends its lines with CR alone, as old Macs did; convert it: tr '\\r' '\\n'.`);
  }
}

/** Return whether bytes are spaces only, as Python's bytes.strip has them. @param {Uint8Array} line */
function isBlank(line) { return line.every((byte) => byte === 32 || (byte >= 9 && byte <= 13)); }

/** Return the rest of a message that says why no line can be read. @param {readonly Uint8Array[]} raw */
function unreadable(raw) {
  if (raw.every(isBlank)) return "holds blank lines and nothing else; give a table with a column of numbers.";
  if (raw.some((line) => line.includes(NUL))) return "holds NUL bytes, so it is a binary file; give a table as text.";
  if (raw.some((line) => isTooLong(line))) return `holds lines longer than ${grouped(MAX_LINE_BYTES)} bytes; give shorter ones.`;
  return `holds no line that can be read${TO_UTF8}`;
}

/** @param {Uint8Array} line */
function isTooLong(line) { return line.length === MAX_LINE_BYTES && line[line.length - 1] !== 10; }

/** Decode a line above the first UTF-8 line as Windows-1252; null if it cannot be. @param {Uint8Array} line */
function olderLine(line) {
  if (isTooLong(line)) return null;
  const text = olderText(line).replace(/[\r\n]+$/, "");
  return strip(text) && !/[\ufffd\0-\x08\x0b-\x1f\x7f]/.test(text) ? text : null;
}

/** @param {readonly NumberedLine[]} lines @param {RowFormat} format @returns {Head} */
function headOfJson(lines, format) {
  const rows = lines.flatMap(({ text }) => {
    try {
      return [parseObject(text)];
    } catch (error) {
      if (error instanceof BadLine) return []; // reported when its row is read
      throw error;
    }
  });
  const keys = [...new Set(rows.flatMap((row) => [...row.keys()]))];
  const cells = keys.map((key) => rows.map((row) => jsonCell(row.get(key))));
  return { names: columnNames(keys), cells, format, nBefore: 0, notes: [], keys };
}

/** @param {unknown} value @returns {Cell} */
function jsonCell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "string" || value instanceof WrittenNumber) return value;
  if (typeof value === "boolean") return String(value);
  return value instanceof Map ? "an object" : "a list";
}

/** @param {readonly NumberedLine[]} lines @param {readonly (string | null)[]} texts @param {RowFormat} format @param {string} source @returns {Head} */
function headOfCsv(lines, texts, format, source) {
  let given = format.delimiter;
  const stated = SEP.exec(lines[0].text.replace(/^ +| +$/g, ""));
  if (stated) {
    given ??= stated[1];
    lines = lines.slice(1);
  }
  const { delimiter, split: whole } = splitBy(lines, given);
  requireWholeLines(lines.map(({ text }) => text), delimiter, source);
  const width = mostCommon(counted(whole.map(({ fields }) => fields.length)));
  let split = whole;
  while (split.length > 1 && split[0].fields.length !== width) split = split.slice(1); // above the table
  const { number: first, fields } = split[0];
  const rows = split.filter((row) => row.fields.length === width).map((row) => row.fields);
  let columns = Array.from({ length: width }, (_, i) => rows.map((row) => row[i]));
  requireDelimiter(delimiter);
  const hasHeader = isHeader(columns, format), nBefore = hasHeader ? first + 1 : first;
  if (hasHeader) columns = columns.map((column) => column.slice(1));
  const names = hasHeader ? columnNames(fields.map(strip)) : columns.map((_, i) => `column ${i + 1}`);
  const notes = [];
  const above = lines.filter(({ number }) => number < first).length;
  if (above) notes.push(`${above} ${above === 1 ? "line" : "lines"} above the table skipped`);
  if (hasHeader && texts[first] === null) notes.push(`line ${grouped(first + 1)} is not UTF-8, and is read as cp1252`);
  if (!hasHeader) notes.push("the table has no header, so its columns have numbers as names");
  return { names, cells: columns, format: { ...format, delimiter }, nBefore, notes, keys: [] };
}

/** @param {string} delimiter @throws {TableError} unless it is one sign that is in no number or date */
export function requireDelimiter(delimiter) {
  if ([...delimiter].length === 1 && !/[\p{L}\p{N}"'\r\n\0.+\-_:/{]/u.test(delimiter)) return;
  throw new TableError(
    `the delimiter is ${quoted(delimiter)}; it must be one character that is in no number or date, such as ; or , `
    + "(type tab and space as words).",
  );
}

/** @typedef {{number: number, fields: string[]}} SplitLine */

/** @param {readonly NumberedLine[]} lines @param {string | null} given @returns {{delimiter: string, split: SplitLine[]}} */
function splitBy(lines, given) {
  const candidates = [];
  for (const delimiter of given ? [given] : DELIMITERS) {
    /** @type {SplitLine[]} */
    const split = [];
    for (const { number, text } of lines) {
      try {
        split.push({ number, fields: splitLine(text, delimiter) });
      } catch (error) {
        if (!(error instanceof BadLine)) throw error; // a bad line is reported when its row is read
      }
    }
    if (!split.length) continue;
    const counts = counted(split.map(({ fields }) => fields.length)), width = mostCommon(counts);
    const isSteady = width > 1 && /** @type {number} */ (counts.get(width)) >= STEADY_LINES * lines.length;
    if (given || (isSteady && !", ".includes(delimiter))) return { delimiter, split };
    candidates.push({ isSteady, delimiter, split });
  }
  if (!candidates.length) throw new TableError("no line of the input can be split into fields; name its --delimiter.");
  const steady = candidates.filter((candidate) => candidate.isSteady);
  // A comma may be a decimal sign between columns aligned by spaces.
  if (steady.length > 1) steady.sort((a, b) => nData(b.split) - nData(a.split));
  return steady[0] ?? candidates.find((candidate) => candidate.delimiter === ",") ?? candidates[0];
}

/** @param {readonly SplitLine[]} split */
function nData(split) {
  return split.slice(0, MOST_COMPARED).flatMap(({ fields }) => fields).filter((field) => looksLikeData(field, null)).length;
}

/** @param {readonly string[]} texts @param {string} delimiter @param {string} source @throws {TableError} */
function requireWholeLines(texts, delimiter, source) {
  const nOdd = texts.filter((text) => (text.split('"').length - 1) % 2).length;
  if (nOdd < 4) return;
  const rows = csvRows(texts.map((text) => `${text}\n`), delimiter, false);
  if (!rows.length) return;
  const width = mostCommon(counted(rows.map((row) => row.length)));
  const broken = rows.filter((row) => row.length === width && width > 1 && row.some((field) => field.includes("\n")));
  if (broken.length <= 1) return;
  throw new TableError(
    `${source} has rows with a line break between quotes, such as `
    + `${shown(/** @type {string} */ (broken[0].find((field) => field.includes("\n"))))}; a row must be one line: replace `
    + "the line breaks inside of cells by spaces.",
  );
}

/** Return whether the first cells of the columns are a header. @param {readonly string[][]} columns @param {RowFormat} format */
function isHeader(columns, format) {
  if (!columns.some((column) => looksLikeData(column[0], format.timeFormat))) return true;
  return columns.some(([first, ...others]) => {
    const word = strip(first);
    if (!word || isMissing(word, format) || looksLikeData(first, format.timeFormat)) return false;
    const wanted = others.filter((text) => !isMissing(strip(text), format));
    const nFound = wanted.filter((text) => looksLikeData(text, format.timeFormat)).length;
    return wanted.length > 0 && nFound >= 0.9 * wanted.length;
  });
}

/** @param {string} text @param {string | null} timeFormat */
function looksLikeData(text, timeFormat) { return isData(text, timeFormat) || dateForms(strip(text)).length > 0; }

/**
 * Return a name for each field of a header, or each key; no name comes twice.
 * @param {readonly string[]} header
 */
export function columnNames(header) {
  const written = header.map((name) => (name ? plain(name) : ""));
  if (written.length && written[0].length > 1 && written[0].startsWith("#")) written[0] = written[0].replace(/^[# ]+/, "");
  const taken = new Set(written);
  /** @type {Set<string>} */
  const names = new Set();
  for (const name of written) {
    let unique = name;
    for (let n = 2; names.has(unique) || (n > 2 && taken.has(unique)); n++) unique = `${name} (${n})`;
    names.add(unique);
  }
  return [...names];
}
