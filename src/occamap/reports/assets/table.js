// A table that can be searched, sorted and saved: rows are numbers from 0 on, columns give the value of a row.

const FORMATS = {
  name: (value) => value,
  share: (value) => `${(100 * value).toFixed(value > 0 && value < 0.0995 ? 1 : 0)} %`,
  move: (value) => {
    const size = Math.abs(value);
    const shown = size > 0 && size < 0.0005 ? size.toPrecision(2) : size.toFixed(size < 0.0995 ? 3 : 2);
    return `${value < 0 ? "−" : "+"}${shown}`;
  },
  small: (value) => (Number.isNaN(value) ? "–" : value >= 0.001 ? value.toPrecision(2) : value === 0 ? "0" : value.toExponential(0)),
  number: (value) => String(Number(value.toPrecision(4))),
};
const PAGE = 25;

function shown(column, row) {
  const value = column.value(row);
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  return FORMATS[column.kind](value);
}

class Table {
  // `columns`: key, label, help, kind and value(row), and perhaps size(row) to sort by at first; the first is searched. `pick(row)`: a row was chosen.
  constructor(root, { columns, count, file, pick }) {
    Object.assign(this, { root, columns, count, file, pick });
    this.body = root.querySelector("tbody");
    this.head = root.querySelector("thead tr");
    this.told = root.querySelector(".told");
    this.search = root.querySelector("input[type=search]");
    this.more = root.querySelector("button.more");
    this.sorted = { key: null, down: true };
    this.picked = null;
    this.limit = PAGE;
    this.search?.addEventListener("input", () => this.refresh(true));
    this.more.addEventListener("click", () => {
      this.limit += 4 * PAGE;
      this.fill();
    });
    root.querySelector("button.save").addEventListener("click", () => this.save());
    this.refresh(true);
  }

  // Other columns, and which of them to sort by; null keeps the order of the rows.
  show(columns, file, key = null, down = true) {
    this.columns = columns;
    this.file = file;
    this.sorted = { key, down, size: true };
    this.refresh(true);
  }

  refresh(first = false) {
    if (first) this.limit = PAGE;
    const wanted = (this.search?.value ?? "").trim().toLowerCase();
    const names = this.columns[0];
    let rows = Array.from({ length: this.count }, (_, row) => row);
    if (wanted) rows = rows.filter((row) => String(names.value(row)).toLowerCase().includes(wanted));
    this.rows = this.order(rows);
    this.heads();
    this.fill();
  }

  order(rows) {
    const column = this.columns.find(({ key }) => key === this.sorted.key);
    if (!column) return rows;
    const sign = this.sorted.down ? -1 : 1;
    if (column.kind === "name") return rows.sort((a, b) => -sign * column.value(a).localeCompare(column.value(b)));
    const value = (row) => {
      const found = (this.sorted.size && column.size ? column.size : column.value)(row);
      return found === null || Number.isNaN(found) ? sign * Infinity : found;
    };
    return rows.sort((a, b) => sign * (value(a) - value(b)) || a - b);
  }

  heads() {
    this.head.replaceChildren(
      ...this.columns.map((column) => {
        const cell = document.createElement("th");
        const button = document.createElement("button");
        const here = this.sorted.key === column.key;
        cell.scope = "col";
        cell.className = column.kind === "name" ? "" : "number";
        const way = this.sorted.down === (column.kind !== "name") ? "descending" : "ascending"; // names begin with A
        cell.setAttribute("aria-sort", !here ? "none" : this.sorted.size ? "other" : way);
        button.type = "button";
        button.textContent = column.label;
        button.title = column.help ?? "";
        button.addEventListener("click", () => {
          this.sorted = { key: column.key, down: here && !this.sorted.size ? !this.sorted.down : true };
          this.refresh(true);
          this.head.children[this.columns.indexOf(column)].firstChild.focus();
        });
        cell.append(button);
        return cell;
      }),
    );
  }

  fill() {
    const visible = this.rows.slice(0, this.limit);
    this.body.replaceChildren(...visible.map((row) => this.line(row)));
    const all = this.rows.length;
    this.told.textContent = !all ? "No such name" : `${visible.length.toLocaleString("en")} of ${all.toLocaleString("en")} rows`;
    this.more.hidden = visible.length === all;
  }

  line(row) {
    const line = document.createElement("tr");
    line.dataset.row = row;
    line.classList.toggle("picked", row === this.picked);
    this.columns.forEach((column, k) => {
      const cell = document.createElement(k ? "td" : "th");
      const text = shown(column, row);
      cell.className = column.kind === "name" ? "" : "number";
      if (k === 0 && this.pick) {
        const button = document.createElement("button");
        cell.scope = "row";
        button.type = "button";
        button.textContent = text;
        button.setAttribute("aria-pressed", row === this.picked);
        button.addEventListener("click", () => this.pick(row));
        cell.append(button);
      } else {
        cell.textContent = text;
      }
      line.append(cell);
    });
    return line;
  }

  mark(row) {
    this.picked = row;
    for (const line of this.body.children) {
      const here = Number(line.dataset.row) === row;
      line.classList.toggle("picked", here);
      line.querySelector("button")?.setAttribute("aria-pressed", here);
    }
  }

  // All rows that the search leaves, in their order, as CSV.
  save() {
    const quoted = (value) => {
      const text = value === null || value === undefined || Number.isNaN(value) ? "" : String(value);
      return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    const plain = (value) => (typeof value === "number" ? Number(value.toPrecision(7)) : value);
    const lines = [this.columns.map(({ key }) => quoted(key)).join(",")];
    for (const row of this.rows) lines.push(this.columns.map(({ value }) => quoted(plain(value(row)))).join(","));
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([lines.join("\n") + "\n"], { type: "text/csv" }));
    link.download = this.file;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  }
}
