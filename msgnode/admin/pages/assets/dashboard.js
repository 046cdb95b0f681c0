// The dashboard's own script: fresh figures, charts, keys. Every page can be read without it.
"use strict";
(() => {
  const REFRESH_MS = 5000, LEAST_MS = 2000, REFUSED_MS = 10000, KINDS = ["session", "refusal", "slow", "shed", "backend", "config", "policy"];
  const pause = document.getElementById("pause");
  const samples = [];
  let isPaused = false, last = performance.now(), timer = 0, prefix = "";

  const live = () => document.querySelector("[data-live]");

  // Somebody reads or moves within the part that would be replaced.
  function isInUse(part) {
    const selection = getSelection();
    return part.contains(document.activeElement) || part.querySelector("details[open]") !== null
      || (!selection.isCollapsed && part.contains(selection.anchorNode));
  }

  function refresh() {
    const part = live();
    if (isPaused || document.hidden || !part || isInUse(part)) return;
    last = performance.now();
    htmx.ajax("GET", location.pathname + location.search,
      { target: "#live", select: "#live", swap: "outerHTML" }).catch(() => {});
  }

  // An event makes a refresh, at most one in LEAST_MS.
  function soon() {
    if (timer) return;
    timer = setTimeout(() => { timer = 0; refresh(); }, Math.max(0, last + LEAST_MS - performance.now()));
  }

  // One page of a browser has the event stream, and tells the others.
  function listen() {
    const channel = new BroadcastChannel("msgnode-events");
    channel.onmessage = soon;
    if (!navigator.locks) return;  // no secure context: the clock alone refreshes
    const told = () => { soon(); channel.postMessage("event"); };
    navigator.locks.request("msgnode-events", () => new Promise(() => open(told)));
  }

  // A browser connects again by itself, but not after a refusal, such as when all streams are taken.
  function open(told) {
    const source = new EventSource(`/api/v1/events?kinds=${KINDS.join(",")}`);
    for (const kind of KINDS) source.addEventListener(kind, told);
    source.onopen = () => { document.body.dataset.stream = "open"; };
    source.onerror = () => {
      const isRefused = source.readyState === EventSource.CLOSED;
      document.body.dataset.stream = isRefused ? "refused" : "lost";
      if (isRefused) setTimeout(open, REFUSED_MS, told);
    };
  }

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  // All times of the dashboard are in UTC.
  function utc(time) {
    return new Date(time * 1000).toISOString().slice(11, 19).replace(/:00$/, "");
  }

  function draw(element, data) {
    element.replaceChildren();
    const line = (label, stroke) => ({ label, stroke: colour(stroke), width: 1.5, spanGaps: false });
    const axis = { stroke: colour("--text"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
    const shape = {
      width: Math.max(240, element.clientWidth), height: 180, cursor: { y: false }, legend: { live: false },
      series: [{ label: "UTC" }, line("in", "--in"), line("out", "--out")], axes: [{ ...axis, size: 32, space: 90, values: (u, times) => times.map(utc) }, { ...axis, size: 60 }],
      scales: { y: { range: (u, low, high) => [0, Math.max(1, high || 0)] } },
    };
    new uPlot(shape, data, element);
  }

  // The charts that the page has: of the node's history, or of one session since the page was opened.
  function charts() {
    for (const element of document.querySelectorAll("[data-chart]")) {
      const { start, step, ins, outs } = JSON.parse(element.dataset.chart);
      draw(element, [ins.map((_, place) => start + place * step), ins, outs]);
    }
    const element = document.getElementById("session-chart");
    if (!element) return;
    const sample = JSON.parse(element.dataset.sample), before = samples.at(-1);
    if (!before || sample.at > before.at) samples.push(sample);
    if (samples.length > 240) samples.shift();
    if (samples.length < 3) return;
    const rate = (name) => samples.slice(1).map((each, place) =>
      Math.max(0, each[name] - samples[place][name]) / (each.at - samples[place].at));
    draw(element, [samples.slice(1).map((each) => each.at), rate("in"), rate("out")]);
  }

  const PATHS = { o: "/", s: "/sessions", r: "/refusals", t: "/trace", a: "/addresses", n: "/nodes", b: "/bans", p: "/policies",
    h: "/top", m: "/memory", c: "/config" };

  function key(event) {
    const box = document.getElementById("keys-on");
    if (!box || !box.checked || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, select, textarea")) return;
    if (event.key === "/") {
      const field = document.getElementById("search");
      if (field) { event.preventDefault(); field.focus(); }
    } else if (prefix === "g" && PATHS[event.key]) {
      location.assign(PATHS[event.key]);
    }
    prefix = event.key;
  }

  function keys() {
    const part = document.getElementById("keys"), box = document.getElementById("keys-on");
    if (!part) return;
    part.hidden = false;
    box.checked = localStorage.getItem("msgnode-keys") !== "off";
    box.addEventListener("change", () => localStorage.setItem("msgnode-keys", box.checked ? "on" : "off"));
    document.addEventListener("keydown", key);
  }

  charts();
  keys();
  addEventListener("resize", charts);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", charts);
  document.body.addEventListener("htmx:afterSwap", (event) => {
    if (event.detail.target.id === "live" || event.detail.elt.id === "live") charts();
  });
  // A refresh that fails changes nothing; without a login it goes to the login page (HX-Redirect).
  document.body.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.target.id === "live" && event.detail.xhr.status !== 200) event.detail.shouldSwap = false;
  });
  if (pause && live()) {
    pause.hidden = false;
    pause.addEventListener("click", () => {
      isPaused = !isPaused;
      pause.setAttribute("aria-pressed", String(isPaused));
      if (!isPaused) refresh();
    });
    setInterval(refresh, REFRESH_MS);
    document.addEventListener("visibilitychange", refresh);
    listen();
  }
})();
