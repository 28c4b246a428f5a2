// Draws the last rows of a sensor as SVG. Texts go in as text nodes, never as HTML.

const SVG = "http://www.w3.org/2000/svg";
// Places of a row's numbers; RowHistory.add writes them.
const ROW = { n: 0, time: 1, value: 2, mean: 3, low: 4, lower: 5, upper: 6, high: 7, alarm: 9 };
const GAP_STEPS = 10; // a longer gap is drawn as wide as this many rows, and labelled
const SHOWN_DECIMALS = 40; // the last values, by which the number of decimals is chosen
const LEAST_STEPS = 40; // fewer rows than this do not fill the chart

function shape(name, attributes, ...children) {
  const node = document.createElementNS(SVG, name);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  node.append(...children);
  return node;
}

// The number of decimals that shows differences within the values, and not more than they have.
function decimalsOf(values) {
  const known = values.filter((value) => value !== null).slice(-SHOWN_DECIMALS);
  if (!known.length) return 2;
  const span = Math.max(...known) - Math.min(...known) || Math.abs(known[0]) / 100 || 1;
  const own = Math.max(...known.map((value) => /e/.test(value) ? 8 : (String(value).split(".")[1] || "").length));
  return Math.max(0, Math.min(own, 8, 2 - Math.floor(Math.log10(span))));
}

function format(number, decimals = null) {
  if (number === null || number === undefined) return "–";
  const size = Math.abs(number);
  if (size !== 0 && (size >= 1e9 || size < 1e-5)) return number.toExponential(3);
  const most = decimals === null ? Math.max(0, Math.min(8, 3 - Math.floor(Math.log10(size || 1)))) : decimals;
  return number.toLocaleString(undefined, { minimumFractionDigits: decimals || 0, maximumFractionDigits: most });
}

function duration(seconds) {
  if (seconds === null || seconds === undefined || !(seconds >= 0)) return "–";
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  for (let at = 0; at < units.length; at++) {
    const [unit, size] = units[at];
    if (seconds < size) continue;
    const whole = Math.floor(seconds / size), next = units[at + 1];
    const rest = next ? Math.floor((seconds - whole * size) / next[1]) : 0;
    return rest && whole < 10 ? `${whole} ${unit} ${rest} ${next[0]}` : `${whole} ${unit}`;
  }
  return seconds < 0.1 ? "0 s" : `${seconds.toFixed(1)} s`;
}

const CLOCKS = {
  second: new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" }),
  minute: new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" }),
  day: new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" }),
  year: new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", year: "numeric" }),
};

function clock(seconds, step) {
  const date = new Date(seconds * 1000);
  if (step >= 86400 * 300) return String(date.getFullYear());
  if (step >= 86400) return CLOCKS.day.format(date);
  return (step < 60 ? CLOCKS.second : CLOCKS.minute).format(date);
}

function moment(seconds, step = 1) {
  // A time with its date, unless it is today.
  const date = new Date(seconds * 1000), now = new Date();
  if (step >= 86400) return CLOCKS.year.format(date);
  const isToday = date.toDateString() === now.toDateString();
  const day = isToday ? "" : (date.getFullYear() === now.getFullYear() ? CLOCKS.day : CLOCKS.year).format(date) + ", ";
  return day + clock(seconds, step);
}

function period(begin, end, step) {
  const isOneDay = new Date(begin * 1000).toDateString() === new Date(end * 1000).toDateString();
  return `${moment(begin, step)} to ${isOneDay && step < 86400 ? clock(end, step) : moment(end, step)}`;
}

const TIME_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200,
  86400, 2 * 86400, 7 * 86400, 14 * 86400, 30 * 86400, 91 * 86400, 182 * 86400, 365 * 86400, 1826 * 86400];

function niceStep(span, most) {
  const raw = span / most, power = 10 ** Math.floor(Math.log10(raw || 1));
  return [1, 2, 5, 10].map((n) => n * power).find((step) => step >= raw) || power * 10;
}

function medianStep(rows) {
  const steps = [];
  for (let i = 1; i < rows.length; i++) {
    const step = rows[i][ROW.time] - rows[i - 1][ROW.time];
    if (step > 0) steps.push(step);
  }
  steps.sort((a, b) => a - b);
  return steps.length ? steps[Math.floor(steps.length / 2)] : 0;
}

