const data = JSON.parse(document.getElementById("data").textContent);
const COLOURS = {
  light: ["#0072b2", "#c14f00", "#00795a", "#a3457d", "#8a6100", "#3b3b3b", "#5a4fcf", "#b3261e"],
  dark: ["#5fb4f0", "#ff9a4d", "#3fd0a4", "#ee9fcb", "#f2c14e", "#d5d5d5", "#b0a8ff", "#ff8a80"],
};
const MARKERS = ["circle", "square", "diamond", "triangle-up", "cross", "x", "star", "triangle-down"];
const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
const darkness = window.matchMedia("(prefers-color-scheme: dark)");
let printing = false;

const byId = (id) => document.getElementById(id);
const theme = () => (darkness.matches && !printing ? "dark" : "light");
const colour = (i) => COLOURS[theme()][i % COLOURS.light.length];
const marker = (i) => MARKERS[i % MARKERS.length];
// Eight colours and six dashes repeat at different places: no two of 24 styles are alike.
const dash = (i) => DASHES[i % DASHES.length];
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
// Plotly reads tags in text: what comes from data must not have any.
const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const short = (value) => (value === null || value === undefined ? "–" : Number(value.toPrecision(4)).toString());
const percent = (share) => `${share > 0 ? "+" : share < 0 ? "−" : ""}${Math.abs(100 * share).toFixed(1)} %`;

function element(tag, text, parent) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (parent) parent.append(made);
  return made;
}

function axis(title, more) {
  return {
    title: { text: plain(title), standoff: 6 }, automargin: true, gridcolor: css("--line"), zeroline: false,
    linecolor: css("--faint"), nticks: 5, tickangle: 0, exponentformat: "power", ...more,
  };
}

function onChoice(id, act, event = "change") {
  const choice = byId(id);
  if (choice) choice.addEventListener(event, () => act(choice.value));
}

function draw(place, traces, layout) {
  const whole = {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false,
    font: { color: css("--text"), size: 12, family: getComputedStyle(document.body).fontFamily }, margin: { l: 56, r: 12, t: 8, b: 44 },
    hoverlabel: { bgcolor: css("--back"), bordercolor: css("--line"), font: { color: css("--text") }, align: "left" },
    ...layout,
  };
  // A chart does not follow the width of paper by itself.
  if (printing) whole.width = place.clientWidth;
  return Plotly.react(place, traces, whole, { responsive: true, displaylogo: false, displayModeBar: false });
}

// A piece of a line with its marker, for a list of names.
function drawSample(parent, i) {
  const sample = element("div", undefined, parent);
  sample.style.cssText = "width:64px;height:20px";
  sample.setAttribute("aria-hidden", "true");
  const none = { visible: false, fixedrange: true };
  Plotly.newPlot(sample, [{
    x: [0, 1, 2], y: [0, 0, 0], mode: "lines+markers", hoverinfo: "skip", line: { color: colour(i), dash: dash(i), width: 2 },
    marker: { symbol: marker(i), color: colour(i), size: [0, 10, 0], opacity: 1 },
  }], {
    margin: { l: 0, r: 0, t: 0, b: 0 }, xaxis: { ...none, range: [0, 2] }, yaxis: { ...none, range: [-1, 1] }, showlegend: false,
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
  }, { staticPlot: true });
}

function redrawWith(redraw) {
  darkness.addEventListener("change", redraw);
  const turn = (on) => () => {
    printing = on;
    document.documentElement.classList.toggle("printing", on);
    redraw();
  };
  window.addEventListener("beforeprint", turn(true));
  window.addEventListener("afterprint", turn(false));
}
