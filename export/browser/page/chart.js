// Draws a sensor's rows with their bands, alarms, gaps and what comes, on a canvas; zooms and pans by
// wheel, drag, two fingers and keys.

import { dateText, duration, number, tickText } from "./words.js";

const TIME_STEPS = [1e-3, 1e-2, 0.1, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200,
  86400, 2 * 86400, 3 * 86400, 5 * 86400, 7 * 86400, 14 * 86400, 30.44 * 86400, 91.3 * 86400, 182.6 * 86400, 365.25 * 86400, 1826.25 * 86400,
  3652.5 * 86400, 18262.5 * 86400];
const FONT = '12px "Helvetica Neue", Arial, "Liberation Sans", sans-serif';
/** Pixels for a row below which rows are drawn as ranges. */
const LEAST_PIXELS = 0.7;
/** Rows for a pixel from which no line of medians is drawn. */
const MOST_IN_PIXEL = 6;
const LEAST_SPAN = 8;
/** Rows that are shown at first, and seasons where those are more. */
const FIRST_ROWS = 300, FIRST_SEASONS = 2;

export function niceStep(span, most) {
  const raw = span / most, power = 10 ** Math.floor(Math.log10(raw || 1));
  return [1, 2, 5, 10].map((n) => n * power).find((step) => step >= raw) ?? power * 10;
}

/** Read the colours of the page, which depend on its light. */
export function colours() {
  const style = getComputedStyle(document.documentElement);
  return new Proxy({}, { get: (_, name) => style.getPropertyValue(`--${String(name)}`).trim() });
}

/** Set a canvas to its size on the screen and clear it. */
function context(canvas) {
  const width = canvas.clientWidth || 600, height = canvas.clientHeight || 300, scale = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * scale)) canvas.width = Math.round(width * scale);
  if (canvas.height !== Math.round(height * scale)) canvas.height = Math.round(height * scale);
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = FONT;
  pen.lineJoin = "round";
  return { pen, width, height };
}

export class Chart {
  /**
   * @param {HTMLCanvasElement} canvas
   * @param {HTMLCanvasElement} overview
   * @param {{onPoint: (at: number | null) => void, onView: () => void}} listener
   */
  constructor(canvas, overview, listener) {
    this.canvas = canvas;
    this.overview = overview;
    this.listener = listener;
    this.series = null;
    this.view = [0, 1];
    this.at = null; // the row under the cursor
    this.isFollowing = true;
    this.isDated = true;
    this.events = [];
    this.pointers = new Map();
    this.found = new Float64Array(5);
    this.whole = { series: null, n: 0, width: 0, columns: [] }; // of the overview
    this.isAsked = false;
    this.listen();
  }

  /** Show a series; `isDated` says whether its times are dates. */
  show(series, isDated, events) {
    Object.assign(this, { series, isDated, events, at: null, isFollowing: true });
    this.ask();
  }

  /** Draw soon. */
  ask() {
    if (this.isAsked) return;
    this.isAsked = true;
    requestAnimationFrame(() => {
      this.isAsked = false;
      this.draw();
    });
  }

  // The view -----------------------------------------------------------------------------------------

  /** The ends of the axis: all rows and what comes. */
  get ends() {
    const { series } = this;
    const begin = series.x(0), end = series.x(series.n - 1), ahead = series.ahead?.quantiles[0].length ?? 0;
    const more = ahead * series.step;
    const last = Number.isFinite(more) ? end + more : end;
    return last > begin ? [begin, last] : [begin - 0.5, begin + 0.5];
  }

  /** The view of the last rows and of what comes. */
  get latest() {
    const { series } = this, n = Math.max(FIRST_ROWS, FIRST_SEASONS * (series.ahead?.season ?? 0));
    const [, end] = this.ends;
    return [series.x(Math.max(0, series.n - n)), end];
  }

  setView(begin, end) {
    const [first, last] = this.ends;
    const least = (last - first) * LEAST_SPAN / Math.max(this.series.n, LEAST_SPAN), whole = last - first;
    const span = Math.min(Math.max(end - begin, Math.min(least, whole)), whole);
    const middle = (begin + end) / 2;
    const start = Math.min(Math.max(middle - span / 2, first), last - span);
    this.view = [start, start + span];
    this.isFollowing = false;
    this.ask();
    this.listener.onView();
  }

  /** Zoom by a factor around a place on the axis. */
  zoom(factor, around = (this.view[0] + this.view[1]) / 2) {
    const [a, b] = this.view;
    this.setView(around - (around - a) * factor, around + (b - around) * factor);
  }

