// The page of the exporter.  It asks /api/v1/overview for what there is and shows it; what comes from a run is only
// ever set as text, never as markup.  No library, no build step; docs/page.md says what it shows.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const STATES = ["act", "watch", "fine", "cannot_say"];
const ICONS = { act: "▲", watch: "◆", fine: "●", cannot_say: "○" };
const RUN_ICONS = { running: "●", finished: "■", silent: "◆", failed: "▲", died: "▲" };
const LONGEST_PAUSE = 60;

let texts = {};
let advice = null;
let data = null;
let etag = "";
let received = null;
let failures = 0;
let timer = 0;
let busy = false;
let language = chosenLanguage();
const sections = new Map();

// Words ---------------------------------------------------------------------------------------------------------------

function chosenLanguage() {
  try {
    const kept = localStorage.getItem("trainvitals.language");
    if (kept === "en" || kept === "zh") return kept;
  } catch { /* Storage may be forbidden. */ }
  return (navigator.languages || [navigator.language]).some((name) => /^zh\b/i.test(name)) ? "zh" : "en";
}

function t(key, values = {}) {
  const row = Object.hasOwn(texts, key) ? texts[key] : null;
  const text = row === null ? key.replace(/^[a-z]+\./, "").replaceAll("_", " ") : row[language === "zh" ? 1 : 0];
  return text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}

const locale = () => (language === "zh" ? "zh-CN" : "en");
const integer = (value) => Number(value).toLocaleString(locale());
const percent = (value, digits = 0) => `${(value * 100).toFixed(digits)}%`;

function number(value) {
  if (typeof value === "string") return value === "nan" ? "NaN" : value.replace("inf", "∞");
  const size = Math.abs(value);
  if (value !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2).replace("e+", "e");
  return Number(value.toPrecision(4)).toLocaleString(locale(), { maximumFractionDigits: 6 });
}

function rate(value) {
  return value < 1e4 ? number(value) : value.toLocaleString(locale(), { notation: "compact", maximumSignificantDigits: 3 });
}

function duration(seconds) {
  const zh = language === "zh";
  const units = [[86400, zh ? " 天" : " d"], [3600, zh ? " 小时" : " h"], [60, zh ? " 分钟" : " min"], [1, zh ? " 秒" : " s"]];
  const place = Math.max(0, units.findIndex(([size]) => seconds >= size));
  if (seconds < 1) return `${seconds.toFixed(1)}${units[3][1]}`;
  const [size, name] = units[place];
  const whole = Math.floor(seconds / size);
  const next = units[place + 1];
  const rest = next && whole < 10 && size > 1 ? Math.floor((seconds % size) / next[0]) : 0;
  return `${whole}${name}${rest ? ` ${rest}${next[1]}` : ""}`;
}

function clock(seconds) {
  const date = new Date(seconds * 1000);
  const far = Math.abs(Date.now() - date) > 20 * 3600e3;
  const options = far
    ? { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hour12: false }
    : { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false };
  return date.toLocaleString(locale(), options);
}

function bytes(value) {
  return `${(value / 2 ** 30).toFixed(value < 10 * 2 ** 30 ? 1 : 0)} GiB`;
}

// Nodes ---------------------------------------------------------------------------------------------------------------

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return node;
}

const el = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
const svg = (name, attributes = {}, ...children) => fill(document.createElementNS(SVG, name), attributes, children);

/** Build what is in a node anew when what it shows has changed: focus, selection and open details stay otherwise. */
function show(node, facts, build) {
  const key = language + JSON.stringify(facts);
  if (node.shownKey !== key) {
    node.shownKey = key;
    node.replaceChildren(...[build()].flat().filter((child) => child !== null && child !== ""));
  }
}

const byId = (id) => document.getElementById(id);
const badge = (state, icons, prefix) => el("span", { class: `state ${state}` }, `${icons[state] || "○"} ${t(prefix + state)}`);
const signalName = (name) => t(`signal.${name}`);

// One run -------------------------------------------------------------------------------------------------------------

