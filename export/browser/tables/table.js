// Read a table of sensors whose form is unknown, as runtime/rows/detect/columns.py does.
//
//     first lines ──> delimiter, header ──> what each column holds ──> the clock, the values ──> rows

import { decimalSign, joined, lookAt } from "./cells.js";
import { choose } from "./choice.js";
import { splitLine } from "./csv_lines.js";
import { parseDate, requireTimeFormat } from "./dates.js";
import { NUMBER, isMissing, parseNumber, ungrouped, withPoint } from "./fields.js";
import { readHead, requireDelimiter } from "./head.js";
import { fieldsOf, parseObject } from "./json_lines.js";
import { firstLines, linesBackward, linesForward, olderText } from "./lines.js";
import { BadField, BadLine, TableError, WrittenNumber, isPrintable, lengthOf, plain, shown, strip } from "./text.js";

/** @typedef {import("./text.js").Cell} Cell */
/** @typedef {import("./fields.js").RowFormat} RowFormat */
/** @typedef {import("./choice.js").Choice} Choice */

const MAX_NAME = 100, MOST_UNREAD = 20;

/**
 * Settings that a user gives; all others are found.
 * @typedef {object} TableOptions
 * @property {string} [name] the table's name, for messages
 * @property {string | null} [time] the name of the column of times
 * @property {readonly string[] | null} [values] the names of the columns of values
 * @property {string | null} [series] the column that names the sensor of each row; "" for none
 * @property {string | null} [delimiter]
 * @property {"." | "," | null} [decimal]
 * @property {string | null} [timeFormat]
 * @property {readonly string[]} [missing] words that stand in a cell without a value
 * @property {string | null} [encoding] such as "windows-1252"; by default UTF-8, or UTF-16 with its mark
 */

/**
 * A value of one sensor, or the reason why it cannot be used.
 * @typedef {object} Part
 * @property {string} sensor
 * @property {number} time
 * @property {number} value NaN for a cell without a value
 * @property {string} timeText as the table writes the time
 * @property {string} valueText with a point as its decimal sign
 * @property {string} [reason] why the value cannot be used
 */

/**
 * One line: the parts of its sensors, or the reason why no sensor can use it.
 * @typedef {object} TableRow
 * @property {number} line the line's number, from 1
 * @property {readonly Part[]} parts
 * @property {string} [reason]
 */

/** @typedef {{rows: TableRow[], readBytes: number}} RowPiece */

/**
 * Choose the columns of a table by its first lines.
 * @param {Blob | Uint8Array | string} source
 * @param {TableOptions} options
 * @returns {Promise<Table>}
 * @throws {TableError} there are no rows, or no column of numbers, or the table can be read in two ways
 */
export async function openTable(source, options = {}) {
  const { name = "the input", time = null, values = null, series = null, missing = [] } = options;
  const { delimiter = null, decimal = null, timeFormat = null } = options;
  if (delimiter !== null) requireDelimiter(delimiter);
  if (timeFormat !== null) requireTimeFormat(timeFormat);
  const { blob, encoding } = await asUtf8(source instanceof Blob ? source : new Blob([/** @type {BlobPart} */ (source)]), options.encoding ?? null);
  const head = readHead(await firstLines(blob), name, { delimiter, decimal: decimal ?? ".", timeFormat, missing });
  const late = head.keys.length ? addKeys(head, values ?? []) : [];
  let format = head.format, readsGroups = true;
  if (decimal === null) {
    const [sign, isSure] = decimalSign(head.cells, format.delimiter, name);
    format = { ...format, decimal: sign };
    readsGroups = isSure;
  }
  const columns = head.names.map((column, i) => lookAt(column, head.cells[i], format));
  const choice = choose(columns, name, { time, values, series });
  if (choice.clock === "dates" && format.timeFormat === null) format = { ...format, timeFormat: choice.timeFormat };
  const notes = [...(encoding ? [`the text is read as ${encoding}`] : []), ...head.notes, ...choice.notes];
  if (choice.isBackward) notes.push("the newest row comes first; the rows are read from the last to the first");
  notes.push(...late.map((key) => `none of the first lines has the key ${plain(key)}`));
  if (format.decimal === "," && decimal === null) notes.push("numbers have a decimal comma");
  const names = choice.columns, places = names.map((column) => head.names.indexOf(column));
  const reader = new RowReader(choice, format, places, head.names.length, head.nBefore, readsGroups, head.keys);
  return new Table(blob, reader, columns.map(({ name: column, kind }) => ({ name: column, kind })), notes);
}