  /** Move by a share of the view. */
  pan(share) {
    const [a, b] = this.view, shift = (b - a) * share;
    this.setView(a + shift, b + shift);
  }

  showAll() { this.setView(...this.ends); }
  showLatest() {
    this.isFollowing = true;
    this.point(null);
    this.ask();
    this.listener.onView();
  }

  /** Show a row in the middle. */
  goTo(at) {
    const [a, b] = this.isFollowing ? this.latest : this.view, x = this.series.x(at), half = (b - a) / 2;
    this.setView(x - half, x + half);
    this.point(at);
  }

  point(at) {
    this.at = at;
    this.ask();
    this.listener.onPoint(at);
  }

  // Input --------------------------------------------------------------------------------------------

  listen() {
    const { canvas, overview } = this;
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.pointers.set(event.pointerId, event.offsetX);
    });
    canvas.addEventListener("pointermove", (event) => this.move(event));
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, (event) => this.pointers.delete(event.pointerId));
    canvas.addEventListener("pointerleave", (event) => {
      if (event.pointerType === "mouse" && !this.pointers.size) this.point(null);
    });
    canvas.addEventListener("dblclick", (event) => this.series && this.zoom(0.5, this.place(event.offsetX)));
    const centre = (event) => {
      if (!this.series?.n || !(event.buttons & 1)) return;
      const [a, b] = this.isFollowing ? this.latest : this.view, [first, last] = this.ends;
      const x = first + (event.offsetX - this.left) / (this.right - this.left) * (last - first);
      this.setView(x - (b - a) / 2, x + (b - a) / 2);
    };
    overview.addEventListener("pointerdown", (event) => {
      overview.setPointerCapture(event.pointerId);
      centre(event);
    });
    overview.addEventListener("pointermove", centre);
  }

  wheel(event) {
    if (!this.series?.n) return;
    const [a, b] = this.view, [first, last] = this.ends;
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey) {
      event.preventDefault();
      this.pan((event.deltaX || event.deltaY) / 600);
      return;
    }
    if (event.deltaY > 0 && a <= first && b >= last) return; // the page scrolls on
    event.preventDefault();
    this.zoom(Math.exp(Math.max(-120, Math.min(120, event.deltaY)) / 300), this.place(event.offsetX));
  }

  move(event) {
    if (!this.series?.n) return;
    const before = this.pointers.get(event.pointerId);
    if (before === undefined) {
      this.point(this.nearest(event.offsetX));
      return;
    }
    const others = [...this.pointers].filter(([id]) => id !== event.pointerId).map(([, x]) => x);
    this.pointers.set(event.pointerId, event.offsetX);
    if (others.length) {
      const [other] = others, was = Math.abs(before - other), is = Math.abs(event.offsetX - other);
      if (was > 5 && is > 5) this.zoom(was / is, this.place(other));
      return;
    }
    const moved = (before - event.offsetX) / (this.right - this.left);
    if (moved) this.pan(moved);
    if (event.pointerType !== "mouse") this.point(this.nearest(event.offsetX));
  }

  key(event) {
    if (!this.series?.n || event.ctrlKey || event.metaKey || event.altKey) return;
    const last = this.series.n - 1, at = this.at ?? last;
    const step = (to) => {
      const next = Math.max(0, Math.min(last, to)), x = this.series.x(next), [a, b] = this.view;
      if (x < a || x > b) this.setView(x - (b - a) / 2, x + (b - a) / 2);
      this.point(next);
    };
    const actions = {
      "ArrowLeft": () => (event.shiftKey ? this.pan(-0.25) : step(at - 1)),
      "ArrowRight": () => (event.shiftKey ? this.pan(0.25) : step(at + 1)),
      "PageUp": () => this.pan(-0.8), "PageDown": () => this.pan(0.8),
      "Home": () => step(0), "End": () => this.showLatest(),
      "+": () => this.zoom(0.6), "=": () => this.zoom(0.6), "-": () => this.zoom(1 / 0.6), "0": () => this.showAll(),
      "n": () => this.nextAlarm(at, 1), "p": () => this.nextAlarm(at, -1), "Escape": () => this.point(null),
    };
    if (!(event.key in actions)) return;
    event.preventDefault();
    actions[event.key]();
  }

  nextAlarm(at, by) {
    for (let i = at + by; i >= 0 && i < this.series.n; i += by) {
      if (this.series.isAlarm(i)) return this.goTo(i);
    }
  }

  place(x) { return this.view[0] + (x - this.left) / (this.right - this.left) * (this.view[1] - this.view[0]); }

  nearest(px) {
    const x = this.place(px), { series } = this, at = Math.min(series.rowAt(x), series.n - 1);
    return at > 0 && Math.abs(series.x(at - 1) - x) < Math.abs(series.x(at) - x) ? at - 1 : at;
  }

  // Drawing ------------------------------------------------------------------------------------------

  draw() {
    const { pen, width, height } = context(this.canvas);
    Object.assign(this, { pen, width, height, ink: colours(), top: 26, bottom: height - 26, left: 14, right: width - 12 });
    if (!this.series?.n) return;
    if (this.isFollowing) this.view = this.latest;
    const { series } = this, [a, b] = this.view;
    this.first = Math.max(0, series.rowAt(a) - 1);
    this.end = Math.min(series.n, series.rowAt(b) + 1);
    const nPixels = this.right - this.left;
    this.isRough = (this.end - this.first) * LEAST_PIXELS > nPixels;
    this.columns = this.isRough ? this.ranges(this.first, this.end, nPixels) : [];
    this.placeY();
    this.drawGrid();
    pen.save();
    pen.beginPath();
    pen.rect(this.left, this.top - 4, this.right - this.left, this.bottom - this.top + 8);
    pen.clip();
    if (this.isRough) this.drawRanges();
    else this.drawRows();
    this.drawAhead();
    pen.restore();
    this.drawAlarms();
    this.drawCursor();
    this.drawOverview();
  }

  px(x) { return this.left + (x - this.view[0]) / (this.view[1] - this.view[0]) * (this.right - this.left); }
  py(y) {
    const place = this.bottom - (y - this.least) / (this.most - this.least) * (this.bottom - this.top);
    return Math.max(-2000, Math.min(4000, place));
  }

  /** Ranges of rows, one for each pixel that has some: [x, low, high, under, over, middle]. */
  ranges(first, end, nPixels) {
    const { series } = this, [a, b] = [series.x(first), series.x(end - 1)], found = [];
    for (let i = 0, at = first; i < nPixels && at < end; i++) {
      const next = i === nPixels - 1 ? end : Math.max(at, series.rowAt(a + (i + 1) / nPixels * (b - a)));
      if (next === at) continue;
      const [low, high, under, over, middle] = series.range(at, next, this.found);
      found.push([series.x(at), low, high, under, over, middle]);
      at = next;
    }
    return found;
  }

  placeY() {
    const { series, first, end } = this;
    const [low, high, under, over] = series.range(first, end, new Float64Array(5));
    let [least, most] = low <= high ? [low, high] : [0, 1];
    const room = 0.7 * (most - least) || Math.abs(most) || 1;
    const bounds = [under, over];
    if (series.ahead && this.view[1] > series.x(series.n - 1)) bounds.push(...this.fanRange());
    for (const bound of bounds) {
      if (!Number.isFinite(bound)) continue;
      least = Math.min(least, Math.max(bound, low - room));
      most = Math.max(most, Math.min(bound, high + room));
    }
    if (most === least) [least, most] = [least - (Math.abs(least) * 0.01 || 1), most + (Math.abs(most) * 0.01 || 1)];
    const margin = (most - least) * 0.06;
    this.least = least - margin;
    this.most = most + margin;
    this.stepY = niceStep(this.most - this.least, Math.max(2, Math.floor(this.height / 48)));
    this.decimals = Math.max(0, -Math.floor(Math.log10(this.stepY) + 1e-9));
    const labels = [this.least, this.most].map((y) => number(Math.round(y / this.stepY) * this.stepY, this.decimals));
    this.left = Math.min(96, 14 + Math.max(...labels.map((text) => this.pen.measureText(text).width)));
  }

  /** The lowest and the highest number of the bands ahead, without the outermost ones. */
  fanRange() {
    const { quantiles } = this.series.ahead, sorted = (level) => [...level].filter(Number.isFinite).sort((a, b) => a - b);
    const low = sorted(quantiles[0]), high = sorted(quantiles[6]);
    return low.length ? [low[Math.floor(0.03 * low.length)], high[Math.floor(0.97 * (high.length - 1))]] : [];
  }

  drawGrid() {
    const { pen, ink } = this;
    pen.strokeStyle = ink.line;
    pen.fillStyle = ink.soft;
    pen.lineWidth = 1;
    pen.textAlign = "right";
    const begin = Math.ceil(this.least / this.stepY);
    for (let k = begin; k * this.stepY <= this.most && k - begin < 40; k++) {
      const y = Math.round(this.py(k * this.stepY)) + 0.5;
      this.stroke([[this.left, y], [this.right, y]]);
      pen.fillText(number(k * this.stepY, this.decimals), this.left - 7, y + 4);
    }
    pen.textAlign = "center";
    this.ticks(this.left, this.right, ...this.view, (x, text) => {
      this.stroke([[x, this.bottom], [x, this.bottom + 5]]);
      pen.fillText(text, x, this.bottom + 19);
    });
  }

  /** Call `mark` with the place and the text of each tick of an axis. */
  ticks(left, right, a, b, mark) {
    const isTimed = this.isDated && this.series.isOrdered, most = Math.max(2, Math.floor((right - left) / 84));
    const step = isTimed ? TIME_STEPS.find((size) => size >= (b - a) / most) ?? TIME_STEPS.at(-1) : niceStep(b - a, most);
    let last = -Infinity;
    const place = (x) => {
      const px = left + (x - a) / (b - a) * (right - left);
      const text = isTimed ? tickText(x, step) : this.series.isOrdered ? number(x) : this.rowLabel(x), half = this.pen.measureText(text).width / 2;
      if (px - half < Math.max(last, left - 20) || px + half > right + 10) return;
      last = px + half + 12;
      mark(px, text);
    };
    if (isTimed && step >= 28 * 86400) { // months and years begin on their first days
      const months = Math.max(1, Math.round(step / (30.44 * 86400))), date = new Date(a * 1000);
      let month = Math.floor((date.getUTCFullYear() * 12 + date.getUTCMonth()) / months) * months;
      for (let n = 0; n < 200; n++, month += months) {
        const x = new Date(0).setUTCFullYear(Math.floor(month / 12), month % 12, 1) / 1000;
        if (x > b) return;
        if (x >= a) place(x);
      }
      return;
    }
    for (let k = Math.ceil(a / step), n = 0; k * step <= b && n < 200; k++, n++) place(k * step);
  }

  rowLabel(x) {
    const at = Math.max(0, Math.min(this.series.n - 1, Math.round(x)));
    return this.isDated ? dateText(this.series.times.all[at], 60) : number(this.series.times.all[at]);
  }

  stroke(points) {
    this.pen.beginPath();
    points.forEach(([x, y], i) => (i ? this.pen.lineTo(x, y) : this.pen.moveTo(x, y)));
    this.pen.stroke();
  }

  /** Fill the area between two curves of points [x, low, high]. */
  fill(points, colour) {
    if (!points.length) return;
    const { pen } = this;
    pen.fillStyle = colour;
    pen.beginPath();
    const wide = points.length === 1 ? 2 : 0;
    points.forEach(([x, , high], i) => (i ? pen.lineTo(x + wide, high) : pen.moveTo(x - wide, high)));
    if (wide) pen.lineTo(points[0][0] + wide, points[0][2]);
    for (let i = points.length - 1; i >= 0; i--) pen.lineTo(points[i][0] + (wide && i === points.length - 1 ? wide : 0), points[i][1]);
    if (wide) pen.lineTo(points[0][0] - wide, points[0][1]);
    pen.closePath();
    pen.fill();
  }

  /** Draw rows as ranges, where there are more than pixels. */
  drawRanges() {
    const { pen, ink, columns } = this;
    const widest = 6 * Math.max((this.view[1] - this.view[0]) / (this.right - this.left), (columns.at(-1)[0] - columns[0][0]) / columns.length);
    const runs = [[]];
    columns.forEach((column, i) => {
      if (i && column[0] - columns[i - 1][0] > widest) runs.push([]);
      runs.at(-1).push(column);
    });
    for (const run of runs) {
      const known = run.filter(([, , , under, over]) => under <= over);
      this.fill(known.map(([x, , , under, over]) => [this.px(x), this.py(under), this.py(over)]), ink.band90);
      const seen = run.filter(([, low, high]) => low <= high);
      this.fill(seen.map(([x, low, high]) => [this.px(x), this.py(low) + 0.6, this.py(high) - 0.6]), ink.ranges);
      if (this.end - this.first > MOST_IN_PIXEL * (this.right - this.left)) continue; // a line would fill the range
      pen.strokeStyle = ink.blue;
      pen.lineWidth = 1;
      this.stroke(known.filter((column) => column[5] === column[5]).map(([x, , , , , middle]) => [this.px(x), this.py(middle)]));
    }
  }

  /** Draw each row: gaps, bands, medians and values. */
  drawRows() {
    const { pen, ink, series, first, end } = this, gap = (at) => series.gaps.all[at] > 0 && at > 0;
    const runs = [[]];
    for (let at = first; at < end; at++) {
      if (gap(at)) {
        runs.push([]);
        if (at > first) this.drawGap(at);
      }
      runs.at(-1).push(at);
    }
    const dense = (this.right - this.left) / (end - first);
    for (const run of runs) {
      const known = run.filter((at) => series.quantiles(at)[0] === series.quantiles(at)[0]);
      for (const [low, high, name] of [[0, 6, "band90"], [1, 5, "band80"], [2, 4, "band50"]]) {
        this.fill(known.map((at) => {
          const q = series.quantiles(at);
          return [this.px(series.x(at)), this.py(q[low]), this.py(q[high])];
        }), ink[name]);
      }
      pen.strokeStyle = ink.blue;
      pen.lineWidth = 1.3;
      pen.setLineDash([4, 3]);
      this.stroke(known.map((at) => [this.px(series.x(at)), this.py(series.quantiles(at)[3])]));
      pen.setLineDash([]);
      pen.strokeStyle = pen.fillStyle = ink.ink;
      pen.lineWidth = dense > 2 ? 1.5 : 1.1;
      const values = run.filter((at) => series.values.all[at] === series.values.all[at])
        .map((at) => [this.px(series.x(at)), this.py(series.values.all[at])]);
      this.stroke(values);
      if (dense < 5 && values.length > 1) continue;
      for (const [x, y] of values) {
        pen.beginPath();
        pen.arc(x, y, dense >= 5 ? 2 : 1.5, 0, 2 * Math.PI);
        pen.fill();
      }
    }
  }

  /** Hatch the time without rows before a row. */
  drawGap(at) {
    const { pen, series } = this, a = this.px(series.x(at - 1)), b = this.px(series.x(at));
    if (b - a < 2) return;
    pen.save();
    pen.beginPath();
    pen.rect(a, this.top, b - a, this.bottom - this.top);
    pen.clip();
    pen.strokeStyle = this.ink.hatch;
    pen.globalAlpha = 0.55;
    pen.lineWidth = 1;
    for (let x = a - (this.bottom - this.top) - (a % 7); x < b; x += 7) this.stroke([[x, this.bottom], [x + this.bottom - this.top, this.top]]);
    pen.restore();
    const text = this.isDated ? duration(series.times.all[at] - series.times.all[at - 1]) : "";
    if (pen.measureText(text).width + 8 < b - a) this.label(text, (a + b) / 2, this.bottom - 8, this.ink.soft);
  }

  drawAhead() {
    const { series, ink, pen } = this, { ahead } = series, last = series.x(series.n - 1);
    if (!ahead || !(series.step > 0) || !Number.isFinite(ahead.quantiles[0][0])) return;
    pen.strokeStyle = ink.soft;
    pen.setLineDash([1, 3]);
    this.stroke([[this.px(last), this.top], [this.px(last), this.bottom]]);
    pen.setLineDash([]);
    const slots = Array.from(ahead.quantiles[0], (_, i) => this.px(last + (i + 1) * series.step));
    for (const [low, high, name] of [[0, 6, "fan90"], [1, 5, "fan80"], [2, 4, "fan50"]]) {
      this.fill(slots.map((x, i) => [x, this.py(ahead.quantiles[low][i]), this.py(ahead.quantiles[high][i])]), ink[name]);
    }
    pen.strokeStyle = ink.orange;
    pen.lineWidth = 1.6;
    this.stroke(slots.map((x, i) => [x, this.py(ahead.quantiles[3][i])]));
  }

  drawAlarms() {
    const { pen, series, ink } = this, [a, b] = this.view;
    let until = -Infinity;
    const alarms = this.alarmsIn(a, b);
    for (const at of alarms) {
      const x = this.px(series.x(at)), value = series.values.all[at], known = value === value ? value : series.quantiles(at)[3];
      pen.strokeStyle = pen.fillStyle = ink.red;
      pen.lineWidth = 1;
      pen.globalAlpha = 0.5;
      this.stroke([[x, this.top], [x, this.bottom]]);
      pen.globalAlpha = 1;
      pen.beginPath();
      pen.moveTo(x, this.top - 9);
      pen.lineTo(x + 5.5, this.top + 1);
      pen.lineTo(x - 5.5, this.top + 1);
      pen.fill();
      if (known === known) {
        pen.beginPath();
        pen.arc(x, this.py(known), 4.5, 0, 2 * Math.PI);
        pen.fill();
        pen.strokeStyle = ink.page;
        pen.lineWidth = 1.5;
        pen.stroke();
      }
      const text = this.events[series.event(at)] || "alarm", half = pen.measureText(text).width / 2 + 4;
      const place = Math.max(this.left + half, Math.min(x, this.width - half));
      if (place - half > until) {
        this.label(text, place, 12, ink.red);
        until = place + half;
      }
    }
  }

  /** The rows of alarms in a part of the axis; at most 400 are drawn. */
  alarmsIn(a, b) {
    const rows = this.series.alarmRows ?? [];
    return rows.filter((at) => this.series.x(at) >= a && this.series.x(at) <= b).slice(-400);
  }

  /** Write a text with a halo. */
  label(text, x, y, colour) {
    const { pen } = this;
    pen.textAlign = "center";
    pen.strokeStyle = this.ink.page;
    pen.lineWidth = 4;
    pen.strokeText(text, x, y);
    pen.fillStyle = colour;
    pen.fillText(text, x, y);
  }

  drawCursor() {
    const { pen, series, ink, at } = this;
    if (at === null || at >= series.n) return;
    const x = this.px(series.x(at)), value = series.values.all[at];
    if (x < this.left || x > this.right) return;
    pen.strokeStyle = ink.soft;
    pen.lineWidth = 1;
    this.stroke([[x, this.top], [x, this.bottom]]);
    if (value !== value) return;
    pen.beginPath();
    pen.arc(x, this.py(value), 4, 0, 2 * Math.PI);
    pen.fillStyle = ink.page;
    pen.fill();
    pen.strokeStyle = ink.ink;
    pen.lineWidth = 2;
    pen.stroke();
  }

  /** Ranges of all rows, which are found again only if there are more. */
  allColumns(width) {
    const { series, whole } = this;
    if (whole.series !== series || whole.n !== series.n || whole.width !== width) {
      this.whole = { series, n: series.n, width, columns: this.ranges(0, series.n, width) };
    }
    return this.whole.columns;
  }

  /** Draw all rows in a strip, with the part that is shown above. */
  drawOverview() {
    const { series, left, right } = this, { pen, height } = context(this.overview), ink = colours();
    const [a, b] = this.ends, x = (place) => left + (place - a) / (b - a) * (right - left), bottom = height - 20;
    const columns = this.allColumns(Math.round(right - left)), low = Math.min(...columns.map((c) => c[1])), high = Math.max(...columns.map((c) => c[2]));
    const y = (value) => bottom - 3 - (high > low ? (value - low) / (high - low) : 0.5) * (bottom - 8);
    const above = this.pen;
    this.pen = pen;
    pen.fillStyle = ink.window;
    pen.fillRect(x(this.view[0]), 1, Math.max(3, x(this.view[1]) - x(this.view[0])), bottom - 1);
    const seen = columns.filter((column) => column[1] <= column[2]), widest = 8 * (b - a) / (right - left);
    const runs = [[]];
    seen.forEach((column, i) => {
      if (i && column[0] - seen[i - 1][0] > Math.max(widest, 4 * (b - a) / seen.length)) runs.push([]);
      runs.at(-1).push([x(column[0]), y(column[1]) + 0.7, y(column[2]) - 0.7]);
    });
    for (const run of runs) this.fill(run, ink.overview);
    pen.strokeStyle = ink.red;
    pen.lineWidth = 1.4;
    for (const at of this.alarmsIn(a, b)) {
      const value = series.values.all[at];
      pen.beginPath();
      pen.arc(x(series.x(at)), y(value === value ? value : (low + high) / 2), 4, 0, 2 * Math.PI);
      pen.stroke();
    }
    pen.strokeStyle = ink.line;
    this.stroke([[left, bottom + 0.5], [right, bottom + 0.5]]);
    pen.fillStyle = ink.soft;
    pen.textAlign = "center";
    this.ticks(left, right, a, b, (px, text) => {
      this.stroke([[px, bottom], [px, bottom + 4]]);
      pen.fillText(text, px, bottom + 16);
    });
    this.pen = above;
  }
}
