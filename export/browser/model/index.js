// A model of constant memory in WebAssembly: README.md shows how to use it.

import { ModuleMemory, readBeside, started } from "./engine/module_memory.js";

/** What a status of the module means. @type {Readonly<Record<number, string>>} */
const REFUSALS = {
  1: "a number is not finite, or is beyond 1e9 times its column's scale",
  2: "the model's arithmetic gave a number that is not finite",
  3: "the state has no room for another point",
  4: "there are too many targets, or none",
  5: "a step chose a place outside of a ring",
  6: "these bytes are no snapshot",
  7: "the snapshot is damaged, or of no state of this model",
  8: "the snapshot is of another bundle",
};

/** A call was refused and nothing changed; the message says why. */
export class ModelRefused extends Error {
  /** @param {number} status */
  constructor(status) {
    super(`${REFUSALS[status] ?? `the model refused with the status ${status}`}; nothing changed.`);
    this.name = "ModelRefused";
    this.status = status;
  }
}

/** Runs a model of one bundle, whose state has a fixed size. */
export class Model {
  /** @param {WebAssembly.Instance} instance */
  constructor(instance) {
    const engine = /** @type {any} */ (instance.exports);
    this.engine = engine;
    this.memory = new ModuleMemory(instance);
    const [nInputs, nOutputs, nStreams, nTargets, isFilter] = [0, 1, 2, 3, 4].map((fact) => engine.model_fact(fact));
    this.nInputs = nInputs;
    this.nOutputs = nOutputs;
    this.nStreams = nStreams;
    this.nTargets = nTargets;
    this.isFilter = isFilter === 1;
    /** Names of the predictions, and how many numbers each has for one target. */
    this.predictions = Array.from({ length: engine.model_n_predictions() }, (_, number) => ({
      name: this.memory.text(engine.model_prediction_name(number)), size: /** @type {number} */ (engine.model_prediction_size(number)),
    }));
    this.stream = this.memory.reserve(engine.model_bytes());
    this.x = this.memory.reserve(8 * nStreams * Math.max(nTargets, 1) * nInputs);
    this.y = this.memory.reserve(8 * nStreams * nOutputs);
    this.snapshot = this.memory.reserve(engine.model_snapshot_bytes());
    this.reset();
  }

  /** Open a model. @param {BufferSource | WebAssembly.Module} wasm the file edgefold_model.wasm, or its module */
  static async open(wasm) { return new Model(await started(wasm)); }

  /** Forget everything. */
  reset() { this.engine.model_start(this.stream); }

  /** The number of points of each stream that were learned. @returns {number} */
  get nPoints() { return this.engine.model_n_points(this.stream); }

  /** Write numbers for the module. @param {number} place @param {ArrayLike<number>} numbers @param {number} n @param {string} what */
  put(place, numbers, n, what) {
    if (numbers.length !== n) throw new RangeError(`${what} has ${numbers.length} numbers; give ${n}.`);
    this.memory.numbers(place, n).set(numbers);
  }

  /** Throw ModelRefused for any status but 0. @param {number} status */
  require(status) { if (status !== 0) throw new ModelRefused(status); }

  /** Return the predictions of the first n targets of each stream. @param {number} n */
  predicted(n) {
    /** @type {Record<string, Float64Array>} */
    const found = {};
    this.predictions.forEach(({ name, size }, number) => {
      const all = this.memory.numbers(this.engine.model_prediction(this.stream, number), this.nStreams * this.nTargets * size);
      const own = found[name] = new Float64Array(this.nStreams * n * size);
      for (let stream = 0; stream < this.nStreams; stream++) {
        const begin = stream * this.nTargets * size;
        own.set(all.subarray(begin, begin + n * size), stream * n * size);
      }
    });
    return found;
  }

  /**
   * Answer an input of each stream, and learn it: of models that are filters.
   * @param {ArrayLike<number>} x (streams, inputs)
   */
  step(x) {
    if (!this.isFilter) throw new TypeError("this model has update and query, and no step.");
    this.put(this.x, x, this.nStreams * this.nInputs, "x");
    this.require(this.engine.model_step(this.stream, this.x));
    return this.predicted(1);
  }

  /**
   * Learn one point of each stream: of models that are no filters.
   * @param {ArrayLike<number>} x (streams, inputs) @param {ArrayLike<number>} y (streams, outputs)
   */
  update(x, y) {
    if (this.isFilter) throw new TypeError("this model has step, and no update and query.");
    this.put(this.x, x, this.nStreams * this.nInputs, "x");
    this.put(this.y, y, this.nStreams * this.nOutputs, "y");
    this.require(this.engine.model_update(this.stream, this.x, this.y));
  }

  /**
   * Predict at n inputs of each stream; the state does not change.
   * @param {ArrayLike<number>} x (streams, n, inputs)
   * @param {number} n at most nTargets
   */
  query(x, n = 1) {
    if (this.isFilter) throw new TypeError("this model has step, and no update and query.");
    if (!(Number.isInteger(n) && n >= 1 && n <= this.nTargets)) throw new RangeError(`n is ${n}; give 1 to ${this.nTargets}.`);
    this.put(this.x, x, this.nStreams * n * this.nInputs, "x");
    this.require(this.engine.model_query(this.stream, n, this.x));
    return this.predicted(n);
  }

  /** Return the state as Edgefold's snapshot, an .npz that every backend of the bundle restores. */
  save() {
    const n = this.engine.model_save(this.stream, this.snapshot);
    if (!n) throw new ModelRefused(2);
    return this.memory.bytes(this.snapshot, n).slice();
  }

  /** Go on from a snapshot; after an error the state is as before. @param {Uint8Array} bytes */
  restore(bytes) {
    const { top } = this.memory, place = this.memory.reserve(bytes.length);
    this.memory.bytes(place, bytes.length).set(bytes);
    const status = this.engine.model_load(this.stream, place, bytes.length);
    this.memory.top = top;
    this.require(status);
  }
}

/** Open the model that lies beside this file. */
export async function openModel() { return Model.open(await readBeside(new URL("./edgefold_model.wasm", import.meta.url))); }
