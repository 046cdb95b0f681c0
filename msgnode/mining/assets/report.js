"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");
const narrow = matchMedia("(max-width: 40rem)");
const charts = [];
let printing = false;

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// -- figures ---------------------------------------------------------------

const plain = new Intl.NumberFormat("en");
const three = (value) => String(+value.toPrecision(3));
function duration(seconds) {  // 3 min 22 s
  if (seconds === 0) return "0 s";
  if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 0.9995) return `${three(seconds * 1000)} ms`;
  if (seconds < 59.95) return `${three(seconds)} s`;
  const sizes = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const at = Math.min(2, sizes.findIndex(([size]) => Math.round(seconds) >= size));
  const [[size, name], [below, label]] = [sizes[at], sizes[at + 1]];
  const whole = Math.round(seconds / below), count = Math.floor(whole / (size / below)), rest = whole % (size / below);
  return `${plain.format(count)} ${name}${rest ? ` ${rest} ${label}` : ""}`;
}
function bytes(value) {
  const names = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let at = 0;
  while (value >= 1024 && at < names.length - 1) { value /= 1024; at += 1; }
  return `${at ? three(value) : value} ${names[at]}`;
}
const units = {
  number: (value) => plain.format(value),
  seconds: duration,
  minutes: (value) => duration(value * 60),
  millis: (value) => duration(value / 1e3),
  micros: (value) => duration(value / 1e6),
  bytes,
  share: (value) => `${value < 1 && three(value * 100) === "100" ? "more than 99.9" : three(value * 100)} %`,
};
const format = (value, kind) => value === null || value === undefined ? "" : (units[kind] || String)(value);

// -- colours ---------------------------------------------------------------

// One colour for one name in all charts, light enough on black and dark enough on white.
const palette = ["#3b82f6", "#d97706", "#10a37f", "#a855f7", "#e5484d", "#0e9fb8", "#d6409f", "#65a30d", "#8b6f47", "#6366f1", "#c2410c", "#5f8a8b"];
const named = {
  type: {
    read: "#3b82f6", update: "#a855f7", create: "#10a37f", response: "#8695a8", subscribe: "#0e9fb8", unsubscribe: "#5f8a8b",
    delete: "#c2410c", execute: "#d97706", open: "#65a30d", "re-open": "#84904a", close: "#8b6f47", ping: "#d6409f",
    message: "#6366f1", forward: "#e879a6", other: "#71717a",
  },
  percentile: { p50: "#3b82f6", p90: "#d97706", p99: "#e5484d", "p99.9": "#a855f7" },
  node: Object.fromEntries(data.nodes.map((name, at) => [name, palette[at % palette.length]])),
};
const codes = { 400: "#8b6f47", 401: "#d6409f", 403: "#a855f7", 404: "#3b82f6", 409: "#0e9fb8", 413: "#65a30d", 429: "#d97706", 501: "#5f8a8b", 503: "#e5484d", 504: "#c2410c", 507: "#b91c5c", dropped: "#8695a8", "no-route": "#6366f1", others: "#71717a" };
// Reasons of the same code have shades of its colour.
function colour(kind, name, shades) {
  if (kind !== "code") return (named[kind] || {})[name];
  const base = codes[name.split(" ")[0]] || palette[[...name].reduce((sum, letter) => sum + letter.codePointAt(0), 0) % palette.length];
  const used = shades[base] = (shades[base] ?? -1) + 1;
  return used ? echarts.color.lift(base, used % 2 ? 0.3 : -0.25) : base;
}

// -- tables ----------------------------------------------------------------

const FEW = narrow.matches ? 5 : 12;  // rows that are shown at first

