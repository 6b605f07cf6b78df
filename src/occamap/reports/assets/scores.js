// An evaluation: a score on held-out cells against sparsity, and all of them in a table.

class Scores {
  constructor(data) {
    this.data = data;
    this.condition = 0;
    this.metric = 0;
  }

  async start() {
    const { conditions, metrics } = this.data;
    const get = (id) => document.getElementById(id);
    conditions.forEach((name, k) => get("condition").append(new Option(name, k)));
    metrics.forEach(({ label, better }, k) => better && get("metric").append(new Option(label, k)));
    get("condition").addEventListener("change", ({ target }) => this.choose(Number(target.value), this.metric));
    get("metric").addEventListener("change", ({ target }) => this.choose(this.condition, Number(target.value)));
    this.table = new Table(get("methods-table"), { columns: this.columns(), count: this.data.methods.length, file: "scores.csv" });
    await this.draw();
  }

  async choose(condition, metric) {
    Object.assign(this, { condition, metric });
    this.table.show(this.columns(), "scores.csv");
    await this.draw();
  }

  // The mean over splits of a metric, in this condition.
  score(metric, method) {
    const { metrics, methods, arrays } = this.data;
    return arrays.scores[(this.condition * metrics.length + metric) * methods.length + method];
  }

  columns() {
    const { metrics, methods } = this.data;
    return [
      { key: "method", label: "method", kind: "name", value: (row) => methods[row].label },
      { key: "gamma", label: "γ", kind: "number", value: (row) => methods[row].gamma },
      { key: "epsilon", label: "ε", kind: "number", value: (row) => methods[row].epsilon },
      ...metrics.map(({ key, label, help, kind }, metric) => ({ key, label, help, kind, value: (row) => this.score(metric, row) })),
    ];
  }

  async draw() {
    const { metrics, methods, density } = this.data;
    const rows = methods.map((method, row) => ({ ...method, score: this.score(this.metric, row), density: this.score(density, row) }));
    const known = rows.filter(({ score }) => Number.isFinite(score));
    const points = known.filter((row) => !row.baseline && Number.isFinite(row.density)).map((row) => ({ ...row, method: row.label }));
    const lines = known.filter((row) => row.baseline).map(({ label, score }) => ({ what: label, score }));
    const { label, better } = metrics[this.metric];
    const change = (spec) => {
      const { x, y } = spec.layer.at(-1).encoding;
      x.scale = points.every((row) => row.density > 0) ? { type: "log", nice: false, padding: 14 } : { type: "symlog", constant: 0.001, padding: 14 };
      y.title = `${label} (${better} is better)`;
    };
    await draw(document.getElementById("scores"), "scores", () => ({ points, lines: across(lines) }), change);
  }
}