function makeSection(run) {
  const parts = {};
  for (const [name, tag, style] of [
    ["top", "div", "top"], ["facts", "div", "facts"], ["gauges", "div", "gauges"], ["findings", "div", ""],
    ["chart", "figure", ""], ["events", "div", ""], ["checks", "div", "checks"],
  ]) parts[name] = el(tag, { class: style || null });
  parts.unsure = el("details", {}, el("summary"), el("ul", { class: "plain rows one" }));
  parts.ranks = el("details", {}, el("summary"), el("div", { class: "wide" }));
  const columns = el("div", { class: "columns" }, parts.chart, parts.events);
  const section = el("section", { "data-run": run }, parts.top, parts.facts, parts.gauges, parts.findings, columns,
    parts.checks, parts.unsure, parts.ranks);
  return { section, parts };
}

function showRun({ section, parts }, run, place) {
  section.id = `run-${place}`;
  section.setAttribute("aria-label", run.run);
  show(parts.top, [run.run, run.state, run.framework, run.is_log], () => [
    el("h2", {}, run.run),
    badge(run.state, RUN_ICONS, "state."),
    el("span", { class: "dim" }, [run.framework, run.is_log ? t("fact.log") : ""].filter(Boolean).join(", ")),
  ]);
  const facts = factsOf(run);
  show(parts.facts, facts, () => facts.map(([name, value]) => el("span", {}, `${name} `, el("b", {}, value))));
  const found = run.signals.filter((row) => row.evidence || row.where);
  show(parts.findings, [found, advice !== null], () => found.map(finding));
  show(parts.gauges, [run.gauges, run.because, run.step, run.target, run.is_log], () => gaugesOf(run));
  const width = Math.round(parts.chart.clientWidth);
  show(parts.chart, [run.curve, run.step, width, found.map((row) => [row.signal, row.since]), savedSteps(run)], () => chart(run, width, found));
  show(parts.events, [run.events], () => [el("h3", {}, t("events")), events(run.events)]);
  const known = run.signals.filter((row) => row.state !== "cannot_say");
  show(parts.checks, run.signals.map((row) => [row.signal, row.state, row.state === "watch" ? row.ratio : 0]), () => [
    el("h3", {}, `${t("checks")} `, el("small", {}, countsOf(run.signals))),
    el("ul", { class: "plain rows" }, ...sorted(known).map(check)),
  ]);
  const unsure = run.signals.filter((row) => row.state === "cannot_say");
  parts.unsure.hidden = unsure.length === 0;
  show(parts.unsure.firstChild, unsure.length, () => t("checks.cannot_say", { count: unsure.length }));
  show(parts.unsure.lastChild, unsure, () => unsure.map(check));
  parts.ranks.hidden = run.ranks.length < 2;
  show(parts.ranks.firstChild, run.ranks.map((rank) => rank.state), () => [`${t("ranks")} `, el("small", {}, statesOf(run.ranks))]);
  show(parts.ranks.lastChild, run.ranks, () => ranksTable(run.ranks));
}

function factsOf(run) {
  const rows = [];
  const add = (name, value) => rows.push([t(`fact.${name}`), value]);
  if (run.step !== undefined) {
    add("step", run.target ? t("fact.of", { part: integer(run.step), whole: integer(run.target) }) : integer(run.step));
  }
  if (run.remaining && run.remaining.length === 3) {
    const [low, , high] = run.remaining.map(duration);
    add("remaining", low === high ? low : t("fact.remaining_range", { low, high }));
  }
  for (const name of ["loss", "learning_rate", "grad_norm"]) if (name in run.values) add(name, number(run.values[name]));
  for (const [split, name, value] of run.evaluations) rows.push([t("evaluation", { split, name }), number(value)]);
  for (const name of ["steps", "tokens", "samples"]) if (name in run.rates) add(name, rate(run.rates[name]));
  if (run.phase) add("phase", run.phase);
  if (run.age >= 5) add("age", t("fact.ago", { time: duration(run.age) }));
  if (run.attempt) add("attempt", integer(run.attempt));
  if (run.world_size > 1) add("ranks", t("fact.of", { part: integer(run.ranks_here), whole: integer(run.world_size) }));
  return rows;
}

