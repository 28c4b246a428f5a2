// Split the lines of CSV into fields, with the rules of Python's csv module.

import { BadLine } from "./text.js";

/**
 * Return the fields of a CSV line; several spaces are one delimiter where a space is the delimiter.
 * @param {string} text the line without its end
 * @param {string} delimiter
 * @returns {string[]}
 * @throws {BadLine} a quote is misplaced
 */
export function splitLine(text, delimiter) {
  if (delimiter === " ") {
    // Every second part is outside of quotes.
    const parts = text.split('"').map((part, i) => (i % 2 === 0 ? part.replace(/ +/g, " ") : part));
    text = parts.join('"').replace(/^ +| +$/g, "");
  }
  if (!text.includes('"') && !text.includes("\r")) return text === "" ? [] : text.split(delimiter);
  const [row] = csvRows([text], delimiter, true);
  if (!row) throw new BadLine("the line has a misplaced quote or line break");
  return row;
}

/**
 * Return the rows of some lines; a field between quotes may go over several of them.
 * @param {readonly string[]} lines
 * @param {string} delimiter
 * @param {boolean} isStrict whether a misplaced quote is an error
 * @returns {string[][]} an empty list if the lines have an error
 */
export function csvRows(lines, delimiter, isStrict) {
  /** @type {string[][]} */
  const rows = [];
  /** @type {string[]} */
  let row = [];
  let field = "", state = "row start";
  const endField = () => {
    row.push(field);
    field = "";
  };
  for (const line of lines) {
    for (const sign of line) {
      const isEnd = sign === "\n" || sign === "\r";
      if (state === "row end") {
        if (isEnd) continue;
        return [];
      }
      if (state === "row start" && isEnd) {
        state = "row end";
      } else if (state === "row start" || state === "field start") {
        if (isEnd) {
          endField();
          state = "row end";
        } else if (sign === '"') state = "quoted";
        else if (sign === delimiter) {
          endField();
          state = "field start";
        } else {
          field += sign;
          state = "field";
        }
      } else if (state === "quoted") {
        if (sign === '"') state = "quote in quotes";
        else field += sign;
      } else if (isEnd) {
        endField();
        state = "row end";
      } else if (sign === delimiter) {
        endField();
        state = "field start";
      } else if (state === "field") field += sign;
      else if (sign === '"') {
        field += sign;
        state = "quoted";
      } else if (isStrict) return [];
      else {
        field += sign;
        state = "field";
      }
    }
    if (state === "quoted") continue;
    if (state !== "row start" && state !== "row end") endField();
    if (state !== "row start" || line === "") rows.push(row);
    row = [];
    state = "row start";
  }
  if (state !== "quoted") return rows;
  if (isStrict) return [];
  endField();
  return [...rows, row];
}