function table({ columns, rows, title, note, more }) {
  const found = document.createDocumentFragment();
  if (title) found.append(element("h3", {}, title));
  if (note) found.append(element("p", { class: "why" }, note));
  if (!rows.length) {
    found.append(element("p", { class: "none" }, "None."));
    return found;
  }
  const body = element("tbody");
  let order = rows, all = rows.length <= FEW + 3;
  const fill = () => body.replaceChildren(...(all ? order : order.slice(0, FEW)).map((row) => element("tr", {}, ...row.map((value, at) => {
    const [name, kind] = columns[at];
    const text = format(value, kind);
    return element("td", { class: kind in units ? "number" : kind, "data-name": name, ...(text === "" ? { "data-empty": "" } : {}) }, element("span", {}, text));
  }))));
  const heads = columns.map(([name, kind], at) => {
    const button = element("button", { type: "button" }, name);
    const head = element("th", { scope: "col", class: kind in units ? "number" : kind }, button);
    button.addEventListener("click", () => sort(at));
    return head;
  });
  // Numbers first the largest, texts from the first letter; a second time the other way round.
  const sort = (at) => {
    const head = heads[at];
    const rising = head.getAttribute("aria-sort") === "descending" || (!head.hasAttribute("aria-sort") && !(columns[at][1] in units));
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", rising ? "ascending" : "descending");
    turn.textContent = rising ? "▲" : "▼";
    by.value = at;
    const sign = rising ? 1 : -1;
    order = [...rows].sort((one, two) => sign * compare(one[at], two[at]));
    fill();
  };
  // A list has no headings to click on.
  const by = element("select", {}, element("option", { value: "", disabled: "", selected: "" }, "—"), ...columns.map(([name], at) => element("option", { value: at }, name)));
  const turn = element("button", { type: "button", title: "the other way round" }, "▼");
  by.addEventListener("change", () => { heads.forEach((head) => head.removeAttribute("aria-sort")); sort(+by.value); });
  turn.addEventListener("click", () => by.value && sort(+by.value));
  fill();
  const box = element("div", { class: columns.length > 8 ? "box wide" : "box" }, element("table", {}, element("thead", {}, element("tr", {}, ...heads)), body));
  if (rows.length > 1) box.prepend(element("p", { class: "sort" }, element("label", {}, "sort by ", by), " ", turn));
  boxes.push(box);
  found.append(box);
  if (!all) {
    const button = element("button", { type: "button", class: "all" }, `Show all ${plain.format(rows.length)} rows`);
    const said = element("p", { class: "rest" }, `${FEW} of ${plain.format(rows.length)} rows. `, button);
    button.addEventListener("click", () => { all = true; fill(); said.remove(); fit(); });
    found.append(said);
  }
  if (more) found.append(element("p", { class: "rest" }, more));
  return found;
}

// A table that is wider than the page becomes a list of its rows, each with the names of the columns.
const boxes = [];
function fit() {
  for (const box of boxes) {
    box.classList.remove("stacked");
    if (narrow.matches ? box.querySelectorAll("th").length > 2 : box.scrollWidth > box.clientWidth + 1) box.classList.add("stacked");
  }
}

function compare(one, two) {
  if (one === null || two === null) return (one !== null) - (two !== null);
  return typeof one === "number" && typeof two === "number" ? one - two : String(one).localeCompare(String(two), "en", { numeric: true });
}

// -- charts ----------------------------------------------------------------

const axis = (extra) => ({ axisLine: { show: false }, axisTick: { show: false }, ...extra });
const grid = { left: 16, right: 24, top: 40, bottom: 8, containLabel: true };
const hint = (kind) => ({ trigger: "axis", valueFormatter: (value) => format(value, kind), confine: true });

const decade = (at) => at === 0 ? "1–9" : `${plain.format(10 ** at)}–${plain.format(10 ** (at + 1) - 1)}`;
const shadesOf = (count) => {
  const [from, to] = dark.matches && !printing ? [[30, 58, 110], [190, 220, 255]] : [[219, 234, 254], [10, 50, 130]];
  return Array.from({ length: count }, (_, at) => {
    const share = count === 1 ? 0.5 : at / (count - 1);
    return `rgb(${from.map((value, part) => Math.round(value + (to[part] - value) * share)).join(",")})`;
  });
};
const few = (labels) => labels.length < 3;

