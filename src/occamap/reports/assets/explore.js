// A map: cells, genes, and which of them moves in which. Choosing cells shows their genes; choosing a gene, its cells.

const TILES = { genes: 40, cells: 160 };
const DOTS = 3000; // genes in the chart of means
const LABELS = 10;
const PALE = 0.08;
const HINT = "Drag over cells, click one, or choose a group to see their genes; choose a gene to see its cells.";

const GENE_COLUMNS = {
  gene: { label: "gene", kind: "name" },
  share: { label: "moves in", kind: "share", help: "Share of all control cells that the gene moves in" },
  mean: { label: "mean", kind: "move", help: "Mean displacement over all control cells" },
  low: { label: "low", kind: "move", help: "Mean − 1.96 standard errors, from fits to halves of the cells" },
  high: { label: "high", kind: "move", help: "Mean + 1.96 standard errors, from fits to halves of the cells" },
  frequency: { label: "in first", kind: "share", help: "Share of the fits to halves of the cells in which the gene is among the first (50, if not asked otherwise)" },
  observed: { label: "observed", kind: "move", help: "Mean of the target minus mean of the control cells, without any map" },
  wilcoxon_p_adjusted: { label: "adjusted p", kind: "small", help: "Wilcoxon's rank-sum test of target against control cells, without any map; adjusted by Benjamini and Hochberg" },
};

class Explorer {
  constructor(data) {
    this.data = data;
    this.count = data.cells.length;
    this.moves = new Moves(data.arrays, this.count, data.genes.length);
    this.place = new Map(data.genes.map((name, gene) => [name, gene]));
    this.axes = [0, 1];
    this.width = data.arrays.before.length / Math.max(this.count, 1);
    const named = (role, name) => (name === role ? role : `${role}: ${name}`);
    this.roles = [named("control", data.control), "predicted", named("target", data.target)];
    this.shown = [true, true, true];
    this.gene = null;
    this.chosen = null; // 1 for each cell that is chosen, or null for all
    this.mode = data.groups ? "group" : "role";
  }

  async start() {
    this.table = new Table(document.getElementById("genes"), {
      columns: this.columns(),
      count: this.data.genes.length,
      file: "genes.csv",
      pick: (gene) => this.pickGene(gene),
    });
    this.controls();
    this.say();
    await this.drawCells();
    await this.drawHeatmap();
    await this.drawMeans();
  }

  // -- what is drawn ------------------------------------------------------------------------------------------------

  columns() {
    const { arrays, genes, columns } = this.data;
    const value = (key) => (key === "gene" ? (row) => genes[row] : (row) => arrays[key][row]);
    const plain = ["gene", ...columns].map((key) => ({ key, ...GENE_COLUMNS[key], value: value(key) }));
    if (!this.chosen) return plain;
    const here = this.moves.within(this.chosen);
    const help = `In the ${here.count.toLocaleString("en")} cells that are chosen`;
    const size = (row) => Math.abs(here.mean[row]);
    const added = [
      { key: "chosen_share", label: "chosen: moves in", kind: "share", help, value: (row) => here.share[row] },
      { key: "chosen_mean", label: "chosen: mean", kind: "move", help, value: (row) => here.mean[row], size },
    ];
    const all = plain.slice(1).filter(({ key }) => !["low", "high", "frequency"].includes(key));
    return [plain[0], ...added, ...all.map((column) => ({ ...column, label: `all: ${column.label}` }))];
  }

  points() {
    const { arrays, cells, targets, groups } = this.data;
    const moves = this.gene === null ? null : this.moves.ofGene(this.gene);
    const [a, b] = this.axes;
    const made = [];
    const add = (role, coordinates, names, codes, lit) => {
      if (!this.shown[role]) return;
      for (let k = 0; k < names.length; k++) {
        const move = moves && role < 2 ? moves[k] : null;
        const on = lit(k);
        made.push({
          x: coordinates[k * this.width + a],
          y: coordinates[k * this.width + b],
          role: this.roles[role],
          name: names[k],
          group: codes ? groups[codes[k]] : "",
          move: this.mode === "gene" && move === null ? 0 : move,
          tip: [names[k], this.roles[role], codes ? groups[codes[k]] : "", move === null ? "" : FORMATS.move(move)].filter(Boolean).join("\n"),
          opacity: on ? (role === 2 ? 0.45 : 0.8) : PALE,
          cell: role < 2 ? k : -1,
          above: (on ? 2 : 0) + (move ? 1 : 0),
        });
      }
    };
    const lit = (k) => !this.chosen || this.chosen[k] === 1;
    add(2, arrays.beyond, targets, arrays.group_beyond, () => !this.chosen);
    add(0, arrays.before, cells, arrays.group, lit);
    add(1, arrays.after, cells, arrays.group, lit);
    return made.sort((one, other) => one.above - other.above);
  }

