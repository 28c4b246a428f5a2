// The node "edgefold sensors" of Node-RED: forecasts on its first output, alarms on the second.
//
//     msg ─> queue ─> Sensors.step ─> rows, alarms
//                          │ now and then, and at the end
//                          └─> USER_DIR/edgefold-snapshots/ID.snapshot ─> the next start

const SAVE_MINUTES = 30; // as `edgefold run` does by default
/** Milliseconds since 1970 of the years 1985 to 2128: Node-RED's own times. */
const SINCE_MS = 5e11, UNTIL_MS = 5e12;

/** @param {any} RED */
module.exports = function (RED) {
  /** @this {any} @param {any} config */
  function EdgefoldSensors(config) {
    const node = this;
    RED.nodes.createNode(node, config);
    const file = `${RED.settings.userDir}/edgefold-snapshots/${encodeURIComponent(node.id)}.snapshot`;
    const opened = open(file, Number(config.falseAlarms ?? 1e-4), node);
    let isChanged = false;
    /** The newest work; each message and each save waits for those before it. @type {Promise<any>} */
    let queue = opened.then(
      ({ sensors }) => {
        const n = sensors.names.length, text = n ? `goes on with ${n} sensor${n > 1 ? "s" : ""}` : "waiting for rows";
        node.status({ fill: "grey", shape: "ring", text });
      },
      (error) => {
        node.status({ fill: "red", shape: "ring", text: "not opened" });
        node.error(error.message);
      },
    );

    node.on("input", (/** @type {any} */ msg, /** @type {any} */ send, /** @type {any} */ done) => {
      queue = queue.then(() => take(msg, send)).then(() => done(), done);
    });
    const timer = setInterval(() => { queue = queue.then(save); }, SAVE_MINUTES * 60_000);
    node.on("close", (/** @type {() => void} */ done) => {
      clearInterval(timer);
      queue = queue.then(save).then(done);
    });

    /** @param {any} msg @param {(messages: any[]) => void} send */
    async function take(msg, send) {
      const { sensors, parseDate } = await opened, name = String(msg.topic ?? "");
      if (msg.reset) {
        for (const one of name ? [name] : sensors.names) sensors.forget(one);
        isChanged = true;
        node.status({ fill: "grey", shape: "ring", text: `${name || "all"} forgotten` });
        return;
      }
      const { time, value } = rowOf(msg.payload);
      const seconds = secondsOf(time, parseDate);
      const forecast = sensors.step(seconds, value, name, typeof time === "number" ? undefined : true);
      isChanged = true;
      const row = fields(name, time, value, forecast);
      /** @type {any} */
      let alarm = null;
      if (forecast.alarm) {
        alarm = RED.util.cloneMessage(msg);
        alarm.payload = { series: name, event: row.event, time, value, since: forecast.since, size: forecast.size || null };
      }
      msg.payload = row;
      node.status(statusOf(row));
      send([msg, alarm]);
    }

    async function save() {
      if (!isChanged) return;
      try {
        await replace(file, (await opened).sensors.save());
        isChanged = false;
      } catch (error) {
        node.warn(`what was learned could not be saved: ${/** @type {Error} */ (error).message}`);
      }
    }
  }
  RED.nodes.registerType("edgefold-sensors", EdgefoldSensors);
};

/**
 * Open the engine, and go on from the file if there is one.
 * @param {string} file @param {number} falseAlarms @param {any} node
 */
async function open(file, falseAlarms, node) {
  const { openSensors } = await import("../index.js"), { parseDate } = await import("../tables/dates.js");
  const sensors = await openSensors({ falseAlarms });
  const { readFile, rename } = await files();
  try {
    sensors.restore(await readFile(file));
  } catch (error) {
    if (error instanceof RangeError) { // another version wrote it, or it is damaged
      await rename(file, `${file}.unread`);
      node.warn(`${file} was not read and is kept as .unread; all sensors start over. ${error.message}`);
    } else if (/** @type {any} */ (error).code !== "ENOENT") throw error;
  }
  return { sensors, parseDate };
}

/** @returns {Promise<any>} */
function files() {
  const name = "node:fs/promises"; // a name, since the package comes without node's types
  return import(name);
}

/** Write a file so that a power cut leaves the old one or the new one. @param {string} file @param {Uint8Array} bytes */
async function replace(file, bytes) {
  const { mkdir, open, rename } = await files(), fresh = `${file}.new`;
  await mkdir(file.slice(0, file.lastIndexOf("/")), { recursive: true });
  const out = await open(fresh, "w");
  try {
    await out.writeFile(bytes);
    await out.sync();
  } finally {
    await out.close();
  }
  await rename(fresh, file);
}

/**
 * Return time and value of a payload: a number, its text, null, or an object with value and time.
 * @param {any} payload
 * @returns {{time: number | string | Date, value: number | null}}
 */
function rowOf(payload) {
  const isObject = typeof payload === "object" && payload !== null;
  const value = isObject ? payload.value : payload, time = (isObject ? payload.time : null) ?? new Date().toISOString();
  if (value === null || typeof value === "number") return { time, value };
  const number = typeof value === "string" && value.trim() ? Number(value) : NaN;
  if (Number.isNaN(number)) {
    const shown = JSON.stringify(payload)?.slice(0, 80);
    throw new TypeError(`msg.payload is ${shown}, neither a number nor { time, value }; a change node before this one can set it.`);
  }
  return { time, value: number };
}

/**
 * Return a time in seconds.
 * @param {number | string | Date} time @param {(text: string) => number} parseDate
 */
function secondsOf(time, parseDate) {
  if (typeof time === "number") return time >= SINCE_MS && time <= UNTIL_MS ? time / 1000 : time;
  if (time instanceof Date) return time.getTime() / 1000;
  try {
    return parseDate(time);
  } catch {
    throw new TypeError(`the time is ${JSON.stringify(time)}, not a date such as 2026-01-31T10:00:00Z, nor a number.`);
  }
}

/**
 * Return the payload of a row, with the names of the columns of `edgefold run`.
 * @param {string} series @param {number | string | Date} time @param {number | null} value
 * @param {import("../engine/sensors.js").Forecast} forecast
 */
function fields(series, time, value, forecast) {
  const { known, mean, q05, q10, q25, q50, q75, q90, q95, logDensity, pValue, alarm, event } = forecast;
  const band = known ? { mean, q05, q10, q25, q50, q75, q90, q95 } : NO_BAND;
  const isScored = known && value !== null && !Number.isNaN(value);
  return {
    series, time, value, ...band,
    log_density: isScored ? logDensity : null, p_value: isScored ? pValue : null, alarm, event,
  };
}

const NO_BAND = { mean: null, q05: null, q10: null, q25: null, q50: null, q75: null, q90: null, q95: null };

/** Say in the editor how the newest row is. @param {ReturnType<typeof fields>} row */
function statusOf({ series, value, q05, q95, alarm, event }) {
  const name = series && `${series}: `, shown = value === null ? "no value" : brief(value);
  if (alarm) return { fill: "red", shape: "dot", text: `${name}${event}, ${shown}` };
  if (q05 === null || q95 === null) return { fill: "grey", shape: "dot", text: `${name}${shown}, learning` };
  const band = `${shown} (${brief(q05)} to ${brief(q95)})`;
  return event ? { fill: "yellow", shape: "dot", text: `${name}${event}, ${band}` } : { fill: "green", shape: "dot", text: name + band };
}

/** @param {number} value */
function brief(value) { return String(Number(value.toPrecision(4))); }