/** Return a file as UTF-8; one in another encoding is converted piece by piece. @param {Blob} blob @param {string | null} asked */
async function asUtf8(blob, asked) {
  const start = new Uint8Array(await blob.slice(0, 4).arrayBuffer());
  let encoding = asked;
  const isUtf32 = start[0] === 0xff && start[1] === 0xfe && start[2] === 0 && start[3] === 0;
  if (encoding === null && !isUtf32) {
    if (start[0] === 0xff && start[1] === 0xfe) encoding = "utf-16le";
    if (start[0] === 0xfe && start[1] === 0xff) encoding = "utf-16be";
  }
  if (encoding === null || encoding === "utf-8") return { blob, encoding: "" };
  const texts = blob.stream().pipeThrough(encoding === "windows-1252" ? olderStream() : new TextDecoderStream(encoding));
  return { blob: await new Response(texts.pipeThrough(new TextEncoderStream())).blob(), encoding: encoding.toUpperCase() };
}

/** Decode Windows-1252. @returns {TransformStream<Uint8Array, string>} */
function olderStream() {
  return new TransformStream({ transform: (bytes, controller) => controller.enqueue(olderText(bytes)) });
}

/** Add the keys among `names` that no line of JSON has so far; return them. @param {import("./head.js").Head} head @param {readonly string[]} names */
function addKeys(head, names) {
  const late = names.filter((name) => !head.names.includes(name)), n = head.cells[0].length;
  for (const name of late) {
    head.names.push(name);
    head.keys.push(name);
    head.cells.push(Array(n).fill(""));
  }
  return late;
}

/** Holds a table whose columns were chosen by its first lines, ready to be read. */
export class Table {
  /**
   * @param {Blob} blob
   * @param {RowReader} reader
   * @param {readonly {name: string, kind: string}[]} columns all columns, and what they hold
   * @param {readonly string[]} notes what was assumed and left out
   */
  constructor(blob, reader, columns, notes) {
    this.blob = blob;
    this.reader = reader;
    this.columns = columns;
    this.notes = notes;
    /** Which columns are the clock and the sensors. */
    this.choice = reader.choice;
    this.format = reader.format;
    /** For JSON lines, how many lines have a key that the first lines do not have. */
    this.unread = reader.unread;
  }

  /** Give all rows in pieces, the oldest row first. @returns {AsyncGenerator<RowPiece>} */
  async *pieces() {
    const { nBefore } = this.reader, isBackward = this.choice.isBackward;
    const pieces = isBackward ? linesBackward(this.blob, nBefore) : linesForward(this.blob, nBefore);
    let nLines = nBefore;
    for await (const { lines, readBytes } of pieces) {
      /** @type {TableRow[]} */
      const rows = [];
      for (const line of lines) {
        nLines++;
        const row = this.reader.row(line, isBackward ? nLines : line.number);
        if (row) rows.push(row);
      }
      yield { rows, readBytes };
    }
  }

  /** Give all rows one by one, the oldest row first. @returns {AsyncGenerator<TableRow>} */
  async *rows() { for await (const piece of this.pieces()) yield* piece.rows; }
}

/** Reads the chosen clock and sensors from the text of a line. */
class RowReader {
  /**
   * @param {Choice} choice
   * @param {RowFormat} format
   * @param {readonly number[]} places where the chosen columns are in a line
   * @param {number} nFields
   * @param {number} nBefore the number of lines before the first row
   * @param {boolean} readsGroups whether numbers may have signs between their thousands
   * @param {readonly string[]} keys for JSON lines, the keys of the columns
   */
  constructor(choice, format, places, nFields, nBefore, readsGroups, keys) {
    this.choice = choice;
    this.format = format;
    this.places = places;
    this.nFields = nFields;
    this.nBefore = nBefore;
    this.readsGroups = readsGroups;
    this.keys = places.map((place) => keys[place]);
    this.known = new Set(keys);
    /** @type {Map<string, number>} */
    this.unread = new Map();
    this.between = betweenNames(choice.values);
  }