  async drawCells() {
    const { arrays, groups, genes, by, explained } = this.data;
    const element = document.getElementById("cells");
    const extent = (axis) => {
      let low = Infinity;
      let high = -Infinity;
      for (const part of [arrays.before, arrays.after, arrays.beyond]) {
        for (let k = axis; k < part.length; k += this.width) {
          low = Math.min(low, part[k]);
          high = Math.max(high, part[k]);
        }
      }
      const margin = 0.03 * (high - low || 1);
      return [low - margin, high + margin];
    };
    const change = (spec) => {
      ["x", "y"].forEach((channel, k) => {
        const axis = this.axes[k];
        const share = explained.length ? ` (${(100 * explained[axis]).toFixed(1)} % of the variance)` : "";
        spec.encoding[channel].scale.domain = extent(axis);
        spec.encoding[channel].title = `component ${axis + 1}${share}`;
      });
      spec.encoding.shape.scale.domain = this.roles;
      spec.encoding.color = {
        role: { field: "role", type: "nominal", scale: { domain: this.roles }, legend: { title: null, orient: "top", columns: 3, labelLimit: 220 } },
        group: {
          field: "group", type: "nominal", scale: { domain: groups ?? [] },
          legend: { title: by ?? null, orient: "bottom", columns: innerWidth < 700 ? 2 : 4, labelLimit: 150 },
        },
        gene: {
          field: "move", type: "quantitative", scale: { domain: this.range(), domainMid: 0, clamp: true, range: "diverging", interpolate: "rgb" },
          legend: { title: `displacement of ${this.gene === null ? "" : genes[this.gene]}`, orient: "bottom", gradientLength: 200, titleLimit: 260 },
        },
      }[this.mode];
    };
    const ready = (view) => {
      let timer;
      view.addSignalListener("brush", (_, area) => {
        clearTimeout(timer);
        timer = setTimeout(() => this.brushed(area), 120);
      });
      view.addEventListener("click", (_, item) => {
        if (item?.datum && item.datum.cell >= 0) this.pickCell(item.datum.cell);
      });
      view.addEventListener("touchend", (_, item) => {
        if (item?.datum && item.datum.cell >= 0) this.pickCell(item.datum.cell);
      });
    };
    await draw(element, "cells", () => ({ cells: this.points() }), change, ready);
  }

  range() {
    if (this.gene === null) return [-1, 1];
    const sizes = this.moves.ofGene(this.gene).map(Math.abs).sort();
    const most = sizes[Math.floor(0.995 * (sizes.length - 1))] || sizes[sizes.length - 1] || 1;
    return [-most, most];
  }

