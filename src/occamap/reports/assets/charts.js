// Charts: the specifications are in charts/*.json; here they get the colours of the page, and their data.

const specs = JSON.parse(document.getElementById("charts").textContent);
const drawn = new Map(); // by the element: what draws it again in other colours
const waiting = new Map(); // by the element: one drawing after the other

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function look() {
  const [ink, soft, line, panel] = ["--ink", "--soft", "--line", "--panel"].map(colour);
  return {
    background: panel,
    aria: false, // of single marks, which a canvas does not have; the chart itself is described
    font: getComputedStyle(document.body).fontFamily,
    view: { stroke: line },
    line: { color: soft },
    axis: { labelFontSize: 11, titleFontSize: 12, labelColor: ink, titleColor: ink, gridColor: line, domainColor: soft, tickColor: soft, titleFontWeight: "normal" },
    legend: { labelFontSize: 12, titleFontSize: 12, labelColor: ink, titleColor: ink, titleFontWeight: "normal", symbolOpacity: 1, symbolStrokeWidth: 0, symbolBaseFillColor: ink },
    text: { color: ink },
    rule: { color: soft },
    range: {
      category: colour("--groups").split(/\s+/),
      diverging: [colour("--down"), colour("--rest"), colour("--up")],
    },
  };
}

// A chart in the element: `change` may alter a copy of its specification, `data` fills its data sets by name.
async function draw(element, name, data, change = () => {}, ready = () => {}) {
  const paint = () => (waiting.set(element, (waiting.get(element) ?? Promise.resolve()).then(once)), waiting.get(element));
  const once = async () => {
    const spec = structuredClone(specs[name]);
    spec.datasets = data();
    change(spec);
    const { view } = await vegaEmbed(element, spec, {
      ast: true, // expressions are interpreted, so that the page need not allow eval
      config: look(),
      renderer: "canvas",
      scaleFactor: { png: 3 },
      actions: { export: true, source: false, compiled: false, editor: false },
      downloadFileName: `occamap-${name}`,
      tooltip: { theme: dark.matches ? "dark" : "light" },
    });
    ready(view);
    drawn.set(element, { paint, view, data });
  };
  await paint();
}

// A name as a chart can take it: Vega keeps names as keys of objects, which have some of their own.
function harmless(name) {
  return name in Object.prototype ? `${name}\u200b` : name;
}

// Lines across a chart, each with the place of its label: side by side, so that none covers another.
function across(lines) {
  const places = [["left", 0.005], ["right", 0.995], ["center", 0.5]];
  return lines.map((line, k) => ({ ...line, align: places[k % 3][0], place: places[k % 3][1] }));
}

// The same chart with new data.
async function feed(element) {
  const { view, data } = drawn.get(element);
  for (const [set, rows] of Object.entries(data())) view.data(set, rows);
  await view.runAsync();
}

const dark = matchMedia("(prefers-color-scheme: dark)");
dark.addEventListener("change", () => [...drawn.values()].forEach(({ paint }) => paint()));
