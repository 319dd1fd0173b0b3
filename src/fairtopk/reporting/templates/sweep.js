const state = { view: 0, gap: "", form: "", loss: 5, hidden: new Set() };
const view = () => data.views[state.view];
// RSP and REO are one value of all lists: they have no square.
const hasSquare = () => view().points.some((p) => Object.keys(p.values).some((name) => name.startsWith(`${state.gap}_mse@`)));
const form = () => (hasSquare() ? state.form : "");
const metric = () => state.gap + form();
const gapTitle = () => `${data.gaps[state.gap]}${form() ? ", squared" : ""}`;
const value = (point, name) => (point.values[name] ? point.values[name][0] : null);
const known = (point, names) => names.every((name) => value(point, name) !== null);
const curves = () => [...new Set(view().points.map((point) => point.curve))];
const shownPoints = () => view().points.filter((point) => !state.hidden.has(point.curve));

function baseAt(k) {
  const names = [`ndcg@${k}`, `${metric()}@${k}`];
  const base = view().base === null ? null : view().points[view().base];
  return base && known(base, names) ? base : null;
}

// With no colour-blind run, what can be lost is counted from the highest NDCG.
function bestAt(k) {
  const all = view().points.filter((point) => known(point, [`ndcg@${k}`]));
  return all.length ? Math.max(...all.map((point) => value(point, `ndcg@${k}`))) : null;
}

function fairestWithin(k) {
  const ndcg = `ndcg@${k}`, gap = `${metric()}@${k}`, base = baseAt(k);
  const from = base ? value(base, ndcg) : bestAt(k);
  if (from === null) return { least: null, point: null, base };
  const least = from * (1 - state.loss / 100);
  const within = shownPoints().filter((p) => known(p, [ndcg, gap]) && value(p, ndcg) >= least - 1e-12);
  const point = within.reduce((a, b) => (a === null || value(b, gap) < value(a, gap) ? b : a), null);
  return { least, point, base };
}

const away = (cell, end) => (cell[end] === null ? 0 : Math.abs(cell[end] - cell[0]));
const bars = (cells) => ({
  type: "data", symmetric: false, thickness: 1, width: 3,
  array: cells.map((cell) => away(cell, 2)), arrayminus: cells.map((cell) => away(cell, 1)),
});

// Runs of each seed, faint, and the line of their means.
function curveTraces(name, xName, yOf, yTitle) {
  const i = data.styles[name];
  const points = shownPoints().filter((p) => p.curve === name && known(p, [xName]) && yOf.cell(p));
  const runs = points.flatMap((p) => p.runs.map((run) => [p, run]))
    .filter(([, run]) => run.values[xName] !== undefined && yOf.run(run) !== null);
  const said = (p, of) => `<b>${plain(p.name)}</b><br>${of}`;
  const spread = (runs) => short(mean(runs.map((run) => run.spread)));
  return [
    {
      x: runs.map(([, run]) => run.values[xName]), y: runs.map(([, run]) => yOf.run(run)), mode: "markers",
      marker: { symbol: marker(i), color: colour(i), size: 5, opacity: 0.45 }, hoverinfo: "text",
      text: runs.map(([p, run]) => said(p, `seed ${run.seed}<br>${yTitle} ${short(yOf.run(run))}<br>` +
        `${plain(gapTitle())} ${short(run.values[xName])}${chance(run.values[xName.replace("@", "_floor@")])}<br>spread of scores ${short(run.spread)}`)),
    },
    {
      x: points.map((p) => value(p, xName)), y: points.map((p) => yOf.cell(p)[0]), mode: "lines+markers",
      name: plain(name), line: { color: colour(i), dash: dash(i), width: 2 },
      marker: { symbol: marker(i), color: colour(i), size: 10, line: { width: 1, color: css("--card") } },
      error_x: bars(points.map((p) => p.values[xName])), error_y: bars(points.map((p) => yOf.cell(p))), hoverinfo: "text",
      text: points.map((p) => said(p, `mean of ${p.runs.length} seed${p.runs.length > 1 ? "s" : ""} ` +
        `(${p.runs.map((run) => run.seed).join(", ")})<br>${yTitle} ${range(yOf.cell(p))}<br>` +
        `${plain(gapTitle())} ${range(p.values[xName])}${chance(value(p, xName.replace("@", "_floor@")))}<br>spread of scores ${spread(p.runs)}`)),
    },
  ];
}

const chance = (floor) => (floor === null || floor === undefined ? "" : `<br>chance level ${short(floor)}`);
const range = (cell) => short(cell[0]) + (cell[1] === null ? "" : ` (${short(cell[1])} to ${short(cell[2])})`);

