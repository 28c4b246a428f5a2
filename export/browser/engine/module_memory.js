// The memory of a module of WebAssembly: places in it, texts, and the file of the module.

const PAGE_BYTES = 65536, ALIGNMENT = 16;

/** Gives out places in the memory behind what the module itself uses. */
export class ModuleMemory {
  /** @param {WebAssembly.Instance} instance */
  constructor(instance) {
    const { memory, __heap_base: base, _initialize: initialize } = /** @type {any} */ (instance.exports);
    initialize?.();
    /** @type {WebAssembly.Memory} */
    this.memory = memory;
    /** @type {number} */
    this.top = base.value;
  }

  /** Return the address of n bytes that nobody uses. @param {number} n */
  reserve(n) {
    const place = Math.ceil(this.top / ALIGNMENT) * ALIGNMENT;
    this.top = place + n;
    const missing = this.top - this.memory.buffer.byteLength;
    if (missing > 0) this.memory.grow(Math.ceil(missing / PAGE_BYTES));
    return place;
  }

  /** Return n numbers at an address; they are valid until memory is reserved. @param {number} place @param {number} n */
  numbers(place, n) { return new Float64Array(this.memory.buffer, place, n); }

  /** Return n bytes at an address, in the same way. @param {number} place @param {number} n */
  bytes(place, n) { return new Uint8Array(this.memory.buffer, place, n); }

  /** Return the text of C at an address. @param {number} place */
  text(place) {
    const bytes = new Uint8Array(this.memory.buffer, place);
    return new TextDecoder().decode(bytes.subarray(0, bytes.indexOf(0)));
  }
}

/** Compile and start a module that imports nothing. @param {BufferSource | WebAssembly.Module} wasm */
export async function started(wasm) {
  const module = wasm instanceof WebAssembly.Module ? wasm : await WebAssembly.compile(wasm);
  return WebAssembly.instantiate(module, {});
}

/** Read a file that lies beside a module of JavaScript, in node or in a browser. @param {URL} place */
export async function readBeside(place) {
  if (place.protocol === "file:") {
    const files = "node:fs/promises"; // a name, so that bundlers of browsers do not look for it
    const { readFile } = await import(/* webpackIgnore: true */ /* @vite-ignore */ files);
    return readFile(place);
  }
  const answer = await fetch(place);
  if (!answer.ok) throw new Error(`${place} answered ${answer.status}; serve the file beside index.js.`);
  return answer.arrayBuffer();
}
