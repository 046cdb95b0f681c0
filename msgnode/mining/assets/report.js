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
const units = {
  number: (value) => plain.format(value),
  micros: (value) => value < 1000 ? `${value} µs` : value < 1e6 ? `${+(value / 1000).toPrecision(3)} ms` : `${+(value / 1e6).toPrecision(3)} s`,
  bytes: (value) => value < 1024 ? `${value} B` : value < 1048576 ? `${+(value / 1024).toPrecision(3)} KiB` : `${+(value / 1048576).toPrecision(3)} MiB`,
  share: (value) => `${+(value * 100).toPrecision(3)} %`,
};
const format = (value, kind) => value === null || value === undefined ? "" : (units[kind] || String)(value);

// -- tables ----------------------------------------------------------------

function table({ columns, rows, title, note }) {
  const found = document.createDocumentFragment();
  if (title) found.append(element("h3", {}, title));
  if (note) found.append(element("p", { class: "why" }, note));
  if (!rows.length) {
    found.append(element("p", { class: "none" }, "None."));
    return found;
  }
  const body = element("tbody");
  const fill = (order) => body.replaceChildren(...order.map((row) => element("tr", {}, ...row.map((value, at) => {
    const kind = columns[at][1];
    const name = kind in units ? "number" : kind;
    return element("td", { class: name }, format(value, kind));
  }))));
  const heads = columns.map(([name, kind], at) => {
    const button = element("button", { type: "button" }, name);
    const head = element("th", { scope: "col", class: kind in units ? "number" : kind }, button);
    button.addEventListener("click", () => {
      const falling = head.getAttribute("aria-sort") === "descending" || (!head.hasAttribute("aria-sort") && !(kind in units));
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", falling ? "ascending" : "descending");
      const sign = falling ? 1 : -1;
      fill([...rows].sort((one, two) => sign * compare(one[at], two[at])));
    });
    return head;
  });
  fill(rows);
  found.append(element("div", { class: "scroll", tabindex: "0" }, element("table", {}, element("thead", {}, element("tr", {}, ...heads)), body)));
  return found;
}

function compare(one, two) {
  if (one === null || two === null) return (one !== null) - (two !== null);
  return typeof one === "number" && typeof two === "number" ? one - two : String(one).localeCompare(String(two), "en", { numeric: true });
}

// -- charts ----------------------------------------------------------------

const axis = (extra) => ({ axisLine: { show: false }, axisTick: { show: false }, ...extra });
const grid = { left: 16, right: 24, top: 40, bottom: 8, containLabel: true };
const hint = (kind) => ({ trigger: "axis", valueFormatter: (value) => format(value, kind), confine: true });