function mean(values) {
  const given = values.filter((one) => one !== null && one !== undefined);
  return given.length ? given.reduce((a, b) => a + b, 0) / given.length : null;
}

function drawTradeOff(k, panel) {
  const ndcg = `ndcg@${k}`, gap = `${metric()}@${k}`;
  const yOf = { cell: (p) => p.values[ndcg], run: (run) => run.values[ndcg] ?? null };
  const { least, point, base } = fairestWithin(k);
  const traces = curves().flatMap((name) => curveTraces(name, gap, yOf, "NDCG"));
  if (point) {
    traces.push({
      x: [value(point, gap)], y: [value(point, ndcg)], mode: "markers", hoverinfo: "skip", name: "fairest",
      marker: { symbol: "circle-open", size: 24, color: css("--ring"), line: { width: 3 } },
    });
  }
  const [low, high] = extent(shownPoints().filter((p) => known(p, [ndcg, gap])), ndcg);
  // The line must not squeeze the points into a corner: below them it says nothing anyway.
  const line = least === null || least < low ? [] : [{
    type: "line", xref: "paper", x0: 0, x1: 1, y0: least, y1: least, line: { color: css("--faint"), width: 1.5, dash: "dot" },
  }];
  draw(panel.chart, traces, {
    xaxis: axis(`${gapTitle()}@${k}`), yaxis: axis(`NDCG@${k}`, low < high ? { range: [low, high] } : {}), shapes: line,
  });
  tell(panel.caption, k, point, base);
}

function extent(points, name) {
  const ends = points.flatMap((p) => [...p.values[name], ...p.runs.map((run) => run.values[name])])
    .filter((end) => end !== null && end !== undefined);
  const low = Math.min(...ends), high = Math.max(...ends), room = 0.08 * (high - low);
  return [low - room, high + room];
}

function tell(caption, k, point, base) {
  caption.replaceChildren();
  if (!point) {
    caption.textContent = `No model that is shown loses at most ${state.loss} % of NDCG@${k}.`;
    return;
  }
  const ndcg = value(point, `ndcg@${k}`), gap = value(point, `${metric()}@${k}`);
  caption.append(`Fairest within ${state.loss} %: `);
  element("strong", point.name, caption);
  caption.append(`, gap ${short(gap)}`);
  if (base && base !== point) {
    const before = value(base, `${metric()}@${k}`);
    const change = before ? ` (${percent(gap / before - 1)})` : "";
    caption.append(`${change}, NDCG ${short(ndcg)} (${percent(ndcg / value(base, `ndcg@${k}`) - 1)})`);
  } else caption.append(`, NDCG ${short(ndcg)}${base ? ": the colour-blind model itself" : ""}`);
  caption.append(".");
}

function makePanel(title) {
  const panel = element("figure", undefined, byId("panels"));
  panel.className = "panel";
  element("h3", title, panel);
  const chart = element("div", undefined, panel);
  chart.className = "chart";
  const caption = element("figcaption", undefined, panel);
  return { chart, caption };
}

let panels = new Map();
function drawTradeOffs() {
  byId("lost").textContent = `${state.loss} %`;
  const wanted = [...view().ks, "spread"].join();
  if (byId("panels").dataset.of !== wanted) {
    for (const { chart } of panels.values()) Plotly.purge(chart);
    byId("panels").replaceChildren();
    byId("panels").dataset.of = wanted;
    panels = new Map(view().ks.map((k) => [k, makePanel(`Top ${k}`)]));
    panels.set("spread", makePanel("Spread of scores"));
    for (const { caption } of panels.values()) caption.setAttribute("aria-live", "polite");
  }
  for (const k of view().ks) drawTradeOff(k, panels.get(k));
  const k = view().ks[0], panel = panels.get("spread");
  const meanSpread = (p) => mean(p.runs.map((run) => run.spread));
  const yOf = { cell: (p) => (meanSpread(p) === null ? null : [meanSpread(p), null, null]), run: (run) => run.spread ?? null };
  const traces = curves().flatMap((name) => curveTraces(name, `${metric()}@${k}`, yOf, "spread"));
  draw(panel.chart, traces, { xaxis: axis(`${gapTitle()}@${k}`), yaxis: axis("Spread of scores", { rangemode: "tozero" }) });
  panel.caption.textContent = view().points.some((p) => meanSpread(p) !== null)
    ? "A gap by softmax also falls when scores merely get flatter; one by rank does not."
    : "Not known for these runs.";
}