  // The cells of the heat map: evenly spaced by group and how far they move; and the genes that move most in them.
  tiles() {
    const { arrays, cells, groups, genes } = this.data;
    const here = this.moves.within(this.chosen ?? new Uint8Array(this.count).fill(1));
    const columns = [...this.moves.kept]
      .filter((gene) => here.mean[gene])
      .sort((a, b) => Math.abs(here.mean[b]) - Math.abs(here.mean[a]))
      .slice(0, innerWidth < 700 ? TILES.genes / 2 : TILES.genes)
      .sort((a, b) => here.mean[b] - here.mean[a]);
    const values = columns.map((gene) => this.moves.ofGene(gene));
    const among = [];
    for (let k = 0; k < this.count; k++) if (!this.chosen || this.chosen[k]) among.push(k);
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
        tiles.push({ gene: genes[gene], row, end: row + 1, move, tip });
      });
    });
    for (const band of bands) {
      band.middle = (band.row + band.end) / 2;
      band.label = band.end - band.row >= 0.03 * rows.length ? band.group : ""; // where there is room for it
    }
    const sizes = tiles.map(({ move }) => Math.abs(move)).sort((a, b) => a - b);
    return { tiles, bands, rows: rows.length, columns: columns.length, most: sizes[Math.floor(0.99 * (sizes.length - 1))] || 1 };
  }

  async drawHeatmap() {
    const made = this.tiles();
    const whole = this.chosen ? this.chosen.reduce((sum, one) => sum + one, 0) : this.count;
    const which = made.rows < whole ? `${made.rows} of ${whole.toLocaleString("en")}` : `${whole.toLocaleString("en")}`;
    const kind = `${this.chosen ? "chosen " : ""}control ${whole === 1 ? "cell" : "cells"}`;
    document.getElementById("heatmap-told").textContent = made.columns
      ? `${which} ${kind}, and the ${made.columns} genes that move most there on average.`
      : "No gene moves in these cells.";
    const change = (spec) => {
      spec.layer[0].encoding.color.scale = { domain: [-made.most, 0, made.most], clamp: true, range: "diverging", interpolate: "rgb" };
      spec.layer[0].encoding.y.scale.domain = [0, Math.max(made.rows, 1)];
      if (!this.data.groups) spec.layer = spec.layer.slice(0, 1);
    };
    const data = () => ({ tiles: made.tiles, ...(this.data.groups ? { bands: made.bands } : {}) });
    await draw(document.getElementById("heatmap"), "heatmap", data, change);
  }

  dots() {
    const { arrays, genes } = this.data;
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
  apart({ rows, extents: { x, y } }) {
    const found = [];
    const near = (one, other) =>
      Math.abs(one.observed - other.observed) < 0.14 * (x[1] - x[0]) && Math.abs(one.mean - other.mean) < 0.035 * (y[1] - y[0]);
    for (const dot of rows.slice(0, 4 * LABELS)) {
      if (found.length < LABELS && !found.some((other) => near(dot, other))) found.push(dot);
    }
    return found;
  }

  async drawMeans() {
    const made = this.dots();
    const all = this.data.genes.length;
    document.getElementById("means-told").textContent =
      all > DOTS ? `The ${DOTS.toLocaleString("en")} genes of ${all.toLocaleString("en")} that change most.` : `All ${all.toLocaleString("en")} genes.`;
    const labels = this.apart(made);
    const chosen = () => made.rows.filter(({ index }) => index === this.gene);
    const change = (spec) => {
      for (const { encoding } of spec.layer) {
        for (const channel of ["x", "y"]) encoding[channel].scale = { domain: made.extents[channel] };
      }
      spec.layer[1].mark.color = colour("--accent");
      spec.layer[2].mark.color = colour("--ink");
    };
    const ready = (view) =>
      view.addEventListener("click", (_, item) => {
        if (item?.datum?.index !== undefined) this.pickGene(item.datum.index);
      });
    const data = () => ({
      line: made.line,
      genes: made.rows,
      chosen: chosen(),
      labels: [...labels, ...chosen().filter((dot) => !labels.includes(dot))],
    });
    await draw(document.getElementById("means"), "means", data, change, ready);
  }

  async drawGroups() {
    const { arrays, groups } = this.data;
    const element = document.getElementById("groups");
    const told = document.getElementById("groups-told");
    told.hidden = element.hidden = !groups || this.gene === null || !this.moves.knows(this.gene);
    if (element.hidden) return;
    told.textContent = `${this.data.genes[this.gene]} by ${this.data.by}: mean displacement, and the share of cells in which it moves.`;
    const moves = this.moves.ofGene(this.gene);
    const rows = groups.map((group) => ({ group, mean: 0, share: 0, cells: 0 }));
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
    const change = (spec) => {
      spec.height = 50 + 22 * filled.length;
      spec.layer[0].mark.color = { expr: `datum.mean < 0 ? '${colour("--down")}' : '${colour("--up")}'` };
    };
    await draw(element, "groups", () => ({ groups: filled }), change);
  }

  // -- choosing -----------------------------------------------------------------------------------------------------

  async pickGene(gene) {
    this.gene = gene === this.gene ? null : gene;
    const seen = this.gene !== null && (this.moves.knows(this.gene) || !this.data.arrays.share[this.gene]);
    this.mode = seen ? "gene" : this.data.groups ? "group" : "role";
    document.getElementById("gene").value = this.gene === null ? "" : this.data.genes[this.gene];
    document.getElementById("colour").value = this.mode;
    this.table.mark(this.gene);
    this.say();
    await this.drawCells();
    await this.drawGroups();
    await feed(document.getElementById("means"));
  }

  async pickCells(test, label) {
    const chosen = Uint8Array.from({ length: this.count }, (_, k) => (test(k) ? 1 : 0));
    this.chosen = chosen.includes(1) ? chosen : null;
    this.label = label;
    this.empty = label !== "" && !this.chosen;
    if (this.chosen) this.table.show(this.columns(), "genes of chosen cells.csv", "chosen_mean");
    else this.table.show(this.columns(), "genes.csv");
    this.table.mark(this.gene);
    this.say();
    await feed(document.getElementById("cells"));
    await this.drawHeatmap();
  }

  pickCell(cell) {
    const { cells, groups, arrays } = this.data;
    document.getElementById("cell").value = cells[cell];
    return this.pickCells((k) => k === cell, groups ? `${cells[cell]} (${groups[arrays.group[cell]]})` : cells[cell]);
  }

  brushed(area) {
    if (!area?.x || !area?.y) {
      if (this.label === "in the frame") this.clear();
      return;
    }
    const { before, after } = this.data.arrays;
    const [a, b] = this.axes;
    const inside = (part, k) => {
      const [x, y] = [part[k * this.width + a], part[k * this.width + b]];
      return x >= Math.min(...area.x) && x <= Math.max(...area.x) && y >= Math.min(...area.y) && y <= Math.max(...area.y);
    };
    this.pickCells((k) => (this.shown[0] && inside(before, k)) || (this.shown[1] && inside(after, k)), "in the frame");
  }

  clear() {
    document.getElementById("group").value = "";
    document.getElementById("cell").value = "";
    return this.pickCells(() => false, "");
  }

  say() {
    const { genes, arrays } = this.data;
    const told = [];
    if (this.chosen) {
      const here = this.moves.within(this.chosen);
      const half = here.share.reduce((sum, share) => sum + (share >= 0.5), 0);
      const which = here.count === 1 ? this.label : `${here.count.toLocaleString("en")} cells (${this.label})`;
      told.push(`${which}: ${half.toLocaleString("en")} genes move in ${here.count === 1 ? "it" : "at least half of them"}.`);
    }
    if (this.gene !== null) {
      const share = FORMATS.share(arrays.share[this.gene]);
      const means = `${FORMATS.move(arrays.mean[this.gene])} on average, ${FORMATS.move(arrays.observed[this.gene])} observed`;
      const lacking = this.moves.knows(this.gene) || !arrays.share[this.gene] ? "" : " In which of them is left out of this page, for its size.";
      told.push(`${genes[this.gene]} moves in ${share} of all control cells: ${means}.${lacking}`);
    }
    if (this.empty) told.unshift("There are no control cells there.");
    document.getElementById("said").textContent = told.join(" ") || HINT;
  }

  // -- controls -----------------------------------------------------------------------------------------------------

  controls() {
    const { groups, by, genes, cells } = this.data;
    const get = (id) => document.getElementById(id);
    const options = (element, entries) => {
      for (const [value, text] of entries) element.append(new Option(text, value));
    };
    options(get("colour"), [["role", "control, predicted, target"], ...(groups ? [["group", by]] : []), ["gene", "a gene's displacement"]]);
    get("colour").value = this.mode;
    get("colour").addEventListener("change", (event) => {
      if (event.target.value === "gene" && this.gene === null) return this.pickGene(0);
      this.mode = event.target.value;
      return this.drawCells();
    });
    if (groups) {
      const there = new Set(this.data.arrays.group); // those of target cells alone have no control cells to choose
      options(get("group"), [["", "all"], ...groups.map((name, code) => [String(code), name]).filter((_, code) => there.has(code))]);
      get("group").addEventListener("change", ({ target }) =>
        target.value === "" ? this.clear() : this.pickCells((k) => this.data.arrays.group[k] === Number(target.value), groups[target.value]),
      );
    }
    get("group").closest("label").hidden = !groups;
    const pairs = [];
    for (let a = 0; a < this.width; a++) for (let b = a + 1; b < this.width; b++) pairs.push([`${a},${b}`, `${a + 1} and ${b + 1}`]);
    options(get("axes"), pairs);
    get("axes").addEventListener("change", ({ target }) => {
      this.axes = target.value.split(",").map(Number);
      return this.drawCells();
    });
    get("axes").closest("label").hidden = pairs.length < 2;
    document.querySelectorAll("#roles input").forEach((box, role) =>
      box.addEventListener("change", () => {
        this.shown[role] = box.checked;
        return feed(get("cells"));
      }),
    );
    this.suggest(get("gene"), get("gene-names"), genes, (gene) => gene !== this.gene && this.pickGene(gene));
    this.suggest(get("cell"), get("cell-names"), cells, (cell) => this.pickCell(cell));
    const reset = async () => {
      await this.clear();
      if (this.gene !== null) await this.pickGene(this.gene);
    };
    get("clear").addEventListener("click", reset);
    document.addEventListener("keydown", (event) => event.key === "Escape" && reset());
  }

  // A box in which to type a name: the first names that fit are offered, and one that is whole is taken.
  suggest(box, list, names, take) {
    box.addEventListener("input", () => {
      const wanted = box.value.trim().toLowerCase();
      const found = [];
      for (let k = 0; k < names.length && found.length < 12 && wanted; k++) {
        if (names[k].toLowerCase().includes(wanted)) found.push(k);
      }
      list.replaceChildren(...found.map((k) => new Option("", names[k])));
      const same = names.indexOf(box.value.trim());
      if (same >= 0) take(same);
    });
    box.addEventListener("change", () => {
      const wanted = box.value.trim().toLowerCase();
      const same = names.findIndex((name) => name.toLowerCase() === wanted);
      box.setCustomValidity(wanted && same < 0 ? "There is no such name." : "");
      box.reportValidity();
      if (same >= 0) take(same);
    });
  }
}
