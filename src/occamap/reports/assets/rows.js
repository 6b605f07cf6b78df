// What the charts of a map are drawn from: rows of plain values, from the data and what is chosen in the page.

const TILES = { genes: 40, cells: 160 };
const DOTS = 3000; // genes in the chart of means
const LABELS = 10;
const PALE = 0.08;
const BANDS = 60; // groups that a heat map can name

// Cells, as they are and as they are predicted: those that are chosen, and those in which the gene moves, on top.
function cellRows(state) {
  const { arrays, cells, targets, groups } = state.data;
  const moves = state.gene === null ? null : state.moves.ofGene(state.gene);
  const [a, b] = state.axes;
  const made = [];
  const add = (role, coordinates, names, codes, lit) => {
    if (!state.shown[role]) return;
    for (let k = 0; k < names.length; k++) {
      const move = moves && role < 2 ? moves[k] : null;
      const on = lit(k);
      made.push({
        x: coordinates[k * state.width + a],
        y: coordinates[k * state.width + b],
        role: state.roles[role],
        name: names[k],
        group: codes ? harmless(groups[codes[k]]) : "",
        move: state.mode === "gene" && move === null ? 0 : move,
        tip: [names[k], state.roles[role], codes ? groups[codes[k]] : "", move === null ? "" : FORMATS.move(move)].filter(Boolean).join("\n"),
        opacity: on ? (role === 2 ? 0.45 : 0.8) : PALE,
        cell: role < 2 ? k : -1,
        above: (on ? 2 : 0) + (move ? 1 : 0),
      });
    }
  };
  const lit = (k) => !state.chosen || state.chosen[k] === 1;
  add(2, arrays.beyond, targets, arrays.group_beyond, () => !state.chosen);
  add(0, arrays.before, cells, arrays.group, lit);
  add(1, arrays.after, cells, arrays.group, lit);
  return made.sort((one, other) => one.above - other.above);
}

// The range of colours of the gene: all but the largest moves, which share the ends.
function colourRange(state) {
  if (state.gene === null) return [-1, 1];
  const sizes = state.moves.ofGene(state.gene).map(Math.abs).sort();
  const most = sizes[Math.floor(0.995 * (sizes.length - 1))] || sizes[sizes.length - 1] || 1;
  return [-most, most];
}

// The cells of the heat map: evenly spaced by group and how far they move; and the genes that move most in them.
function tileRows(state) {
  const { arrays, cells, groups, genes } = state.data;
  const here = state.moves.within(state.chosen ?? new Uint8Array(state.count).fill(1));
  const columns = [...state.moves.kept]
    .filter((gene) => here.mean[gene])
    .sort((a, b) => Math.abs(here.mean[b]) - Math.abs(here.mean[a]))
    .slice(0, innerWidth < 700 ? TILES.genes / 2 : TILES.genes)
    .sort((a, b) => here.mean[b] - here.mean[a]);
  const values = columns.map((gene) => state.moves.ofGene(gene));
  const among = [];
  for (let k = 0; k < state.count; k++) if (!state.chosen || state.chosen[k]) among.push(k);
  const total = (k) => values.reduce((sum, column) => sum + Math.abs(column[k]), 0);
  const code = (k) => (arrays.group ? arrays.group[k] : 0);
  const totals = new Map(among.map((k) => [k, total(k)]));
  among.sort((a, b) => code(a) - code(b) || totals.get(b) - totals.get(a));
  const rows = Array.from({ length: Math.min(among.length, TILES.cells) }, (_, k) => {
    return among[Math.floor(((k + 0.5) * among.length) / Math.min(among.length, TILES.cells))];
  });
  const tiles = [];
  const bands = [];
  rows.forEach((cell, row) => {
    const group = groups ? groups[code(cell)] : "";
    if (groups && (!bands.length || bands.at(-1).group !== group)) bands.push({ group, row, end: row });
    if (groups) bands.at(-1).end = row + 1;
    columns.forEach((gene, k) => {
      const move = values[k][cell];
      const tip = [`${genes[gene]} ${FORMATS.move(move)}`, cells[cell], group].filter(Boolean).join("\n");
      tiles.push({ gene: harmless(genes[gene]), row, end: row + 1, move, tip });
    });
  });
  if (bands.length > BANDS) bands.length = 0; // nothing but lines
  for (const band of bands) {
    band.middle = (band.row + band.end) / 2;
    band.label = band.end - band.row >= 0.03 * rows.length ? band.group : ""; // where there is room for it
  }
  const sizes = tiles.map(({ move }) => Math.abs(move)).sort((a, b) => a - b);
  return { tiles, bands, rows: rows.length, columns: columns.length, most: sizes[Math.floor(0.99 * (sizes.length - 1))] || 1 };
}

// The genes that change most, and the extents of the chart.
function geneRows({ arrays, genes }) {
  const row = (gene) => ({ gene: genes[gene], index: gene, observed: arrays.observed[gene], mean: arrays.mean[gene] });
  const size = (gene) => Math.max(Math.abs(arrays.observed[gene]) || 0, Math.abs(arrays.mean[gene]));
  const order = Array.from(genes.keys()).sort((a, b) => size(b) - size(a)).slice(0, DOTS);
  const rows = order.map(row);
  const extent = (key) => {
    const values = rows.map((dot) => dot[key] || 0);
    const [low, high] = [Math.min(0, ...values), Math.max(0, ...values)];
    return [low - 0.05 * (high - low || 1), high + 0.05 * (high - low || 1)];
  };
  const extents = { x: extent("observed"), y: extent("mean") };
  const line = [0, 1].map((end) => ({ at: Math[end ? "min" : "max"](extents.x[end], extents.y[end]) }));
  return { rows, line, extents };
}

// Of the genes that change most, those whose names do not stand in each other's way.
function apart({ rows, extents: { x, y } }) {
  const found = [];
  const near = (one, other) =>
    Math.abs(one.observed - other.observed) < 0.14 * (x[1] - x[0]) && Math.abs(one.mean - other.mean) < 0.035 * (y[1] - y[0]);
  for (const dot of rows.slice(0, 4 * LABELS)) {
    if (found.length < LABELS && !found.some((other) => near(dot, other))) found.push(dot);
  }
  return found;
}

// Of each group of control cells: the mean displacement of the gene, and the share of cells in which it moves.
function groupRows(state) {
  const { arrays, groups } = state.data;
  const moves = state.moves.ofGene(state.gene);
  const rows = groups.map((group) => ({ group: harmless(group), mean: 0, share: 0, cells: 0 }));
  moves.forEach((move, k) => {
    const row = rows[arrays.group[k]];
    row.cells++;
    row.mean += move;
    row.share += move !== 0;
  });
  const filled = rows.filter(({ cells }) => cells);
  for (const row of filled) {
    row.mean /= row.cells;
    row.share /= row.cells;
    row.end = Math.max(row.mean, 0);
  }
  return filled;
}
