// The page: fill it when it is there, and say so if that fails.

for (const button of document.querySelectorAll("button.copy")) {
  button.addEventListener("click", async () => {
    const text = document.getElementById(button.dataset.of);
    getSelection().selectAllChildren(text);
    try {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Selected: press Ctrl+C";
    }
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
}

async function start() {
  const begun = performance.now();
  const data = await unpack(document.getElementById("data").textContent);
  const page = data.kind === "evaluation" ? new Scores(data) : new Explorer(data);
  await page.start();
  if (data.choice) await drawChoice(data.choice);
  document.documentElement.dataset.ready = Math.round(performance.now() - begun);
}

async function drawChoice({ points, lines }) {
  // lines far above all candidates would flatten them; the sentences name them
  const ends = points.flatMap(({ divergence, low, high }) => [low ?? divergence, high ?? divergence]);
  const [least, most] = [Math.min(...ends), Math.max(...ends)];
  const near = lines.filter(({ divergence }) => divergence < most + 2 * (most - least) && divergence > least - 2 * (most - least));
  const all = [...ends, ...near.map(({ divergence }) => divergence)];
  const margin = 0.08 * (Math.max(...all) - Math.min(...all) || 1);
  const log = points.every(({ density }) => density > 0);
  const change = (spec) => {
    spec.layer.at(-1).encoding.x.scale = log ? { type: "log", nice: false, padding: 14 } : { type: "symlog", constant: 0.001, padding: 14 };
    for (const { encoding } of spec.layer) encoding.y.scale = { domain: [Math.min(...all) - margin, Math.max(...all) + margin] };
  };
  const sized = points.map((point) => ({ ...point, size: point.kind === "chosen" ? 220 : 50 }));
  await draw(document.getElementById("choice"), "choice", () => ({ points: sized, lines: across(near) }), change);
}

start().catch((error) => {
  const box = document.getElementById("failed");
  box.hidden = false;
  box.textContent = `The charts of this page could not be drawn (${error.message}). A browser of 2023 or later is needed.`;
  throw error;
});