function finding(row) {
  const known = advice && Object.hasOwn(advice, row.signal) ? advice[row.signal] : null;
  const action = known ? known.action[language === "zh" ? 1 : 0] : row.action;
  const about = [t(`category.${row.category}`), row.where].filter(Boolean).join(" · ");
  return el("article", { class: `finding ${row.state}` },
    el("h4", {}, `${ICONS[row.state]} ${t(`check.${row.state}`)}: ${signalName(row.signal)}`),
    el("p", {}, el("small", {}, about)),
    row.evidence ? el("p", {}, row.evidence) : null,
    action ? el("p", {}, el("b", {}, t("finding.action")), ` ${action} `,
      known && /^https:\/\//.test(known.runbook)
        ? el("a", { href: known.runbook, rel: "noopener noreferrer", target: "_blank" }, t("finding.runbook")) : null) : null);
}

function gaugesOf(run) {
  const why = run.because;
  const steps = { step: integer(run.step), target: integer(run.target) };
  const told = {
    progress: run.step === undefined ? t("why.no_step") : t(run.target ? "why.progress" : "why.no_target", steps),
    learning: why.signal === undefined ? t("why.no_learning")
      : why.ratio < data.limits.noise ? t("why.learning_calm")
        : why.ratio >= 1 ? signalName(why.signal) : t("why.learning", { signal: signalName(why.signal), ratio: percent(why.ratio) }),
    efficiency: [
      why.training === undefined ? "" : t("why.training", { share: percent(why.training) }),
      why.busy === undefined ? "" : t("why.busy", { share: percent(why.busy) }),
    ].filter(Boolean).join(language === "zh" ? ";" : "; ") || t("why.no_efficiency"),
    health: run.gauges.health === undefined ? t("why.no_health") : [
      run.is_log ? t("why.log") : t("why.ranks", why),
      why.devices === undefined ? "" : t("why.devices", { up: why.devices_up, count: why.devices }),
    ].filter(Boolean).join(language === "zh" ? ";" : "; "),
  };
  return Object.entries(told).map(([name, text]) => gauge(name, run.gauges[name], text));
}

function gauge(name, value, text) {
  const known = value !== undefined;
  const { bad, good } = data.limits;
  const state = name === "progress" ? "calm" : !known ? "" : value >= good ? "fine" : value >= bad ? "watch" : "act";
  const arc = "M14 62A46 46 0 0 1 106 62";
  const told = known ? percent(Math.floor(value * 100) / 100) : "—";
  return el("div", { class: `gauge ${known ? state : "none"}` },
    el("h3", {}, t(`gauge.${name}`)),
    svg("svg", { viewBox: "0 0 120 70", role: "img", "aria-label": `${t(`gauge.${name}`)}: ${known ? told : t("unknown")}` },
      svg("path", { class: "track", d: arc }),
      known && value > 0 ? svg("path", { class: "value", d: arc, pathLength: "100", "stroke-dasharray": `${value * 100} 200` }) : null,
      svg("text", { x: "60", y: "60" }, known ? told : t("unknown"))),
    el("small", {}, text));
}

function check(row) {
  const told = row.state === "cannot_say" ? needs(row)
    : row.state === "watch" && !row.evidence ? t("near", { ratio: percent(row.ratio) }) : "";
  return el("li", {}, badge(row.state, ICONS, "check."), el("div", {}, signalName(row.signal), told ? el("small", {}, told) : null));
}

function needs(row) {
  const key = `needs.${row.signal}`;
  const what = language === "zh" && Object.hasOwn(texts, key) ? t(key) : row.needs;
  return what ? t("needs", { what }) : "";
}

const sorted = (rows) => [...rows].sort((one, other) => STATES.indexOf(one.state) - STATES.indexOf(other.state));

function counted(names, key) {
  return names.filter(([, count]) => count).map(([name, count]) => `${count} ${t(key + name)}`).join(" · ");
}

const countsOf = (rows) => counted(STATES.map((state) => [state, rows.filter((row) => row.state === state).length]), "check.");

function statesOf(ranks) {
  return counted(Object.keys(RUN_ICONS).map((state) => [state, ranks.filter((rank) => rank.state === state).length]), "state.");
}

