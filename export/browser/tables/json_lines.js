// Read JSON lines as runtime/rows/json_lines.py does: numbers stay texts, no key comes twice.

import { BadLine, WrittenNumber, plain, shown, stripStart } from "./text.js";

const DEEPEST = 900;
const JSON_NUMBER = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?/y;
/** @type {Readonly<Record<string, string>>} */
const ESCAPES = { '"': '"', "\\": "\\", "/": "/", b: "\b", f: "\f", n: "\n", r: "\r", t: "\t" };

/** @typedef {Map<string, unknown>} JsonRow */

/** Return whether the first line of an input shows that it holds JSON lines. @param {string} line */
export function isJson(line) { return stripStart(line).startsWith("{"); }

/**
 * Read a line as a JSON object, as pairs of keys and values.
 * @param {string} line
 * @returns {JsonRow}
 * @throws {BadLine}
 */
export function parseObject(line) {
  const reader = new JsonReader(line), row = reader.whole();
  if (!(row instanceof Map)) throw new BadLine('the line is not a JSON object like {"time": 1, "value": 2}');
  return row;
}

/**
 * Return the texts that an object holds under some keys; null, or a missing key, is an empty text.
 * @param {JsonRow} row
 * @param {readonly string[]} names
 * @returns {import("./text.js").Cell[]}
 */
export function fieldsOf(row, names) {
  return names.map((name) => {
    const value = row.get(name);
    if (value === undefined || value === null) return "";
    if (typeof value === "string" || value instanceof WrittenNumber) return value;
    const kind = value instanceof Map ? "an object" : Array.isArray(value) ? "a list" : String(value);
    throw new BadLine(`column ${plain(name)} holds ${kind}, not a number or a text`);
  });
}

class JsonReader {
  /** @param {string} text */
  constructor(text) {
    this.text = text;
    this.at = 0;
    this.depth = 0;
  }

  whole() {
    this.skipSpaces();
    const value = this.value();
    this.skipSpaces();
    if (this.at !== this.text.length) this.fail("Extra data");
    return value;
  }

  /** @param {string} why @returns {never} */
  fail(why) { throw new BadLine(`the line is not JSON (${why})`); }

  skipSpaces() {
    while (" \t\n\r".includes(this.text[this.at] ?? "x")) this.at++;
  }

  /** @returns {unknown} */
  value() {
    if (this.depth > DEEPEST) throw new BadLine("the line is JSON that is nested too deeply");
    const { text, at } = this, sign = text[at];
    if (sign === '"') return this.string();
    if (sign === "{" || sign === "[") {
      this.depth++;
      const found = sign === "{" ? this.object() : this.list();
      this.depth--;
      return found;
    }
    for (const [word, value] of /** @type {const} */ ([["null", null], ["true", true], ["false", false]])) {
      if (!text.startsWith(word, at)) continue;
      this.at += word.length;
      return value;
    }
    for (const word of ["NaN", "Infinity", "-Infinity"]) {
      if (text.startsWith(word, at)) throw new BadLine(`the line holds ${word}, which is not JSON; write null for a missing one`);
    }
    JSON_NUMBER.lastIndex = at;
    const number = JSON_NUMBER.exec(text);
    if (!number) this.fail("Expecting value");
    this.at += number[0].length;
    return new WrittenNumber(number[0]);
  }

  object() {
    /** @type {JsonRow} */
    const row = new Map();
    let twice = "", isTwice = false;
    this.at++;
    this.skipSpaces();
    if (this.text[this.at] === "}") {
      this.at++;
      return row;
    }
    for (;;) {
      if (this.text[this.at] !== '"') this.fail("Expecting property name enclosed in double quotes");
      const key = this.string();
      this.skipSpaces();
      if (this.text[this.at] !== ":") this.fail("Expecting ':' delimiter");
      this.at++;
      this.skipSpaces();
      const value = this.value();
      if (row.has(key) && !isTwice) [twice, isTwice] = [key, true];
      row.set(key, value);
      this.skipSpaces();
      const sign = this.text[this.at++];
      if (sign === "}") break;
      if (sign !== ",") this.fail("Expecting ',' delimiter");
      this.skipSpaces();
    }
    if (isTwice) throw new BadLine(`the line has the key ${shown(twice)} twice`);
    return row;
  }

  list() {
    /** @type {unknown[]} */
    const list = [];
    this.at++;
    this.skipSpaces();
    if (this.text[this.at] === "]") {
      this.at++;
      return list;
    }
    for (;;) {
      list.push(this.value());
      this.skipSpaces();
      const sign = this.text[this.at++];
      if (sign === "]") return list;
      if (sign !== ",") this.fail("Expecting ',' delimiter");
      this.skipSpaces();
    }
  }

  string() {
    const { text } = this;
    let out = "", at = this.at + 1, begin = at;
    for (;;) {
      const code = text.charCodeAt(at);
      if (Number.isNaN(code)) this.fail("Unterminated string starting at");
      if (code === 0x22) break;
      if (code < 0x20) this.fail("Invalid control character at");
      if (code !== 0x5c) {
        at++;
        continue;
      }
      out += text.slice(begin, at);
      const sign = text[at + 1];
      if (sign === undefined) this.fail("Unterminated string starting at");
      if (sign === "u") {
        const digits = text.slice(at + 2, at + 6);
        if (!/^[0-9a-fA-F]{4}$/.test(digits)) this.fail("Invalid \\uXXXX escape");
        out += String.fromCharCode(parseInt(digits, 16));
        at += 6;
      } else {
        if (!(sign in ESCAPES)) this.fail("Invalid \\escape");
        out += ESCAPES[sign];
        at += 2;
      }
      begin = at;
    }
    this.at = at + 1;
    return out + text.slice(begin, at);
  }
}
