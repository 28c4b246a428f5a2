// Read the lines of a file in pieces, forward or backward, without holding the whole text.

import { strip } from "./text.js";

/** A line of this many bytes or more, without its end, is not read. */
export const MAX_LINE_BYTES = 65536;
/** First lines, and their bytes together, from which the form of a table is found. */
const N_LINES = 400, N_BYTES = 1 << 21;
const PIECE_BYTES = 1 << 20;
const NEWLINE = 10;
const TOO_LONG = `the line is longer than ${MAX_LINE_BYTES} bytes`;

const DECODER = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
/** The characters 0x80 to 0x9f of Windows-1252, with U+FFFD for none; some versions of node lack them. */
const OLDER = "€\ufffd‚ƒ„…†‡ˆ‰Š‹Œ\ufffdŽ\ufffd\ufffd‘’“”•–—˜™š›œ\ufffdžŸ";

/**
 * Holds a line's text, or the reason why it cannot be read; neither for a blank line.
 * @typedef {object} Line
 * @property {number} number counts from 1
 * @property {string} [text]
 * @property {string} [reason]
 */

/** @typedef {{lines: Line[], readBytes: number}} Piece */

/** Return bytes as text of Windows-1252; U+FFFD stands for bytes that it does not have. @param {Uint8Array} bytes */
export function olderText(bytes) {
  let text = "";
  for (const byte of bytes) text += byte >= 0x80 && byte <= 0x9f ? OLDER[byte - 0x80] : String.fromCharCode(byte);
  return text;
}

/** Return a line without the mark of UTF-8 at its start. @param {Uint8Array} line */
export function withoutMark(line) {
  return line[0] === 0xef && line[1] === 0xbb && line[2] === 0xbf ? line.subarray(3) : line;
}

/** Return a line as text without its end; null if it is blank, too long or not UTF-8. @param {Uint8Array} bytes */
export function utf8Text(bytes) { return lineOf(1, bytes).text ?? null; }

/** Return the first lines of a file with their ends; lines that are too long are cut. @param {Blob} blob */
export async function firstLines(blob) {
  /** @type {Uint8Array[]} */
  const lines = [];
  let nBytes = 0;
  for await (const { bytes } of wholeLines(blob)) {
    for (const line of split(bytes)) {
      const isLong = line.length - Number(line[line.length - 1] === NEWLINE) >= MAX_LINE_BYTES;
      lines.push(isLong ? line.subarray(0, MAX_LINE_BYTES) : line);
      nBytes += lines[lines.length - 1].length;
      if (lines.length >= N_LINES || nBytes >= N_BYTES) return lines;
    }
  }
  return lines;
}

/**
 * Give the lines of a file after the first `nBefore` ones.
 * @param {Blob} blob
 * @param {number} nBefore
 * @returns {AsyncGenerator<Piece>}
 */
export async function* linesForward(blob, nBefore) {
  let number = 1;
  for await (const { bytes, readBytes } of wholeLines(blob)) {
    const found = linesOf(number === 1 ? withoutMark(bytes) : bytes, number);
    number += found.length;
    yield { lines: found.filter((line) => line.number > nBefore), readBytes };
  }
}

/**
 * Give the lines of a file after the first `nBefore` ones from the last one to the first.
 * @param {Blob} blob
 * @param {number} nBefore
 * @returns {AsyncGenerator<Piece>}
 */
export async function* linesBackward(blob, nBefore) {
  const { starts, n } = await lineStarts(blob);
  for (let end = n; end > nBefore;) {
    const endByte = end < n ? starts[end] : blob.size;
    let begin = end - 1;
    while (begin > nBefore && endByte - starts[begin - 1] <= PIECE_BYTES) begin--;
    /** @type {Line[]} */
    let lines = [{ number: end, reason: TOO_LONG }];
    if (endByte - starts[begin] <= PIECE_BYTES) {
      const bytes = await bytesOf(blob, starts[begin], endByte);
      lines = linesOf(begin === 0 ? withoutMark(bytes) : bytes, begin + 1).reverse();
    }
    yield { lines, readBytes: blob.size - starts[begin] };
    end = begin;
  }
}

