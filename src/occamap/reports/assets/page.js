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
  const log = points.every(({ density }) => density > 0);
  const change = (spec) => {
    spec.layer.at(-1).encoding.x.scale = log ? { type: "log", nice: false } : { type: "symlog", constant: 0.001 };
  };
  const sized = points.map((point) => ({ ...point, size: point.kind === "chosen" ? 220 : 50 }));
  await draw(document.getElementById("choice"), "choice", () => ({ points: sized, lines: across(lines) }), change);
}

start().catch((error) => {
  const box = document.getElementById("failed");
  box.hidden = false;
  box.textContent = `The charts of this page could not be drawn (${error.message}). A browser of 2023 or later is needed.`;
  throw error;
});