  /**
   * Read a line; null for a blank one.
   * @param {import("./lines.js").Line} line
   * @param {number} place the line's number in the order of reading, which times rows without a clock
   * @returns {TableRow | null}
   */
  row({ number, text, reason }, place) {
    if (reason !== undefined) return { line: number, parts: [], reason };
    if (text === undefined) return null;
    try {
      return { line: number, parts: this.parts(this.cells(text), place) };
    } catch (error) {
      if (error instanceof BadLine) return { line: number, parts: [], reason: error.message };
      throw error;
    }
  }

  /** Return the cells of the chosen columns. @param {string} text @returns {Cell[]} */
  cells(text) {
    if (this.format.delimiter === null) {
      const row = parseObject(text);
      for (const key of row.keys()) {
        const n = this.unread.get(key) ?? 0;
        if (!this.known.has(key) && (n || this.unread.size < MOST_UNREAD)) this.unread.set(key, n + 1);
      }
      return fieldsOf(row, this.keys);
    }
    const fields = splitLine(text, this.format.delimiter);
    if (fields.length === this.nFields) return this.places.map((place) => fields[place]);
    throw new BadLine(`the line has ${fields.length} columns where ${this.nFields} are expected`);
  }

  /** @param {readonly Cell[]} cells @param {number} place @returns {Part[]} */
  parts(cells, place) {
    const { time: names, values, series } = this.choice, n = names.length;
    const [time, timeText] = this.time(cells.slice(0, n), place);
    const head = series ? this.sensor(strip(String(cells[cells.length - 1]))) : "";
    return values.map((name, i) => {
      const sensor = head ? (values.length > 1 ? `${head}${this.between}${name}` : head) : name;
      return this.value(sensor, name, cells[n + i], time, timeText);
    });
  }

  /** @param {readonly Cell[]} cells @param {number} place @returns {[number, string]} */
  time(cells, place) {
    if (!cells.length) return [place - this.nBefore, String(place - this.nBefore)];
    const text = cells.length === 2 ? joined(String(cells[0]), String(cells[1])) : strip(String(cells[0]));
    try {
      if (!text) throw new BadField("is empty");
      if (isMissing(text, this.format)) throw new BadField(`holds no time but ${shown(text)}`);
      if (this.choice.clock === "dates") return [parseDate(text, this.format.timeFormat), text];
      const sign = cells[0] instanceof WrittenNumber ? "." : this.format.decimal;
      return [parseNumber(text, sign) * this.choice.unitS, withPoint(text, sign)];
    } catch (error) {
      if (error instanceof BadField) throw new BadLine(`column ${plain(this.choice.time[0])} ${error.message}`);
      throw error;
    }
  }

  /** @param {string} name */
  sensor(name) {
    const n = lengthOf(name);
    if (n >= 1 && n <= MAX_NAME && isPrintable(name)) return name;
    throw new BadLine(`column ${plain(this.choice.series)} is ${shown(name)}, which names no sensor`);
  }

  /** @param {string} sensor @param {string} name @param {Cell} cell @param {number} time @param {string} timeText @returns {Part} */
  value(sensor, name, cell, time, timeText) {
    const sign = cell instanceof WrittenNumber ? "." : this.format.decimal;
    let written = strip(String(cell));
    const whole = ungrouped(written, sign);
    if (this.readsGroups) written = whole;
    if (isMissing(written, this.format)) return { sensor, time, value: NaN, timeText, valueText: "" };
    const point = withPoint(written, sign);
    try {
      const value = parseNumber(written, sign);
      return { sensor, time, value, timeText, valueText: point };
    } catch (error) {
      if (!(error instanceof BadField)) throw error;
      let reason = error.message;
      if (whole !== written) {
        const other = sign === "." ? "," : ".";
        reason = `is ${shown(written)}, which --decimal ${sign} reads as ${whole} and --decimal ${other} as ${written.replaceAll(",", ".")}`;
      }
      return { sensor, time, value: NaN, timeText, valueText: "", reason: `column ${plain(name)} ${reason}` };
    }
  }
}

/** Return what stands between a sensor's name and a column's, so that no two names are alike. @param {readonly string[]} values */
function betweenNames(values) {
  const known = new Set(values);
  const isClear = (/** @type {string} */ sign) => !values.some((name) => {
    const parts = name.split(sign);
    return parts.some((_, i) => i > 0 && known.has(parts.slice(i).join(sign)));
  });
  return [" ", ": ", " / ", " | "].find(isClear) ?? " || ";
}

export { TableError };
