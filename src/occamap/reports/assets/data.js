// The numbers of the page: one compressed block in, plain objects and typed arrays out. `reports/pack.py` is the other end.

const KINDS = { Uint8Array, Int8Array, Uint16Array, Uint32Array, Float32Array, Float64Array };

async function unpack(text) {
  const letters = atob(text.trim());
  const bytes = new Uint8Array(letters.length);
  for (let k = 0; k < letters.length; k++) bytes[k] = letters.charCodeAt(k);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const block = await new Response(stream).arrayBuffer();
  const size = new DataView(block).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(block, 4, size)));
  const arrays = {};
  for (const [name, { kind, at, length }] of Object.entries(header.arrays)) {
    arrays[name] = new KINDS[kind](block, 4 + size + at, length);
  }
  return { ...header, arrays };
}

// Which gene moves in which cell, and how far: entries column by column, as `entries` in `reports/pack.py` packs them.
class Moves {
  constructor({ kept, starts, steps, values, units }, cells, genes) {
    Object.assign(this, { kept, starts, values, units, cells, genes });
    this.slot = new Int32Array(genes).fill(-1);
    kept.forEach((gene, slot) => (this.slot[gene] = slot));
    this.rows = new Uint16Array(steps.length);
    for (let slot = 0; slot < kept.length; slot++) {
      let row = -1;
      for (let k = starts[slot]; k < starts[slot + 1]; k++) this.rows[k] = row += steps[k];
    }
  }

  knows(gene) {
    return this.slot[gene] >= 0;
  }

  // The displacement of a gene in every cell.
  ofGene(gene) {
    const found = new Float32Array(this.cells);
    const slot = this.slot[gene];
    if (slot < 0) return found;
    for (let k = this.starts[slot]; k < this.starts[slot + 1]; k++) {
      found[this.rows[k]] = this.values[k] * this.units[slot];
    }
    return found;
  }

  // Of every gene: the share of the chosen cells that it moves in, and its mean displacement there.
  within(chosen) {
    let count = 0;
    for (const one of chosen) count += one;
    const share = new Float32Array(this.genes).fill(NaN);
    const mean = new Float32Array(this.genes).fill(NaN);
    for (let slot = 0; slot < this.kept.length; slot++) {
      let moving = 0;
      let sum = 0;
      for (let k = this.starts[slot]; k < this.starts[slot + 1]; k++) {
        if (chosen[this.rows[k]]) {
          moving++;
          sum += this.values[k];
        }
      }
      share[this.kept[slot]] = moving / count;
      mean[this.kept[slot]] = (sum * this.units[slot]) / count;
    }
    return { share, mean, count };
  }
}
