// A map: cells, genes, and which of them moves in which. Choosing cells shows their genes; choosing a gene, its cells.

const LEGEND = 40; // groups that a legend can name
const HINT = "Drag over cells, click one, or choose a group to see their genes; choose a gene to see its cells.";

const GENE_COLUMNS = {
  gene: { label: "gene", kind: "name" },
  share: { label: "moves in", kind: "share", help: "Share of all control cells that the gene moves in" },
  mean: { label: "mean", kind: "move", help: "Mean displacement over all control cells" },
  low: { label: "low", kind: "move", help: "Lower end of a 95 % interval for the mean, from fits to halves of the cells" },
  high: { label: "high", kind: "move", help: "Upper end of a 95 % interval for the mean, from fits to halves of the cells" },
  difference: { label: "difference", kind: "move", help: "Mean of the matched target cells minus that of the control cells" },
  difference_low: { label: "diff. low", kind: "move", help: "Lower end of a 95 % interval for the difference, from the same test as q" },
  difference_high: { label: "diff. high", kind: "move", help: "Upper end of a 95 % interval for the difference, from the same test as q" },
  frequency: { label: "in first", kind: "share", help: "Share of the fits to halves of the cells in which the gene is among the first (50, if not asked otherwise)" },
  expected_false: { label: "false at most", kind: "number", help: "Upper bound on the expected number of false genes among all that are in the first as often as this one, or more often" },
  observed: { label: "observed", kind: "move", help: "Mean of the target minus mean of the control cells, without any map" },
  log2_fold_change: { label: "log2 change", kind: "move", help: "Log2 of the mean normalised count of the matched target cells over that of the control cells" },
  q: { label: "q", kind: "small", help: "The lowest false-discovery rate at which the gene is found to differ between control cells and their matched target cells (Benjamini and Hochberg, over all genes)" },
  wilcoxon_p_adjusted: { label: "adjusted p", kind: "small", help: "Wilcoxon's rank-sum test of target against control cells, without any map; adjusted by Benjamini and Hochberg" },
};

class Explorer {
  constructor(data) {
    this.data = data;
    this.count = data.cells.length;
    this.moves = new Moves(data.arrays, this.count, data.genes.length);
    this.axes = [0, 1];
    this.width = data.arrays.before.length / Math.max(this.count, 1);
    const named = (role, name) => (name === role ? role : `${role}: ${name}`);
    this.roles = [named("control", data.control), "predicted", named("target", data.target)];
    this.shown = [true, true, true];
    this.gene = null;
    this.chosen = null; // 1 for each cell that is chosen, or null for all
    this.group = null; // the number of the group that is chosen
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
      { key: "chosen_share", label: "chosen: moves in", kind: "share", help, value: (row) => (arrays.share[row] ? here.share[row] : 0) },
      { key: "chosen_mean", label: "chosen: mean", kind: "move", help, value: (row) => (arrays.share[row] ? here.mean[row] : 0), size },
    ];
    if (this.group !== null && arrays.group_q) {
      const at = this.group * genes.length;
      for (const key of ["difference", "log2_fold_change", "q"]) {
        const { label, kind } = GENE_COLUMNS[key];
        const tested = `Tested in ${this.label}, with q-values over all genes of all groups`;
        added.push({ key: `chosen_${key}`, label: `chosen: ${label}`, kind, help: tested, value: (row) => arrays[`group_${key}`][at + row] });
      }
    }
    const all = plain.slice(1).filter(({ key }) => !["low", "high", "difference_low", "difference_high", "frequency", "expected_false"].includes(key));
    return [plain[0], ...added, ...all.map((column) => ({ ...column, label: `all: ${column.label}` }))];
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
          field: "group", type: "nominal", scale: { domain: (groups ?? []).map(harmless) },
          legend: groups?.length > LEGEND ? null : { title: by ?? null, orient: "bottom", columns: innerWidth < 700 ? 2 : 4, labelLimit: 150 },
        },
        gene: {
          field: "move", type: "quantitative", scale: { domain: colourRange(this), domainMid: 0, clamp: true, range: "diverging", interpolate: "rgb" },
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
      for (const event of ["click", "touchend"]) {
        view.addEventListener(event, (_, item) => item?.datum?.cell >= 0 && this.pickCell(item.datum.cell));
      }
    };
    await draw(element, "cells", () => ({ cells: cellRows(this) }), change, ready);
  }

  async drawHeatmap() {
    const made = tileRows(this);
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

  async drawMeans() {
    const made = geneRows(this.data);
    const all = this.data.genes.length;
    document.getElementById("means-told").textContent =
      all > DOTS ? `The ${DOTS.toLocaleString("en")} genes of ${all.toLocaleString("en")} that change most.` : `All ${all.toLocaleString("en")} genes.`;
    const labels = apart(made);
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
    const { groups } = this.data;
    const element = document.getElementById("groups");
    const told = document.getElementById("groups-told");
    told.hidden = element.hidden = !groups || this.gene === null || !this.moves.knows(this.gene);
    if (element.hidden) return;
    told.textContent = `${this.data.genes[this.gene]} by ${this.data.by}: mean displacement, and the share of cells in which it moves.`;
    const rows = groupRows(this);
    const change = (spec) => {
      spec.height = 50 + 22 * rows.length;
      spec.layer[0].mark.color = { expr: `datum.mean < 0 ? '${colour("--down")}' : '${colour("--up")}'` };
    };
    await draw(element, "groups", () => ({ groups: rows }), change);
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

  async pickCells(test, label, group = null) {
    const chosen = Uint8Array.from({ length: this.count }, (_, k) => (test(k) ? 1 : 0));
    this.chosen = chosen.includes(1) ? chosen : null;
    this.label = label;
    this.group = this.chosen ? group : null;
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
      if (this.group !== null && arrays.group_q && this.data.rate) {
        const tested = arrays.group_q.subarray(this.group * genes.length, (this.group + 1) * genes.length);
        const found = tested.reduce((sum, q) => sum + (q <= this.data.rate), 0);
        if (tested.some(Number.isFinite)) told.push(`${found.toLocaleString("en")} genes respond there (q ≤ ${this.data.rate}).`);
        else told.push("Its genes were not tested: it has too few cells or replicates.");
      }
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
        target.value === "" ? this.clear() : this.pickCells((k) => this.data.arrays.group[k] === Number(target.value), groups[target.value], Number(target.value)),
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
    const exact = () => Math.max(names.indexOf(box.value), names.indexOf(box.value.trim()));
    box.addEventListener("input", () => {
      const wanted = box.value.trim().toLowerCase();
      const found = [];
      for (let k = 0; k < names.length && found.length < 12 && wanted; k++) {
        if (names[k].toLowerCase().includes(wanted)) found.push(k);
      }
      list.replaceChildren(...found.map((k) => new Option("", names[k])));
      if (exact() >= 0) take(exact());
    });
    box.addEventListener("change", () => {
      const wanted = box.value.trim().toLowerCase();
      const same = exact() >= 0 ? exact() : names.findIndex((name) => name.toLowerCase() === wanted);
      box.setCustomValidity(wanted && same < 0 ? "There is no such name." : "");
      box.reportValidity();
      if (same >= 0) take(same);
    });
  }
}
