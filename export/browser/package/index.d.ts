/** The levels of the quantiles q05 to q95. */
export const LEVELS: readonly number[];

/** A row with the forecast that was made before its value was seen; NaN where there was none. */
export interface Forecast {
  readonly time: number;
  readonly value: number;
  /** Whether there was a forecast. */
  readonly known: boolean;
  readonly mean: number;
  readonly q05: number;
  readonly q10: number;
  readonly q25: number;
  readonly q50: number;
  readonly q75: number;
  readonly q90: number;
  readonly q95: number;
  /** Of the value, in nats; 0 if nothing was forecast or measured. */
  readonly logDensity: number;
  /** The chance of a value this far from the forecast; 1 if nothing was forecast or measured. */
  readonly pValue: number;
  /** Slots without a row between this row and the one before. */
  readonly nMissing: number;
  /** The season's length in slots; 0 if none is known. */
  readonly season: number;
  readonly alarm: boolean;
  readonly event: SensorEvent;
  /** How many rows before this one the event began. */
  readonly since: number;
  /** The size of an event that lasts: the change of a drift, a factor of others; else 0. */
  readonly size: number;
}

export type SensorEvent =
  | "" | "value" | "level shift" | "stuck" | "gap" | "absent" | "drift" | "rhythm" | "quiet" | "noisy";

/** Forecasts of the next n slots; NaN while too few rows have come. */
export interface Path {
  readonly mean: Float64Array;
  /** For each of LEVELS the n quantiles. */
  readonly quantiles: readonly Float64Array[];
}

export interface SensorOptions {
  /** The share of sound rows that may be alarms, above 0 and at most 0.1; 1e-4 by default. */
  falseAlarms?: number;
}

/** A row was refused and nothing changed; the message says why. */
export class RowRefused extends Error {}

/** Serves sensors with the opened model; each new name begins a sensor of its own. */
export class Sensors {
  static open(wasm: BufferSource | WebAssembly.Module, options?: SensorOptions): Promise<Sensors>;
  private constructor();
  /** The names of all sensors that have sent a row. */
  readonly names: string[];
  /**
   * Score a row by the forecast made before it, learn it, and forecast the slots after it.
   * @param time seconds since 1970, any other number that rises, a Date, or null if rows come evenly
   * @param value null or NaN if it is missing
   * @param name the sensor's name, "" by default
   * @param dated whether a number is a date; it is if the first one lies between 1985 and 2128
   * @throws RowRefused nothing changed
   */
  step(time: number | Date | null, value: number | null, name?: string, dated?: boolean): Forecast;
  /** Forecast the next slots of a sensor, at most 1440; its state does not change. */
  path(horizon: number, name?: string): Path;
  /** The time between two slots (NaN before it is known), and the season in slots. */
  feed(name?: string): { pace: number; season: number };
  /** Forget a sensor; its next row starts it over. A name that is not known changes nothing. */
  forget(name: string): void;
  /** The states of all sensors, for `restore` of the same version. */
  save(): Uint8Array;
  /** Go on from what `save` returned; after an error, all sensors are as before. */
  restore(bytes: Uint8Array): void;
}

/** Open the model that lies beside index.js. */
export function openSensors(options?: SensorOptions): Promise<Sensors>;

/** A table cannot be read; the message says why and what to do. */
export class TableError extends Error {}

/** Settings that a user gives; all others are found by the first lines. */
export interface TableOptions {
  /** The table's name, for messages. */
  name?: string;
  time?: string | null;
  values?: readonly string[] | null;
  /** The column that names the sensor of each row; "" for none. */
  series?: string | null;
  delimiter?: string | null;
  decimal?: "." | "," | null;
  /** As strptime has it, such as "%d/%m/%Y %H:%M", or "unix" or "unix-ms". */
  timeFormat?: string | null;
  /** Words that stand in a cell without a value, besides NA, null, - and similar ones. */
  missing?: readonly string[];
  /** Such as "windows-1252"; UTF-8 by default, or UTF-16 if a mark says so. */
  encoding?: string | null;
}

/** A value of one sensor, or the reason why it cannot be used. */
export interface Part {
  readonly sensor: string;
  readonly time: number;
  readonly value: number;
  readonly timeText: string;
  readonly valueText: string;
  readonly reason?: string;
}

/** One line: the parts of its sensors, or the reason why no sensor can use it. */
export interface TableRow {
  readonly line: number;
  readonly parts: readonly Part[];
  readonly reason?: string;
}

/** Which columns are the clock and the sensors. */
export interface Choice {
  readonly time: readonly string[];
  readonly clock: "dates" | "unix time" | "numbers" | "rows";
  readonly values: readonly string[];
  readonly series: string;
  readonly isDated: boolean;
  readonly isNamed: boolean;
  readonly isBackward: boolean;
  /** A time that is not in the table, written as the table writes times. */
  written(time: number, like?: string): string;
}

/** A table whose columns were chosen by its first lines, ready to be read. */
export interface Table {
  readonly choice: Choice;
  readonly columns: readonly { readonly name: string; readonly kind: string }[];
  /** What was assumed and left out. */
  readonly notes: readonly string[];
  /** All rows, the oldest first. */
  rows(): AsyncGenerator<TableRow>;
  pieces(): AsyncGenerator<{ rows: TableRow[]; readBytes: number }>;
}

/** Choose the columns of a table, CSV or JSON lines, by its first lines. */
export function openTable(source: Blob | Uint8Array | string, options?: TableOptions): Promise<Table>;

/** Counts of one sensor. */
export interface Track {
  readonly name: string;
  readonly nRows: number;
  readonly nEmpty: number;
  readonly nForecast: number;
  readonly nWithin90: number;
  readonly nAlarms: number;
  readonly nGaps: number;
  readonly nMissing: number;
  readonly refused: Refusals;
}

export interface Refusals {
  readonly n: number;
  readonly reasons: ReadonlyMap<string, { readonly line: number; readonly reason: string; readonly n: number }>;
}

export interface Listener {
  row?(track: Track, forecast: Forecast, text: string, line: number): void;
  turn?(readBytes: number, nLines: number): void;
}

/** Reads each row of a table once, forecasts it, and keeps the forecasts as CSV. */
export class TableRun {
  constructor(table: Table, sensors: Sensors, listener?: Listener);
  readonly tracks: ReadonlyMap<string, Track>;
  readonly bad: Refusals;
  run(signal?: AbortSignal): Promise<void>;
  /** The forecast of each row, as `edgefold forecast` writes it. */
  readonly csv: Blob;
  /** The forecasts after the last row of each sensor. */
  readonly next: Blob;
}