function ranksTable(ranks) {
  const names = ["rank", "rank.state", "rank.step", "rank.phase", "rank.device"];
  return el("table", { class: "ranks" },
    el("thead", {}, el("tr", {}, ...names.map((name) => el("th", { scope: "col" }, t(name))))),
    el("tbody", {}, ...ranks.map((rank) => el("tr", {},
      el("th", { scope: "row" }, String(rank.rank)),
      el("td", {}, badge(rank.state, RUN_ICONS, "state.")),
      el("td", {}, rank.step === undefined ? "" : integer(rank.step)),
      el("td", {}, rank.phase || ""),
      el("td", {}, rank.device === undefined ? "" : String(rank.device))))));
}

function events(rows) {
  if (!rows.length) return el("p", { class: "dim" }, t("events.none"));
  const item = (row) => {
    const name = row.kind === "ended" ? t("event.ended", { state: t(`state.${row.state}`) }) : t(`event.${row.kind}`);
    const what = row.signal ? `${name}: ${signalName(row.signal)}` : name;
    const step = row.step === undefined ? "" : ` · ${t("fact.step")} ${integer(row.step)}`;
    return el("li", {},
      el("time", { datetime: new Date(row.time * 1000).toISOString() }, clock(row.time)),
      el("div", {}, el("span", { class: row.level || null }, row.level ? `${ICONS[row.level]} ${what}` : what), step,
        row.text && row.kind !== "finding" ? el("small", {}, row.text) : null));
  };
  const first = el("ul", { class: "plain rows" }, ...rows.slice(0, 7).map(item));
  if (rows.length <= 7) return first;
  return [first, el("details", {}, el("summary", {}, `+ ${rows.length - 7}`),
    el("ul", { class: "plain rows" }, ...rows.slice(7).map(item)))];
}

// The curve -----------------------------------------------------------------------------------------------------------

const savedSteps = (run) => run.events.filter((row) => row.kind === "checkpoint" && row.step !== undefined).map((row) => row.step);

/** Return how values are laid on an axis: by their logarithm where they are positive and far apart. */
function scaleOf(values) {
  const ordered = [...values].sort((one, other) => one - other);
  let low = ordered[0];
  let high = ordered[ordered.length - 1];
  const middle = ordered[Math.floor(ordered.length / 2)];
  // After a divergence a single point would flatten all others.
  const cut = middle + 30 * Math.max(middle - low, Math.abs(middle) * 0.1);
  const clipped = low >= 0 && high > cut && high > 100 * middle;
  if (clipped) high = Math.max(cut, ordered[Math.floor(ordered.length * 0.9)] > cut ? ordered[Math.floor(ordered.length * 0.6)] : cut);
  const logarithmic = low > 0 && high / low > 30;
  if (logarithmic) return { low: Math.log(low), high: Math.log(high), of: Math.log, back: Math.exp, logarithmic, clipped };
  const margin = (high / 2 - low / 2) * 0.1 || Math.abs(low) * 0.05 || 1;
  return { low: low - margin, high: high + margin, of: (value) => value, back: (value) => value, logarithmic, clipped };
}