// The chart of one sensor. `rows` are as the server sends them; `restarts` are numbers of rows
// before which the loop was started again.
class Chart {
  constructor(svg, onPoint) {
    this.svg = svg;
    this.onPoint = onPoint;
    this.rows = [];
    this.at = null; // the row under the cursor
    svg.addEventListener("pointermove", (event) => this.point(this.nearest(event.offsetX), false));
    svg.addEventListener("pointerleave", () => this.point(null, false));
    svg.addEventListener("blur", () => this.point(null, false));
    svg.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    const last = this.rows.length - 1, at = this.at === null ? last : this.at;
    const places = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: last, PageUp: at - 20, PageDown: at + 20 };
    if (event.key === "Escape") this.point(null, true);
    if (!(event.key in places) || last < 0) return;
    event.preventDefault();
    this.point(Math.max(0, Math.min(last, places[event.key])), true);
  }

  nearest(x) {
    let best = null;
    this.rows.forEach((row, at) => {
      if (best === null || Math.abs(this.x[at] - x) < Math.abs(this.x[best] - x)) best = at;
    });
    return best;
  }

  point(at, byKey) {
    this.at = at;
    this.drawCursor();
    this.onPoint(at === null ? null : this.rows[at], byKey);
  }

  // As many last rows as can be told apart at this width.
  fitting(rows) { return rows.slice(-Math.max(60, Math.floor((this.svg.clientWidth || 900) / 3))); }

  draw(model) {
    const before = this.at === null ? null : this.rows[this.at];
    Object.assign(this, model);
    if (before) {
      const at = this.rows.indexOf(before);
      this.at = at < 0 ? null : at;
    }
    this.width = this.svg.clientWidth || 600;
    this.height = this.svg.clientHeight || 300;
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    this.placeY();
    this.placeX();
    this.cursor = shape("g", {});
    this.svg.replaceChildren(...this.gridLines(), ...this.gapBoxes(), ...this.bands(), ...this.lines(),
      ...this.restartLines(), ...this.alarmMarks(), this.cursor);
    this.drawCursor();
  }

  placeY() {
    let least = Infinity, most = -Infinity;
    for (const row of this.rows) if (row[ROW.value] !== null) {
      least = Math.min(least, row[ROW.value]);
      most = Math.max(most, row[ROW.value]);
    }
    if (least > most) [least, most] = [0, 1];
    const span = most - least, room = span * 0.7 || Infinity;
    const [floor, ceiling] = [least - room, most + room];
    for (const row of this.rows) for (const place of [ROW.low, ROW.high]) {
      const bound = row[place];
      if (bound !== null) {
        least = Math.min(least, Math.max(bound, floor));
        most = Math.max(most, Math.min(bound, ceiling));
      }
    }
    if (most === least) [least, most] = [least - (Math.abs(least) * 0.01 || 1), most + (Math.abs(most) * 0.01 || 1)];
    const margin = (most - least) * 0.06;
    this.least = least - margin;
    this.most = most + margin;
    this.top = 22;
    this.bottom = this.height - 26;
    this.stepY = niceStep(this.most - this.least, Math.max(2, Math.floor(this.height / 44)));
    this.decimals = Math.max(0, -Math.floor(Math.log10(this.stepY)));
    const longest = Math.max(...[least, most].map((n) => format(n, this.decimals).length));
    this.left = Math.min(90, 14 + 7 * longest);
    this.right = this.width - 14;
  }

  y(value) {
    const y = this.bottom - (value - this.least) / (this.most - this.least) * (this.bottom - this.top);
    return Math.max(-2000, Math.min(2000, y));
  }

  placeX() {
    const rows = this.rows, isTimed = this.isTimed = rows.length > 0 && rows.every((row) => row[ROW.time] !== null);
    const step = this.pace > 0 && !this.isIrregular ? this.pace : medianStep(rows);
    const widest = this.isIrregular ? 10 : 1.8;
    const u = [0];
    this.gaps = []; // pairs of the rows on both sides
    for (let i = 1; i < rows.length; i++) {
      const steps = isTimed && step > 0 ? (rows[i][ROW.time] - rows[i - 1][ROW.time]) / step : 1;
      const isGap = steps >= widest;
      if (isGap) this.gaps.push(i);
      u.push(u[i - 1] + (this.isIrregular && !isGap ? Math.max(0.15, Math.min(steps, 4)) : Math.max(0.5, Math.min(steps, GAP_STEPS))));
    }
    const last = u[rows.length - 1] || 0, all = Math.max(last, LEAST_STEPS);
    const scale = (this.right - this.left) / all;
    this.x = rows.map((_, i) => this.right - (last - u[i]) * scale);
  }

  gridLines() {
    const nodes = [], decimals = this.decimals;
    const first = Math.ceil(this.least / this.stepY) * this.stepY;
    for (let n = 0; first + n * this.stepY <= this.most && n < 20; n++) {
      const value = first + n * this.stepY, y = Math.round(this.y(value)) + 0.5;
      nodes.push(shape("line", { class: "grid", x1: this.left, x2: this.right, y1: y, y2: y }));
      nodes.push(shape("text", { class: "axis", x: this.left - 8, y: y + 4, "text-anchor": "end" }, format(Math.abs(value) < this.stepY / 1e6 ? 0 : value, decimals)));
    }
    let end = -Infinity;
    for (const [x, text] of this.ticks()) {
      const half = text.length * 3.4 + 6;
      const place = Math.max(this.left + half - 10, Math.min(x, this.width - half));
      if (place - half < end || Math.abs(place - x) > 24) continue;
      end = place + half;
      nodes.push(shape("line", { class: "grid", x1: x, x2: x, y1: this.bottom, y2: this.bottom + 5 }));
      nodes.push(shape("text", { class: "axis", x: place, y: this.height - 6, "text-anchor": "middle" }, text));
    }
    return nodes;
  }

  ticks() {
    const rows = this.rows, n = rows.length;
    if (!this.isTimed || n < 2) return [];
    const most = Math.max(3, Math.floor(this.width / 95));
    const begin = rows[0][ROW.time], end = rows[n - 1][ROW.time], found = [];
    // Long gaps are cut short, so steps are chosen by the time without them.
    const cut = this.gaps.reduce((sum, i) => sum + rows[i][ROW.time] - rows[i - 1][ROW.time], 0);
    const span = Math.max(end - begin - cut, (end - begin) / 50);
    const step = this.isDated ? TIME_STEPS.find((size) => size >= span / most) || TIME_STEPS.at(-1) : niceStep(span, most);
    const shift = this.isDated ? new Date(end * 1000).getTimezoneOffset() * 60 : 0;
    let i = 1;
    for (let k = Math.ceil((begin - shift) / step); k * step + shift <= end && found.length < 400; k++) {
      const time = k * step + shift;
      while (i < n - 1 && rows[i][ROW.time] < time) i++;
      const [a, b] = [rows[i - 1][ROW.time], rows[i][ROW.time]];
      if (this.gaps.includes(i) && time > a && time < b) {
        k = Math.max(k, Math.ceil((b - shift) / step) - 1);
        continue;
      }
      const share = b > a ? Math.max(0, Math.min(1, (time - a) / (b - a))) : 1;
      const x = this.x[i - 1] + share * (this.x[i] - this.x[i - 1]);
      found.push([x, this.isDated ? clock(time, step) : format(time)]);
    }
    return found;
  }

  gapBoxes() {
    const nodes = [];
    for (const i of this.gaps) {
      const [a, b] = [this.x[i - 1], this.x[i]], seconds = this.rows[i][ROW.time] - this.rows[i - 1][ROW.time];
      nodes.push(shape("rect", { class: "gap", x: a, y: this.top, width: Math.max(1, b - a), height: this.bottom - this.top }));
      if (b - a > 14) nodes.push(shape("text", { class: "gap-text halo", x: (a + b) / 2, y: this.bottom - 8 }, this.isDated ? duration(seconds) : format(seconds)));
    }
    return nodes;
  }

  // Runs of neighbouring rows for which `has` holds, without gaps inside.
  runs(has) {
    const runs = [];
    let run = [];
    const breaks = new Set(this.gaps);
    this.rows.forEach((row, i) => {
      if (run.length && (breaks.has(i) || !has(row))) {
        runs.push(run);
        run = [];
      }
      if (has(row)) run.push(i);
    });
    if (run.length) runs.push(run);
    return runs;
  }

  bands() {
    return [["band90", ROW.low, ROW.high], ["band50", ROW.lower, ROW.upper]].map(([name, low, high]) => {
      let path = "";
      for (const run of this.runs((row) => row[low] !== null && row[high] !== null)) {
        const half = run.length === 1 ? 2 : 0;
        const point = (i, place, dx) => `${(this.x[i] + dx).toFixed(1)} ${Math.max(this.top, Math.min(this.bottom, this.y(this.rows[i][place]))).toFixed(1)}`;
        const up = run.map((i) => point(i, high, -half)), down = run.map((i) => point(i, low, half)).reverse();
        if (half) { up.push(point(run[0], high, half)); down.push(point(run[0], low, -half)); }
        path += `M${up.join("L")}L${down.join("L")}Z`;
      }
      return shape("path", { class: name, d: path });
    });
  }

  line(place, name) {
    let path = "";
    const dots = [], each = this.rows.length <= 60 && name === "line";
    for (const run of this.runs((row) => row[place] !== null)) {
      const points = run.map((i) => `${this.x[i].toFixed(1)} ${this.y(this.rows[i][place]).toFixed(1)}`);
      path += `M${points.join("L")}`;
      if (name === "line") for (const i of each ? run : run.length === 1 ? run : []) {
        dots.push(shape("circle", { class: "dot", cx: this.x[i].toFixed(1), cy: this.y(this.rows[i][place]).toFixed(1), r: 2.2 }));
      }
    }
    return [shape("path", { class: name, d: path }), ...dots];
  }

  lines() {
    return [...this.line(ROW.mean, "mean"), ...this.line(ROW.value, "line")];
  }

  restartLines() {
    const nodes = [];
    this.rows.forEach((row, i) => {
      if (!this.restarts.has(row)) return;
      const x = i ? (this.x[i] + this.x[i - 1]) / 2 : this.x[i];
      nodes.push(shape("line", { class: "restart", x1: x, x2: x, y1: this.top, y2: this.bottom }));
      const place = Math.max(this.left + 24, Math.min(x, this.right - 24));
      nodes.push(shape("text", { class: "restart-text halo", x: place, y: this.bottom - 8 }, "restart"));
    });
    return nodes;
  }

  alarmMarks() {
    const nodes = [];
    let end = -Infinity;
    this.rows.forEach((row, i) => {
      if (!row[ROW.alarm]) return;
      const x = this.x[i], value = row[ROW.value] === null ? row[ROW.mean] : row[ROW.value];
      const y = value === null ? this.bottom : this.y(value);
      const event = eventOf(row, this.events);
      nodes.push(shape("line", { class: "alarm-line", x1: x, x2: x, y1: this.top, y2: this.bottom }));
      nodes.push(shape("circle", { class: "alarm", cx: x, cy: y, r: 4.5 }));
      const half = event.length * 3.4 + 4, text = Math.max(half, Math.min(x, this.width - half));
      const hasRoom = text - half > end;
      nodes.push(shape("path", { class: "alarm", d: `M${x} ${this.top - 9}l5.5 10h-11z` }, shape("title", {}, event)));
      if (hasRoom) {
        nodes.push(shape("text", { class: "alarm-text halo", x: text, y: 10, "text-anchor": "middle" }, event));
        end = text + half;
      }
    });
    return nodes;
  }

  drawCursor() {
    if (!this.cursor) return;
    this.cursor.replaceChildren();
    if (this.at === null || !this.rows[this.at]) return;
    const x = this.x[this.at], value = this.rows[this.at][ROW.value];
    this.cursor.append(shape("line", { class: "cursor", x1: x, x2: x, y1: this.top, y2: this.bottom }));
    if (value !== null) this.cursor.append(shape("circle", { class: "cursor-dot", cx: x, cy: this.y(value), r: 4 }));
  }
}

// The name of a row's alarm; a row of the run before carries it, as its number counts no more.
function eventOf(row, events) { return row.event || events.get(row[ROW.n]) || "alarm"; }

// A small picture of a sensor's last values, or none of fewer than two.
function drawSpark(svg, values) {
  const known = values.filter((value) => value !== null);
  if (known.length < 2) return svg.replaceChildren();
  const least = Math.min(...known), span = Math.max(...known) - least || 1;
  let path = "", isOpen = false, last = null;
  values.forEach((value, i) => {
    if (value === null) return void (isOpen = false);
    const x = 2 + i * 72 / Math.max(values.length - 1, 1), y = 18 - (value - least) / span * 16;
    path += `${isOpen ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
    isOpen = true;
    last = [x, y];
  });
  svg.replaceChildren(shape("path", { d: path }), shape("circle", { cx: last[0], cy: last[1], r: 1.8 }));
}