const draw = {
  stack: ({ labels, series, unit }) => ({
    grid, legend: { type: "scroll", top: 0 }, tooltip: hint(unit),
    xAxis: axis({ type: "category", data: labels }), yAxis: axis({ type: "value" }),
    series: Object.entries(series).map(([name, values]) => ({
      name, data: values, type: "bar", stack: "all", barCategoryGap: "10%",
    })),
  }),
  bands: ({ labels, series, unit }) => ({
    grid, legend: { top: 0 }, tooltip: hint(unit),
    xAxis: axis({ type: "category", data: labels, boundaryGap: false }),
    yAxis: axis({ type: "log", min: "dataMin", axisLabel: { formatter: (value) => format(Math.round(value), unit) } }),
    series: Object.entries(series).reverse().map(([name, values], at) => ({
      name, data: values.map((value) => value === null ? null : Math.max(value, 1)), type: "line", showSymbol: values.length < 3,
      step: false, areaStyle: { opacity: 0.12 + 0.12 * at, origin: "start" }, lineStyle: { width: 1.5 },
    })),
  }),
  heat: ({ from, to, cells }) => {
    const most = Math.max(1, ...cells.map((cell) => cell[2]));
    return {
      grid: { ...grid, top: 10, bottom: 60, right: 48 },
      tooltip: { confine: true, formatter: ({ value }) => `${echarts.format.encodeHTML(from[value[1]])} → ${echarts.format.encodeHTML(to[value[0]])}<br>${plain.format(value[3])} messages` },
      xAxis: axis({ type: "category", data: to, name: "to", axisLabel: { rotate: 40, width: 110, overflow: "truncate" } }),
      yAxis: axis({ type: "category", data: from, inverse: true, axisLabel: { width: narrow.matches ? 90 : 160, overflow: "truncate" } }),
      visualMap: { min: 0, max: Math.log10(most + 1), dimension: 2, orient: "horizontal", left: "center", bottom: 0, itemHeight: 120,
        formatter: (value) => plain.format(Math.round(10 ** value - 1)), inRange: { color: dark.matches && !printing ? ["#16263d", "#2f6fd0", "#a9d0ff"] : ["#eaf2fd", "#5a9bf0", "#0b3d91"] } },
      series: [{ type: "heatmap", data: cells.map(([x, y, value]) => [x, y, Math.log10(value + 1), value]) }],
    };
  },
  bars: ({ labels, values, unit }) => ({
    grid: { ...grid, top: 8 }, tooltip: hint(unit),
    xAxis: axis({ type: "value" }),
    yAxis: axis({ type: "category", data: labels, inverse: true, axisLabel: { width: narrow.matches ? 120 : 300, overflow: "truncate" } }),
    series: [{ type: "bar", data: values }],
  }),
  graph: ({ nodes, links }) => ({
    tooltip: { confine: true },
    legend: { type: "scroll", top: 0 },
    series: [{
      type: "graph", layout: "force", roam: true, top: 40, force: { repulsion: 90, edgeLength: [30, 90], layoutAnimation: false },
      categories: [...new Set(nodes.map((node) => node[1]))].map((name) => ({ name })),
      data: nodes.map(([name, category, weight]) => ({ id: name, name, category, symbolSize: 6 + 4 * Math.log2(1 + weight) })),
      links: links.map(([source, target, value]) => ({ source, target, value })),
      edgeSymbol: ["none", "arrow"], edgeSymbolSize: 5, lineStyle: { opacity: 0.5, curveness: 0.1 }, emphasis: { focus: "adjacency" },
    }],
  }),
};

function show(chart) {
  chart.made?.dispose();
  chart.made = echarts.init(chart.place, dark.matches && !printing ? "dark" : null, { renderer: "svg" });
  chart.made.setOption({ backgroundColor: "transparent", animation: false, aria: { enabled: true }, ...draw[chart.about.kind](chart.about) });
}
const showAll = () => charts.forEach(show);
dark.addEventListener("change", showAll);
narrow.addEventListener("change", showAll);
addEventListener("resize", () => charts.forEach((chart) => chart.made.resize()));
addEventListener("beforeprint", () => { printing = true; showAll(); });
addEventListener("afterprint", () => { printing = false; showAll(); });

// -- the page --------------------------------------------------------------

document.getElementById("about").textContent = data.about;
const main = document.querySelector("main");
for (const { id, title, text, tiles, striking, chart, tables } of data.sections) {
  document.querySelector("nav").append(element("a", { href: `#${id}` }, title));
  const section = element("section", { id }, element("h2", {}, title), element("p", { class: "why" }, text));
  if (tiles) section.append(element("div", { class: "tiles" }, ...tiles.map(([name, value, kind]) => element("div", { class: "tile" }, element("b", {}, format(value, kind)), element("span", {}, name)))));
  if (striking) section.append(striking.length ? element("ul", { class: "striking" }, ...striking.map(([word, rest]) => element("li", {}, element("b", {}, word), ` ${rest}`))) : element("p", { class: "none" }, "Nothing stands out."));
  if (chart) {
    const tall = ["heat", "graph"].includes(chart.kind);
    const place = element("div", { class: tall ? "chart tall" : "chart", role: "img", "aria-label": title });
    section.append(place);
    charts.push({ place, about: chart });
  }
  (tables || []).forEach((each) => section.append(table(each)));
  main.append(section);
}
showAll();
