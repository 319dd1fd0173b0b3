const state = { column: 0, k: 0 };
const column = () => data.columns[state.column];
const positions = (values) => values.map((_, i) => i + 1);

function lineOf(group, i, values) {
  const many = values.length > 40;
  return {
    x: positions(values), y: values, mode: many ? "lines" : "lines+markers", name: plain(group.name),
    line: { color: colour(i), dash: dash(i), width: 2 }, marker: { symbol: marker(i), color: colour(i), size: 6 },
    hovertemplate: `<b>${plain(group.name)}</b><br>position %{x}: %{y:.1%}<extra></extra>`,
  };
}

function drawShares() {
  const groups = column().groups;
  const share = { tickformat: ".0%", rangemode: "tozero" };
  draw(byId("exposure"), groups.map((group, i) => lineOf(group, i, group.exposure_to_rank)), {
    xaxis: axis("positions up to"), yaxis: axis("share of exposure", share),
    shapes: groups.map((group, i) => ({
      type: "line", xref: "paper", x0: 0, x1: 1, y0: group.share_of_rows, y1: group.share_of_rows,
      line: { color: colour(i), width: 1, dash: "dot" },
    })),
  });
  draw(byId("places"), groups.map((group, i) => lineOf(group, i, group.share_at_rank)), {
    xaxis: axis("position"), yaxis: axis("share of lists", share),
  });
}

const reach = (cells, value) => ({
  type: "data", symmetric: false, thickness: 1.5,
  array: cells.map((cell) => (cell.ci95[1] === null ? 0 : cell.ci95[1] - value(cell))),
  arrayminus: cells.map((cell) => (cell.ci95[0] === null ? 0 : value(cell) - cell.ci95[0])),
});
const interval = (cell) => (cell.ci95[0] === null ? "" : ` (${short(cell.ci95[0])} to ${short(cell.ci95[1])})`);

function drawRatios() {
  const ratios = column().ratios;
  draw(byId("ratios"), [{
    x: data.ks.map((k) => `top ${k}`), y: ratios.map((ratio) => ratio.value), mode: "markers",
    marker: { size: 11, color: css("--accent") }, error_y: reach(ratios, (ratio) => ratio.value), hoverinfo: "text",
    text: ratios.map((ratio) => `<b>${short(ratio.value)}</b>${interval(ratio)}<br>least: ${plain(ratio.least ?? "–")}<br>` +
      `most: ${plain(ratio.most ?? "–")}${ratio.small ? "<br>a small group" : ""}`),
  }], {
    xaxis: axis("", { type: "category" }), yaxis: axis("exposure ratio", { range: [0, 1.05] }),
    shapes: [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: 0.8, y1: 0.8, line: { color: css("--faint"), width: 1.5, dash: "dot" } }],
  });
}

function drawGets() {
  const groups = column().groups, k = data.ks[state.k];
  const cells = groups.map((group) => group.gets[k]);
  byId("gets-title").textContent = `Exposure per item of a group, top ${k}`;
  draw(byId("gets"), [{
    type: "bar", orientation: "h", y: groups.map((group) => plain(group.name)), x: cells.map((cell) => cell.mean),
    marker: { color: groups.map((_, i) => colour(i)) }, error_x: { ...reach(cells, (cell) => cell.mean), color: css("--text") },
    hoverinfo: "text", text: cells.map((cell, i) => `<b>${plain(groups[i].name)}</b><br>${short(cell.mean)}${interval(cell)}`),
    textposition: "none",
  }], { xaxis: axis("exposure per item"), yaxis: axis("", { type: "category", autorange: "reversed" }) });
}

function drawKeys() {
  byId("keys").replaceChildren();
  column().groups.forEach((group, i) => {
    const label = element("label", undefined, element("li", undefined, byId("keys")));
    drawSample(label, i);
    element("span", group.name, label);
  });
}

function drawAll() {
  for (const section of document.querySelectorAll("[data-column]")) section.hidden = Number(section.dataset.column) !== state.column;
  for (const part of document.querySelectorAll("[data-k]")) part.hidden = Number(part.dataset.k) !== state.k;
  drawKeys();
  drawShares();
  drawRatios();
  drawGets();
}

onChoice("column", (place) => { state.column = Number(place); drawAll(); });
onChoice("k", (place) => { state.k = Number(place); drawAll(); });
state.column = Number(byId("column").value);
state.k = Number(byId("k").value);
drawAll();
redrawWith(drawAll);