/** Return the first byte of each line, 8 bytes of memory a line. @param {Blob} blob */
async function lineStarts(blob) {
  let starts = new Float64Array(1024), n = 0, isStart = true;
  for (let offset = 0; offset < blob.size; offset += PIECE_BYTES) {
    const bytes = await bytesOf(blob, offset, offset + PIECE_BYTES);
    for (let at = 0; at < bytes.length;) {
      if (isStart) {
        if (n === starts.length) {
          const more = new Float64Array(2 * n);
          more.set(starts);
          starts = more;
        }
        starts[n++] = offset + at;
      }
      const end = bytes.indexOf(NEWLINE, at);
      isStart = end >= 0;
      at = isStart ? end + 1 : bytes.length;
    }
  }
  return { starts, n };
}

/** @param {Blob} blob @param {number} begin @param {number} end */
async function bytesOf(blob, begin, end) { return new Uint8Array(await blob.slice(begin, end).arrayBuffer()); }

/**
 * Give a file as pieces of whole lines; a line that goes over several pieces is cut if it is too long.
 * @param {Blob} blob
 */
async function* wholeLines(blob) {
  let rest = new Uint8Array(0), isSkipping = false;
  for (let offset = 0; offset < blob.size; offset += PIECE_BYTES) {
    const bytes = await bytesOf(blob, offset, offset + PIECE_BYTES);
    const first = isSkipping ? bytes.indexOf(NEWLINE) : 0, last = bytes.lastIndexOf(NEWLINE);
    if (first < 0) continue;
    isSkipping = false;
    if (last >= first) {
      yield { bytes: joinedBytes(rest, bytes.subarray(first, last + 1)), readBytes: offset + bytes.length };
      rest = bytes.slice(last + 1);
    } else {
      rest = joinedBytes(rest, bytes.subarray(first));
    }
    if (rest.length >= MAX_LINE_BYTES) {
      rest = rest.slice(0, MAX_LINE_BYTES);
      isSkipping = true;
    }
  }
  if (rest.length) yield { bytes: rest, readBytes: blob.size };
}

/** @param {Uint8Array} a @param {Uint8Array} b */
function joinedBytes(a, b) {
  const whole = new Uint8Array(a.length + b.length);
  whole.set(a);
  whole.set(b, a.length);
  return whole;
}

/** Split bytes behind each newline. @param {Uint8Array} bytes */
function* split(bytes) {
  for (let at = 0; at < bytes.length;) {
    const end = bytes.indexOf(NEWLINE, at), next = end < 0 ? bytes.length : end + 1;
    yield bytes.subarray(at, next);
    at = next;
  }
}

/** Read all lines of some bytes. @param {Uint8Array} bytes @param {number} first the first line's number @returns {Line[]} */
function linesOf(bytes, first) {
  let text;
  try {
    text = DECODER.decode(bytes);
  } catch {
    return [...split(bytes)].map((line, i) => lineOf(first + i, line));
  }
  const texts = text.split("\n");
  if (bytes[bytes.length - 1] === NEWLINE) texts.pop();
  return texts.map((line, i) => {
    const mayBeLong = 3 * line.length >= MAX_LINE_BYTES;
    if (mayBeLong && new TextEncoder().encode(line).length >= MAX_LINE_BYTES) return { number: first + i, reason: TOO_LONG };
    return textLine(first + i, line);
  });
}

/** @param {number} number @param {Uint8Array} bytes with the line's end, if it has one @returns {Line} */
function lineOf(number, bytes) {
  if (bytes.length - Number(bytes[bytes.length - 1] === NEWLINE) >= MAX_LINE_BYTES) return { number, reason: TOO_LONG };
  try {
    return textLine(number, DECODER.decode(bytes));
  } catch {
    return { number, reason: "the line is not UTF-8 text; is it binary or encoded?" };
  }
}

/** @param {number} number @param {string} text @returns {Line} */
function textLine(number, text) {
  if (text.includes("\0")) return { number, reason: "the line holds NUL bytes; is it binary or UTF-16?" };
  const end = text.charCodeAt(text.length - 1), whole = end === 10 || end === 13 ? text.replace(/[\r\n]+$/, "") : text;
  return strip(whole) ? { number, text: whole } : { number };
}