const draw = {
  stack: ({ labels, series, unit, colours }) => {
    const shades = {};
    return {
      grid, legend: { type: "scroll", top: 0 }, tooltip: hint(unit),
      xAxis: axis({ type: "category", data: labels, axisLabel: { hideOverlap: true } }), yAxis: axis({ type: "value", axisLabel: { formatter: (value) => plain.format(value) } }),
      series: Object.entries(series).map(([name, values]) => ({
        name, data: values, type: "bar", stack: "all", barCategoryGap: labels.length > 80 ? "0%" : "10%", itemStyle: { color: colour(colours, name, shades) },
      })),
    };
  },
  bands: ({ labels, series, unit, colours }) => ({
    grid, legend: { type: "scroll", top: 0 }, tooltip: hint(unit),
    xAxis: axis({ type: "category", data: labels, boundaryGap: false, axisLabel: { hideOverlap: true, alignMinLabel: "left", alignMaxLabel: "right" } }),
    yAxis: axis({ type: "log", min: ({ min }) => 10 ** Math.floor(Math.log10(Math.max(1, min))), axisLabel: { formatter: (value) => format(Math.round(value), unit) } }),
    series: Object.entries(series).reverse().map(([name, values]) => ({
      name, data: values.map((value) => value === null ? null : Math.max(value, 1)), type: "line", showSymbol: few(labels) || values.filter((value) => value === null).length * 2 > values.length, symbolSize: 4,
      itemStyle: { color: colour(colours, name) }, lineStyle: { width: 1.5 },
    })),
  }),
  lines: (about) => ({ ...draw.bands(about), legend: { type: "scroll", top: 0 } }),
  heat: ({ from, to, cells }) => {
    const most = Math.max(1, ...cells.map((cell) => cell[2]));
    const decades = Math.floor(Math.log10(most)) + 1, shades = shadesOf(decades);
    const written = !narrow.matches && from.length <= 12 && to.length <= 12;
    const pieces = shades.map((color, at) => ({ gte: 10 ** at, lt: 10 ** (at + 1), color, label: decade(at) }));
    const bright = (value) => { const share = decades === 1 ? 0.5 : Math.floor(Math.log10(value)) / (decades - 1); return dark.matches && !printing ? share > 0.5 : share < 0.5; };
    return {
      grid: { ...grid, top: 10, bottom: 64, right: 24 },
      tooltip: { confine: true, formatter: ({ value }) => `${echarts.format.encodeHTML(from[value[1]])} → ${echarts.format.encodeHTML(to[value[0]])}<br>${plain.format(value[2])} messages` },
      xAxis: axis({ type: "category", data: to, axisLabel: { rotate: 40, width: 110, overflow: "truncate", interval: 0 } }),
      yAxis: axis({ type: "category", data: from, inverse: true, axisLabel: { width: narrow.matches ? 90 : 160, overflow: "truncate", interval: 0 } }),
      visualMap: { type: "piecewise", dimension: 2, orient: "horizontal", left: "center", bottom: 0, pieces, itemWidth: 18, textGap: 4, itemGap: narrow.matches ? 6 : 12 },
      series: [{ type: "heatmap", data: cells.map(([x, y, value]) => ({ value: [x, y, value], label: { color: bright(value) ? "#10203c" : "#fff" } })),
        label: { show: written, fontSize: 11, formatter: ({ value }) => plain.format(value[2]) } }],
    };
  },
  bars: ({ labels, values, unit }) => ({
    grid: { ...grid, top: 8, right: 64 }, tooltip: hint(unit),
    xAxis: axis({ type: "value", axisLabel: { hideOverlap: true, formatter: (value) => plain.format(value) } }),
    yAxis: axis({ type: "category", data: labels, inverse: true, axisLabel: { width: narrow.matches ? 130 : 320, overflow: "truncate" } }),
    series: [{ type: "bar", data: values, itemStyle: { color: palette[0] }, label: { show: true, position: "right", formatter: ({ value }) => format(value, unit) } }],
  }),
  graph: ({ nodes, links }) => ({
    tooltip: { confine: true },
    legend: { type: "scroll", top: 0 },
    series: [{
      type: "graph", layout: "circular", circular: { rotateLabel: true }, roam: false, top: 175, bottom: 145, left: 160, right: 160,
      categories: [...new Set(nodes.map((node) => node[1]))].map((name, at) => ({ name, itemStyle: { color: palette[at % palette.length] } })),
      data: nodes.map(([name, category, weight]) => ({ id: name, name, category, symbolSize: 6 + 4 * Math.log2(1 + weight) })),
      label: { show: true, formatter: ({ name }) => { const end = name.replace(/^[^:]*:\/\//, ""); return end.length > 22 ? `…${end.slice(-21)}` : end; }, fontSize: 11 },
      links: links.map(([source, target, value]) => ({ source, target, value })),
      edgeSymbol: ["none", "arrow"], edgeSymbolSize: 6, lineStyle: { opacity: 0.6, curveness: 0.2 }, emphasis: { focus: "adjacency" },
    }],
  }),
};

function show(chart) {
  chart.made?.dispose();
  chart.made = null;
  // On a phone its names would not be readable; the table has the same.
  chart.place.hidden = chart.about.kind === "graph" && narrow.matches && !printing;
  if (chart.place.hidden) return;
  chart.made = echarts.init(chart.place, dark.matches && !printing ? "dark" : null, { renderer: "svg" });
  chart.made.setOption({ backgroundColor: "transparent", animation: false, aria: { enabled: true }, ...draw[chart.about.kind](chart.about) });
}
const showAll = () => charts.forEach(show);
dark.addEventListener("change", showAll);
narrow.addEventListener("change", showAll);
addEventListener("resize", () => { charts.forEach((chart) => chart.made?.resize()); fit(); });
// The page prints at its own width, whatever the window had.
addEventListener("beforeprint", () => { printing = true; document.body.classList.add("printing"); showAll(); });
addEventListener("afterprint", () => { printing = false; document.body.classList.remove("printing"); showAll(); fit(); });

// -- the page --------------------------------------------------------------

function drawn(section, chart, title) {
  const few = chart.kind === "bars" ? `height: ${3 + 1.6 * chart.labels.length}rem` : "";
  const place = element("div", { class: `chart ${chart.kind}`, role: "img", "aria-label": title, ...(few ? { style: few } : {}) });
  section.append(place);
  charts.push({ place, about: chart });
}

function wrong(striking, more) {
  if (!striking.length) return [element("p", { class: "none" }, "Nothing stands out.")];
  const items = striking.map(([word, rest, section, goesOn]) => element("li", goesOn ? { class: "now" } : {},
    element("a", { href: `#${section}` }, element("b", {}, word), ` ${rest}`)));
  return [element("ol", { class: "striking" }, ...items), ...(more ? [element("p", { class: "rest" }, more)] : [])];
}

document.getElementById("about").textContent = data.about;
const main = document.querySelector("main");
for (const { id, title, text, tiles, striking, more, chart, charts: others, tables } of data.sections) {
  document.querySelector("nav").append(element("a", { href: `#${id}` }, title));
  const section = element("section", { id }, element("h2", {}, title), element("p", { class: "why" }, text));
  if (striking) section.append(...wrong(striking, more));
  if (tiles) section.append(element("div", { class: "tiles" }, ...tiles.map(([name, value, kind]) => element("div", { class: "tile" }, element("b", {}, format(value, kind)), element("span", {}, name)))));
  if (chart) drawn(section, chart, title);
  for (const [name, other] of others || []) {
    if (!other) continue;
    section.append(element("h3", {}, name));
    drawn(section, other, name);
  }
  const empty = tables?.length && !chart && tables.every((each) => !each.rows.length);
  if (empty) section.append(element("p", { class: "none" }, "None."));
  else (tables || []).forEach((each) => section.append(table(each)));
  main.append(section);
}
fit();
showAll();
