/** A call was refused and nothing changed; the message says why. */
export class ModelRefused extends Error {
  readonly status: number;
}

/** Runs a model of one bundle, whose state has a fixed size. */
export class Model {
  static open(wasm: BufferSource | WebAssembly.Module): Promise<Model>;
  private constructor();
  readonly nInputs: number;
  readonly nOutputs: number;
  readonly nStreams: number;
  /** The largest number of targets of one query. */
  readonly nTargets: number;
  /** Whether the model has `step`; all others have `update` and `query`. */
  readonly isFilter: boolean;
  /** The number of points of each stream that were learned. */
  readonly nPoints: number;
  readonly predictions: readonly { readonly name: string; readonly size: number }[];
  /** Forget everything. */
  reset(): void;
  /** Answer an input of each stream, and learn it; x is (streams, inputs). */
  step(x: ArrayLike<number>): Record<string, Float64Array>;
  /** Learn one point of each stream; x is (streams, inputs), y (streams, outputs). */
  update(x: ArrayLike<number>, y: ArrayLike<number>): void;
  /** Predict at n inputs of each stream, 1 by default; x is (streams, n, inputs). */
  query(x: ArrayLike<number>, n?: number): Record<string, Float64Array>;
  /** The state as Edgefold's snapshot, an .npz that every backend of the bundle restores. */
  save(): Uint8Array;
  /** Go on from a snapshot; after an error the state is as before. */
  restore(bytes: Uint8Array): void;
}

/** Open the model that lies beside index.js. */
export function openModel(): Promise<Model>;
