// Texts as Python treats them: spaces at the ends, characters that print, quotes in messages, and
// numbers as `%g` writes them. So tables are read, and results are written, as `edgefold forecast`
// does.

/** A table cannot be read; the message says why and what to do. */
export class TableError extends Error {
  /** @param {string} message */
  constructor(message) {
    super(message);
    this.name = "TableError";
  }
}

/** One line cannot be used; the message says why. */
export class BadLine extends Error {}

/** A field is no number or no date; the message goes on after the column's name. */
export class BadField extends Error {}

/** Holds the text of a JSON number, whose decimal sign is a point whatever the table's is. */
export class WrittenNumber {
  /** @param {string} text */
  constructor(text) { this.text = text; }
  toString() { return this.text; }
}

/** @typedef {string | WrittenNumber} Cell */

const SPACE = "[\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]";
const ENDS = new RegExp(`^${SPACE}+|${SPACE}+$`, "g");
const START = new RegExp(`^${SPACE}+`);
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}\p{Zs}]/u;
const PRINTABLE_ASCII = /^[\x20-\x7e]*$/;

/** Return a text without spaces at its ends. @param {string} text */
export function strip(text) {
  const n = text.length;
  if (n === 0) return text;
  const first = text.charCodeAt(0), last = text.charCodeAt(n - 1);
  if (first > 32 && first < 127 && last > 32 && last < 127) return text;
  return text.replace(ENDS, "");
}

/** Return a text without spaces at its start. @param {string} text */
export function stripStart(text) { return text.replace(START, ""); }

/** Return whether all characters of a text can be printed. @param {string} text */
export function isPrintable(text) {
  return PRINTABLE_ASCII.test(text) || ![...text].some((sign) => sign !== " " && UNPRINTABLE.test(sign));
}

/** Return the number of characters of a text. @param {string} text */
export function lengthOf(text) { return [...text].length; }

/** Return a text between quotes, with characters that do not print escaped. @param {string} text */
function repr(text) {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  let out = "";
  for (const sign of text) {
    const code = /** @type {number} */ (sign.codePointAt(0));
    if (sign === quote || sign === "\\") out += `\\${sign}`;
    else if (sign === "\n") out += "\\n";
    else if (sign === "\r") out += "\\r";
    else if (sign === "\t") out += "\\t";
    else if (isPrintable(sign)) out += sign;
    else if (code < 0x100) out += `\\x${code.toString(16).padStart(2, "0")}`;
    else if (code < 0x10000) out += `\\u${code.toString(16).padStart(4, "0")}`;
    else out += `\\U${code.toString(16).padStart(8, "0")}`;
  }
  return quote + out + quote;
}

/** Return a field for a message: quoted, at most 40 characters. @param {Cell} cell */
export function shown(cell) {
  const text = String(cell), signs = [...text];
  return repr(signs.length <= 40 ? text : signs.slice(0, 37).join("") + "...");
}

/** Return a text as a message quotes it, whatever its length. @param {string} text */
export function quoted(text) { return repr(text); }

/** Return a column's name for a message, without control characters. @param {string} text */
export function plain(text) {
  if (!text) return "''";
  return isPrintable(text) ? text : repr(text).slice(1, -1);
}

/** Return the names of columns for a message. @param {readonly string[]} names */
export function listed(names) { return [...names.map(plain).join(", ")].slice(0, 200).join(""); }

/** Return a whole number with commas between its thousands. @param {number} n */
export function grouped(n) { return String(n).replace(/\B(?=(\d{3})+$)/g, ","); }

/** Return texts as one line of CSV, without its end. @param {readonly string[]} texts */
export function csvLine(texts) {
  return texts.map((text) => (/[,"\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text)).join(",");
}

/**
 * Return a number with some significant digits, as `%g` of C and Python writes it.
 * @param {number} number
 * @param {number} digits
 */
export function general(number, digits) {
  if (!Number.isFinite(number)) return Number.isNaN(number) ? "nan" : number > 0 ? "inf" : "-inf";
  if (number === 0) return Object.is(number, -0) ? "-0" : "0";
  // A number with few binary digits may be half-way between two decimals, and another is not.
  if (Math.abs(number) >= 1e-4 && (number * 2 ** (digits + 5)) % 1 !== 0) {
    const rounded = Number(number.toPrecision(digits));
    if (Math.abs(rounded) < 10 ** digits) return String(rounded);
  }
  const [mantissa, power] = halfEven(number, digits).split("e");
  const exponent = Number(power), isNegative = mantissa.startsWith("-");
  const figures = mantissa.replace(/[-.]/g, "").replace(/0+$/, "");
  let text;
  if (exponent < -4 || exponent >= digits) {
    const size = String(Math.abs(exponent)).padStart(2, "0");
    text = `${figures[0]}${figures.length > 1 ? "." : ""}${figures.slice(1)}e${exponent < 0 ? "-" : "+"}${size}`;
  } else if (exponent < 0) {
    text = `0.${"0".repeat(-exponent - 1)}${figures}`;
  } else {
    const whole = figures.padEnd(exponent + 1, "0");
    text = whole.slice(0, exponent + 1) + (whole.length > exponent + 1 ? `.${whole.slice(exponent + 1)}` : "");
  }
  return isNegative ? `-${text}` : text;
}

/** Return a number in powers of ten; a half is rounded to the even digit, which JavaScript does not do. @param {number} number @param {number} digits */
function halfEven(number, digits) {
  const text = number.toExponential(digits - 1);
  if (!/5e/.test(number.toExponential(digits))) return text;
  const exact = number.toExponential(100), end = exact.indexOf("e");
  const rest = exact.slice((exact[0] === "-" ? 2 : 1) + digits, end);
  if (!/^5?0*$/.test(rest) || rest[0] !== "5") return text;
  const cut = exact.slice(0, end - rest.length).replace(/\.$/, "");
  return Number(cut.at(-1)) % 2 === 0 ? cut + exact.slice(end) : text;
}
