// Write numbers, times and messages for people.

export const MEANINGS = {
  "value": "a value that the forecast did not expect",
  "level shift": "the values went to another level and stay there",
  "stuck": "equal values for longer than usual",
  "gap": "rows were missing for longer than usual",
  "absent": "a jump that comes each day has not come",
  "drift": "the values leave their level step by step",
  "rhythm": "a value says less about the next one than it did",
  "quiet": "the values move far less than they usually do",
  "noisy": "the values move far more than they usually do",
};

export function whole(n) { return n.toLocaleString("en"); }
export function many(n, one, more = `${one}s`) { return `${whole(n)} ${n === 1 ? one : more}`; }
export function percent(share, digits = 1) { return `${(100 * share).toFixed(digits)} %`; }

export function number(value, decimals) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e9 || (size > 0 && size < 1e-4)) return value.toPrecision(4);
  if (decimals !== undefined) return value.toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
  return value.toLocaleString("en", { maximumSignificantDigits: size >= 1000 ? Math.max(4, Math.ceil(Math.log10(size + 1))) : 4 });
}

const UNITS = [[86400 * 365.2425, "year"], [86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"], [1e-3, "millisecond"]];

/** A length of time in words. */
export function duration(seconds) {
  if (!(seconds > 0)) return "–";
  const [size, unit] = UNITS.find(([s, name]) => seconds >= 0.9995 * s * (name === "year" ? 2 : 1)) ?? UNITS.at(-1);
  const amount = Number((seconds / size).toPrecision(3));
  return `${whole(amount)} ${unit}${amount === 1 ? "" : "s"}`;
}

export function bytes(n) {
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) if (n >= size) return `${Number((n / size).toPrecision(3))} ${unit}`;
  return `${n} bytes`;
}

const two = (n) => String(n).padStart(2, "0");
const MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");

/** A date in UTC, as the table states it, with what a step of the axis needs. */
export function dateText(seconds, step = 1) {
  const date = new Date(seconds * 1000);
  if (Number.isNaN(date.getTime())) return number(seconds);
  const day = `${date.getUTCFullYear()}-${two(date.getUTCMonth() + 1)}-${two(date.getUTCDate())}`;
  if (step >= 86400) return day;
  const clock = `${two(date.getUTCHours())}:${two(date.getUTCMinutes())}`;
  if (step >= 60) return `${day} ${clock}`;
  const rest = step < 1 ? `.${String(date.getUTCMilliseconds()).padStart(3, "0")}` : "";
  return `${day} ${clock}:${two(date.getUTCSeconds())}${rest}`;
}

/** The label of a tick, with the larger unit where it begins. */
export function tickText(seconds, step) {
  const date = new Date(seconds * 1000);
  if (Number.isNaN(date.getTime())) return "";
  const [year, month, day] = [date.getUTCFullYear(), MONTHS[date.getUTCMonth()], date.getUTCDate()];
  const isMidnight = date.getTime() % 86400000 === 0;
  if (step >= 86400 * 300) return String(year);
  if (step >= 86400 * 28) return date.getUTCMonth() === 0 ? String(year) : month;
  if (step >= 86400 || isMidnight) return day === 1 && date.getUTCMonth() === 0 ? `${year}` : `${day} ${month}`;
  const clock = `${two(date.getUTCHours())}:${two(date.getUTCMinutes())}`;
  return step < 60 ? `${clock}:${two(date.getUTCSeconds())}` : clock;
}

const SETTINGS = [
  [/ as UTF-8 text; convert it, for instance: iconv.*$/, " as UTF-8 text: choose the encoding Windows-1252."],
  [/; convert it: iconv.*$/, "; save it as UTF-8 and open it again."],
  [/; convert it: tr .*$/, "; save it with other line ends and open it again."],
  [/; unpack it: .*$/, "; unpack it and open what is inside."],
  [/: sqlite3 -csv -header/, ""],
  [/: jq -c .*$/, "."],
  [/--decimal ([.,])/g, "the decimal sign “$1”"],
  [/--time-format '([^']+)'/g, "the date format “$1”"],
  [/--time-format (unix(?:-ms)?)/g, "the date format “$1”"],
  [/--time-format tells/g, "the setting “Date format” tells"],
  [/--series ''/g, "“none” for Names"],
  [/--series (.+?)(?= if)/g, "“$1” for Names"],
  [/--time and --columns/g, "the settings Times and Values"],
  [/--columns/g, "the setting Values"],
  [/--decimal/g, "the setting Decimal sign"],
  [/its --delimiter/g, "its delimiter"],
];

/** A message of the reader of tables with the settings of the page in place of options. */
export function inPage(message) { return SETTINGS.reduce((text, [from, to]) => text.replace(from, to), message); }

export function sentence(text) {
  const whole = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(whole) ? whole : `${whole}.`;
}
