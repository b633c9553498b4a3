"use strict";
// Behaviour of the dashboard: times in the reader's zone, charts, theme, keys, files. Everything else is HTML.
(() => {
  const root = document.documentElement;
  const all = (what, where = document) => [...where.querySelectorAll(what)];
  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const isDark = () =>
    root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;

  const parts = {
    month: "short", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23",
  };
  const form = new Intl.DateTimeFormat(undefined, parts);
  const withYear = new Intl.DateTimeFormat(undefined, { year: "numeric", ...parts });
  const said = (time) => (time.getFullYear() === new Date().getFullYear() ? form : withYear).format(time);

  const localTimes = (where) => {
    const zone = document.getElementById("zone");
    if (zone) zone.textContent = "times: " + form.resolvedOptions().timeZone;
    for (const time of all("time[datetime]", where)) {
      time.title = time.getAttribute("datetime");
      time.textContent = said(new Date(time.dateTime));
    }
  };

  const inUnit = (unit) => (_, value) => {
    if (value === null || value === undefined) return "–";
    if (unit === "dollars") return (value < 0 ? "−$" : "$") + Math.abs(value).toLocaleString("en", { maximumSignificantDigits: 3 });
    if (unit === "percent") return value.toLocaleString("en", { maximumFractionDigits: 1 }) + "%";
    if (unit === "seconds") return value < 1 ? Math.round(1000 * value) + " ms" : value.toFixed(2) + " s";
    return value.toLocaleString(undefined, { maximumFractionDigits: 3 });
  };

  // Labels of the time axis: hours within two days, else days.
  const clock = (plot, ticks) => {
    const long = plot.scales.x.max - plot.scales.x.min > 172800;
    const parts = long ? { month: "short", day: "2-digit" } : { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
    const form = new Intl.DateTimeFormat(undefined, parts);
    return ticks.map((tick) => form.format(new Date(1000 * tick)));
  };
  const moment = (_, value) => (value === null ? "" : said(new Date(1000 * value)));

  // Points that a line alone would not show: values with nothing beside them.
  const marked = (_, values) => {
    const alone = (i) => (values[i - 1] ?? null) === null && (values[i + 1] ?? null) === null;
    return values.flatMap((value, i) => (value !== null && alone(i) ? [i] : []));
  };
  // Without a pointer the legend shows the newest time that has a value.
  const newest = (plot, told) => {
    if (plot.cursor.idx !== null && plot.cursor.idx !== undefined && plot.cursor.left >= 0) return;
    const idx = told.at.findLastIndex((_, i) => told.lines.some((line) => line.values[i] !== null));
    if (idx >= 0) plot.setLegend({ idx }, false);
  };

  // Charts of the page that is shown. One that has left the page is destroyed when the next ones are drawn.
  let drawn = [];
  const draw = (where) => {
    drawn = drawn.filter((one) => one.root.isConnected || one.destroy());
    for (const box of all(".plot[data-plot]", where)) {
      const told = JSON.parse(box.dataset.plot);
      if (!told.at.length) {
        box.textContent = "Nothing in this window.";
        continue;
      }
      const axis = { stroke: colour("--dim"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
      const dashes = [[], [6, 4], [2, 3], [8, 3, 2, 3], [12, 4], [4, 2, 1, 2]];
      const borders = ["solid", "dashed", "dotted", "double", "groove", "ridge"]; // the legend shows each line's dashes, not only its colour
      const options = {
        width: Math.max(240, box.clientWidth),
        height: 190,
        scales: { x: { range: (_, low, high) => told.ends ?? (low === high ? [low - 1800, high + 1800] : [low, high]) }, y: { range: (_, low, high) => [Math.min(0, low ?? 0), high > 0 ? high * 1.08 : 1] } },
        axes: [{ ...axis, values: clock }, { ...axis, size: 64, values: (plot, ticks) => ticks.map((tick) => inUnit(told.unit)(plot, tick)) }],
        series: [
          { value: moment },
          ...told.lines.map((line, i) => ({
            label: line.name, stroke: colour(`--line-${i + 1}`), width: 2, dash: dashes[i], spanGaps: true,
            value: inUnit(told.unit), points: { show: true, filter: (plot) => marked(plot, line.values) },
          })),
        ],
        legend: { markers: { width: 3, dash: (_, i) => borders[i - 1] } },
        hooks: { setSelect: [(plot) => zoom(plot)], setCursor: [(plot) => newest(plot, told)], ready: [(plot) => newest(plot, told)] },
        cursor: { drag: { x: true, y: false, setScale: false } },
      };
      box.replaceChildren();
      drawn.push(new uPlot(options, [told.at, ...told.lines.map((line) => line.values)], box));
    }
  };
  const zoom = (plot) => {
    if (plot.select.width < 8) return;
    const ends = [plot.select.left, plot.select.left + plot.select.width].map((x) => plot.posToVal(x, "x"));
    const target = new URL(location.href);
    target.searchParams.delete("range");
    target.searchParams.set("since", Math.floor(ends[0]));
    target.searchParams.set("until", Math.ceil(ends[1]));
    location.assign(target);
  };

  const setTheme = (name) => {
    root.dataset.theme = name;
    document.cookie = `pandora-theme=${name}; Path=/dashboard; Max-Age=31536000; SameSite=Strict`;
    draw(document);
  };

  const rows = () => all("tr[data-row]");
  const move = (step) => {
    const list = rows();
    const at = list.findIndex((row) => row.classList.contains("here"));
    const next = list[Math.min(list.length - 1, Math.max(0, at + step))];
    if (!next) return;
    list.forEach((row) => row.classList.remove("here"));
    next.classList.add("here");
    next.scrollIntoView({ block: "nearest" });
    next.querySelector("a")?.focus({ preventScroll: true });
  };
  const dialog = () => document.getElementById("shortcuts");
  const acts = {
    j: () => move(1),
    k: () => move(-1),
    d: () => setTheme(isDark() ? "light" : "dark"),
    "/": () => document.querySelector(".filters input, .filters select")?.focus(),
    "?": () => (dialog()?.open ? dialog().close() : dialog()?.showModal()),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") event.target.blur?.();
    if (event.target.closest?.("input, select, textarea")) return;
    const page = document.querySelector(`nav a[data-key="${CSS.escape(event.key)}"]`);
    if (page) return void page.click();
    if (event.key === "Enter" && event.target === document.body) document.querySelector("tr.here a")?.click();
    if (Object.hasOwn(acts, event.key)) {
      event.preventDefault();
      acts[event.key]();
    }
  });

  // On a narrow screen the list of pages scrolls: move it to the page that is shown.
  const showPage = () => {
    const here = document.querySelector("nav a[aria-current]");
    if (here) here.parentElement.scrollLeft = here.offsetLeft - here.parentElement.offsetLeft - 40;
  };

  const start = () => {
    localTimes(document);
    showPage();
    draw(document);
    document.getElementById("theme")?.addEventListener("click", acts.d);
    document.getElementById("help")?.addEventListener("click", acts["?"]);
    const file = document.getElementById("bill-file");
    file?.addEventListener("change", async () => {
      if (file.files.length) document.getElementById("bill").value = await file.files[0].text();
    });
    document.body.addEventListener("htmx:afterSwap", () => {
      localTimes(document);
      draw(document);
    });
    document.body.addEventListener("htmx:beforeRequest", (event) => {
      const live = event.detail.elt.id === "live";
      if (live && (document.hidden || event.detail.elt.querySelector(".plot:hover"))) event.preventDefault();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(document));
    let wait;
    addEventListener("resize", () => {
      clearTimeout(wait);
      wait = setTimeout(() => draw(document), 150);
    });
  };
  start();
})();
