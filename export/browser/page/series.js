// Keeps the rows of a sensor in typed arrays, with the ranges of blocks of 16, 256, .. rows, so that
// a million rows are drawn as fast as a thousand.

const FACTOR = 16;
const N_QUANTILES = 7, MEDIAN = 3;
const RANGE = new Float64Array(5);

/** A growing array of numbers. */
class Numbers {
  constructor(type) {
    this.all = new type(16);
    this.n = 0;
  }

  /** @param {number} n */
  reserve(n) {
    if (this.n + n <= this.all.length) return;
    const more = new this.all.constructor(Math.max(2 * this.all.length, this.n + n));
    more.set(this.all.subarray(0, this.n));
    this.all = more;
  }

  append(numbers) {
    this.reserve(numbers.length);
    this.all.set(numbers, this.n);
    this.n += numbers.length;
  }
}

/** Ranges of blocks of equally many rows. */
class Blocks {
  /** @param {number} size rows of a block */
  constructor(size) {
    this.size = size;
    this.n = 0;
    this.low = new Numbers(Float64Array);
    this.high = new Numbers(Float64Array);
    this.under = new Numbers(Float32Array); // the lowest quantile at 5 %
    this.over = new Numbers(Float32Array); // the highest one at 95 %
    this.middle = new Numbers(Float32Array); // the mean of the medians
  }
}

export class Series {
  /** @param {number} id @param {string} name */
  constructor(id, name) {
    this.id = id;
    this.name = name;
    this.n = 0;
    this.times = new Numbers(Float64Array);
    this.values = new Numbers(Float64Array);
    this.bands = new Numbers(Float32Array);
    this.states = new Numbers(Uint8Array);
    this.gaps = new Numbers(Uint32Array);
    /** @type {Blocks[]} */
    this.levels = [FACTOR, FACTOR ** 2, FACTOR ** 3, FACTOR ** 4].map((size) => new Blocks(size));
    /** Whether times never go backward, so that they can be the axis; rows are it otherwise. */
    this.isOrdered = true;
    /** The forecasts after the last row. @type {{pace: number, quantiles: Float64Array[], slots: number[], texts: string[]} | null} */
    this.ahead = null;
  }

  /** Append rows as the worker sends them. */
  append({ time, value, quantiles, state, missing }) {
    let last = this.n ? this.times.all[this.n - 1] : -Infinity;
    for (const next of time) {
      if (next < last) this.isOrdered = false;
      last = next;
    }
    this.times.append(time);
    this.values.append(value);
    this.bands.append(quantiles);
    this.states.append(state);
    this.gaps.append(missing);
    this.n += time.length;
    for (const blocks of this.levels) this.summarize(blocks);
  }

  /** Add the blocks that are full now. @param {Blocks} blocks */
  summarize(blocks) {
    const found = RANGE;
    while ((blocks.n + 1) * blocks.size <= this.n) {
      this.range(blocks.n * blocks.size, (blocks.n + 1) * blocks.size, found);
      [blocks.low, blocks.high, blocks.under, blocks.over, blocks.middle].forEach((numbers, i) => numbers.append([found[i]]));
      blocks.n++;
    }
  }

  /**
   * Find the range of rows [begin, end): lowest value, highest value, lowest band, highest band, mean median. They are
   * infinite, and NaN, where there is none.
   * @param {number} begin @param {number} end @param {Float64Array} found (5,) which is set
   */
  range(begin, end, found) {
    let low = Infinity, high = -Infinity, under = Infinity, over = -Infinity, middle = 0, nMiddle = 0;
    const values = this.values.all, bands = this.bands.all, { levels } = this;
    for (let at = begin; at < end;) {
      let level = levels.length - 1;
      for (; level >= 0; level--) {
        const { size, n } = levels[level];
        if (at % size === 0 && at + size <= end && at / size < n) break;
      }
      let a, b, c, d, e, size = 1;
      if (level < 0) {
        const q = N_QUANTILES * at;
        a = b = values[at];
        c = bands[q];
        d = bands[q + N_QUANTILES - 1];
        e = bands[q + MEDIAN];
      } else {
        const blocks = levels[level], block = at / blocks.size;
        size = blocks.size;
        a = blocks.low.all[block];
        b = blocks.high.all[block];
        c = blocks.under.all[block];
        d = blocks.over.all[block];
        e = blocks.middle.all[block];
      }
      if (a < low) low = a;
      if (b > high) high = b;
      if (c < under) under = c;
      if (d > over) over = d;
      if (e === e) {
        middle += size * e;
        nMiddle += size;
      }
      at += size;
    }
    found[0] = low;
    found[1] = high;
    found[2] = under;
    found[3] = over;
    found[4] = middle / nMiddle;
    return found;
  }

  /** The place of a row on the axis. @param {number} at */
  x(at) { return this.isOrdered ? this.times.all[at] : at; }

  /** The number of the first row at or after a place on the axis. @param {number} x */
  rowAt(x) {
    let low = 0, high = this.n;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.x(middle) < x) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** The quantiles of a row. @param {number} at */
  quantiles(at) { return this.bands.all.subarray(N_QUANTILES * at, N_QUANTILES * (at + 1)); }

  /** The number of a row's event; 0 for none. @param {number} at */
  event(at) { return this.states.all[at] & 127; }

  /** @param {number} at */
  isAlarm(at) { return this.states.all[at] >= 128; }

  /** The distance on the axis of the slots to come. */
  get step() { return this.isOrdered ? this.ahead?.pace ?? NaN : 1; }
}