function chart(run, width, found) {
  const { steps, values, bad } = run.curve;
  const finite = values.filter((value) => value !== null);
  const title = el("h3", {}, t("chart"));
  if (width < 80) return [title];
  if (!finite.length && !bad.length) return [title, el("p", { class: "dim" }, t("chart.empty"))];
  const height = width < 500 ? 200 : 250;
  const [left, right, top, bottom] = [56, 12, 22, 26];
  const scale = finite.length ? scaleOf(finite) : scaleOf([0, 1]);
  // Steps behind the last number are steps without one.
  const all = [...steps, ...bad.flat(), run.step || 0];
  const first = Math.min(...steps, ...bad.flat());
  const last = Math.max(...all, first + 1);
  const x = (step) => left + ((step - first) / (last - first)) * (width - left - right);
  const y = (value) => {
    const share = (scale.of(value) - scale.low) / (scale.high - scale.low);
    return height - bottom - Math.min(Math.max(share, 0), 1) * (height - top - bottom);
  };
  const parts = [];
  for (let place = 0; place <= 4; place += 1) {
    const at = height - bottom - (place / 4) * (height - top - bottom);
    const value = scale.back(scale.low + (place / 4) * (scale.high - scale.low));
    parts.push(svg("path", { class: "grid", d: `M${left} ${at}H${width - right}` }),
      svg("text", { class: "end", x: left - 6, y: at + 4 }, number(Number(value.toPrecision(3)))));
  }
  const ticks = width < 500 ? 2 : 4;
  for (let place = 0; place <= ticks; place += 1) {
    const step = Math.round(first + (place / ticks) * (last - first));
    const style = place === ticks ? "end" : "middle";
    parts.push(svg("text", { class: style, x: x(step), y: height - 8 }, integer(step)));
  }
  let path = "";
  let down = false;
  for (let place = 0; place < steps.length; place += 1) {
    if (values[place] === null) down = false;
    else {
      path += `${down ? "L" : "M"}${x(steps[place]).toFixed(1)} ${y(values[place]).toFixed(1)}`;
      down = true;
    }
  }
  // A single point is a line without a length.
  if (finite.length === 1) path += "h3";
  if (path) parts.push(svg("path", { class: "curve", d: path }));
  const saved = [...new Set(savedSteps(run))].filter((step) => step >= first && step <= last);
  for (const step of saved) {
    const at = x(step);
    parts.push(svg("path", { class: "save", d: `M${at - 4} ${height - bottom + 7}h8l-4-7z` }, svg("title", {}, `${t("chart.save")} ${integer(step)}`)));
  }
  for (const [step, end] of bad) {
    const at = x(step);
    parts.push(svg("path", { class: "bad", d: `M${at - 4} ${top - 4}l8 8m0-8l-8 8M${at} ${top}H${x(end)}` }, svg("title", {}, t("chart.bad_since", { step: integer(step) }))));
  }
  let row = 0;
  for (const mark of found) {
    if (mark.since === undefined || mark.since < first || mark.since > last) continue;
    const at = x(mark.since);
    const flip = at > width / 2;
    parts.push(svg("g", { class: mark.state },
      svg("path", { class: "mark", d: `M${at} ${top}V${height - bottom}` }),
      row < 4 ? svg("text", { class: `label${flip ? " end" : ""}`, x: at + (flip ? -8 : 8), y: top + 14 + 15 * row }, signalName(mark.signal)) : null));
    row += 1;
  }
  const cursor = svg("path", { class: "cursor" });
  const ends = [steps.findIndex((_, at) => values[at] !== null), values.findLastIndex((value) => value !== null)];
  const label = ends[0] < 0 ? t("chart") : t("chart.label", {
    first: number(values[ends[0]]), begin: integer(steps[ends[0]]), last: number(values[ends[1]]), end: integer(steps[ends[1]]),
  });
  const picture = svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, ...parts, cursor);
  const point = el("small", {});
  picture.addEventListener("pointermove", (event) => {
    const at = (event.clientX - picture.getBoundingClientRect().left) * (width / picture.clientWidth);
    let best = -1;
    for (let place = 0; place < steps.length; place += 1) {
      if (values[place] !== null && (best < 0 || Math.abs(x(steps[place]) - at) <= Math.abs(x(steps[best]) - at))) best = place;
    }
    if (best < 0) return;
    cursor.setAttribute("d", `M${x(steps[best])} ${top}V${height - bottom}`);
    point.textContent = t("chart.point", { step: integer(steps[best]), value: number(values[best]) });
  });
  picture.addEventListener("pointerleave", () => { cursor.removeAttribute("d"); point.textContent = ""; });
  const highest = finite.length ? values.indexOf(Math.max(...finite)) : -1;
  return [
    el("figcaption", {}, title, scale.logarithmic ? el("small", {}, t("chart.log")) : null, point),
    picture,
    el("p", { class: "legend" },
      saved.length ? el("span", {}, el("span", { class: "fine" }, "▲ "), t("chart.save")) : null,
      bad.length ? el("span", {}, el("span", { class: "act" }, "✕ "), t("chart.bad_since", { step: integer(bad[0][0]) })) : null,
      scale.clipped ? el("span", {}, t("chart.clipped", { value: number(values[highest]), step: integer(steps[highest]) })) : null),
  ];
}

// Devices -------------------------------------------------------------------------------------------------------------

