// Curves of every experiment: choose, toggle, hover or walk with the arrow keys. Text is only ever set as text.
(function () {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.getElementById("explorer");
  if (!data.experiments.length) { root.remove(); return; }

  const SVG = "http://www.w3.org/2000/svg";
  const BOX = { width: 720, height: 400, left: 64, right: 14, top: 14, bottom: 46 };
  const COLOURS = ["#1f86d0", "#d55e00", "#009e73", "#cc79a7", "#8a8a8a", "#b79a00", "#56b4e9", "#9467bd"];
  const DASHES = ["", "7 4", "2 3", "9 3 2 3"];
  // the view in the address, so that it can be linked to: #experiment=NAME&f=50&metric=inspections&costs=linear
  const NOTES = {
    above: "Paired difference to the router: below 0 is better. Bands: 95 %, the larger of the standard errors " +
      "over prompts and over splits. A star: both tests reject “no difference” at 5 %.",
    total: "Bands: 95 %, the larger of the standard errors over the prompts of one split and over splits; not " +
      "for comparing two curves: take “above the router” for that.",
  };
  const OTHERS = "Bands: 95 % over splits alone; none of one split.";
  const now = { experiment: 0, frame: 0, metric: data.metrics[0].id, log: true, bands: true, at: 0, lit: null, off: new Set() };

  function make(tag, attributes, ...inside) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
    element.append(...inside);
    return element;
  }
  function draw(tag, attributes, words) {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (words !== undefined) element.textContent = words;
    return element;
  }
  const short = (x) => (x === 0 ? "0" : String(Number(x.toPrecision(3))));
  const tell = (x) => (x === null ? "–" : Math.abs(x) >= 100 ? x.toFixed(0) : x.toFixed(now.metric === "above" ? 2 : 4));
  const one = () => data.experiments[now.experiment];
  const curves = () => one().frames[now.frame].curves[now.metric];
  const here = () => one().arms.filter((arm) => arm in curves()); // some arms were run on one number of neighbours only
  const visible = () => here().filter((arm) => !now.off.has(arm));
  const every = [...new Set(data.experiments.flatMap((e) => e.arms))];
  const order = [...data.first.filter((a) => every.includes(a)), ...every.filter((a) => !data.first.includes(a))];
  const look = (arm) => {
    const i = order.indexOf(arm);
    return { colour: COLOURS[i % COLOURS.length], dash: DASHES[Math.floor(i / COLOURS.length) % DASHES.length] };
  };
  for (const arm of every) if (!data.first.includes(arm)) now.off.add(arm);

  // the parts of the page
  const choose = (name, label, options, change) => {
    const select = make("select", { id: "choose-" + name });
    options.forEach(([value, words]) => select.append(make("option", { value }, words)));
    select.addEventListener("change", () => { change(select.value); show(); });
    return [make("label", { for: "choose-" + name }, label), select];
  };
  const tick = (name, label) => {
    const box = make("input", { type: "checkbox", id: "choose-" + name });
    box.checked = now[name];
    box.addEventListener("change", () => { now[name] = box.checked; show(); });
    return make("label", {}, box, " " + label);
  };
  const experiments = choose("experiment", "experiment", data.experiments.map((e, i) => [String(i), e.title || e.name]),
    (value) => { now.experiment = Number(value); now.frame = 0; now.at = 0; });
  const frames = make("select", { id: "choose-frame" });
  frames.addEventListener("change", () => { now.frame = Number(frames.value); show(); });
  const metrics = choose("metric", "metric", data.metrics.map((m) => [m.id, m.label]), (value) => { now.metric = value; });
  const svg = draw("svg", { viewBox: `0 0 ${BOX.width} ${BOX.height}`, role: "img", tabindex: "0", "aria-describedby": "hint" });
  const readout = make("div", { class: "readout", "aria-live": "polite" });
  const legend = make("div", { class: "legend", role: "group", "aria-label": "Arms to draw" });
  const heading = make("h2"), note = make("p", { class: "note" });
  const controls = make("div", { class: "controls" }, ...experiments, make("label", { for: "choose-frame" }, "cheap estimate"), frames,
    ...metrics, tick("log", "log costs"), tick("bands", "bands"));
  root.replaceChildren(heading, controls, make("div", { class: "plot" }, svg, readout), legend, note,
    make("p", { class: "hint", id: "hint" }, "Point at the plot, or focus it and press ← → (Home, End, Escape), to read values. " +
      "Buttons show and hide arms and, pointed at, show the band; double-click one to see it alone."));

  // scales
  function across() {
    const costs = one().costs, plus = costs.filter((c) => c > 0), log = now.log && plus.length > 1;
    const low = log ? Math.log(plus[0]) : costs[0], high = log ? Math.log(plus[plus.length - 1]) : costs[costs.length - 1];
    const span = high - low || 1, wide = BOX.width - BOX.left - BOX.right;
    const zero = log && costs[0] <= 0 ? 30 : 0; // a cost of 0 has a place of its own, left of the logarithms
    return (c) => (log && c <= 0 ? BOX.left : BOX.left + zero + ((log ? Math.log(c) : c) - low) / span * (wide - zero));
  }
  function range() {
    const arms = visible(), calm = arms.filter((arm) => !data.steep.includes(arm));
    let low = Infinity, high = -Infinity;
    for (const arm of calm.length ? calm : arms) {
      const curve = curves()[arm];
      curve.mean.forEach((y, i) => {
        if (y === null) return;
        const half = now.bands && curve.band[i] !== null ? curve.band[i] : 0;
        low = Math.min(low, y - half); high = Math.max(high, y + half);
      });
    }
    if (low > high) return [0, 1];
    const room = (high - low || Math.abs(high) || 1) * 0.06;
    return [low - room, high + room];
  }
  function ticks(low, high) {
    const rough = (high - low) / 5, size = Math.pow(10, Math.floor(Math.log10(rough)));
    const step = size * [1, 2, 5, 10].find((m) => size * m >= rough), found = [];
    for (let y = Math.ceil(low / step) * step; y <= high + step * 1e-9; y += step) found.push(Math.abs(y) < step * 1e-9 ? 0 : y);
    return found;
  }

  function recall() {
    const wanted = new URLSearchParams(location.hash.slice(1));
    const number = data.experiments.findIndex((e) => e.name === wanted.get("experiment"));
    if (number >= 0 && number !== now.experiment) { now.experiment = number; now.frame = 0; now.at = 0; }
    now.frame = Math.max(now.frame, 0, one().frames.findIndex((f) => String(f.k) === wanted.get("f")));
    if (data.metrics.some((m) => m.id === wanted.get("metric"))) now.metric = wanted.get("metric");
    if (wanted.get("costs")) now.log = wanted.get("costs") !== "linear";
  }
  function remember() {
    const view = { experiment: one().name, f: one().frames[now.frame].k, metric: now.metric, costs: now.log ? "log" : "linear" };
    history.replaceState(null, "", "#" + new URLSearchParams(view));
    experiments[1].value = String(now.experiment);
    metrics[1].value = now.metric;
    document.getElementById("choose-log").checked = now.log;
  }

  function show() {
    remember();
    const e = one(), metric = data.metrics.find((m) => m.id === now.metric);
    heading.textContent = (e.title || e.name) + (e.control ? " (negative control)" : "") +
      ` — ${e.splits} split${e.splits === 1 ? "" : "s"}, ${e.prompts} prompts each`;
    note.textContent = NOTES[now.metric] || OTHERS;
    frames.replaceChildren(...e.frames.map((f, i) => make("option", { value: String(i) }, f.name)));
    frames.value = String(now.frame);
    svg.setAttribute("aria-label", `${metric.label} against inspection cost, ${visible().length} arms`);
    svg.replaceChildren();
    const x = across(), [low, high] = range();
    const down = BOX.height - BOX.bottom, y = (v) => down - (v - low) / (high - low) * (down - BOX.top);
    for (const v of ticks(low, high)) {
      svg.append(draw("line", { x1: BOX.left, x2: BOX.width - BOX.right, y1: y(v), y2: y(v), class: v === 0 ? "zero" : "grid" }));
      svg.append(draw("text", { x: BOX.left - 6, y: y(v) + 4, "text-anchor": "end" }, short(v)));
    }
    let last = -Infinity;
    for (const c of e.costs) {
      svg.append(draw("line", { x1: x(c), x2: x(c), y1: down, y2: down + 4, class: "zero" }));
      if (x(c) - last < 34) continue;
      last = x(c);
      const outermost = x(c) > BOX.width - 20; // its label would be cut at the right edge
      svg.append(draw("text", { x: x(c), y: down + 18, "text-anchor": outermost ? "end" : "middle" }, short(c)));
    }
    svg.append(draw("text", { x: (BOX.left + BOX.width) / 2, y: BOX.height - 8, "text-anchor": "middle" }, "inspection cost c"));
    svg.append(draw("text", { x: 12, y: (BOX.top + down) / 2, "text-anchor": "middle", class: "small",
      transform: `rotate(-90 12 ${(BOX.top + down) / 2})` }, `${metric.label} (${metric.unit})`));
    const clip = draw("clipPath", { id: "inside" });
    clip.append(draw("rect", { x: BOX.left - 4, y: BOX.top - 4, width: BOX.width - BOX.left - BOX.right + 8, height: down - BOX.top + 8 }));
    const lines = draw("g", { "clip-path": "url(#inside)" });
    svg.append(clip, lines);
    const drawn = visible().filter((arm) => arm !== order[0] && arm !== now.lit);
    for (const arm of [order[0], now.lit]) if (visible().includes(arm) && !drawn.includes(arm)) drawn.push(arm); // on top
    for (const arm of drawn) lines.append(...band(arm, curves()[arm], x, y));
    for (const arm of drawn) lines.append(...line(arm, curves()[arm], x, y));
    if (now.at !== null) lines.append(draw("line", { x1: x(e.costs[now.at]), x2: x(e.costs[now.at]), y1: BOX.top, y2: down, class: "cursor" }));
    pick();
    read(metric);
  }

  const points = (curve, x) => one().costs.map((c, i) => [x(c), curve.mean[i], curve.band[i], i]).filter((p) => p[1] !== null);
  const path = (corners, y) => corners.map(([px, py], i) => `${i ? "L" : "M"}${px.toFixed(1)} ${y(py).toFixed(1)}`).join("");

  function band(arm, curve, x, y) { // of many arms only those of the router and of the arm pointed at: others would hide all
    const wanted = now.metric === "above" || visible().length <= 3 || arm === order[0] || arm === now.lit;
    const known = points(curve, x).filter((p) => p[2] !== null);
    if (!now.bands || !wanted || known.length < 2) return [];
    const edge = [...known.map((p) => [p[0], p[1] + p[2]]), ...known.reverse().map((p) => [p[0], p[1] - p[2]])];
    return [draw("path", { d: path(edge, y) + "Z", fill: look(arm).colour, opacity: 0.13, class: "band", "data-arm": arm })];
  }

  function line(arm, curve, x, y) {
    const { colour, dash } = look(arm), known = points(curve, x);
    const drawn = draw("path", { d: path(known, y), fill: "none", stroke: colour, "stroke-dasharray": dash, class: "curve",
      "stroke-width": arm === order[0] || arm === now.lit ? 3 : 1.8, "data-arm": arm });
    drawn.append(draw("title", {}, arm));
    const parts = [drawn];
    for (const [px, py, , i] of known) {
      const star = curve.star && curve.star[i];
      const mark = star ? draw("text", { x: px, y: y(py) + 6, "text-anchor": "middle", style: `fill:${colour};font-size:20px` }, "★")
        : draw("circle", { cx: px, cy: y(py), r: now.at === i ? 4.5 : 2.6, fill: colour });
      parts.push(mark);
    }
    return parts;
  }

  function pick() {
    const wanted = order.filter((arm) => here().includes(arm));
    if ([...legend.children].map((b) => b.dataset.arm).join("\n") !== wanted.join("\n")) legend.replaceChildren(...wanted.map(key));
    for (const button of legend.children) button.setAttribute("aria-pressed", String(!now.off.has(button.dataset.arm)));
  }
  function key(arm) {
    const { colour, dash } = look(arm), sample = draw("svg", { width: 26, height: 10, "aria-hidden": "true", style: "width:26px;height:10px" });
    sample.append(draw("line", { x1: 0, x2: 26, y1: 5, y2: 5, stroke: colour, "stroke-width": 3, "stroke-dasharray": dash }));
    const button = make("button", { type: "button", "data-arm": arm }, sample, arm);
    const light = (lit) => () => { now.lit = lit; show(); };
    button.addEventListener("click", () => { if (!now.off.delete(arm)) now.off.add(arm); show(); });
    for (const [event, lit] of [["pointerenter", arm], ["focus", arm], ["pointerleave", null], ["blur", null]])
      button.addEventListener(event, light(lit));
    return button;
  }
  legend.addEventListener("dblclick", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    now.off = new Set(every.filter((arm) => arm !== button.dataset.arm));
    show();
  });

  function read(metric) {
    if (now.at === null) { readout.replaceChildren(); return; }
    const i = now.at, rows = visible().map((arm) => ({ arm, curve: curves()[arm] })).filter((r) => r.curve.mean[i] !== null);
    const up = now.metric === "accuracy" ? -1 : 1;
    rows.sort((a, b) => up * (a.curve.mean[i] - b.curve.mean[i]));
    const body = make("tbody");
    for (const { arm, curve } of rows) {
      const dot = make("span", { "aria-hidden": "true", style: `color:${look(arm).colour}` }, "● ");
      const star = curve.star && curve.star[i] ? " ★" : "";
      const band = curve.band[i] === null ? "" : " ± " + tell(curve.band[i]);
      body.append(make("tr", {}, make("td", {}, dot, arm), make("td", {}, tell(curve.mean[i]) + band + star)));
    }
    readout.replaceChildren(make("b", {}, `${metric.label} at c = ${short(one().costs[i])}`), make("table", {}, body));
  }

  // pointing and walking
  function nearest(event) {
    const frame = svg.getBoundingClientRect(), at = (event.clientX - frame.left) / frame.width * BOX.width, x = across();
    const away = one().costs.map((c) => Math.abs(x(c) - at));
    return away.indexOf(Math.min(...away));
  }
  svg.addEventListener("pointermove", (event) => { const i = nearest(event); if (i !== now.at) { now.at = i; show(); } });
  svg.addEventListener("pointerdown", (event) => { now.at = nearest(event); show(); });
  svg.addEventListener("keydown", (event) => {
    const last = one().costs.length - 1, at = now.at;
    const to = { ArrowRight: at === null ? 0 : Math.min(last, at + 1), ArrowLeft: at === null ? last : Math.max(0, at - 1),
      Home: 0, End: last, Escape: null }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    now.at = to;
    show();
  });
  window.addEventListener("hashchange", () => { recall(); show(); });
  recall();
  show();
})();