function drawKeys() {
  byId("keys").replaceChildren();
  for (const name of curves()) {
    const label = element("label", undefined, element("li", undefined, byId("keys")));
    const box = element("input", undefined, label);
    box.type = "checkbox";
    box.checked = !state.hidden.has(name);
    box.addEventListener("change", () => { state.hidden[box.checked ? "delete" : "add"](name); drawAll(); });
    drawSample(label, data.styles[name]);
    element("span", name, label);
  }
}

function showTables() {
  for (const table of document.querySelectorAll("[data-table]")) {
    table.hidden = !(Number(table.dataset.view) === state.view && table.dataset.gap === metric());
  }
}

// Red is the named group, green the rest; red is darker, which is also how they print in grey.
const GROUPS = { light: ["#a50f15", "#9bdc9f", "#bdbdbd"], dark: ["#d7301f", "#a6e3a8", "#6b6b6b"] };
const SIGNS = { 0: 0, 1: 1, "-": 2 };

function drawRankings() {
  const found = data.rankings[state.view], section = byId("rankings");
  if (!section) return;
  byId("rankings-none").hidden = Boolean(found);
  byId("rankings-shown").hidden = !found;
  if (!found) return;
  const shades = GROUPS[theme()], names = [...found.groups, "unknown group"];
  const scale = shades.flatMap((shade, i) => [[i / 3, shade], [(i + 1) / 3, shade]]);
  const n = found.rows_before.length;
  byId("rankings-words").textContent =
    `The ${n} of ${found.of} lists with the largest ${found.order} before (${((100 * n) / found.of).toPrecision(2)} %), ` +
    `one per row; ${found.lists}.`;
  const key = byId("rankings-key");
  key.replaceChildren();
  names.forEach((name, i) => {
    if (i === 2 && ![...found.rows_before, ...found.rows_after].some((row) => row.includes("-"))) return;
    const item = element("label", undefined, element("li", undefined, key));
    element("span", undefined, item).className = "swatch";
    item.firstChild.style.background = shades[i];
    item.append(name);
  });
  for (const side of ["before", "after"]) {
    const rows = found[`rows_${side}`].map((row) => [...row].map((sign) => SIGNS[sign]));
    byId(`title-${side}`).textContent = `${side === "before" ? "Before" : "After"}: ${found[side]}`;
    draw(byId(`chart-${side}`), [{
      type: "heatmap", z: rows, zmin: -0.5, zmax: 2.5, colorscale: scale, showscale: false, xgap: 0.5, ygap: 0.5, x0: 1, y0: 1,
      text: rows.map((row) => row.map((place) => plain(names[place]))), hovertemplate: "list %{y}, position %{x}<br>%{text}<extra></extra>",
    }], { xaxis: axis("position"), yaxis: axis("list", { autorange: "reversed" }) });
  }
}

function drawTraining() {
  const place = byId("training");
  if (!place) return;
  const name = byId("logged").value;
  const traces = view().points.filter((p) => !state.hidden.has(p.curve)).flatMap((p) => p.runs.map((run) => {
    const column = data.runs[run.run].log[name] || [], i = data.styles[p.curve];
    return {
      x: column.map((_, epoch) => epoch + 1), y: column, mode: "lines", opacity: 0.75, connectgaps: false,
      line: { color: colour(i), dash: dash(i), width: 1.5 },
      hovertemplate: `<b>${plain(p.name)}</b>, seed ${run.seed}<br>epoch %{x}: %{y:.4g}<extra></extra>`,
    };
  }));
  draw(place, traces, { xaxis: axis("epoch, warm-up included"), yaxis: axis(data.logged[name]) });
}

function drawAll() {
  byId("form").disabled = !hasSquare();
  drawTradeOffs();
  showTables();
  drawRankings();
  drawTraining();
}

function fillGaps() {
  const choice = byId("gap"), kept = view().gaps.includes(state.gap) ? state.gap : view().gaps[0];
  choice.replaceChildren(...view().gaps.map((gap) => new Option(data.gaps[gap], gap)));
  choice.value = state.gap = kept;
}

if (data.views.length) {
  onChoice("view", (place) => { state.view = Number(place); fillGaps(); drawKeys(); drawAll(); });
  onChoice("gap", (gap) => { state.gap = gap; drawAll(); });
  onChoice("form", (form) => { state.form = form; drawAll(); });
  onChoice("loss", (loss) => { state.loss = Number(loss); drawTradeOffs(); }, "input");
  onChoice("logged", drawTraining);
  // A browser may keep what was chosen before a page was loaded again.
  state.view = Number(byId("view").value);
  state.form = byId("form").value;
  state.loss = Number(byId("loss").value);
  fillGaps();
  drawKeys();
  drawAll();
  redrawWith(() => { drawKeys(); drawAll(); });
}