function meter(name, share, text) {
  return el("div", { class: "meter" }, el("span", { class: "dim" }, name),
    share === null ? el("span", {}) : svg("svg", { viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" },
      svg("rect", { width: 100, height: 8, rx: 2 }), svg("rect", { width: Math.min(share, 1) * 100, height: 8, rx: 2 })),
    el("span", {}, text));
}

function device(row) {
  const state = !row.up ? "act" : row.slowed ? "watch" : "fine";
  const told = !row.up ? t("device.down", { reason: row.reason.replaceAll("_", " ") })
    : row.slowed ? t("device.slowed", { reason: row.slowed.join(", ").replaceAll("_", " ") }) : t("device.up");
  const has = (name) => row[name] !== undefined;
  return el("li", { class: row.up ? null : "down" },
    el("h4", {}, `${row.index} · ${row.name || row.vendor}`),
    el("div", {}, el("span", { class: `state ${state}` }, `${ICONS[state]} ${told}`)),
    has("run") ? el("small", {}, t("device.rank", row)) : null,
    has("utilization") ? meter(t("device.use"), row.utilization, percent(row.utilization)) : null,
    has("memory_used") && row.memory_total
      ? meter(t("device.memory"), row.memory_used / row.memory_total, `${bytes(row.memory_used)} / ${bytes(row.memory_total)}`) : null,
    has("power") ? meter(t("device.power"), row.power_limit ? row.power / row.power_limit : null,
      `${Math.round(row.power)} W${row.power_limit ? ` / ${Math.round(row.power_limit)} W` : ""}`) : null,
    has("temperature") ? meter(t("device.temperature"), null, `${Math.round(row.temperature)} °C`) : null);
}

function fault(row) {
  const text = t("fault.text", row);
  return el("li", {}, el("time", { datetime: new Date(row.time * 1000).toISOString() }, clock(row.time)),
    el("div", {}, el("span", { class: row.level || null }, row.level ? `${ICONS[row.level]} ${text}` : text),
      row.count > 1 ? el("small", {}, t("fault.count", row)) : null));
}

function showDevices() {
  const node = byId("devices");
  node.hidden = false;
  show(node, [data.devices, data.faults, data.more_devices], () => [
    el("h2", {}, t("devices")),
    data.devices.length ? el("ul", { class: "plain cards" }, ...data.devices.map(device)) : el("p", { class: "dim" }, t("devices.none")),
    data.more_devices ? el("p", { class: "dim" }, t("more_devices", { count: data.more_devices })) : null,
    ...(data.faults.length ? [el("h3", {}, t("faults")), el("ul", { class: "plain rows" }, ...data.faults.map(fault))] : []),
  ]);
}

// The page ------------------------------------------------------------------------------------------------------------

function emptyState() {
  const code = 'import trainvitals\n\ntrainvitals.init(run="my-run", target_steps=10_000)\n...\ntrainvitals.step(step, loss=loss)';
  return el("div", { class: "empty" }, el("h2", {}, t("empty.title")),
    el("p", {}, t("empty.line")), el("pre", {}, code),
    el("p", {}, t("empty.wrap")), el("pre", {}, "trainvitals run -- python train.py"),
    el("p", {}, t("empty.follow")), el("pre", {}, "trainvitals follow train.log"),
    el("p", { class: "dim" }, t("empty.spool")));
}

function showRuns() {
  const node = byId("runs");
  // Names that were cleaned may be alike.
  const keys = data.runs.map((run, place) => `${run.run} ${data.runs.slice(0, place).filter((other) => other.run === run.run).length}`);
  const names = new Set(keys);
  for (const [name, known] of sections) {
    if (!names.has(name)) {
      known.section.remove();
      sections.delete(name);
    }
  }
  if (!data.runs.length) {
    show(node, "empty", emptyState);
    return;
  }
  if (node.shownKey) {
    node.shownKey = "";
    node.replaceChildren();
  }
  data.runs.forEach((run, place) => {
    const key = keys[place];
    if (!sections.has(key)) sections.set(key, makeSection(run.run));
    const known = sections.get(key);
    // Moving a node takes the focus away: only where it stands elsewhere.
    if (node.children[place] !== known.section) node.insertBefore(known.section, node.children[place] || null);
    showRun(known, run, place);
  });
}

function showIndex() {
  const node = byId("index");
  node.hidden = data.runs.length < 2;
  const rows = data.runs.map((run) => [run.run, run.state, run.step, run.signals.filter((row) => row.state === "act").map((row) => row.signal)]);
  show(node, [rows, data.more_runs], () => [
    el("h2", {}, t("runs")),
    el("ul", {}, ...rows.map(([run, state, step, found], place) => el("li", {},
      el("a", { href: `#run-${place}` }, run), badge(state, RUN_ICONS, "state."),
      step === undefined ? null : el("span", { class: "dim" }, `${t("fact.step")} ${integer(step)}`),
      found.length ? el("span", { class: "act" }, `${ICONS.act} ${found.map(signalName).join(", ")}`) : null))),
    data.more_runs ? el("p", { class: "dim" }, t("more_runs", { count: data.more_runs })) : null,
  ]);
}

let announced = "";

/** Tell a screen reader what asks for somebody, once. */
function announce() {
  const found = data.runs.flatMap((run) => run.signals.filter((row) => row.state === "act").map((row) => `${run.run}: ${signalName(row.signal)}`));
  const text = found.slice(0, 5).join("; ");
  if (text !== announced) {
    announced = text;
    byId("alert").textContent = text;
  }
  document.title = found.length ? `▲ ${found.length} · Trainvitals` : "Trainvitals";
}

function showStatus() {
  const node = byId("status");
  const since = data === null ? "" : clock(data.time);
  // Its clock may be another: what is old is what did not change for long.
  const old = received !== null && (Date.now() - received) / 1000 > 6 * data.interval + 10;
  const text = failures ? (data === null ? t("no_answer") : t("stale", { time: since }))
    : data === null ? t("loading") : t(old ? "not_renewed" : "updated", { time: since });
  node.textContent = text;
  node.className = failures || old ? "stale" : "";
}

function render() {
  document.documentElement.lang = language === "zh" ? "zh-CN" : "en";
  for (const button of document.querySelectorAll("[data-language]")) {
    button.setAttribute("aria-pressed", String(button.dataset.language === language));
  }
  byId("host").textContent = location.host;
  showStatus();
  if (data === null) return;
  byId("version").textContent = t("version", { version: data.version });
  showIndex();
  showRuns();
  showDevices();
  announce();
}

async function ask(path, headers) {
  const control = new AbortController();
  const limit = setTimeout(() => control.abort(), 10000);
  try {
    // Not relative to an address with a password in it, which fetch refuses; below the prefix of a proxy, if any.
    const answer = await fetch(new URL(path, location.origin + location.pathname), { headers, cache: "no-store", signal: control.signal });
    if (answer.status === 304) return null;
    if (!answer.ok) throw new Error(String(answer.status));
    return [await answer.json(), answer.headers.get("ETag") || ""];
  } finally {
    clearTimeout(limit);
  }
}

async function poll() {
  if (busy || document.hidden) return;
  busy = true;
  try {
    const found = await ask("api/v1/overview", etag ? { "If-None-Match": etag } : {});
    failures = 0;
    if (found) {
      [data, etag] = found;
      received = Date.now();
      if (advice === null && data.runs.some((run) => run.signals.some((row) => row.evidence))) {
        // The page is good without it.
        advice = (await ask("api/v1/advice", {}).catch(() => [null]))[0];
      }
      render();
    }
  } catch {
    failures += 1;
  }
  busy = false;
  showStatus();
  const pause = Math.min((data ? data.interval : 5) * 2 ** Math.min(failures, 5), LONGEST_PAUSE);
  clearTimeout(timer);
  if (!document.hidden) timer = setTimeout(poll, Math.max(pause, 1) * 1000);
}

document.addEventListener("visibilitychange", () => {
  clearTimeout(timer);
  if (!document.hidden) poll();
});
for (const button of document.querySelectorAll("[data-language]")) {
  button.addEventListener("click", () => {
    language = button.dataset.language;
    try {
      localStorage.setItem("trainvitals.language", language);
    } catch { /* Then it is not remembered. */ }
    render();
  });
}
let laidOut = 0;
new ResizeObserver(() => {
  const width = byId("main").clientWidth;
  if (width !== laidOut) {
    laidOut = width;
    render();
  }
}).observe(byId("main"));

ask("page/texts.json", {}).catch(() => [{}]).then((found) => {
  texts = found[0];
  render();
  poll();
});
